//! A program as the peer: started in its own process group, connected by its stdin and stdout, always terminated.
//!
//! Termination, in order: stdin closes (the sender does that), SIGTERM to the group, up to two seconds of waiting,
//! SIGKILL to the group, reaping. The leader is not reaped before the last signal: as long as it is a zombie its pid
//! belongs to it, and the signal cannot hit another process. If nobody calls [`Child::terminate`], dropping kills at
//! once.
//!
//! A [`StartedProgram`] is one whose stdio is not a connection yet: lines are exchanged with it first (see exec-client's
//! `bootstrap`), and what it has written to stderr can be told when that fails.
//!
//! Deliberately absent: processes that leave the group by `setsid`. A server terminates those that it started itself.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::websocket::{self, UpgradeRequest};
use super::{ConnectError, ConnectErrorKind};
use crate::connection::Connection;
use crate::limits::{CHILD_GRACE, CHILD_LAST_LINES, CHILD_LOG_LINE_BYTES, Limits, PROGRAM_LINE_BYTES};
use crate::peer::Peer;
use crate::stdio::async_fd;
use crate::stream::send_queue::Framing;
use crate::stream::{self, HeldResource};
use crate::websocket::{MaskKeys, Role};

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

/// Which signals reach a program beside ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramGroup {
    /// A process group of its own, which is ended as a whole. It cannot ask the user anything: the terminal stops whoever
    /// reads from it without being in its foreground.
    Own,
    /// Ours, so that it may ask the user. Only the program itself is ended by us.
    Shared,
}

/// A program that was started, and has not become a connection.
#[derive(Debug)]
pub struct StartedProgram {
    name: String,
    child: Box<Child>,
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it writes.
    pub lines: ProgramLines,
}

/// The lines that a program writes to its stdout.
#[derive(Debug)]
pub struct ProgramLines {
    stdout: ChildStdout,
    buffer: Vec<u8>,
}

/// How a program ended that became no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramEnd {
    /// `None` if that is not known.
    pub status: Option<ExitStatus>,
    /// The last lines that it wrote to stderr.
    pub stderr: Vec<String>,
}

impl StartedProgram {
    pub fn start(program: &Program, group: ProgramGroup) -> Result<Self, ConnectError> {
        let name = program.program.to_string_lossy().into_owned();
        match spawn(program, group) {
            Ok((child, stdin, stdout)) => {
                let lines = ProgramLines { stdout, buffer: Vec::new() };
                Ok(Self { name, child: Box::new(child), stdin, lines })
            }
            Err(source) => Err(ConnectError::Spawn { program: name, source }),
        }
    }

    /// Its stdio is the stream of a server from here on, as a connection to a unix socket would be.
    pub async fn into_connection(self, limits: &Limits) -> Result<Connection, ConnectError> {
        let Self { name, child, stdin, lines } = self;
        let failed = |error: ConnectErrorKind| error.with_target(name.clone());
        if !lines.buffer.is_empty() {
            return Err(failed(ConnectErrorKind::NotWebSocket("it speaks before it is asked")));
        }
        let request = UpgradeRequest { host: "localhost", path_and_query: "/", bearer_token: None };
        let upgraded = websocket::upgrade(tokio::io::join(lines.stdout, stdin), &request).await;
        let (stream, already_read): (_, Bytes) = upgraded.map_err(failed)?;
        let (stdout, stdin) = stream.into_inner();
        let framing = Framing::WebSocket(Role::Client(MaskKeys::default()));
        let pid = child.pid.as_raw_nonzero().get().unsigned_abs();
        let peer = Peer::Program { program: name, pid };
        Ok(stream::open(stdout, stdin, (framing, already_read), limits, HeldResource::Child(child), peer))
    }

    /// Lets it end by itself for a moment, then ends it.
    pub async fn end(self) -> ProgramEnd {
        let Self { child, stdin, lines, .. } = self;
        drop((stdin, lines));
        let running = child.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let status = match running {
            Some(mut running) => {
                let _ = timeout(CHILD_GRACE, running.ended.readable()).await;
                running.terminate().await
            }
            None => None,
        };
        ProgramEnd { status, stderr: child.last_lines.all() }
    }
}

impl ProgramLines {
    /// The next line without its end; `None` at the end of the output. Cancel-safe. A line that is too long comes in pieces.
    pub async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            if self.buffer.len() >= PROGRAM_LINE_BYTES {
                return Ok(Some(std::mem::take(&mut self.buffer)));
            }
            let mut piece = [0; 1024];
            match self.stdout.read(&mut piece).await? {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => return Ok(Some(std::mem::take(&mut self.buffer))),
                read => self.buffer.extend_from_slice(&piece[..read]),
            }
        }
    }
}

/// The last lines of a program's stderr.
#[derive(Debug, Clone, Default)]
struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == CHILD_LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// A started program, owned by its connection.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: Pid,
    /// Taken by the call that terminates it.
    running: Mutex<Option<RunningProgram>>,
    last_lines: LastLines,
}

#[derive(Debug)]
struct RunningProgram {
    child: tokio::process::Child,
    pid: Pid,
    group: ProgramGroup,
    /// Readable once the leader has ended, reaped or not.
    ended: AsyncFd<OwnedFd>,
    log: JoinHandle<()>,
}

pub(crate) fn spawn(program: &Program, group: ProgramGroup) -> io::Result<(Child, ChildStdin, ChildStdout)> {
    let mut command = Command::new(&program.program);
    command
        .args(&program.args)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if group == ProgramGroup::Own {
        command.process_group(0);
    }
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
    let last_lines = LastLines::default();
    let log = tokio::spawn(log_lines(stderr, pid, last_lines.clone()));
    let running = RunningProgram { child, pid, group, ended, log };
    Ok((Child { pid, running: Mutex::new(Some(running)), last_lines }, stdin, stdout))
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
    async fn terminate(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        // If waiting fails we cannot know when the leader ends, so the grace period is skipped.
        let _ = timeout(CHILD_GRACE, self.ended.readable()).await;
        self.signal(Signal::KILL);
        let status = self.child.wait().await;
        match &status {
            Ok(status) => tracing::debug!(pid = self.pid.as_raw_nonzero(), %status, "program ended"),
            Err(error) => tracing::warn!("cannot reap process {}: {error}", self.pid.as_raw_nonzero()),
        }
        // A grandchild outside the group may hold stderr open; it is not waited for.
        if timeout(CHILD_GRACE, &mut self.log).await.is_err() {
            self.log.abort();
        }
        status.ok()
    }

    fn signal(&self, signal: Signal) {
        // Once the leader is reaped, its pid may belong to another process.
        if self.child.id().is_some() {
            // The only failure is that nobody is left.
            let _ = match self.group {
                ProgramGroup::Own => kill_process_group(self.pid, signal),
                ProgramGroup::Shared => kill_process(self.pid, signal),
            };
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

/// Logs what the program prints on stderr, and keeps the last of it.
async fn log_lines(stderr: ChildStderr, pid: Pid, last_lines: LastLines) {
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
        last_lines.push(text.into_owned());
    }
}
