//! The key and its answer in the opening handshake (RFC 6455 §4). It proves that the other end
//! speaks WebSocket; it authenticates nobody.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use base64_simd::STANDARD;
use sha1::{Digest, Sha1};

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

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
