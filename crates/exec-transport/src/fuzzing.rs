//! The two decoders for fuzz targets, which are outside the crate. Compiled with `--cfg fuzzing` only, so never shipped.

use bytes::{BufMut as _, BytesMut, buf::Limit};

use crate::lines::LineDecoder;
use crate::message::{CloseReason, Message};
use crate::stream::Incoming;
use crate::websocket::decoder::Decoder;

/// One thing a decoder found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A whole message.
    Message(Message),
    /// A ping, with its payload.
    Ping(Vec<u8>),
    /// A pong.
    Pong,
    /// A close frame.
    Close(CloseReason),
    /// What the peer did wrong; nothing follows.
    Violation(CloseReason),
}

/// What comes of WebSocket bytes that arrive in pieces of at most `piece_bytes`.
pub fn websocket(
    peer_masks: bool,
    frame_max_bytes: usize,
    message_max_bytes: usize,
    bytes: &[u8],
    piece_bytes: usize,
) -> Vec<Found> {
    let mut decoder = Decoder::new(peer_masks, frame_max_bytes, message_max_bytes, &[]);
    let mut found = Vec::new();
    for mut piece in bytes.chunks(piece_bytes) {
        while !piece.is_empty() {
            let taken = pour(decoder.space(), &mut piece);
            decoder.filled(taken);
            if !gather(&mut found, || decoder.next()) {
                return found;
            }
            decoder.rest();
        }
    }
    found
}

/// What comes of lines that arrive in pieces of at most `piece_bytes`, and then end.
pub fn lines(max_bytes: usize, bytes: &[u8], piece_bytes: usize) -> Vec<Found> {
    let mut decoder = LineDecoder::new(max_bytes);
    let mut found = Vec::new();
    for mut piece in bytes.chunks(piece_bytes) {
        while !piece.is_empty() {
            let taken = pour(decoder.space(), &mut piece);
            decoder.filled(taken);
            if !gather(&mut found, || decoder.next()) {
                return found;
            }
            decoder.rest();
        }
    }
    let mut last = Some(decoder.finish());
    gather(&mut found, || last.take().unwrap_or(Ok(None)));
    found
}

/// As a read does it: as much as fits.
fn pour(mut space: Limit<&mut BytesMut>, piece: &mut &[u8]) -> usize {
    let taken = space.remaining_mut().min(piece.len());
    assert!(taken > 0, "a decoder that wants no bytes would be asked forever");
    space.put_slice(&piece[..taken]);
    *piece = &piece[taken..];
    taken
}

/// Everything the decoder has now; false if the peer is to be cut off.
fn gather(found: &mut Vec<Found>, mut next: impl FnMut() -> Result<Option<Incoming>, CloseReason>) -> bool {
    loop {
        match next() {
            Ok(Some(Incoming::Message(message))) => found.push(Found::Message(message)),
            Ok(Some(Incoming::Ping(payload))) => found.push(Found::Ping(payload.to_vec())),
            Ok(Some(Incoming::Pong)) => found.push(Found::Pong),
            Ok(Some(Incoming::Close(reason))) => found.push(Found::Close(reason)),
            Ok(None) => return true,
            Err(reason) => {
                found.push(Found::Violation(reason));
                return false;
            }
        }
    }
}
