//! A machine where no server runs yet: reached by ssh, or in a container by docker, podman or kubectl.
//!
//! ```text
//!   here                                             there
//!   ssh HOST sh -c SCRIPT ─────────────────────────► says which system it is; looks for our binary
//!   sends the binary, if it was asked for ─────────► verifies it, renames it into ~/.cache/exec-server
//!                                                    runs it: `exec-server relay`
//!                                                    finds or starts the server of the account, durable
//!   a WebSocket over the program's stdio ◄─────────► the server's unix socket
//! ```
//!
//! In the order in which a connection meets them: `target` is what a URL names and which program leads there, `script`
//! what a shell does there, `binary` what is sent, `failure` what people are told.
//!
//! Contract: when the program dies, or the network, or the server there, the next dial starts the program again, and the
//! session goes on. Nothing here asks a question after the first connection, and nothing waits without a bound.
//!
//! Deliberately absent: keys, hosts and users. They are ssh's business, and are configured where ssh reads them.

mod binary;
mod failure;
mod script;
mod target;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use exec_env::BoxFuture;
use exec_transport::{ConnectError, Connection, Limits, ProgramEnd, ProgramGroup, StartedProgram};
use tokio::io::AsyncWriteExt;
use tokio::sync::OnceCell;

use crate::dial::Dial;
use crate::limits::{
    BOOTSTRAP_ASK_TIMEOUT, BOOTSTRAP_JUNK_BYTES, BOOTSTRAP_QUICK_FAILURES, BOOTSTRAP_SLOW_RETRY,
    BOOTSTRAP_STEP_TIMEOUT, GIVE_UP_BOOTSTRAP, UPLOAD_DRAIN_TIMEOUT, UPLOAD_PIECE_BYTES,
};

pub use binary::{BinaryError, FarBinary};
pub use target::{BootstrapTarget, BootstrapTargetError};

use failure::{Problem, Stage};
use script::{Mark, Reply};

/// How the way in is made.
#[derive(Debug, Clone, Default)]
pub struct BootstrapOptions {
    /// The binary to run there; if `None`, that of `EXEC_SERVER_BINARY`, else [`Self::packaged_binary`], else our own program if
    /// it is exec-server, else the `exec-server` of our PATH.
    pub binary: Option<PathBuf>,
    /// The `exec-server` that came with a program which embeds us, as a Python package has one. If there is no such file it does
    /// not count.
    pub packaged_binary: Option<PathBuf>,
    /// Whether ssh may ask for a password or about a host key, on our terminal. It never does when it connects again.
    pub may_ask: bool,
    /// Is told how far it is.
    pub progress: Option<ProgressSink>,
}

/// How far the way in is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The program is started. It may ask the user something now.
    Connecting,
    /// We are in.
    LookingForBinary,
    /// The binary is being sent.
    Sending {
        /// Bytes that were sent.
        sent: u64,
        /// All of them.
        total: u64,
    },
    /// The binary is there. It is started.
    Starting,
}

/// Is told of [`Progress`].
#[derive(Clone)]
pub struct ProgressSink(pub Arc<dyn Fn(Progress) + Send + Sync>);

impl std::fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProgressSink")
    }
}

/// Makes connections to the server of the account at a [`BootstrapTarget`], which it brings there and starts.
#[derive(Debug)]
pub struct BootstrapDial {
    target: BootstrapTarget,
    options: BootstrapOptions,
    /// Looked at once, when it is first needed.
    binary: OnceCell<FarBinary>,
    /// Whether there was a connection. From then on nobody is asked anything.
    was_connected: AtomicBool,
    /// Attempts in a row that failed.
    failures: AtomicU32,
}

impl BootstrapDial {
    /// Nothing happens before it is asked for a connection.
    pub fn new(target: BootstrapTarget, options: BootstrapOptions) -> Self {
        Self {
            target,
            options,
            binary: OnceCell::new(),
            was_connected: AtomicBool::new(false),
            failures: AtomicU32::new(0),
        }
    }

    async fn dial_with_pauses(&self) -> Result<Connection, ConnectError> {
        if self.failures.load(Ordering::Relaxed) >= BOOTSTRAP_QUICK_FAILURES {
            tokio::time::sleep(BOOTSTRAP_SLOW_RETRY).await;
        }
        let dialed = self.dial_once().await;
        match dialed {
            Ok(_) => self.failures.store(0, Ordering::Relaxed),
            Err(_) => drop(self.failures.fetch_add(1, Ordering::Relaxed)),
        }
        dialed
    }

    async fn dial_once(&self) -> Result<Connection, ConnectError> {
        let find = || FarBinary::find(self.options.binary.clone(), self.options.packaged_binary.clone());
        let binary = self.binary.get_or_try_init(find).await;
        let binary = binary.map_err(|error| self.no_way_in(error.to_string(), true))?;
        let asks = self.options.may_ask && !self.was_connected.load(Ordering::Relaxed);
        let group = if asks { ProgramGroup::Shared } else { ProgramGroup::Own };
        let mark = Mark::random();
        let program = self.target.program(&script::words(&mark, binary), asks);
        let mut started = StartedProgram::start(&program, group).map_err(|error| match error {
            ConnectError::Spawn { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                self.no_way_in(failure::tool_is_missing(&self.target), true)
            }
            other => other,
        })?;
        self.report(Progress::Connecting);
        let mut conversation =
            Conversation { dial: self, started: &mut started, mark: &mark, stage: Stage::Connecting, junk: Vec::new() };
        match conversation.run(binary, asks).await {
            Ok(()) => {}
            Err(problem) => {
                let (stage, junk) = (conversation.stage, conversation.junk);
                let ProgramEnd { status, stderr } = started.end().await;
                let told = failure::Told { stage, problem, status, stderr, junk };
                return Err(self.no_way_in(failure::explain(&self.target, binary, &told), told.is_permanent()));
            }
        }
        let connected = tokio::time::timeout(BOOTSTRAP_STEP_TIMEOUT, started.into_connection(&Limits::default())).await;
        let connection =
            connected.unwrap_or_else(|_| Err(self.no_way_in("its server does not answer".to_owned(), false)))?;
        self.was_connected.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    fn no_way_in(&self, problem: String, permanent: bool) -> ConnectError {
        ConnectError::NoWayIn { target: self.target.to_string(), problem, permanent }
    }

    fn report(&self, progress: Progress) {
        if let Some(ProgressSink(sink)) = &self.options.progress {
            sink(progress);
        }
    }
}

impl Dial for BootstrapDial {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, ConnectError>> {
        Box::pin(self.dial_with_pauses())
    }

    fn give_up(&self) -> Duration {
        GIVE_UP_BOOTSTRAP
    }
}

/// What is said before the stream is the server's.
struct Conversation<'a> {
    dial: &'a BootstrapDial,
    started: &'a mut StartedProgram,
    mark: &'a Mark,
    stage: Stage,
    /// The beginning of what was printed and is not ours: a login shell may greet.
    junk: Vec<u8>,
}

impl Conversation<'_> {
    async fn run(&mut self, binary: &FarBinary, asks: bool) -> Result<(), Problem> {
        let patience = if asks { BOOTSTRAP_ASK_TIMEOUT } else { BOOTSTRAP_STEP_TIMEOUT };
        let Reply::System(system) = self.reply(patience).await? else { return Err(Problem::OutOfStep) };
        self.stage = Stage::Looking { system };
        self.dial.report(Progress::LookingForBinary);
        match self.reply(BOOTSTRAP_STEP_TIMEOUT).await? {
            Reply::Have => {}
            Reply::Want => {
                self.stage = Stage::Sending;
                self.send(binary).await?;
            }
            Reply::System(_) | Reply::Ready => return Err(Problem::OutOfStep),
        }
        self.stage = Stage::Starting;
        self.dial.report(Progress::Starting);
        match self.reply(BOOTSTRAP_STEP_TIMEOUT).await? {
            Reply::Ready => Ok(()),
            Reply::System(_) | Reply::Have | Reply::Want => Err(Problem::OutOfStep),
        }
    }

    /// Sends the binary, and waits until it is verified there.
    async fn send(&mut self, binary: &FarBinary) -> Result<(), Problem> {
        let mut pieces = binary.open().await.map_err(Problem::OwnBinary)?;
        let mut sent = 0;
        while let Some(piece) = pieces.next(UPLOAD_PIECE_BYTES).await.map_err(Problem::OwnBinary)? {
            let written = tokio::time::timeout(BOOTSTRAP_STEP_TIMEOUT, self.started.stdin.write_all(&piece)).await;
            match written {
                Ok(Ok(())) => {}
                // It does not read on. Why, is in what it says: that is read below.
                Ok(Err(_)) => break,
                Err(_) => return Err(Problem::Silent(BOOTSTRAP_STEP_TIMEOUT)),
            }
            sent += piece.len() as u64;
            self.dial.report(Progress::Sending { sent, total: binary.bytes });
        }
        let _ = self.started.stdin.flush().await;
        match self.reply(UPLOAD_DRAIN_TIMEOUT).await? {
            Reply::Have => Ok(()),
            Reply::System(_) | Reply::Want | Reply::Ready => Err(Problem::OutOfStep),
        }
    }

    /// The next line that is for us; whatever a login shell prints beside them is passed over.
    async fn reply(&mut self, patience: Duration) -> Result<Reply, Problem> {
        let waiting = async {
            loop {
                let line = self.started.lines.next().await.map_err(|_| Problem::Ended)?.ok_or(Problem::Ended)?;
                match self.mark.read(&line) {
                    Some(reply) => return reply.map_err(Problem::Refused),
                    None => {
                        self.junk.extend_from_slice(&line);
                        self.junk.push(b'\n');
                    }
                }
                if self.junk.len() > BOOTSTRAP_JUNK_BYTES {
                    return Err(Problem::TooMuchJunk);
                }
            }
        };
        tokio::time::timeout(patience, waiting).await.unwrap_or(Err(Problem::Silent(patience)))
    }
}
