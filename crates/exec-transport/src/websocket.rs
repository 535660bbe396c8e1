//! RFC 6455 as pure code: messages in ([`decoder`]), frames out, the payload of a close frame, and the key and its
//! answer in the opening handshake.
//!
//! Written by hand rather than taken from a library, for three properties: an idle connection holds little, a large
//! payload is copied neither on the way in nor out, and reading and writing share no lock. `docs/decisions/0006` has
//! the figures. The tests use tungstenite as the peer, in both roles.
//!
//! Deliberately absent: I/O, timers, extensions and subprotocols (refused by never offering any).

pub(crate) mod decoder;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use base64_simd::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use sha1::{Digest, Sha1};

use crate::message::CloseReason;

/// What RFC 6455 §1.3 appends to the key, so that the answer proves knowledge of the protocol. It authenticates nobody.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The longest header: two bytes, an eight byte length, a mask.
pub(crate) const HEADER_MAX_BYTES: usize = 14;

/// The longest payload of a control frame.
pub(crate) const CONTROL_MAX_BYTES: usize = 125;

/// A multiple of the length of a mask, and small enough for the fastest cache.
const MASKED_AT_ONCE_BYTES: usize = 8 << 10;

/// Frame types that RFC 6455 defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xA,
}

impl Opcode {
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        let all = [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|opcode| *opcode as u8 == bits)
    }

    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Which end of the connection we are. A client masks what it sends, a server must not.
#[derive(Debug)]
pub(crate) enum Role {
    Server,
    Client(MaskKeys),
}

impl Role {
    /// Appends a whole frame, masked if we are the client.
    pub(crate) fn append_frame(&mut self, out: &mut BytesMut, fin: bool, opcode: Opcode, payload: &[u8]) {
        self.append_frame_of_two(out, fin, opcode, payload, &[]);
    }

    /// The same with a payload in two parts.
    pub(crate) fn append_frame_of_two(
        &mut self,
        out: &mut BytesMut,
        fin: bool,
        opcode: Opcode,
        head: &[u8],
        body: &[u8],
    ) {
        let payload_bytes = head.len() + body.len();
        out.reserve(HEADER_MAX_BYTES + payload_bytes);
        match self {
            Self::Server => {
                put_header(out, fin, opcode, payload_bytes, None);
                out.put_slice(head);
                out.put_slice(body);
            }
            Self::Client(masks) => {
                let mut mask = masks.next();
                put_header(out, fin, opcode, payload_bytes, Some(mask));
                put_masked(out, head, mask);
                mask.rotate_left(head.len() % 4);
                put_masked(out, body, mask);
            }
        }
    }
}

/// Masking keys that the peer's proxies cannot predict: SipHash of a counter under a key from
/// the system's randomness.
#[derive(Debug, Default)]
pub(crate) struct MaskKeys {
    keys: RandomState,
    counter: u64,
}

impl MaskKeys {
    fn next(&mut self) -> [u8; 4] {
        self.counter += 1;
        let [a, b, c, d, ..] = self.keys.hash_one(self.counter).to_le_bytes();
        [a, b, c, d]
    }
}

pub(crate) fn put_header(out: &mut BytesMut, fin: bool, opcode: Opcode, payload_bytes: usize, mask: Option<[u8; 4]>) {
    out.put_u8(u8::from(fin) << 7 | opcode as u8);
    let mask_bit = u8::from(mask.is_some()) << 7;
    if let Ok(short) = u8::try_from(payload_bytes)
        && payload_bytes <= CONTROL_MAX_BYTES
    {
        out.put_u8(mask_bit | short);
    } else if let Ok(medium) = u16::try_from(payload_bytes) {
        out.put_u8(mask_bit | 126);
        out.put_u16(medium);
    } else {
        out.put_u8(mask_bit | 127);
        out.put_u64(payload_bytes as u64);
    }
    if let Some(mask) = mask {
        out.put_slice(&mask);
    }
}

/// Appends bytes piece by piece, so that each is masked while the cache still has it from being copied.
fn put_masked(out: &mut BytesMut, bytes: &[u8], mask: [u8; 4]) {
    for piece in bytes.chunks(MASKED_AT_ONCE_BYTES) {
        let start = out.len();
        out.put_slice(piece);
        apply_mask(&mut out[start..], mask);
    }
}

/// XORs `bytes` with the repeated mask, eight at a time.
pub(crate) fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// The payload of a close frame; empty for 1005, which must not be sent.
pub(crate) fn close_payload(reason: &CloseReason) -> Bytes {
    if reason.code == CloseReason::NO_STATUS {
        return Bytes::new();
    }
    let text = &reason.reason[..reason.reason.floor_char_boundary(CONTROL_MAX_BYTES - 2)];
    let mut payload = BytesMut::with_capacity(2 + text.len());
    payload.put_u16(reason.code);
    payload.put_slice(text.as_bytes());
    payload.freeze()
}

/// Reads a received close frame; the error says why it is not allowed.
pub(crate) fn parse_close(payload: &[u8]) -> Result<CloseReason, CloseReason> {
    let (code, text) = match payload {
        [] => return Ok(CloseReason::new(CloseReason::NO_STATUS, "")),
        [_] => {
            return Err(CloseReason::new(CloseReason::PROTOCOL_ERROR, "a close frame of one byte"));
        }
        [high, low, text @ ..] => (u16::from_be_bytes([*high, *low]), text),
    };
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(CloseReason::new(
            CloseReason::PROTOCOL_ERROR,
            format!("a close frame with the invalid code {code}"),
        ));
    }
    match std::str::from_utf8(text) {
        Ok(text) => Ok(CloseReason::new(code, text.to_owned())),
        Err(_) => Err(CloseReason::new(CloseReason::INVALID_DATA, "the reason in a close frame is not valid UTF-8")),
    }
}

/// A fresh `Sec-WebSocket-Key`.
pub(crate) fn fresh_key() -> String {
    let keys = RandomState::new();
    let mut nonce = [0; 16];
    let (low, high) = nonce.split_at_mut(8);
    low.copy_from_slice(&keys.hash_one(0_u8).to_le_bytes());
    high.copy_from_slice(&keys.hash_one(1_u8).to_le_bytes());
    STANDARD.encode_to_string(nonce)
}

/// The `Sec-WebSocket-Accept` that answers `key`.
pub(crate) fn accept_for(key: &[u8]) -> String {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    STANDARD.encode_to_string(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_holds() {
        assert_eq!(accept_for(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn two_keys_differ_and_are_sixteen_bytes() {
        let (first, second) = (fresh_key(), fresh_key());
        assert_ne!(first, second);
        assert_eq!(STANDARD.decode_to_vec(first).expect("base64 of our own making").len(), 16);
    }
}
