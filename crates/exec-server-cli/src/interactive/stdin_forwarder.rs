//! Our stdin on its way to the child.
//!
//! A thread reads, because a read may last for ever; it is not waited for, and the end of the process ends it. What
//! it has read waits for the child: at most two blocks are on the way, so a child that does not read leaves the rest
//! where it is.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use exec_core::{ProcessId, Signal, WriteId};
use exec_env::Processes;
use exec_env::process::Written;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use tokio::sync::mpsc;

use super::detach_keys::DetachKeys;
use crate::{runtime, terminal};

/// As much as a pipe holds.
const BLOCK_BYTES: usize = 64 << 10;

/// How often a background job looks whether it has been brought to the foreground, once there is something to read.
const BACKGROUND_RETRY: Duration = Duration::from_millis(200);

/// Where the child's input comes from.
pub(crate) struct StdinForwarder {
    blocks: Option<mpsc::Receiver<Bytes>>,
    end: StdinEnd,
}

/// What the end of our stdin means to the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdinEnd {
    /// The end of its own.
    ClosePipe,
    /// The end-of-file character, typed.
    TypeEof,
    /// A raw terminal ends in one way only: it hung up. The child's does the same.
    Hangup,
    /// Likewise, but the child is not ours: it goes on without us. So it does when the keys for that are pressed.
    Detach,
}

/// How feeding came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdinOutcome {
    /// Our stdin or the child's has ended.
    Finished,
    /// We are to leave.
    Detach,
}

impl StdinForwarder {
    /// No input at all.
    pub(crate) fn none() -> Self {
        Self { blocks: None, end: StdinEnd::ClosePipe }
    }

    /// Our stdin, from now on.
    pub(crate) fn open(end: StdinEnd) -> anyhow::Result<Self> {
        let (sender, blocks) = mpsc::channel(1);
        let read = move || read_all(&sender);
        std::thread::Builder::new().name("stdin".into()).spawn(read).context("cannot start the thread of stdin")?;
        Ok(Self { blocks: Some(blocks), end })
    }

    /// Feeds the child until our stdin or its stdin ends.
    pub(crate) async fn forward(self, processes: &dyn Processes, id: &ProcessId) -> anyhow::Result<StdinOutcome> {
        let Some(mut blocks) = self.blocks else { return Ok(StdinOutcome::Finished) };
        // A key is applied once per process, and others may have fed this one before us.
        let tag = runtime::random();
        let (mut number, mut last) = (0_u64, b'\n');
        let mut keys = (self.end == StdinEnd::Detach).then(DetachKeys::default);
        while let Some(block) = blocks.recv().await {
            let (block, detach) = match &mut keys {
                Some(keys) => keys.filter(block),
                None => (block, false),
            };
            if let Some(byte) = block.last() {
                number += 1;
                last = *byte;
                let key = WriteId::new(format!("stdin-{tag:x}-{number}")).expect("a short key that is not empty");
                if processes.write(id, key, block).await? != Written::Accepted && keys.is_none() {
                    return Ok(StdinOutcome::Finished);
                }
            }
            if detach {
                return Ok(StdinOutcome::Detach);
            }
        }
        match self.end {
            StdinEnd::Detach => return Ok(StdinOutcome::Detach),
            StdinEnd::Hangup => {
                processes.signal(id, Signal::Hangup).await?;
            }
            StdinEnd::TypeEof if last != b'\n' => {
                // In the middle of a line, a terminal takes the character for "hand over what you have".
                processes.close_stdin(id).await?;
                processes.close_stdin(id).await?;
            }
            StdinEnd::TypeEof | StdinEnd::ClosePipe => {
                processes.close_stdin(id).await?;
            }
        }
        Ok(StdinOutcome::Finished)
    }
}

fn read_all(blocks: &mpsc::Sender<Bytes>) {
    loop {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        match read_some(&mut block) {
            Ok(0) => return,
            // The other end is dropped when the child takes no more.
            Ok(_) => {
                if blocks.blocking_send(block.into()).is_err() {
                    return;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => {
                // A terminal that hung up answers EIO; to the child it is the end of input in any case.
                tracing::debug!(%errno, "stdin cannot be read any more");
                return;
            }
        }
    }
}

fn read_some(block: &mut Vec<u8>) -> Result<usize, Errno> {
    let stdin = stdin();
    poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None)?;
    if !terminal::stdin_is_ours() {
        // Those keys are for the shell. Waiting for them in `read` would stop us altogether.
        std::thread::sleep(BACKGROUND_RETRY);
        return Err(Errno::AGAIN);
    }
    rustix::io::read(stdin, rustix::buffer::spare_capacity(block))
}
