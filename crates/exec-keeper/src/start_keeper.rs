//! Three ways to get a keeper: a thread of the owner's process ([`as_thread`]), a process that ends with the owner
//! ([`as_process`]), or a process that outlives it and is found again through a socket in the state directory
//! ([`connect_or_start`]). [`main`] is the other side: what a keeper process runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::channel::Channel;
use crate::keeper::{self, KeeperConfig, OwnerExitPolicy};
use crate::private_directory;
use crate::spool::directory::SpoolDirectory;
use crate::stderr_log::log;

/// Name of the socket in the state directory.
const SOCKET: &str = "keeper.sock";
/// Locked while an owner looks for a keeper or starts one.
const LOCK: &str = "keeper.lock";
/// Stderr of a keeper process that outlives its owner.
const LOG: &str = "keeper.log";

#[derive(Debug, thiserror::Error)]
pub enum KeeperStartError {
    #[error("cannot use state folder {path:?}: {error}")]
    Directory { path: PathBuf, error: io::Error },
    /// A file that we keep in the state directory.
    #[error("cannot use {path:?}: {error}{}", advice_on(error))]
    File { path: PathBuf, error: io::Error },
    /// Its owner could read our logs and connect to the keeper.
    #[error("state folder {path:?} belongs to somebody else (uid {uid}): choose one of your own")]
    Foreign { path: PathBuf, uid: u32 },
    #[error("state folder {path:?} is a link, or no folder at all: give the path of the folder itself")]
    Link { path: PathBuf },
    /// What it says may be somebody else's, down to the sessions and the logs.
    #[error(
        "state folder {path:?} could be written to by others, so {entry:?} in it is not trusted: look at it and remove it, \
         or choose another folder"
    )]
    Untrusted { path: PathBuf, entry: PathBuf },
    /// The kernel takes 107 bytes for the path of a socket.
    #[error("the path of socket {path:?} is too long for the kernel: choose a shorter state folder")]
    LongPath { path: PathBuf },
    #[error("cannot start the keeper {program:?}: {error}")]
    Program { program: PathBuf, error: io::Error },
    /// Without them, a signal could hit a process that has got the pid of another.
    #[error(
        "this kernel, or a seccomp filter, has no pidfds ({0}): Linux 5.4 or newer is needed, with pidfd_open allowed"
    )]
    NoPidfds(Errno),
    #[error("cannot set up the keeper: {0}")]
    System(#[from] Errno),
    #[error("cannot start the keeper's thread: {0}")]
    Thread(io::Error),
}

/// Runs a keeper in a thread of this process. The thread ends when the returned channel is dropped and every tree is
/// gone.
pub fn as_thread(
    spool_directory: Arc<SpoolDirectory>,
    cgroups: bool,
) -> Result<(Channel, std::thread::JoinHandle<()>), KeeperStartError> {
    check_kernel()?;
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
            log(format_args!("exec-server: the keeper's loop failed: {errno}"));
        }
    };
    let handle = std::thread::Builder::new().name("keeper".into()).spawn(run).map_err(KeeperStartError::Thread)?;
    Ok((ours, handle))
}

/// How to start a keeper process: a program and the arguments that make it call [`main`].
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    /// Usually our own executable.
    pub program: PathBuf,
    /// Come before the arguments that this module adds.
    pub args: Vec<std::ffi::OsString>,
}

/// Starts a keeper process that kills every tree and ends as soon as we end, in whatever way we do.
pub fn as_process(
    program: &KeeperProgram,
    directory: &Path,
    total_bytes: u64,
) -> Result<(Channel, std::process::Child), KeeperStartError> {
    check_kernel()?;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let child = spawn_keeper(program, theirs, &["--with-owner".into()], directory, total_bytes, Stdio::inherit())?;
    Ok((Channel::from_socket(ours)?, child))
}

/// Connects to the keeper of a state directory, or starts one that outlives us and keeps its logs in `spool`.
pub fn connect_or_start(
    program: &KeeperProgram,
    state: &Path,
    spool: &Path,
    total_bytes: u64,
    orphan_ttl: Duration,
) -> Result<Channel, KeeperStartError> {
    check_kernel()?;
    private_directory::create(state)?;
    let path = state.join(SOCKET);
    let address = SocketAddrUnix::new(&path).map_err(|_| KeeperStartError::LongPath { path: path.clone() })?;
    let open = |name: &str| {
        let path = state.join(name);
        private_directory::open_file(&path).map_err(|error| KeeperStartError::File { path, error })
    };
    let at_socket = |errno: Errno| KeeperStartError::File { path: path.clone(), error: errno.into() };
    let connect = || connect(new_socket()?, &address, at_socket);
    // Two owners that find no keeper at the same time must not both start one. The lock is released when the file is
    // closed: when this returns, or by the kernel if we are killed.
    let lock = open(LOCK)?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    if let Some(channel) = connect()? {
        return Ok(channel);
    }
    // Nobody listens, so the socket is left over from a keeper that is gone.
    let _ = std::fs::remove_file(&path);
    let listener = new_socket()?;
    rustix::net::bind(&listener, &address).map_err(at_socket)?;
    rustix::net::listen(&listener, 8)?;
    let log = open(LOG)?;
    let args = ["--orphan-ttl-ms".into(), orphan_ttl.as_millis().to_string().into()];
    // We do not wait for it: it is meant to outlive us, and init reaps it then.
    drop(spawn_keeper(program, listener, &args, spool, total_bytes, Stdio::from(log))?);
    connect()?.ok_or(KeeperStartError::System(Errno::CONNREFUSED))
}

/// What to do about a file that cannot be used. Only where something else has its name is it to be removed: without its socket, a
/// keeper that runs could not be found again, and would end what it keeps.
fn advice_on(error: &io::Error) -> &'static str {
    let is_something_else = error.kind() == io::ErrorKind::InvalidInput
        || [Errno::ISDIR, Errno::LOOP, Errno::NXIO, Errno::ADDRINUSE, Errno::PROTOTYPE]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    match is_something_else {
        true => "; a server keeps that file in its state folder, so remove what is there instead",
        false => "",
    }
}

/// A keeper would fail later, and say less.
fn check_kernel() -> Result<(), KeeperStartError> {
    match rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()) {
        Err(errno @ (Errno::NOSYS | Errno::PERM)) => Err(KeeperStartError::NoPidfds(errno)),
        _ => Ok(()),
    }
}

/// Runs the loop of a keeper process. Its socket was passed as standard input.
fn run_process(directory: &Path, total_bytes: u64, on_owner_exit: OwnerExitPolicy) -> Result<(), Errno> {
    // Its children run as the same user, and must not read its memory or take its descriptors. They can be looked at
    // themselves again as soon as they run their own program.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    // In a session of its own, it gets no signals from the terminal it was started in.
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

/// The main function of a keeper process; `args` are those that `spawn_keeper` passes.
pub fn main(args: impl Iterator<Item = std::ffi::OsString>) -> std::process::ExitCode {
    let Some((directory, total_bytes, on_owner_exit)) = parse_args(args) else {
        log("exec-server keeper: this is started by exec-server itself, not by hand");
        return std::process::ExitCode::from(2);
    };
    match run_process(&directory, total_bytes, on_owner_exit) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(errno) => {
            log(format_args!("exec-server keeper: the loop failed: {errno}"));
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
        // It outlives us and needs none of our variables, some of which may be secrets; only its loader may need one.
        .env_clear()
        .envs(std::env::var_os("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH", path)))
        .current_dir("/")
        .spawn()
        .map_err(|error| KeeperStartError::Program { program: program.program.clone(), error })
}

fn new_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn connect(
    socket: OwnedFd,
    address: &SocketAddrUnix,
    failed: impl FnOnce(Errno) -> KeeperStartError,
) -> Result<Option<Channel>, KeeperStartError> {
    match rustix::net::connect(socket.as_fd(), address) {
        Ok(()) => Ok(Some(Channel::from_socket(socket)?)),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_something_else_is_to_be_removed() {
        let said = |error: io::Error| KeeperStartError::File { path: "/s/keeper.sock".into(), error }.to_string();
        for errno in [Errno::ISDIR, Errno::LOOP, Errno::ADDRINUSE] {
            assert!(said(errno.into()).contains("remove what is there"), "{errno}");
        }
        // A keeper may listen there, and would end what it keeps if it could not be found any more.
        for errno in [Errno::MFILE, Errno::NOSPC, Errno::ACCESS, Errno::NOMEM] {
            assert!(!said(errno.into()).contains("remove"), "{errno}");
        }
    }
}
