//! Forwards our stdin to the child.
//!
//! A thread reads, because a read may last for ever; it is not joined, and ends with our process. At most two blocks are
//! in flight, so if the child does not read, the rest stays where it is.

use std::time::Duration;

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use exec_core::{ProcessId, Signal, WriteId};
use exec_env::Processes;
use exec_env::process::Written;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use tokio::sync::{mpsc, watch};

use super::detach_keys::DetachKeys;
use crate::runtime;
use crate::terminal::{self, RawTerminal};

/// The capacity of a pipe.
const BLOCK_BYTES: usize = 64 << 10;

/// Ctrl-C, as a raw terminal delivers it.
const CTRL_C: u8 = 3;

/// What may be typed while the process does not take it; then the terminal holds the rest.
const TYPED_AHEAD_BYTES: usize = 64 << 10;

/// How often a background job with input to read checks whether it is in the foreground now.
const BACKGROUND_RETRY: Duration = Duration::from_millis(200);

pub(crate) struct StdinForwarder {
    blocks: mpsc::Receiver<Bytes>,
    end: StdinEnd,
}

/// What is done when our stdin ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdinEnd {
    /// The child's stdin is closed.
    ClosePipe,
    /// The end-of-file character is typed into the child's terminal.
    TypeEof,
    /// A raw terminal ends only by a hangup, and the child gets the signal for it.
    Hangup,
    /// A hangup, or the detach keys, leave the child running, because it is not ours.
    Detach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdinOutcome {
    Finished,
    Detach,
    /// Ctrl-C was typed while there was nobody to pass it on to.
    Interrupt,
}

/// Our stdin on its way to the process: its terminal in raw mode, if both sides have one, and what forwards it.
#[derive(Default)]
pub(crate) struct UserInput {
    pub(crate) raw: Option<RawTerminal>,
    pub(crate) stdin: Option<StdinForwarder>,
}

impl UserInput {
    /// `tty`: the process has a terminal. `at_hangup`: what the end of our raw terminal means for it.
    pub(crate) fn open(tty: bool, at_hangup: StdinEnd) -> anyhow::Result<Self> {
        let raw = match tty {
            true => RawTerminal::enter().context("cannot put the terminal in raw mode")?,
            false => None,
        };
        let end = match (tty, &raw) {
            (false, _) => StdinEnd::ClosePipe,
            (true, None) => StdinEnd::TypeEof,
            (true, Some(_)) => at_hangup,
        };
        Ok(Self { raw, stdin: Some(StdinForwarder::open(end)?) })
    }
}

impl StdinForwarder {
    /// Begins to read our stdin.
    fn open(end: StdinEnd) -> anyhow::Result<Self> {
        let (sender, blocks) = mpsc::channel(1);
        let read = move || read_all(&sender);
        std::thread::Builder::new().name("stdin".into()).spawn(read).context("cannot start the thread of stdin")?;
        Ok(Self { blocks, end })
    }

    /// Forwards until our stdin or the child's ends. While the user sees an `outage`, keys of a raw terminal are for us, too:
    /// they can reach nobody else, and the user must be able to leave.
    pub(crate) async fn forward(
        mut self,
        processes: &dyn Processes,
        id: &ProcessId,
        outage: Option<watch::Receiver<bool>>,
    ) -> anyhow::Result<StdinOutcome> {
        // A process applies each write id once, and other commands may have written to this one before.
        let tag = runtime::random();
        let mut number = 0_u64;
        let has_keys = matches!(self.end, StdinEnd::Detach | StdinEnd::Hangup);
        let mut keys = Keys {
            detach_keys: (self.end == StdinEnd::Detach).then(DetachKeys::default),
            outage: outage.filter(|_| has_keys),
            typed: BytesMut::new(),
            leaves: false,
        };
        while let Some(block) = keys.next_block(&mut self.blocks).await {
            let block = match has_keys {
                true => match keys.take(&block) {
                    Some(outcome) => return Ok(outcome),
                    None => keys.typed.split().freeze(),
                },
                false => block,
            };
            if !block.is_empty() {
                number += 1;
                let key = WriteId::new(format!("stdin-{tag:x}-{number}")).expect("a short key that is not empty");
                let written = tokio::select! {
                    written = processes.write(id, key, block) => written?,
                    outcome = keys.watch(&mut self.blocks), if has_keys => return Ok(outcome),
                };
                if written != Written::Accepted && keys.detach_keys.is_none() {
                    return Ok(StdinOutcome::Finished);
                }
            }
            if keys.leaves && keys.typed.is_empty() {
                return Ok(StdinOutcome::Detach);
            }
        }
        match self.end {
            StdinEnd::Detach => return Ok(StdinOutcome::Detach),
            StdinEnd::Hangup => {
                processes.signal(id, Signal::Hangup).await?;
            }
            StdinEnd::TypeEof | StdinEnd::ClosePipe => {
                processes.close_stdin(id).await?;
            }
        }
        Ok(StdinOutcome::Finished)
    }
}

/// What the user of a raw terminal has typed and the process has not got yet.
struct Keys {
    /// `None` if they do not leave this process running.
    detach_keys: Option<DetachKeys>,
    /// `None` if there is no connection to lose, or if our stdin is no raw terminal.
    outage: Option<watch::Receiver<bool>>,
    typed: BytesMut,
    /// The user has typed the detach keys, after what is in `typed`.
    leaves: bool,
}

impl Keys {
    /// What was typed while the last block was on its way, else what comes next; `None` at the end of our stdin.
    async fn next_block(&mut self, blocks: &mut mpsc::Receiver<Bytes>) -> Option<Bytes> {
        match self.typed.is_empty() && !self.leaves {
            true => blocks.recv().await,
            false => Some(Bytes::new()),
        }
    }

    /// Adds a block, unless it makes us leave at once.
    fn take(&mut self, block: &Bytes) -> Option<StdinOutcome> {
        let is_out = self.outage.as_ref().is_some_and(|outage| *outage.borrow());
        if is_out && block.contains(&CTRL_C) {
            return Some(StdinOutcome::Interrupt);
        }
        if !self.leaves {
            let (passed, leaves) = match &mut self.detach_keys {
                Some(keys) => keys.filter(block.clone()),
                None => (block.clone(), false),
            };
            self.typed.extend_from_slice(&passed);
            self.leaves = leaves;
        }
        (is_out && self.leaves).then_some(StdinOutcome::Detach)
    }

    /// Reads on while a write waits, and returns when the user leaves. Cancel-safe.
    async fn watch(&mut self, blocks: &mut mpsc::Receiver<Bytes>) -> StdinOutcome {
        loop {
            let has_room = self.typed.len() < TYPED_AHEAD_BYTES && !self.leaves;
            let leaves = self.leaves;
            let block = tokio::select! {
                block = blocks.recv(), if has_room => match block {
                    Some(block) => block,
                    // The end of our stdin is seen again when the write is done.
                    None => std::future::pending().await,
                },
                () = outage_shown(&mut self.outage), if leaves => return StdinOutcome::Detach,
                else => std::future::pending().await,
            };
            if let Some(outcome) = self.take(&block) {
                return outcome;
            }
        }
    }
}

/// Waits until the user sees that there is no connection.
async fn outage_shown(outage: &mut Option<watch::Receiver<bool>>) {
    let shown = match outage {
        Some(outage) => outage.wait_for(|shown| *shown).await.is_ok(),
        None => false,
    };
    if !shown {
        std::future::pending().await
    }
}

fn read_all(blocks: &mpsc::Sender<Bytes>) {
    loop {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        match read_some(&mut block) {
            Ok(0) => return,
            // The receiver is dropped when the child takes no more input.
            Ok(_) => {
                if blocks.blocking_send(block.into()).is_err() {
                    return;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => {
                // A terminal that hung up returns EIO. For the child, every error is the end of input.
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
        // The input is for the shell. The kernel would stop our whole process if we read it.
        std::thread::sleep(BACKGROUND_RETRY);
        return Err(Errno::AGAIN);
    }
    rustix::io::read(stdin, rustix::buffer::spare_capacity(block))
}
