//! The two decoders for fuzz targets, which are outside the crate. Compiled with `--cfg fuzzing` only, so never shipped.

use std::fmt::Debug;

use crate::lines::LineDecoder;
use crate::stream::decoder::{Decoder, decode_pieces};
use crate::websocket::decoder::WebSocketDecoder;

/// What WebSocket bytes decode to, and the violation that ended it, if they arrive in pieces of at most `piece_bytes`.
pub fn websocket(
    peer_masks: bool,
    frame_max_bytes: usize,
    message_max_bytes: usize,
    bytes: &[u8],
    piece_bytes: usize,
) -> impl Debug + PartialEq + use<> {
    let mut decoder = WebSocketDecoder::new(peer_masks, frame_max_bytes, message_max_bytes, &[]);
    let mut found = Vec::new();
    let end = decode_pieces(&mut decoder, bytes, piece_bytes, &mut found);
    (found, end)
}

/// What lines decode to, and the violation that ended it, if they arrive in pieces of at most `piece_bytes`, and then end.
pub fn lines(max_bytes: usize, bytes: &[u8], piece_bytes: usize) -> impl Debug + PartialEq + use<> {
    let mut decoder = LineDecoder::new(max_bytes, &[]);
    let mut found = Vec::new();
    let end =
        decode_pieces(&mut decoder, bytes, piece_bytes, &mut found).and_then(|()| Ok(found.extend(decoder.finish()?)));
    (found, end)
}
