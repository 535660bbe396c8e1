//! Copies the contents of one file, block by block, in little memory.

use std::sync::Arc;

use bytes::Bytes;
use exec_client::files::stream::Blocks;
use exec_env::files::{ContentHash, FileError, OpenFile};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::progress::Progress;
use crate::location::Location;

/// Blocks of a remote file in flight: with a round trip of 80 ms, that is 30 MB/s. More would cost memory: a block that is
/// written is held as bytes, as base64, and as a message.
const REMOTE_BLOCKS: usize = 10;

/// Blocks of a local file: one that is worked on, one that is ready.
const LOCAL_BLOCKS: usize = 2;

/// How many blocks may be in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    ahead: usize,
    behind: usize,
}

impl Window {
    pub(super) fn between(from: &Location, to: &Location) -> Self {
        let blocks = |location: &Location| if location.is_local() { LOCAL_BLOCKS } else { REMOTE_BLOCKS };
        Self { ahead: blocks(from), behind: blocks(to) }
    }
}

pub(super) enum BlockCopyError {
    Source(FileError),
    Target(FileError),
}

/// Reads ahead and writes behind, up to the window. Blocks of zeros become holes.
pub(super) async fn copy_blocks(
    source: Arc<dyn OpenFile>,
    target: Arc<dyn OpenFile>,
    window: Window,
    progress: &Progress,
) -> Result<(u64, ContentHash), BlockCopyError> {
    let mut blocks = Blocks::new(source, 0).with_window(window.ahead);
    let mut in_flight = FuturesUnordered::new();
    let mut ends_in_a_hole = false;
    loop {
        let offset = blocks.passed_bytes();
        let event = tokio::select! {
            Some(written) = in_flight.next() => BlockEvent::Written(written),
            block = blocks.next(), if in_flight.len() < window.behind => BlockEvent::Read(block),
        };
        match event {
            BlockEvent::Written(written) => progress.bytes(written.map_err(BlockCopyError::Target)?),
            BlockEvent::Read(Ok(Some(bytes))) => {
                ends_in_a_hole = bytes.iter().all(|byte| *byte == 0);
                match ends_in_a_hole {
                    true => progress.bytes(bytes.len() as u64),
                    false => in_flight.push(write_block(Arc::clone(&target), offset, bytes)),
                }
            }
            BlockEvent::Read(Ok(None)) => break,
            BlockEvent::Read(Err(error)) => return Err(BlockCopyError::Source(error)),
        }
    }
    if ends_in_a_hole {
        let last = write_block(Arc::clone(&target), blocks.passed_bytes() - 1, Bytes::from_static(&[0]));
        last.await.map_err(BlockCopyError::Target)?;
    }
    while let Some(written) = in_flight.next().await {
        progress.bytes(written.map_err(BlockCopyError::Target)?);
    }
    Ok((blocks.passed_bytes(), blocks.hash()))
}

enum BlockEvent {
    Read(Result<Option<Bytes>, FileError>),
    Written(Result<u64, FileError>),
}

async fn write_block(file: Arc<dyn OpenFile>, offset: u64, bytes: Bytes) -> Result<u64, FileError> {
    let len = bytes.len() as u64;
    file.write_block(offset, bytes).await.map(|()| len)
}
