//! A program as the peer: started in its own process group, connected by its stdin and stdout, always terminated.
//!
//! Termination, in order: stdin closes (the sender does that), SIGTERM to the group, up to two seconds of waiting,
//! SIGKILL to the group, reaping. The leader is not reaped before the last signal: as long as it is a zombie its pid
//! belongs to it, and the signal cannot hit another process. If nobody calls [`Child::terminate`], dropping kills at
//! once.
//!
//! Deliberately absent: processes that leave the group by `setsid`. A server terminates those that it started itself.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::limits::{CHILD_GRACE, CHILD_LOG_LINE_BYTES};
use crate::stdio::async_fd;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Looked up in `PATH` if it has no slash.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Added to the environment that is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// `None` for our own working directory.
    pub cwd: Option<PathBuf>,
}

/// A started program, owned by its connection.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: Pid,
    /// Taken by the call that terminates it.
    running: Mutex<Option<RunningProgram>>,
}

#[derive(Debug)]
struct RunningProgram {
    child: tokio::process::Child,
    group: Pid,
    /// Readable once the leader has ended, reaped or not.
    ended: AsyncFd<OwnedFd>,
    log: JoinHandle<()>,
}

pub(crate) fn spawn(program: &Program) -> io::Result<(Child, ChildStdin, ChildStdout)> {
    let mut command = Command::new(&program.program);
    command
        .args(&program.args)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn()?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let pid = pid.expect("a child that was not waited for has its id");
    let stdin = child.stdin.take().expect("piped above");
    let stdout = child.stdout.take().expect("piped above");
    let stderr = child.stderr.take().expect("piped above");
    let ended = async_fd(pidfd_open(pid, PidfdFlags::NONBLOCK)?)?;
    let log = tokio::spawn(log_lines(stderr, pid));
    let running = RunningProgram { child, group: pid, ended, log };
    Ok((Child { pid, running: Mutex::new(Some(running)) }, stdin, stdout))
}

impl Child {
    /// Ends the program and its group, and reaps it.
    pub(crate) async fn terminate(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut running) = running {
            running.terminate().await;
        }
    }
}

impl RunningProgram {
    async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        // If waiting fails we cannot know when the leader ends, so the grace period is skipped.
        let _ = timeout(CHILD_GRACE, self.ended.readable()).await;
        self.signal(Signal::KILL);
        match self.child.wait().await {
            Ok(status) => tracing::debug!(pid = self.group.as_raw_nonzero(), %status, "program ended"),
            Err(error) => tracing::warn!("cannot reap process {}: {error}", self.group.as_raw_nonzero()),
        }
        // A grandchild outside the group may hold stderr open; it is not waited for.
        if timeout(CHILD_GRACE, &mut self.log).await.is_err() {
            self.log.abort();
        }
    }

    fn signal(&self, signal: Signal) {
        // Once the leader is reaped, its pid may belong to another process.
        if self.child.id().is_some() {
            // The only failure is that nobody is left in the group.
            let _ = kill_process_group(self.group, signal);
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // tokio kills and reaps the leader of a dropped child; the rest of the group is up to us.
        self.signal(Signal::KILL);
        self.log.abort();
    }
}

/// Logs what the program prints on stderr.
async fn log_lines(stderr: ChildStderr, pid: Pid) {
    let mut reader = BufReader::with_capacity(CHILD_LOG_LINE_BYTES, stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut piece = (&mut reader).take(CHILD_LOG_LINE_BYTES as u64);
        if !matches!(piece.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(line.trim_ascii_end());
        tracing::info!(target: "exec_transport::child", pid = pid.as_raw_nonzero(), "{text}");
    }
}
