//! WebSocket bytes: however they are split, they decode to the same messages or the same violation.
//!
//! The first two bytes choose the role of the peer and how the bytes are split.

#![no_main]

use exec_transport::fuzzing::websocket;
use libfuzzer_sys::fuzz_target;

/// Small, so that inputs of ordinary length reach them.
const FRAME_MAX_BYTES: usize = 6_000;
const MESSAGE_MAX_BYTES: usize = 9_000;

fuzz_target!(|bytes: &[u8]| {
    let [how, cut, stream @ ..] = bytes else { return };
    let peer_masks = how & 1 == 1;
    let decoded = |piece| websocket(peer_masks, FRAME_MAX_BYTES, MESSAGE_MAX_BYTES, stream, piece);
    let whole = decoded(stream.len().max(1));
    let pieces = decoded(usize::from(*cut) + 1);
    assert_eq!(whole, pieces, "how the bytes were cut made a difference");
});
