//! Spawns a child: makes its pipes or its terminal, and turns a [`LaunchRequest`] into what the clone call needs.

mod low_descriptors;

use std::ffi::{CString, OsStr, OsString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use exec_core::Io;
use exec_core::limits::PATH_DIRECTORIES;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::protocol::{FdRole, Identity, LaunchRequest, PROXY_ROLES, SpawnStep};
use crate::spool::directory::SpoolDirectory;
use crate::supervisor;
use crate::sys::clone::{
    CgroupEntry, ChildStack, ChildStdio, CloneError, ClonedChild, SpawnPlan, can_copy_few_descriptors,
};
use crate::sys::confine::PreparedConfinement;
use crate::sys::listener::{receive_listener, way_for_listener};
use crate::sys::own_process;
use crate::tree::Tree;
use low_descriptors::{LowDescriptors, PlacedDescriptors};

/// Where a program name without a slash is searched if the child has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Longest name of a file on any file system.
const NAME_BYTES: usize = 255;

/// A child, and the descriptors that the keeper and its owner hold of it.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: u32,
    pub(crate) fds: Vec<(FdRole, OwnedFd)>,
    pub(crate) marked: bool,
    /// See [`ClonedChild`].
    pub(crate) init: Option<u32>,
    /// The child's end of its terminal. As long as somebody has it open, the terminal is not at its end, even if the child
    /// has closed it and opens it again; and nobody who moves its output closes it, which would hang the child up.
    pub(crate) terminal: Option<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct SpawnError {
    pub(crate) step: SpawnStep,
    pub(crate) errno: Errno,
    pub(crate) subject: OsString,
    /// The kernel may have refused the cgroup. Another way into it, or none, may work.
    pub(crate) cgroup_refused: bool,
}

/// What all spawns of a thread share.
#[derive(Debug)]
pub(crate) struct Spawner {
    stack: ChildStack,
    null: OwnedFd,
    die_with_keeper: bool,
    /// The soft and hard limit that children get, if it is not ours.
    open_files: Option<(u64, u64)>,
    reset_signals: u64,
    /// Where the pid of the child is written before it runs, see [`SpawnPlan`].
    pid: Arc<AtomicU32>,
    low_descriptors: Option<LowDescriptors>,
    /// For the spawners that are made from this one.
    spare_low_descriptors: Vec<LowDescriptors>,
}

/// So many spawners have low descriptors. There are more only if these hang.
const SPAWNERS_WITH_LOW_DESCRIPTORS: usize = 4;

impl Spawner {
    /// The children of an embedded keeper die with it. A keeper process raises its own limit of open files, and gives
    /// its children the one that it found.
    pub(crate) fn new(embedded: bool) -> Result<Self, Errno> {
        let open_files = if embedded { None } else { raise_open_files() };
        // A host program may change what it does with a signal at any time; a keeper process does not.
        let reset_signals = if embedded { own_process::ALL_SIGNALS } else { own_process::not_default_signals() };
        let null = above_stdio(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)?;
        // The low numbers of a host program are its own, and so is the question whether it has other threads.
        let spare_low_descriptors = if !embedded && can_copy_few_descriptors() {
            (0..SPAWNERS_WITH_LOW_DESCRIPTORS).map(|_| LowDescriptors::reserve(&null)).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        Ok(Self {
            stack: ChildStack::new()?,
            null,
            die_with_keeper: embedded,
            open_files,
            reset_signals,
            pid: Arc::default(),
            low_descriptors: None,
            spare_low_descriptors,
        })
    }

    /// One of these spawns one child at a time. The first has raised our limit of open files already.
    pub(crate) fn for_another_thread(&mut self, pid: Arc<AtomicU32>) -> Result<Self, Errno> {
        let null = rustix::io::fcntl_dupfd_cloexec(&self.null, 3)?;
        let stack = ChildStack::new()?;
        let Self { die_with_keeper, open_files, reset_signals, .. } = *self;
        let low_descriptors = self.spare_low_descriptors.pop();
        let spare_low_descriptors = Vec::new();
        Ok(Self {
            stack,
            null,
            die_with_keeper,
            open_files,
            reset_signals,
            pid,
            low_descriptors,
            spare_low_descriptors,
        })
    }

    /// `descriptors` are those of the confinement that the launch asks for, and behind them the sockets of its proxy.
    pub(crate) fn spawn(
        &mut self,
        launch: &LaunchRequest,
        descriptors: &[OwnedFd],
        tree: &Tree,
        directory: &SpoolDirectory,
    ) -> Result<Spawned, SpawnError> {
        let program = launch.record.argv[0].as_os_str();
        let failed = |step: SpawnStep, subject: &OsStr| {
            let subject = subject.to_owned();
            move |errno| SpawnError { step, errno, subject, cgroup_refused: false }
        };
        directory.check_writable().map_err(failed(SpawnStep::Spool, directory.path().as_os_str()))?;
        let ends = match launch.record.io {
            Io::Pipes { stdin } => StdioEnds::pipes(stdin).map_err(failed(SpawnStep::Pipe, program))?,
            Io::Pty(size) => {
                let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
                StdioEnds::pty(size).map_err(failed(SpawnStep::Pty, program))?
            }
        };
        if let Some(identity) = &launch.identity {
            ends.give_to(identity).map_err(failed(SpawnStep::User, program))?;
        }
        let transfer = SocketTransfer::new(launch).map_err(failed(SpawnStep::Sandbox, program))?;
        let sockets_at = descriptors.len().saturating_sub(launch.proxy_sockets.into());
        let (descriptors, given) = descriptors.split_at(sockets_at);
        let cloned = self.clone_child(launch, descriptors, tree, &ends, transfer.child_end())?;
        let mut fds = ends.ours;
        fds.push((FdRole::Pidfd, cloned.pidfd));
        let given = given.iter().map(|socket| rustix::io::fcntl_dupfd_cloexec(socket, 3));
        let sockets: Vec<OwnedFd> =
            given.chain(transfer.take().into_iter().map(Ok)).collect::<Result<_, _>>().unwrap_or_default();
        fds.extend(PROXY_ROLES.into_iter().zip(sockets));
        Ok(Spawned { pid: cloned.pid, fds, marked: cloned.marked, init: cloned.init, terminal: ends.terminal })
    }

    fn clone_child(
        &mut self,
        launch: &LaunchRequest,
        descriptors: &[OwnedFd],
        tree: &Tree,
        ends: &StdioEnds,
        transfer: Option<BorrowedFd<'_>>,
    ) -> Result<ClonedChild, SpawnError> {
        let record = &launch.record;
        let program = record.argv[0].as_os_str();
        let arg0 = launch.arg0.as_deref().unwrap_or(program);
        let argv: Vec<CString> =
            std::iter::once(arg0).chain(record.argv[1..].iter().map(OsString::as_os_str)).map(c_string).collect();
        let envp: Vec<CString> = launch.environ.iter().map(|variable| c_string(variable)).collect();
        let candidates = candidates(program, launch.path.as_deref()).map_err(|errno| SpawnError {
            step: SpawnStep::Exec,
            errno,
            subject: program.to_owned(),
            cgroup_refused: false,
        })?;
        let cwd = c_string(record.cwd.as_os_str());
        let stdio = ends.of_child(&self.null);
        let unconfined = |subject: &'static str| {
            move |errno| SpawnError { step: SpawnStep::Sandbox, errno, subject: subject.into(), cgroup_refused: false }
        };
        let supervision = launch.confinement.as_ref().and_then(|asked| asked.supervision.as_ref());
        let way = supervision.map(|_| way_to_supervisor()).transpose().map_err(unconfined("making a socket"))?;
        let confinement = launch.confinement.as_ref().map(|asked| {
            let supervisor = way.as_ref().map(|(_, theirs)| theirs.as_fd());
            PreparedConfinement::new(asked, descriptors, transfer, supervisor)
        });
        let confinement = confinement.transpose().map_err(unconfined("reading what was asked for"))?;
        let placed = match &mut self.low_descriptors {
            // What else a child uses of our descriptors is not among the low ones.
            Some(low)
                if confinement.is_none()
                    && tree.limit_entries().is_empty()
                    && !matches!(tree.cgroup_entry(), Some(CgroupEntry::ByWrite(_))) =>
            {
                Some(low.place(stdio, &self.null).map_err(|errno| SpawnError {
                    step: SpawnStep::Pipe,
                    errno,
                    subject: program.to_owned(),
                    cgroup_refused: false,
                })?)
            }
            _ => None,
        };
        let copied_below = placed.as_ref().map(PlacedDescriptors::end);
        let mut plan = SpawnPlan {
            candidates: &candidates,
            argv: &argv,
            envp: &envp,
            cwd: &cwd,
            stdio: placed.as_ref().map_or(stdio, PlacedDescriptors::stdio),
            copied_below,
            cgroup: tree.cgroup_entry(),
            limit_entries: tree.limit_entries(),
            rlimits: tree.rlimits(),
            identity: launch.identity.as_ref(),
            mark: tree.mark(),
            die_with_parent: self.die_with_keeper,
            open_files: self.open_files,
            reset_signals: self.reset_signals,
            confinement,
            pid: &self.pid,
        };
        let cloned = self.stack.spawn(&mut plan).map_err(|CloneError { step, errno, confine_step }| {
            let subject = match (step, confine_step, &plan.confinement) {
                (SpawnStep::Cwd, ..) => record.cwd.clone().into(),
                (SpawnStep::Limits, ..) => "the process did not come under its limits".into(),
                (_, Some(at), Some(confinement)) => confinement.describe(at).into(),
                _ => program.to_owned(),
            };
            let cgroup_refused = step == SpawnStep::Clone
                && tree.cgroup_entry().is_some()
                && !matches!(errno, Errno::AGAIN | Errno::NOMEM);
            SpawnError { step, errno, subject, cgroup_refused }
        })?;
        if let (Some((ours, theirs)), Some(supervision)) = (way, supervision) {
            drop(theirs);
            let begun = receive_listener(&ours).and_then(|at| supervisor::start(at, supervision.places.clone()));
            begun.inspect_err(|_| end(&cloned)).map_err(unconfined("beginning to supervise it"))?;
        }
        Ok(cloned)
    }
}

/// How a child that makes the sockets of its proxy itself, in its own network, hands them out.
enum SocketTransfer {
    None,
    Pair { ours: OwnedFd, childs: OwnedFd },
}

impl SocketTransfer {
    fn new(launch: &LaunchRequest) -> Result<Self, Errno> {
        if launch.confinement.as_ref().is_none_or(|confinement| confinement.network.is_none()) {
            return Ok(Self::None);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, childs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(Self::Pair { ours, childs: above_stdio(childs)? })
    }

    fn child_end(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::None => None,
            Self::Pair { childs, .. } => Some(childs.as_fd()),
        }
    }

    /// The child runs its program, so it has sent them. If we may open no more, the owner gets none, and forgets the child.
    fn take(&self) -> Vec<OwnedFd> {
        let Self::Pair { ours, .. } = self else { return Vec::new() };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PROXY_ROLES.len()))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let received =
            rustix::net::recvmsg(ours, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let messages = received.map(|_| ancillary.drain()).into_iter().flatten();
        let sockets = messages.filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        sockets.flatten().collect()
    }
}

/// Two ends of a socket: ours, and one that the child has under the same number.
fn way_to_supervisor() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) = way_for_listener()?;
    Ok((ours, above_stdio(theirs)?))
}

/// A child that nobody can supervise runs already, and can change nothing. It is reaped here, so that nobody sees it as
/// a process of ours.
fn end(child: &ClonedChild) {
    let _ = rustix::process::pidfd_send_signal(&child.pidfd, rustix::process::Signal::KILL);
    let _ = rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
}

/// Both ends of the pipes or the terminal between a child and us.
struct StdioEnds {
    ours: Vec<(FdRole, OwnedFd)>,
    terminal: Option<OwnedFd>,
    child: ChildEnds,
}

enum ChildEnds {
    /// Without `stdin` the child gets /dev/null.
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    /// The child opens its end itself, through the master.
    Pty,
}

impl StdioEnds {
    fn pipes(with_stdin: bool) -> Result<Self, Errno> {
        let (out_read, stdout) = pipe()?;
        let (err_read, stderr) = pipe()?;
        let mut ours = vec![(FdRole::Stdout, out_read), (FdRole::Stderr, err_read)];
        let mut stdin = None;
        if with_stdin {
            let (read, write) = pipe()?;
            ours.push((FdRole::Stdin, write));
            stdin = Some(read);
        }
        for (_, end) in &ours {
            // Only our ends. The flag belongs to one end of a pipe, and a child does not expect it on its own.
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Self { ours, terminal: None, child: ChildEnds::Pipes { stdin, stdout, stderr } })
    }

    fn pty(size: Winsize) -> Result<Self, Errno> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = above_stdio(rustix::pty::openpt(flags)?)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        rustix::termios::tcsetwinsize(&master, size)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let terminal = above_stdio(rustix::pty::ioctl_tiocgptpeer(&master, flags)?)?;
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            terminal: Some(terminal),
            ours: vec![(FdRole::PtyMaster, master), (FdRole::RelayRead, out), (FdRole::RelayWrite, into)],
            child: ChildEnds::Pty,
        })
    }

    /// The descriptors that the child takes for its own; `null` where it has no stdin.
    fn of_child<'a>(&'a self, null: &'a OwnedFd) -> ChildStdio<'a> {
        match &self.child {
            ChildEnds::Pipes { stdin, stdout, stderr } => ChildStdio::Pipes {
                stdin: stdin.as_ref().unwrap_or(null).as_fd(),
                stdout: stdout.as_fd(),
                stderr: stderr.as_fd(),
            },
            ChildEnds::Pty => ChildStdio::Pty { master: self.ours[0].1.as_fd() },
        }
    }

    /// Makes the child's ends those of its user, who could not open them again otherwise (`/dev/stdout`, `/dev/tty`).
    fn give_to(&self, identity: &Identity) -> Result<(), Errno> {
        let user = Some(rustix::fs::Uid::from_raw(identity.uid));
        let pipes = match &self.child {
            ChildEnds::Pipes { stdin, stdout, stderr } => [stdin.as_ref(), Some(stdout), Some(stderr)],
            ChildEnds::Pty => [None; 3],
        };
        pipes.into_iter().flatten().chain(&self.terminal).try_for_each(|end| rustix::fs::fchown(end, user, None))
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_stdio(read)?, above_stdio(write)?))
}

/// A host program may have closed its own descriptor 0, 1 or 2, and the kernel gives us the lowest free number. The
/// child's stdio is made at these numbers and would overwrite ours, so we move ours up.
pub(crate) fn above_stdio(descriptor: OwnedFd) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;
    if descriptor.as_raw_fd() > 2 {
        return Ok(descriptor);
    }
    rustix::io::fcntl_dupfd_cloexec(&descriptor, 3)
}

/// Raises our limit of open files as far as it goes. The result is the soft and hard limit before; the kernel writes an
/// unlimited one as `u64::MAX`.
fn raise_open_files() -> Option<(u64, u64)> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let found = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found }).ok()?;
    Some((found.current.unwrap_or(u64::MAX), found.maximum.unwrap_or(u64::MAX)))
}

/// The paths to try, like those of `execvp`, but from the child's `PATH` and not from ours. What the kernel would not take
/// is not made: with any `PATH` and any program these are few and short.
fn candidates(program: &OsStr, path: Option<&OsStr>) -> Result<Vec<CString>, Errno> {
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)]);
    }
    if program.len() > NAME_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    let join = |directory: &[u8]| {
        // An empty directory in PATH means the current one.
        let directory = if directory.is_empty() { b"." } else { directory };
        c_string(&OsString::from_vec([directory, b"/", program.as_bytes()].concat()))
    };
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes();
    let directories = path.split(|byte| *byte == b':').filter(|directory| directory.len() < libc::PATH_MAX as usize);
    Ok(directories.take(PATH_DIRECTORIES).map(join).collect())
}

fn c_string(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).expect("the command was checked for NUL bytes before it came here")
}
