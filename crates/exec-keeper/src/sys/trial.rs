//! What is tried in a process of its own that ends at once: whether a confinement works on this machine, and a user
//! namespace, which the kernel makes for a new process only.
//!
//! Here, and only here, we fork: the child must have memory of its own, because it changes how the kernel treats it (it
//! becomes readable to us, so that it can be given its ids). It happens once or twice in the life of a program.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use exec_core::sandbox::Confinement;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};

use super::confine::{ConfineStep, PreparedConfinement};
use super::listener;

/// Why a confinement does not work here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}", std::io::Error::from_raw_os_error(*errno))]
pub struct TrialError {
    /// What was being done, for a person.
    pub what: String,
    /// The kernel's reason.
    pub errno: i32,
}

/// Carries out a confinement in a process that runs no program. `descriptors` are those that would come with it.
pub fn try_confinement(confinement: &Confinement, descriptors: &[OwnedFd]) -> Result<(), TrialError> {
    let failed = |what: &str, errno: Errno| TrialError { what: what.to_owned(), errno: errno.raw_os_error() };
    let mut prepared =
        PreparedConfinement::new(confinement, descriptors, None, None).map_err(|errno| failed("reading it", errno))?;
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed("a pipe", errno))?;
    let report = write.as_raw_fd();
    let tell = |outcome: Result<(), (ConfineStep, i32)>| {
        let (kind, at, errno) = match outcome {
            Ok(()) => (0, 0, 0),
            Err((step, errno)) => {
                let (kind, at) = step_number(step);
                (kind, at, errno)
            }
        };
        let report_bytes = [kind, at, errno as u64];
        // SAFETY: the bytes of three numbers, to a pipe that has space for them.
        unsafe { libc::write(report, report_bytes.as_ptr().cast(), size_of_val(&report_bytes)) };
    };
    let trial = || {
        // SAFETY: we are the only thread of a process that shares nothing with another.
        unsafe {
            if !prepared.has_pid_namespace() {
                return tell(prepared.enter().and_then(|()| prepared.restrict()).and_then(|()| prepared.seal()));
            }
            if let Err(failure) = prepared.enter_pid_namespace() {
                return tell(Err(failure));
            }
            let inside = || tell(prepared.enter().and_then(|()| prepared.restrict()).and_then(|()| prepared.seal()));
            match fork(0, inside) {
                Ok(inside) => wait(inside),
                Err(errno) => tell(Err((ConfineStep::PidNamespace, errno.raw_os_error()))),
            }
        }
    };
    let child = fork(0, trial).map_err(|errno| failed("making a process", errno))?;
    drop(write);
    let mut bytes = [0u8; 24];
    let got = rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut bytes));
    wait(child);
    if got != Ok(bytes.len()) {
        return Err(failed("it was killed while it confined itself", Errno::PERM));
    }
    let number = |at: usize| bytes[at * 8..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
    match step_of_number(number(0), number(1)) {
        None => Ok(()),
        Some(step) => Err(TrialError { what: prepared.describe(step), errno: number(2) as i32 }),
    }
}

/// Whether a supervised confinement works here, which must let nothing be written in `/`: a process asks its supervisor for
/// a directory there, and hears from him that it may not.
pub fn try_supervision(confinement: &Confinement, descriptors: &[OwnedFd]) -> Result<(), TrialError> {
    let failed = |what: &str, errno: Errno| TrialError { what: what.to_owned(), errno: errno.raw_os_error() };
    let places = confinement.supervision.as_ref().map(|supervision| supervision.places.clone()).unwrap_or_default();
    let (ours, theirs) = listener::way_for_listener().map_err(|errno| failed("a socket", errno))?;
    let mut prepared = PreparedConfinement::new(confinement, descriptors, None, Some(theirs.as_fd()))
        .map_err(|errno| failed("reading it", errno))?;
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed("a pipe", errno))?;
    // Nobody has made it, or the answer would be another.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let directory = CString::new(format!("/.exec-server-{}-{since_1970}", std::process::id()))
        .expect("letters and digits have no NUL among them");
    let (report, our_end) = (write.as_raw_fd(), ours.as_raw_fd());
    let trial = || {
        // SAFETY: as above; the string lives in our copy of the memory. Whoever supervises reads it in our memory,
        // which a copy of a server does not allow by itself.
        unsafe {
            libc::close(our_end);
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
            let errno = match prepared.enter().and_then(|()| prepared.restrict()).and_then(|()| prepared.seal()) {
                Err((_, errno)) => errno,
                Ok(()) if libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, directory.as_ptr(), 0o700) == 0 => 0,
                Ok(()) => *libc::__errno_location(),
            };
            libc::write(report, (&raw const errno).cast(), size_of::<i32>());
        }
    };
    let child = fork(0, trial).map_err(|errno| failed("making a process", errno))?;
    drop((write, theirs));
    // Without a supervisor the call fails, and the process ends in any case.
    let supervised = listener::receive_listener(&ours).and_then(|listener| crate::supervisor::start(listener, places));
    let mut errno = [0u8; 4];
    let got = rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut errno));
    wait(child);
    supervised.map_err(|errno| failed("supervising a process", errno))?;
    match (got, i32::from_ne_bytes(errno)) {
        (Ok(4), libc::EROFS) => Ok(()),
        (Ok(4), 0) => {
            let _ = rustix::fs::rmdir(&directory);
            Err(failed("asking a supervisor, who let a directory be made", Errno::PERM))
        }
        (Ok(4), errno) => Err(failed("asking a supervisor", Errno::from_raw_os_error(errno))),
        _ => Err(failed("it was killed while it confined itself", Errno::PERM)),
    }
}

/// A user namespace of ours in which our user and group are themselves and there are no others.
pub fn new_user_namespace() -> Result<OwnedFd, TrialError> {
    let failed = |errno: Errno| TrialError { what: "making a user namespace".to_owned(), errno: errno.raw_os_error() };
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let maps = [
        (c"/proc/self/setgroups", "deny".to_owned()),
        (c"/proc/self/uid_map", format!("{user} {user} 1")),
        (c"/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    let (ready_read, ready_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    let (end_read, end_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    let (ready, end, our_end) = (ready_write.as_raw_fd(), end_read.as_raw_fd(), end_write.as_raw_fd());
    let holder = || {
        // SAFETY: as above; the strings live in our copy of the memory.
        unsafe {
            libc::close(our_end);
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
            let mut errno = 0;
            for (path, text) in &maps {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if file < 0 || libc::write(file, text.as_ptr().cast(), text.len()) < 0 {
                    errno = *libc::__errno_location();
                    break;
                }
                libc::close(file);
            }
            libc::write(ready, (&raw const errno).cast(), size_of::<i32>());
            // Until the namespace was opened, somebody must be in it.
            let mut byte = 0u8;
            libc::read(end, (&raw mut byte).cast(), 1);
        }
    };
    let child = fork(libc::CLONE_NEWUSER, holder).map_err(failed)?;
    drop(ready_write);
    let mut errno = [0u8; 4];
    let got = rustix::io::retry_on_intr(|| rustix::io::read(&ready_read, &mut errno));
    let opened = match (got, i32::from_ne_bytes(errno)) {
        (Ok(4), 0) => {
            let path = format!("/proc/{}/ns/user", child.as_raw_pid());
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        }
        (Ok(4), errno) => Err(Errno::from_raw_os_error(errno)),
        _ => Err(Errno::PERM),
    };
    drop(end_write);
    wait(child);
    opened.map_err(failed)
}

/// Runs `work` in a child that then exits. The child is a copy of this thread alone: `work` makes system calls only.
fn fork(flags: i32, work: impl FnOnce()) -> Result<Pid, Errno> {
    // SAFETY: without CLONE_VM and a stack this is a fork, whose child goes on here on a copy of everything. It calls
    // `work`, which the caller has promised to make only system calls, and ends without running any destructor.
    unsafe {
        let pid = libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0);
        if pid == 0 {
            work();
            libc::_exit(0);
        }
        if pid < 0 {
            return Err(super::last_errno());
        }
        Pid::from_raw(pid as i32).ok_or(Errno::CHILD)
    }
}

fn wait(child: Pid) {
    let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()));
}

/// A step as two numbers, to be sent through a pipe; 0 is none.
fn step_number(step: ConfineStep) -> (u64, u64) {
    match step {
        ConfineStep::UserNamespace => (1, 0),
        ConfineStep::Namespaces => (2, 0),
        ConfineStep::Mount(at) => (3, at as u64),
        ConfineStep::NewRoot => (4, 0),
        ConfineStep::Capabilities => (5, 0),
        ConfineStep::Landlock => (6, 0),
        ConfineStep::Filter => (7, 0),
        ConfineStep::Network => (8, 0),
        ConfineStep::Supervision => (9, 0),
        ConfineStep::PidNamespace => (10, 0),
    }
}

fn step_of_number(kind: u64, at: u64) -> Option<ConfineStep> {
    Some(match kind {
        1 => ConfineStep::UserNamespace,
        2 => ConfineStep::Namespaces,
        3 => ConfineStep::Mount(at as usize),
        4 => ConfineStep::NewRoot,
        5 => ConfineStep::Capabilities,
        6 => ConfineStep::Landlock,
        7 => ConfineStep::Filter,
        8 => ConfineStep::Network,
        9 => ConfineStep::Supervision,
        10 => ConfineStep::PidNamespace,
        _ => return None,
    })
}
