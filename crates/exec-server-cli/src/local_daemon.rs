//! The server of this account on this machine: found, or started in the background; started again if it was killed.
//!
//! It is `exec-server serve` on a unix socket in our state folder, in a session of its own, without anything of ours on its
//! stdio. A file lock makes two starters start one. Whoever dials gets a connection to a server that is ready, so clients
//! reconnect after a kill as after any break; what runs is held by the keeper meanwhile. It ends by itself when for ten
//! minutes nobody was connected, nothing ran and no results were kept.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use exec_client::Dial;
use exec_env::BoxFuture;
use exec_transport::{ConnectError, ConnectOptions, ConnectUrl, Connection, Target};

use crate::{runtime, target};

/// How long a server may take from its start until it answers. A busy machine needs a second.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How often it is asked meanwhile: the start of a server takes some 20 ms.
const START_RETRY: Duration = Duration::from_millis(5);

/// How long it stays when nobody uses it, and it has nothing for anybody. Long enough for the next client of a busy hour.
const IDLE_TIME: &str = "10m";

/// The name of its socket.
const SOCKET: &str = "socket";

/// Longest path of a unix socket.
const SOCKET_PATH_BYTES: usize = 107;

/// Above this the log of the servers is begun anew.
const LOG_BYTES: u64 = 1 << 20;

/// One attempt to connect.
type Attempt<T> = for<'a> fn(&'a LocalDaemon) -> BoxFuture<'a, Result<T, ConnectError>>;

#[derive(Debug)]
pub(crate) struct LocalDaemon {
    home: PathBuf,
    url: Target,
    /// Those that we have started: they are our children, and somebody must reap them.
    started: Mutex<Vec<Child>>,
}

impl LocalDaemon {
    pub(crate) fn of_this_account() -> anyhow::Result<Self> {
        let home = target::state_directory()?.join("daemon");
        let socket = home.join(SOCKET);
        anyhow::ensure!(
            socket.as_os_str().len() <= SOCKET_PATH_BYTES,
            "the path {} is too long for a socket: set EXEC_SERVER_HOME to a shorter one",
            socket.display()
        );
        Ok(Self { url: Target::Url(ConnectUrl::Unix(socket)), home, started: Mutex::default() })
    }

    async fn connect(&self) -> Result<Connection, ConnectError> {
        exec_transport::connect(&self.url, &ConnectOptions::default()).await
    }

    /// Whether there is one, or was one that did not end by itself and may have left something to its successor.
    pub(crate) fn is_or_was_there(&self) -> bool {
        self.socket().exists()
    }

    /// The bytes of a connection, for somebody else who knows what they mean.
    pub(crate) async fn stream(&self) -> Result<UnixStream, ConnectError> {
        self.reach(|daemon| {
            let connected = UnixStream::connect(daemon.socket()).map_err(|source| daemon.failed(source));
            Box::pin(std::future::ready(connected))
        })
        .await
    }

    /// Makes a connection by `connect`, and starts the server if there is none.
    async fn reach<T>(&self, connect: Attempt<T>) -> Result<T, ConnectError> {
        match connect(self).await {
            Err(ConnectError::Unreachable { .. }) => {}
            other => return other,
        }
        self.reap();
        let deadline = Instant::now() + START_TIMEOUT;
        // Held until the server answers, so that the next starter finds it.
        let _lock = self.lock(deadline).await.map_err(|source| self.failed(source))?;
        match connect(self).await {
            Err(ConnectError::Unreachable { .. }) => {}
            other => return other,
        }
        let mut child = self.start().map_err(|source| self.failed(source))?;
        let connected = loop {
            match connect(self).await {
                Err(ConnectError::Unreachable { .. }) => {}
                other => break other,
            }
            match child.try_wait() {
                Ok(None) if Instant::now() < deadline => tokio::time::sleep(START_RETRY).await,
                Ok(None) => break Err(self.failed(io::ErrorKind::TimedOut.into())),
                _ => break Err(self.failed(io::Error::other(self.last_words()))),
            }
        };
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        connected
    }

    fn start(&self) -> io::Result<Child> {
        let mut listen = std::ffi::OsString::from("unix://");
        listen.push(self.socket());
        let log = self.open_log()?;
        let mut command = Command::new(runtime::own_program()?);
        command.arg("serve").arg("--own-session").arg("--listen").arg(listen);
        command.arg("--state-dir").arg(self.home.join("state")).args(["--exit-when-idle", IDLE_TIME]);
        // It must not keep a folder of the project's busy. Relative paths begin at home, as with ssh.
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
        // It outlives the login that needed it first, and these are of that login alone.
        for name in ["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_AUTH_SOCK", "XDG_SESSION_ID"] {
            command.env_remove(name);
        }
        command.current_dir(home.unwrap_or_else(|| "/".into())).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn()
    }

    async fn lock(&self, deadline: Instant) -> io::Result<File> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.home)?;
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(self.home.join("lock"))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => tokio::time::sleep(START_RETRY).await,
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    fn open_log(&self) -> io::Result<File> {
        let path = self.log_path();
        let is_large = std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_BYTES);
        if is_large {
            std::fs::remove_file(&path)?;
        }
        File::options().append(true).create(true).mode(0o600).open(path)
    }

    /// What a server that ended at once has written last.
    fn last_words(&self) -> String {
        let log = std::fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().next_back().unwrap_or("it ended without a word");
        format!("{last} (see {})", self.log_path().display())
    }

    fn socket(&self) -> PathBuf {
        self.home.join(SOCKET)
    }

    fn log_path(&self) -> PathBuf {
        self.home.join("log")
    }

    fn failed(&self, source: io::Error) -> ConnectError {
        ConnectError::Unreachable { target: format!("the server of this account in {}", self.home.display()), source }
    }

    /// Forgets children that have ended.
    fn reap(&self) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Dial for LocalDaemon {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, ConnectError>> {
        Box::pin(self.reach(|daemon| Box::pin(daemon.connect())))
    }
}
