//! How an owner gets a keeper: as a thread of its own process, as a process that ends with it, or as a process that
//! outlives it and is found again through a socket in the state folder.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::channel::Channel;
use crate::keeper::{self, KeeperConfig, OwnerExitPolicy};
use crate::spool::directory::SpoolDirectory;

/// Name of the socket in the state folder.
pub const SOCKET: &str = "keeper.sock";
/// Held by whoever looks for a keeper, until there is one.
const LOCK: &str = "keeper.lock";
/// Where a keeper process writes what goes wrong.
const LOG: &str = "keeper.log";

/// Why there is no keeper.
#[derive(Debug, thiserror::Error)]
pub enum KeeperStartError {
    /// The folder cannot be used.
    #[error("cannot use state folder {path:?}: {error}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others could reach into it.
    #[error("state folder {path:?} belongs to somebody else (uid {uid}): choose one of your own")]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Whose.
        uid: u32,
    },
    /// The socket's path is longer than the kernel takes.
    #[error("the path of socket {path:?} is too long for the kernel: choose a shorter state folder")]
    LongPath {
        /// Which.
        path: PathBuf,
    },
    /// The program could not be started.
    #[error("cannot start the keeper {program:?}: {error}")]
    Program {
        /// Which.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A system call failed.
    #[error("cannot set up the keeper: {0}")]
    System(#[from] Errno),
    /// The thread could not be made.
    #[error("cannot start the keeper's thread: {0}")]
    Thread(io::Error),
}

/// A keeper carried by a thread. The thread ends when the owner's side of the channel is dropped and every tree is
/// gone; join it to be sure.
pub fn as_thread(
    spool_directory: Arc<SpoolDirectory>,
    cgroups: bool,
) -> Result<(Channel, std::thread::JoinHandle<()>), KeeperStartError> {
    let (ours, theirs) = Channel::pair()?;
    let config = KeeperConfig {
        owner: Some(theirs),
        listener: None,
        spool_directory,
        on_owner_exit: OwnerExitPolicy::KillProcesses,
        own_process: false,
        cgroups,
    };
    let run = move || {
        if let Err(errno) = keeper::run(config) {
            eprintln!("exec-server: the keeper's loop failed: {errno}");
        }
    };
    let handle = std::thread::Builder::new().name("keeper".into()).spawn(run).map_err(KeeperStartError::Thread)?;
    Ok((ours, handle))
}

/// How to start a keeper process: a program and the arguments that make it call [`main`].
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    /// The program, usually our own.
    pub program: PathBuf,
    /// Arguments before ours.
    pub args: Vec<std::ffi::OsString>,
}

/// A keeper process that ends with us, and leaves nothing behind however we end.
pub fn as_process(
    program: &KeeperProgram,
    directory: &Path,
    total_bytes: u64,
) -> Result<(Channel, std::process::Child), KeeperStartError> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let child = spawn_keeper(program, theirs, &["--with-owner".into()], directory, total_bytes, Stdio::inherit())?;
    Ok((Channel::from_socket(ours)?, child))
}

/// The keeper of a state directory: the one that is there, or a new one that outlives us and keeps logs in `spool`.
pub fn connect_or_start(
    program: &KeeperProgram,
    state: &Path,
    spool: &Path,
    total_bytes: u64,
    orphan_ttl: Duration,
) -> Result<Channel, KeeperStartError> {
    create_private_directory(state)?;
    let path = state.join(SOCKET);
    let address = SocketAddrUnix::new(&path).map_err(|_| KeeperStartError::LongPath { path: path.clone() })?;
    let at = |error| KeeperStartError::Directory { path: state.to_owned(), error };
    // Two that find nobody at the same time must not both start_keeper. Let go when this returns, or by the kernel if we die.
    let lock = std::fs::File::options().create(true).append(true).open(state.join(LOCK)).map_err(at)?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    if let Some(channel) = connect(&address)? {
        return Ok(channel);
    }
    // Nobody listens: what is there is left over from a keeper that is gone.
    let _ = std::fs::remove_file(&path);
    let listener = new_socket()?;
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, 8)?;
    let log = std::fs::File::options().create(true).append(true).open(state.join(LOG)).map_err(at)?;
    let args = ["--orphan-ttl-ms".into(), orphan_ttl.as_millis().to_string().into()];
    // It is not waited for: it is meant to be there after us, and what becomes of it then is init's business.
    drop(spawn_keeper(program, listener, &args, spool, total_bytes, Stdio::from(log))?);
    connect(&address)?.ok_or(KeeperStartError::System(Errno::CONNREFUSED))
}

/// The life of a keeper process: its socket is standard input.
fn run_process(directory: &Path, total_bytes: u64, on_owner_exit: OwnerExitPolicy) -> Result<(), Errno> {
    // Signals for the terminal we were started from are not for us.
    let _ = rustix::process::setsid();
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    let (owner, listener) = match on_owner_exit {
        OwnerExitPolicy::KillProcesses => (Some(Channel::from_socket(socket)?), None),
        OwnerExitPolicy::KeepProcesses { .. } => (None, Some(socket)),
    };
    let spool_directory = Arc::new(SpoolDirectory::new(directory, total_bytes));
    keeper::run(KeeperConfig { owner, listener, spool_directory, on_owner_exit, own_process: true, cgroups: true })
}

/// What a keeper process does with its arguments (those of `spawn_keeper`); its exit code.
pub fn main(args: impl Iterator<Item = std::ffi::OsString>) -> std::process::ExitCode {
    let Some((directory, total_bytes, on_owner_exit)) = parse_args(args) else {
        eprintln!("exec-server keeper: this is started by exec-server itself, not by hand");
        return std::process::ExitCode::from(2);
    };
    match run_process(&directory, total_bytes, on_owner_exit) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(errno) => {
            eprintln!("exec-server keeper: the loop failed: {errno}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn parse_args(mut args: impl Iterator<Item = std::ffi::OsString>) -> Option<(PathBuf, u64, OwnerExitPolicy)> {
    let (mut directory, mut total_bytes, mut on_owner_exit) = (None, None, None);
    while let Some(name) = args.next() {
        let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
        match name.to_str()? {
            "--total-bytes" => total_bytes = Some(number()?),
            "--orphan-ttl-ms" => {
                on_owner_exit = Some(OwnerExitPolicy::KeepProcesses { orphan_ttl: Duration::from_millis(number()?) })
            }
            "--with-owner" => on_owner_exit = Some(OwnerExitPolicy::KillProcesses),
            "--folder" => directory = Some(PathBuf::from(args.next()?)),
            _ => return None,
        }
    }
    Some((directory?, total_bytes?, on_owner_exit?))
}

/// A folder only we can enter; made if it is not there.
pub fn create_private_directory(path: &Path) -> Result<(), KeeperStartError> {
    let at = |error| KeeperStartError::Directory { path: path.to_owned(), error };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at)?;
    let found = std::fs::metadata(path).map_err(at)?;
    if found.uid() != rustix::process::getuid().as_raw() {
        return Err(KeeperStartError::Foreign { path: path.to_owned(), uid: found.uid() });
    }
    if found.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(at)?;
    }
    Ok(())
}

fn spawn_keeper(
    program: &KeeperProgram,
    socket: OwnedFd,
    args: &[std::ffi::OsString],
    directory: &Path,
    total_bytes: u64,
    stderr: Stdio,
) -> Result<std::process::Child, KeeperStartError> {
    std::process::Command::new(&program.program)
        .args(&program.args)
        .arg("--folder")
        .arg(directory)
        .arg("--total-bytes")
        .arg(total_bytes.to_string())
        .args(args)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(stderr)
        .current_dir("/")
        .spawn()
        .map_err(|error| KeeperStartError::Program { program: program.program.clone(), error })
}

fn new_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn connect(address: &SocketAddrUnix) -> Result<Option<Channel>, KeeperStartError> {
    let socket = new_socket()?;
    match rustix::net::connect(socket.as_fd(), address) {
        Ok(()) => Ok(Some(Channel::from_socket(socket)?)),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
