//! Binary frames: output, file blocks and chunks of streams as raw bytes behind a small header.
//!
//! ```text
//!   0       1         2        3       4          6                     14         14+n
//!   ┌───────┬─────────┬────────┬───────┬──────────┬─────────────────────┬──────────┬─────────┐
//!   │ kind  │ version │ stream │ flags │ n: u16   │ position: u64       │ id       │ payload │
//!   └───────┴─────────┴────────┴───────┴──────────┴─────────────────────┴──────────┴─────────┘
//! ```
//!
//! Numbers are big-endian. They come only where `initialize` granted them, and only on transports that keep messages apart.
//! The first byte can never begin JSON text, so a receiver tells the two apart by it.

use crate::limits::BINARY_ID_BYTES;
use crate::process::Stream;

/// The version that this crate writes and reads.
pub const VERSION: u8 = 1;

/// Length of a header without its id.
pub const HEADER_BYTES: usize = 14;

const KIND_OUTPUT: u8 = 1;
const KIND_BLOCK: u8 = 2;
const KIND_WRITE: u8 = 3;
const KIND_STREAM_WRITE: u8 = 4;
const FLAG_EOF: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameHeader<'a> {
    Output {
        process_id: &'a str,
        seq: u64,
        stream: Stream,
    },
    /// The answer to a `fs/readBlock` or a `net/read`.
    Block {
        /// The id of the request, as JSON text: `7` or `"a"`.
        request_id: &'a str,
        /// Where the block begins; of a chunk of a stream, its number.
        offset: u64,
        /// Whether fewer bytes were there than asked for.
        eof: bool,
    },
    /// A `fs/writeBlock`, from the client. Before the bytes stand the length of the handle's id, in one byte, and that id.
    Write {
        /// The id of the request, as JSON text.
        request_id: &'a str,
        handle_id: &'a str,
        /// Where the block begins.
        offset: u64,
    },
    /// A `net/write`, from the client. The id of the stream stands where that of the handle does.
    StreamWrite {
        /// The id of the request, as JSON text.
        request_id: &'a str,
        stream_id: &'a str,
        offset: u64,
        /// Whether these are the last bytes.
        eof: bool,
    },
}

impl FrameHeader<'_> {
    /// What its ids take.
    fn id_bytes(&self) -> usize {
        match self {
            Self::Output { process_id: id, .. } | Self::Block { request_id: id, .. } => id.len(),
            Self::Write { request_id, handle_id: owner, .. }
            | Self::StreamWrite { request_id, stream_id: owner, .. } => request_id.len() + 1 + owner.len(),
        }
    }
}

/// Why a binary frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    #[error("binary frame of {found_bytes} bytes ends within its header")]
    Short { found_bytes: usize },
    #[error("binary frame of unknown kind {kind}")]
    Kind { kind: u8 },
    #[error("binary frame of version {version}; only {VERSION} is known")]
    Version { version: u8 },
    /// A stream that does not exist, or one where none belongs.
    #[error("binary frame with impossible stream {stream}")]
    Stream { stream: u8 },
    #[error("binary frame with unknown flags {flags:#04x}")]
    Flags { flags: u8 },
    #[error("binary frame whose id is not UTF-8")]
    Id,
}

/// An id that no header can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("id of {found_bytes} bytes does not fit a binary frame, which has room for {BINARY_ID_BYTES}")]
pub struct IdTooLong {
    pub found_bytes: usize,
}

/// Whether a binary message is one of these rather than JSON text.
pub fn is_binary(message: &[u8]) -> bool {
    matches!(message.first(), Some(&(KIND_OUTPUT | KIND_BLOCK | KIND_WRITE | KIND_STREAM_WRITE)))
}

/// Appends a frame.
pub fn encode(out: &mut Vec<u8>, header: &FrameHeader<'_>, payload: &[u8]) -> Result<(), IdTooLong> {
    // Before the header, so that there is room for both at once.
    out.reserve(HEADER_BYTES + header.id_bytes() + payload.len());
    encode_header(out, header)?;
    out.extend_from_slice(payload);
    Ok(())
}

/// Appends what comes before the payload of a frame, for whoever sends that from where it lies.
pub fn encode_header(out: &mut Vec<u8>, header: &FrameHeader<'_>) -> Result<(), IdTooLong> {
    let (kind, stream, flags, id, position) = match *header {
        FrameHeader::Output { process_id, seq, stream } => (KIND_OUTPUT, stream_code(stream), 0, process_id, seq),
        FrameHeader::Block { request_id, offset, eof } => {
            let flags = if eof { FLAG_EOF } else { 0 };
            (KIND_BLOCK, 0, flags, request_id, offset)
        }
        FrameHeader::Write { request_id, offset, .. } => (KIND_WRITE, 0, 0, request_id, offset),
        FrameHeader::StreamWrite { request_id, offset, eof, .. } => {
            let flags = if eof { FLAG_EOF } else { 0 };
            (KIND_STREAM_WRITE, 0, flags, request_id, offset)
        }
    };
    let handle = match *header {
        FrameHeader::Write { handle_id, .. } => Some(handle_id),
        FrameHeader::StreamWrite { stream_id, .. } => Some(stream_id),
        FrameHeader::Output { .. } | FrameHeader::Block { .. } => None,
    };
    let id_bytes = u16::try_from(id.len()).map_err(|_| IdTooLong { found_bytes: id.len() })?;
    let handle_bytes =
        handle.map(|handle| u8::try_from(handle.len()).map_err(|_| IdTooLong { found_bytes: handle.len() }));
    let handle_bytes = handle_bytes.transpose()?;
    out.reserve(HEADER_BYTES + header.id_bytes());
    out.extend_from_slice(&[kind, VERSION, stream, flags]);
    out.extend_from_slice(&id_bytes.to_be_bytes());
    out.extend_from_slice(&position.to_be_bytes());
    out.extend_from_slice(id.as_bytes());
    out.extend(handle_bytes);
    out.extend_from_slice(handle.unwrap_or_default().as_bytes());
    Ok(())
}

/// Takes a frame apart: what it says, and its payload.
pub fn decode(frame: &[u8]) -> Result<(FrameHeader<'_>, &[u8]), MalformedFrame> {
    let short = MalformedFrame::Short { found_bytes: frame.len() };
    let (head, rest) = frame.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
    let [kind, version, stream, flags, n0, n1, p0, p1, p2, p3, p4, p5, p6, p7] = *head;
    if !is_binary(frame) {
        return Err(MalformedFrame::Kind { kind });
    }
    if version != VERSION {
        return Err(MalformedFrame::Version { version });
    }
    let id_bytes = usize::from(u16::from_be_bytes([n0, n1]));
    let (id, payload) = rest.split_at_checked(id_bytes).ok_or(short)?;
    let id = std::str::from_utf8(id).map_err(|_| MalformedFrame::Id)?;
    let position = u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
    let known_flags = if matches!(kind, KIND_BLOCK | KIND_STREAM_WRITE) { FLAG_EOF } else { 0 };
    if flags & !known_flags != 0 {
        return Err(MalformedFrame::Flags { flags });
    }
    if kind == KIND_OUTPUT {
        return Ok((FrameHeader::Output { process_id: id, seq: position, stream: stream_of(stream)? }, payload));
    }
    if stream != 0 {
        return Err(MalformedFrame::Stream { stream });
    }
    if kind == KIND_BLOCK {
        return Ok((FrameHeader::Block { request_id: id, offset: position, eof: flags & FLAG_EOF != 0 }, payload));
    }
    let (handle_bytes, rest) = payload.split_first().ok_or(short)?;
    let (handle, payload) = rest.split_at_checked(usize::from(*handle_bytes)).ok_or(short)?;
    let handle_id = std::str::from_utf8(handle).map_err(|_| MalformedFrame::Id)?;
    if kind == KIND_STREAM_WRITE {
        let eof = flags & FLAG_EOF != 0;
        return Ok((FrameHeader::StreamWrite { request_id: id, stream_id: handle_id, offset: position, eof }, payload));
    }
    Ok((FrameHeader::Write { request_id: id, handle_id, offset: position }, payload))
}

fn stream_code(stream: Stream) -> u8 {
    match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
        Stream::Pty => 3,
    }
}

fn stream_of(code: u8) -> Result<Stream, MalformedFrame> {
    match code {
        1 => Ok(Stream::Stdout),
        2 => Ok(Stream::Stderr),
        3 => Ok(Stream::Pty),
        stream => Err(MalformedFrame::Stream { stream }),
    }
}
