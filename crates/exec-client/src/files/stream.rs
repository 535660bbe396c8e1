//! Files of any size in little memory. Several blocks are in flight at a time, so that the round trip does not slow the
//! stream down. Any [`OpenFile`] will do, local or remote; a remote one goes on where it was after a break.
//!
//! Both directions hash what went through with BLAKE3, so that the two ends can be compared: [`confirm`] asks the other
//! end whether its file has the same hash.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use exec_env::files::{
    ContentHash, ExpectedFile, FileBlock, FileError, FileFuture, FileReason, Files, HashAlgorithm, LinkPolicy,
    OpenFile, WriteOptions,
};
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::{STREAM_BLOCK_BYTES, STREAM_WINDOW};

/// A file's blocks, in order, read ahead.
pub struct Blocks {
    file: Arc<dyn OpenFile>,
    /// The offset of the next block to read.
    next: u64,
    /// How many blocks are read ahead.
    window: usize,
    /// Bounded by the window.
    ahead: FuturesOrdered<FileFuture<'static, FileBlock>>,
    ended: bool,
    hasher: blake3::Hasher,
    passed_bytes: u64,
}

impl Blocks {
    /// From `offset` on.
    pub fn new(file: Arc<dyn OpenFile>, offset: u64) -> Self {
        Self {
            file,
            next: offset,
            window: STREAM_WINDOW,
            ahead: FuturesOrdered::new(),
            ended: false,
            hasher: blake3::Hasher::new(),
            passed_bytes: 0,
        }
    }

    /// Reads fewer blocks ahead; a local file needs no more.
    pub fn with_window(self, blocks: usize) -> Self {
        Self { window: blocks.clamp(1, STREAM_WINDOW), ..self }
    }

    /// The next bytes, never empty; `None` at the end. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FileError> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The hash of everything that was returned so far.
    pub fn hash(&self) -> ContentHash {
        ContentHash(self.hasher.finalize())
    }

    /// How many bytes were returned so far.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, FileError>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        while self.ahead.len() < self.window {
            let (file, offset) = (Arc::clone(&self.file), self.next);
            self.next = self.next.saturating_add(STREAM_BLOCK_BYTES as u64);
            self.ahead.push_back(Box::pin(async move { file.read_block(offset, STREAM_BLOCK_BYTES).await }));
        }
        let block = match ready!(self.ahead.poll_next_unpin(context)) {
            Some(Ok(block)) => block,
            Some(Err(error)) => {
                self.end();
                return Poll::Ready(Err(error));
            }
            None => FileBlock { bytes: Bytes::new(), eof: true },
        };
        if block.eof {
            self.end();
        }
        if block.bytes.is_empty() {
            return Poll::Ready(Ok(None));
        }
        self.hasher.update(&block.bytes);
        self.passed_bytes += block.bytes.len() as u64;
        Poll::Ready(Ok(Some(block.bytes)))
    }

    fn end(&mut self) {
        self.ended = true;
        self.ahead.clear();
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocks")
            .field("passed_bytes", &self.passed_bytes)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// A file as tokio's [`AsyncRead`].
#[derive(Debug)]
pub struct ReadStream {
    blocks: Blocks,
    rest: Bytes,
}

impl ReadStream {
    /// From `offset` on.
    pub fn new(file: Arc<dyn OpenFile>, offset: u64) -> Self {
        Self { blocks: Blocks::new(file, offset), rest: Bytes::new() }
    }

    /// The hash of everything that was received so far, including what is not read yet.
    pub fn hash(&self) -> ContentHash {
        self.blocks.hash()
    }
}

impl AsyncRead for ReadStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.blocks.poll_next(context)) {
                Ok(Some(bytes)) => self.rest = bytes,
                Ok(None) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(io_error(error))),
            }
        }
        let taken = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..taken]);
        self.rest.advance(taken);
        Poll::Ready(Ok(()))
    }
}

/// A file as tokio's [`AsyncWrite`]. What was written is in the file once `flush` or `shutdown` has returned.
pub struct WriteStream {
    file: Arc<dyn OpenFile>,
    /// The offset of the gathered bytes.
    offset: u64,
    gathered: BytesMut,
    /// Bounded by the window.
    in_flight: FuturesUnordered<FileFuture<'static, ()>>,
    hasher: blake3::Hasher,
    failed: Option<FileError>,
}

impl WriteStream {
    /// From `offset` on.
    pub fn new(file: Arc<dyn OpenFile>, offset: u64) -> Self {
        Self {
            file,
            offset,
            gathered: BytesMut::new(),
            in_flight: FuturesUnordered::new(),
            hasher: blake3::Hasher::new(),
            failed: None,
        }
    }

    /// Where the next byte goes.
    pub fn position(&self) -> u64 {
        self.offset + self.gathered.len() as u64
    }

    /// The hash of everything that was written so far.
    pub fn hash(&self) -> ContentHash {
        ContentHash(self.hasher.finalize())
    }

    fn send_gathered(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let (file, offset, bytes) = (Arc::clone(&self.file), self.offset, self.gathered.split().freeze());
        self.offset += bytes.len() as u64;
        self.in_flight.push(Box::pin(async move { file.write_block(offset, bytes).await }));
    }

    /// Ready when fewer than `most` blocks are in flight. After a failure it only returns that failure.
    fn poll_capacity(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        loop {
            if let Some(error) = &self.failed {
                return Poll::Ready(Err(io_error(error.clone())));
            }
            if self.in_flight.len() < most {
                return Poll::Ready(Ok(()));
            }
            if let Some(Err(error)) = ready!(self.in_flight.poll_next_unpin(context)) {
                self.in_flight.clear();
                self.failed = Some(error);
            }
        }
    }
}

impl std::fmt::Debug for WriteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteStream").field("position", &self.position()).finish_non_exhaustive()
    }
}

impl AsyncWrite for WriteStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_capacity(context, STREAM_WINDOW))?;
        let taken = bytes.len().min(STREAM_BLOCK_BYTES - self.gathered.len());
        self.hasher.update(&bytes[..taken]);
        self.gathered.extend_from_slice(&bytes[..taken]);
        if self.gathered.len() == STREAM_BLOCK_BYTES {
            self.send_gathered();
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send_gathered();
        self.poll_capacity(context, 1)
    }

    /// The file itself is closed when its last owner drops it.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// Checks that the contents of the file at `path` have this hash; if not, the error carries the present hash. The other end
/// reads the whole file for it. The file must be writable, because this is a write that appends nothing to it.
pub async fn confirm(files: &dyn Files, path: &Path, hash: ContentHash) -> Result<(), FileError> {
    let options = WriteOptions { append: true, expect: ExpectedFile::Content(hash), ..WriteOptions::default() };
    files.write(path, Bytes::new(), options).await
}

/// The hash of the file at `path`; the other end reads the whole file for it, and nothing is changed.
pub async fn fingerprint(files: &dyn Files, path: &Path, links: LinkPolicy) -> Result<ContentHash, FileError> {
    match files.hash(path, HashAlgorithm::Blake3, links).await {
        Ok(hash) => Ok(ContentHash(hash.digest.into())),
        Err(error) if error.errno() == Some(ENOSYS) => hash_from_refusal(files, path, links).await,
        Err(error) => Err(error),
    }
}

/// The same from an older server, which has no `fs/hash`.
///
/// This is a write that appends nothing, on the condition that the file has a hash that no file has: the refusal names the
/// present hash.
async fn hash_from_refusal(files: &dyn Files, path: &Path, links: LinkPolicy) -> Result<ContentHash, FileError> {
    let expect = ExpectedFile::Content(ContentHash([0; 32].into()));
    let options = WriteOptions { append: true, expect, links, ..WriteOptions::default() };
    match files.write(path, Bytes::new(), options).await {
        Err(FileError { reason: FileReason::Changed { present: Some(hash) }, .. }) => Ok(hash),
        Err(FileError { verb, path, reason: FileReason::Changed { present: None } }) => {
            Err(FileError { verb, path, reason: FileReason::Os(ENOENT) })
        }
        Err(error) => Err(error),
        Ok(()) => Ok(ContentHash([0; 32].into())),
    }
}

const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

/// The error as tokio's traits need it: the kernel's own if there is one, otherwise one that carries the whole error.
fn io_error(error: FileError) -> io::Error {
    match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(error),
    }
}
