//! `process/output`, written and read without serde, because it is sent more often than all other messages together.
//!
//! Everything but number, stream and bytes is the same for a process, so it is written once ([`OutputEncoder`]); the bytes
//! are encoded straight into the outgoing buffer. A client reads the message the same way ([`decode_output`]) and falls
//! back to the ordinary decoder for anything that is not byte for byte what our encoder writes. Tests check that both
//! agree with serde.

use std::io::Write as _;

use base64_simd::STANDARD;

use crate::base64;
use crate::envelope::opening;
use crate::process::Stream;

const BEFORE_ID: &str = r#""method":"process/output","params":{"processId":"#;
const BEFORE_SEQ: &str = r#","seq":"#;
const BEFORE_STREAM: &str = r#","stream":""#;
const BEFORE_CHUNK: &str = r#"","chunk":""#;
const END: &str = r#""}}"#;

#[derive(Debug, Clone)]
pub struct OutputEncoder {
    /// The message up to the number.
    prefix: Box<[u8]>,
}

impl OutputEncoder {
    /// For a process, and a peer that does or does not write `jsonrpc`.
    pub fn new(process_id: &str, jsonrpc: bool) -> Self {
        let mut prefix = opening(jsonrpc).to_vec();
        prefix.extend_from_slice(BEFORE_ID.as_bytes());
        serde_json::to_writer(&mut prefix, process_id).expect("a string is always JSON, and a vector takes every byte");
        prefix.extend_from_slice(BEFORE_SEQ.as_bytes());
        Self { prefix: prefix.into() }
    }

    /// How long the message for so many bytes can be.
    pub fn max_len(&self, output_bytes: usize) -> usize {
        const NUMBER: usize = 20;
        const LONGEST_STREAM: usize = 6;
        self.prefix.len()
            + NUMBER
            + BEFORE_STREAM.len()
            + LONGEST_STREAM
            + BEFORE_CHUNK.len()
            + STANDARD.encoded_length(output_bytes)
            + END.len()
    }

    /// Appends the notification.
    pub fn encode(&self, out: &mut Vec<u8>, seq: u64, stream: Stream, bytes: &[u8]) {
        out.reserve(self.max_len(bytes.len()));
        out.extend_from_slice(&self.prefix);
        write!(out, "{seq}").expect("a vector takes every byte");
        out.extend_from_slice(BEFORE_STREAM.as_bytes());
        out.extend_from_slice(stream.name().as_bytes());
        out.extend_from_slice(BEFORE_CHUNK.as_bytes());
        STANDARD.encode_append(bytes, out);
        out.extend_from_slice(END.as_bytes());
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedOutput<'a> {
    pub process_id: &'a str,
    pub seq: u64,
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

/// Takes apart a message that [`OutputEncoder`] (or Codex's server, which writes the same) wrote for a process without
/// odd characters in its id. `None` says nothing about the message but that the ordinary decoder must look at it.
pub fn decode_output(text: &str) -> Option<DecodedOutput<'_>> {
    let after = |rest: &str| -> Option<usize> {
        [false, true].into_iter().find_map(|jsonrpc| {
            let opening = std::str::from_utf8(opening(jsonrpc)).ok()?;
            let left = rest.strip_prefix(opening)?.strip_prefix(BEFORE_ID)?;
            Some(rest.len() - left.len())
        })
    };
    let rest = text[after(text)?..].strip_prefix('"')?;
    let id_end = rest.find(['"', '\\'])?;
    let (process_id, rest) = rest.split_at(id_end);
    if process_id.bytes().any(|byte| byte < 0x20) {
        return None;
    }
    let rest = rest.strip_prefix('"')?.strip_prefix(BEFORE_SEQ)?;
    let seq_end = rest.find(|digit: char| !digit.is_ascii_digit())?;
    let (seq, rest) = rest.split_at(seq_end);
    if seq.len() > 1 && seq.starts_with('0') {
        return None;
    }
    let rest = rest.strip_prefix(BEFORE_STREAM)?;
    let (stream, rest) = rest.split_at(rest.find('"')?);
    let stream = match stream {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        "pty" => Stream::Pty,
        _ => return None,
    };
    let chunk = rest.strip_prefix(BEFORE_CHUNK)?.strip_suffix(END)?;
    Some(DecodedOutput { process_id, seq: seq.parse().ok()?, stream, bytes: base64::decode(chunk.as_bytes()).ok()? })
}
