//! The verbs of the waist over the table.

use std::time::Duration;

use bytes::Bytes;
use exec_core::limits::WRITE_BYTES;
use exec_core::{Command, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};
use exec_env::BoxFuture;
use exec_env::process::{
    ForgetError, ListError, LogFollower, ProcessInfo, Processes, ReadError, ReadQuery, ResizeError, SignalError,
    Signalled, StartError, Started, TerminateError, Terminated, WaitCondition, WaitError, Waited, WriteError, Written,
};
use exec_keeper::protocol::{KeeperRequest, KeeperEvent};
use rustix::io::Errno;
use rustix::termios::Winsize;

use super::{LocalProcesses, ProcessSlot};
use crate::keeper_client::keeper_gone;
use crate::wait;

impl Processes for LocalProcesses {
    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, StartError>> {
        Box::pin(self.table.start(id, command))
    }

    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ReadError>> {
        Box::pin(async move { self.table.find(id)?.log().read(query).await })
    }

    fn follow<'a>(&'a self, id: &'a ProcessId, after: Seq) -> BoxFuture<'a, Result<Box<dyn LogFollower>, ReadError>> {
        Box::pin(async move {
            let follower: Box<dyn LogFollower> = Box::new(self.table.find(id)?.log().follow(after));
            Ok(follower)
        })
    }

    fn write<'a>(
        &'a self,
        id: &'a ProcessId,
        write_id: WriteId,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Written, WriteError>> {
        Box::pin(async move {
            if bytes.len() > WRITE_BYTES {
                return Err(WriteError::TooLarge { found_bytes: bytes.len(), limit_bytes: WRITE_BYTES });
            }
            Ok(self.table.find(id)?.stdin().write(write_id, bytes).await)
        })
    }

    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, WriteError>> {
        Box::pin(async move { Ok(self.table.find(id)?.stdin().close().await) })
    }

    fn resize<'a>(&'a self, id: &'a ProcessId, size: TerminalSize) -> BoxFuture<'a, Result<(), ResizeError>> {
        Box::pin(async move {
            if size.rows == 0 || size.cols == 0 {
                return Err(ResizeError::NoCells { size });
            }
            let process = self.table.find(id)?;
            let terminal = process.terminal().ok_or_else(|| ResizeError::NoTerminal { id: id.clone() })?;
            let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
            // Fails only when the terminal is gone, and then its size matters to nobody.
            let _ = rustix::termios::tcsetwinsize(terminal, size);
            Ok(())
        })
    }

    fn signal<'a>(&'a self, id: &'a ProcessId, signal: Signal) -> BoxFuture<'a, Result<Signalled, SignalError>> {
        Box::pin(async move {
            let number = self.table.find(id)?.number();
            let ask = |request_id| KeeperRequest::Signal { request_id, number, signal: signal.number() };
            match self.table.keeper.request(ask).await? {
                (KeeperEvent::Signalled { errno: 0, .. }, _) => Ok(Signalled::Sent),
                (KeeperEvent::Signalled { errno, .. }, _) if errno == Errno::SRCH.raw_os_error() => {
                    Ok(Signalled::AlreadyExited)
                }
                (KeeperEvent::Signalled { errno, .. }, _) => Err(SignalError::Refused { id: id.clone(), errno }),
                _ => Err(keeper_gone().into()),
            }
        })
    }

    fn terminate<'a>(
        &'a self,
        id: &'a ProcessId,
        grace: Duration,
    ) -> BoxFuture<'a, Result<Terminated, TerminateError>> {
        Box::pin(async move {
            if let Some(ProcessSlot::Reserved { cancelled }) = self.table.lock().by_id.get_mut(id) {
                *cancelled = true;
                return Ok(Terminated { was_running: true, ended: 0, left: 0 });
            }
            let number = self.table.find(id)?.number();
            match self.table.keeper.request(|request_id| KeeperRequest::Terminate { request_id, number, grace }).await? {
                (KeeperEvent::Terminated { was_running, ended, left, .. }, _) => Ok(Terminated { was_running, ended, left }),
                _ => Err(keeper_gone().into()),
            }
        })
    }

    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        until: WaitCondition,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, WaitError>> {
        Box::pin(async move {
            let process = self.table.find(id)?;
            let waiting = wait::until(&self.table.keeper, &process, until);
            match deadline {
                None => waiting.await,
                Some(deadline) => tokio::time::timeout(deadline, waiting).await.unwrap_or(Ok(Waited::DeadlinePassed)),
            }
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, ListError>> {
        Box::pin(async move {
            let mut processes: Vec<_> = self.table.lock().by_number.values().cloned().collect();
            processes.sort_by_key(|process| process.number());
            Ok(processes.iter().map(|process| process.info()).collect())
        })
    }

    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ForgetError>> {
        Box::pin(async move {
            let process = self.table.find(id)?;
            if !process.head().closed {
                let number = process.number();
                let grace = Duration::ZERO;
                let _ = self.table.keeper.request(|request_id| KeeperRequest::Terminate { request_id, number, grace }).await;
            }
            {
                let mut state = self.table.lock();
                state.by_id.remove(id);
                state.by_number.remove(&process.number());
            }
            self.table.keeper.send(&KeeperRequest::Forget { number: process.number() }, &[]).await?;
            Ok(())
        })
    }
}
