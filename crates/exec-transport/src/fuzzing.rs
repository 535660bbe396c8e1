//! The two decoders for fuzz targets, which are outside the crate. Compiled with `--cfg fuzzing` only, so never shipped.

use bytes::{BufMut as _, BytesMut, buf::Limit};

use crate::lines::LineDecoder;
use crate::message::{CloseReason, Message};
use crate::stream::{DecoderEvent, StreamDecoder};
use crate::websocket::decoder::Decoder;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    Message(Message),
    Ping(Vec<u8>),
    Pong,
    Close(CloseReason),
    /// What the peer did wrong; nothing follows.
    Violation(CloseReason),
}

/// What WebSocket bytes decode to if they arrive in pieces of at most `piece_bytes`.
pub fn websocket(
    peer_masks: bool,
    frame_max_bytes: usize,
    message_max_bytes: usize,
    bytes: &[u8],
    piece_bytes: usize,
) -> Vec<Decoded> {
    let decoder = Decoder::new(peer_masks, frame_max_bytes, message_max_bytes, &[]);
    decode(&mut StreamDecoder::WebSocket(decoder), bytes, piece_bytes).0
}

/// What lines decode to if they arrive in pieces of at most `piece_bytes`, and then end.
pub fn lines(max_bytes: usize, bytes: &[u8], piece_bytes: usize) -> Vec<Decoded> {
    let mut decoder = StreamDecoder::Lines(LineDecoder::new(max_bytes));
    let (mut found, whole) = decode(&mut decoder, bytes, piece_bytes);
    if let StreamDecoder::Lines(mut decoder) = decoder
        && whole
    {
        let mut last = Some(decoder.finish());
        collect_events(&mut found, || last.take().unwrap_or(Ok(None)));
    }
    found
}

/// Everything that the decoder finds, and whether it took all the bytes.
fn decode(decoder: &mut StreamDecoder, bytes: &[u8], piece_bytes: usize) -> (Vec<Decoded>, bool) {
    let mut found = Vec::new();
    for mut piece in bytes.chunks(piece_bytes) {
        while !piece.is_empty() {
            let taken = fill(decoder.space(), &mut piece);
            decoder.filled(taken);
            if !collect_events(&mut found, || decoder.next()) {
                return (found, false);
            }
            decoder.release_idle();
        }
    }
    (found, true)
}

/// Copies as much as fits, as a read would.
fn fill(mut space: Limit<&mut BytesMut>, piece: &mut &[u8]) -> usize {
    let taken = space.remaining_mut().min(piece.len());
    assert!(taken > 0, "a decoder that wants no bytes would be asked forever");
    space.put_slice(&piece[..taken]);
    *piece = &piece[taken..];
    taken
}

/// Collects everything the decoder has now; false if the peer broke the protocol.
fn collect_events(
    found: &mut Vec<Decoded>,
    mut next: impl FnMut() -> Result<Option<DecoderEvent>, CloseReason>,
) -> bool {
    loop {
        match next() {
            Ok(Some(DecoderEvent::Message(message))) => found.push(Decoded::Message(message)),
            Ok(Some(DecoderEvent::Ping(payload))) => found.push(Decoded::Ping(payload.to_vec())),
            Ok(Some(DecoderEvent::Pong)) => found.push(Decoded::Pong),
            Ok(Some(DecoderEvent::Close(reason))) => found.push(Decoded::Close(reason)),
            Ok(None) => return true,
            Err(reason) => {
                found.push(Decoded::Violation(reason));
                return false;
            }
        }
    }
}
