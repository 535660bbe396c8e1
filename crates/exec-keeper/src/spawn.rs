//! From a launch to a child that runs, with every descriptor it needs and none it should not have.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use exec_core::Io;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::protocol::{FdRole, LaunchRequest, SpawnStep};
use crate::spool::directory::SpoolDirectory;
use crate::sys::clone::{ChildStack, ChildStdio, ChildStep, CloneError, ClonedChild, SpawnPlan};
use crate::sys::signals;
use crate::tree::Tree;

/// Where plain names are looked for when the child has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// A child, and what both sides hold of it.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: u32,
    pub(crate) fds: Vec<(FdRole, OwnedFd)>,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) struct SpawnError {
    pub(crate) step: SpawnStep,
    pub(crate) errno: Errno,
    pub(crate) subject: OsString,
    /// The cgroup was the obstacle; without one it may work.
    pub(crate) cgroup_refused: bool,
}

/// Starts children. Keeps what all of them need.
#[derive(Debug)]
pub(crate) struct Spawner {
    stack: ChildStack,
    null: OwnedFd,
    die_with_keeper: bool,
    open_files: Option<(u64, u64)>,
    reset_signals: u64,
}

impl Spawner {
    /// For an embedded keeper children die with us; a keeper process raises its own limit of open files, and gives its
    /// children the one it found.
    pub(crate) fn new(embedded: bool) -> Result<Self, Errno> {
        let open_files = if embedded { None } else { raise_open_files() };
        // A host may change its mind about a signal at any time; a keeper process does not.
        let reset_signals = if embedded { signals::ALL } else { signals::not_default() };
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            stack: ChildStack::new()?,
            null: above_stdio(null)?,
            die_with_keeper: embedded,
            open_files,
            reset_signals,
        })
    }

    pub(crate) fn spawn(
        &mut self,
        launch: &LaunchRequest,
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
            Io::Pipes { stdin } => StdioEnds::pipes(stdin, &self.null).map_err(failed(SpawnStep::Pipe, program))?,
            Io::Pty(size) => {
                let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
                StdioEnds::pty(size).map_err(failed(SpawnStep::Pty, program))?
            }
        };
        let cloned = self.clone_child(launch, tree, &ends)?;
        let mut fds = ends.ours;
        fds.push((FdRole::Pidfd, cloned.pidfd));
        Ok(Spawned { pid: cloned.pid, fds })
    }

    fn clone_child(
        &mut self,
        launch: &LaunchRequest,
        tree: &Tree,
        ends: &StdioEnds,
    ) -> Result<ClonedChild, SpawnError> {
        let record = &launch.record;
        let program = record.argv[0].as_os_str();
        let arg0 = launch.arg0.as_deref().unwrap_or(program);
        let argv: Vec<CString> =
            std::iter::once(arg0).chain(record.argv[1..].iter().map(OsString::as_os_str)).map(c_string).collect();
        let envp: Vec<CString> = launch.environ.iter().map(|variable| c_string(variable)).collect();
        let candidates = candidates(program, launch.path.as_deref());
        let cwd = c_string(record.cwd.as_os_str());
        let stdio = match &ends.child {
            ChildEnds::Pipes { stdin, stdout, stderr } => ChildStdio::Pipes {
                stdin: stdin.as_ref().unwrap_or(&self.null).as_fd(),
                stdout: stdout.as_fd(),
                stderr: stderr.as_fd(),
            },
            ChildEnds::Pty => ChildStdio::Pty { master: ends.ours[0].1.as_fd() },
        };
        let plan = SpawnPlan {
            candidates: &candidates,
            argv: &argv,
            envp: &envp,
            cwd: &cwd,
            stdio,
            cgroup: tree.cgroup(),
            mark: tree.mark(),
            die_with_parent: self.die_with_keeper,
            open_files: self.open_files,
            reset_signals: self.reset_signals,
        };
        self.stack.spawn(&plan).map_err(|error| {
            let subject = |text: &OsStr| text.to_owned();
            let (step, errno, subject) = match error {
                CloneError::Clone(errno) => (SpawnStep::Clone, errno, subject(program)),
                CloneError::Step(ChildStep::Session, errno) => (SpawnStep::Session, errno, subject(program)),
                CloneError::Step(ChildStep::Terminal, errno) => (SpawnStep::Pty, errno, subject(program)),
                CloneError::Step(ChildStep::Descriptors, errno) => (SpawnStep::Pipe, errno, subject(program)),
                CloneError::Step(ChildStep::Cwd, errno) => (SpawnStep::Cwd, errno, subject(record.cwd.as_os_str())),
                CloneError::Step(ChildStep::Exec, errno) => (SpawnStep::Exec, errno, subject(program)),
            };
            let cgroup_refused =
                step == SpawnStep::Clone && tree.cgroup().is_some() && !matches!(errno, Errno::AGAIN | Errno::NOMEM);
            SpawnError { step, errno, subject, cgroup_refused }
        })
    }
}

/// Both ends of everything between a child and us.
struct StdioEnds {
    ours: Vec<(FdRole, OwnedFd)>,
    child: ChildEnds,
}

enum ChildEnds {
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    /// The child opens the other side itself.
    Pty,
}

impl StdioEnds {
    fn pipes(with_stdin: bool, _null: &OwnedFd) -> Result<Self, Errno> {
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
            // Only our ends: the flag belongs to the end, and a child does not expect it on its own.
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Self { ours, child: ChildEnds::Pipes { stdin, stdout, stderr } })
    }

    fn pty(size: Winsize) -> Result<Self, Errno> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = above_stdio(rustix::pty::openpt(flags)?)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        rustix::termios::tcsetwinsize(&master, size)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            ours: vec![(FdRole::PtyMaster, master), (FdRole::RelayRead, out), (FdRole::RelayWrite, into)],
            child: ChildEnds::Pty,
        })
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_stdio(read)?, above_stdio(write)?))
}

/// A host program may have closed its own 0, 1 or 2. A descriptor of ours must not take such a place: the child's are
/// made there.
fn above_stdio(descriptor: OwnedFd) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;
    if descriptor.as_raw_fd() > 2 {
        return Ok(descriptor);
    }
    rustix::io::fcntl_dupfd_cloexec(&descriptor, 3)
}

/// As many as we may have; answers what it was, to be given to children. Unlimited becomes the kernel's own word for it.
fn raise_open_files() -> Option<(u64, u64)> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let found = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found }).ok()?;
    Some((found.current.unwrap_or(u64::MAX), found.maximum.unwrap_or(u64::MAX)))
}

/// What to try, as `execvp` does; but in the child's `PATH`, not ours.
fn candidates(program: &OsStr, path: Option<&OsStr>) -> Vec<CString> {
    if program.as_bytes().contains(&b'/') {
        return vec![c_string(program)];
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let join = |directory: &[u8]| {
        // An empty folder in PATH means the current one.
        let mut full = if directory.is_empty() { b".".to_vec() } else { directory.to_vec() };
        full.push(b'/');
        full.extend_from_slice(program.as_bytes());
        c_string(&OsString::from_vec(full))
    };
    path.as_bytes().split(|byte| *byte == b':').map(join).collect()
}

fn c_string(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).expect("the command was checked for NUL bytes before it came here")
}
