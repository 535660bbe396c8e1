//! What the decoders of both framings have in common: their interface, and the buffer that bytes are read into.

use std::fmt;

use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};

use crate::limits::{IDLE_BUFFER_BYTES, KEEP_BUFFER_BYTES, READ_BYTES};
use crate::message::{CloseReason, Message};

/// Turns the bytes of one stream into messages. Pure: bytes are put into [`Decoder::space`], messages are taken from
/// [`Decoder::next`].
pub(crate) trait Decoder: fmt::Debug + Send {
    /// The bytes that are not decoded yet.
    fn input(&mut self) -> &mut ReadBuffer;

    /// Where the next bytes of the stream are to be read to.
    fn space(&mut self) -> Limit<&mut BytesMut>;

    /// The next event, `None` when more bytes are needed, or the violation to close with.
    fn next(&mut self) -> Result<Option<DecoderEvent>, CloseReason>;

    /// The stream has ended: what its last bytes still mean.
    fn finish(&mut self) -> Result<Option<DecoderEvent>, CloseReason>;

    /// True between two messages, where a stream may end in good order.
    fn at_boundary(&self) -> bool;

    /// Drops everything; used once the peer has broken the protocol.
    fn discard(&mut self);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecoderEvent {
    Message(Message),
    Ping(Bytes),
    Pong,
    Close(CloseReason),
}

/// Bytes that were read and not yet decoded. It holds 4 KiB while little is read, grows to 64 KiB while reads come back
/// full, and is freed when it is empty.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    pub(crate) bytes: BytesMut,
    read_size: usize,
}

impl ReadBuffer {
    pub(crate) fn new(already_read: &[u8]) -> Self {
        Self { bytes: BytesMut::from(already_read), read_size: IDLE_BUFFER_BYTES }
    }

    /// Space for the next read, at least `min_bytes`.
    pub(crate) fn space(&mut self, min_bytes: usize) -> Limit<&mut BytesMut> {
        self.bytes.reserve(self.read_size.max(min_bytes));
        let room = self.bytes.capacity() - self.bytes.len();
        (&mut self.bytes).limit(room)
    }

    /// Records how many bytes the last read brought; the size of the next read adapts to it.
    pub(crate) fn filled(&mut self, read_bytes: usize) {
        // Nothing is here if a large message was read straight to where it will lie.
        if self.bytes.is_empty() {
            return;
        }
        if read_bytes >= self.read_size {
            self.read_size = (self.read_size * 2).min(READ_BYTES);
        } else if read_bytes < self.read_size / 4 {
            self.read_size = (self.read_size / 2).max(IDLE_BUFFER_BYTES);
        }
    }

    /// A long message has come, and likely another follows. The next read only fetches its header and a little more, because
    /// whatever is read here has to be moved to where the message will lie.
    pub(crate) fn expect_long_message(&mut self) {
        self.read_size = IDLE_BUFFER_BYTES;
    }

    /// Frees memory that an idle connection does not need.
    pub(crate) fn release_idle(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BUFFER_BYTES {
            self.bytes = BytesMut::new();
        }
    }

    /// The first `count` bytes. Few bytes are copied out, so that a short message does not keep a long buffer
    /// alive; many keep the buffer, and what follows them moves to a new one.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        if count < KEEP_BUFFER_BYTES {
            let taken = Bytes::copy_from_slice(&self.bytes[..count]);
            bytes::Buf::advance(&mut self.bytes, count);
            return taken;
        }
        let taken = self.bytes.split_to(count).freeze();
        if self.bytes.len() <= IDLE_BUFFER_BYTES {
            self.bytes = BytesMut::from(&self.bytes[..]);
        }
        taken
    }
}

/// For tests and fuzz targets: hands `bytes` over in pieces of at most `piece_bytes`, as reads would, and pushes what
/// comes of them to `found`. The error is the violation, after which nothing follows.
#[cfg(any(test, fuzzing))]
pub(crate) fn decode_pieces(
    decoder: &mut dyn Decoder,
    bytes: &[u8],
    piece_bytes: usize,
    found: &mut Vec<DecoderEvent>,
) -> Result<(), CloseReason> {
    for mut piece in bytes.chunks(piece_bytes) {
        while !piece.is_empty() {
            let mut space = decoder.space();
            let taken = space.remaining_mut().min(piece.len());
            assert!(taken > 0, "a decoder that wants no bytes would be asked forever");
            space.put_slice(&piece[..taken]);
            piece = &piece[taken..];
            decoder.input().filled(taken);
            while let Some(event) = decoder.next()? {
                found.push(event);
            }
            decoder.input().release_idle();
        }
    }
    Ok(())
}
