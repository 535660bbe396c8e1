//! What a policy with a writable workspace must not break: the work of compilers, version control and shells. Here it is
//! good to get through.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Timestamps, XattrFlags};

use crate::attempt::{Attempt, Failure, Probe, got, probe, refused};
use crate::system_call::call;
use crate::targets::Targets;

pub(crate) const PROBES: &[Probe] = &[
    probe("work-write", |t| done(fs::write(t.own()?, "x"))),
    probe("work-create", |t| done(fs::write(t.own_missing()?, "x"))),
    probe("work-append", |t| done(OpenOptions::new().append(true).open(t.own()?)?.write_all(b"x"))),
    probe("work-truncate", |t| done(OpenOptions::new().write(true).open(t.own()?)?.set_len(1))),
    probe("work-make-directories", |t| done(fs::create_dir_all(fresh(t)?.join("a/b")))),
    probe("work-remove-tree", |t| {
        fs::create_dir_all(fresh(t)?.join("a/b"))?;
        done(fs::remove_dir_all(fresh(t)?))
    }),
    probe("work-rename", |t| done(fs::rename(t.own()?, t.own_missing()?))),
    probe("work-rename-between-directories", |t| {
        fs::create_dir(fresh(t)?)?;
        done(fs::rename(t.own()?, fresh(t)?.join("moved")))
    }),
    probe("work-exchange", |t| {
        fs::write(fresh(t)?, "x")?;
        rustix::fs::renameat_with(CWD, t.own()?, CWD, fresh(t)?, RenameFlags::EXCHANGE)?;
        got("it was done")
    }),
    probe("work-link", |t| done(fs::hard_link(t.own()?, t.own_missing()?))),
    probe("work-symlink", |t| done(symlink("anywhere", t.own_missing()?))),
    probe("work-temporary-file", |t| {
        rustix::fs::open(t.in_workspace("")?, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR)?;
        got("it was done")
    }),
    probe("work-change-mode", |t| done(fs::set_permissions(t.own()?, fs::Permissions::from_mode(0o755)))),
    probe("work-change-owner-to-self", |t| {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        done(chown(t.own()?, Some(uid), Some(gid)))
    }),
    probe("work-change-times", |t| {
        let time = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, t.own()?, &times, AtFlags::empty())?;
        got("it was done")
    }),
    probe("work-set-attribute", |t| {
        rustix::fs::setxattr(t.own()?, "user.probe", b"x", XattrFlags::empty())?;
        got("it was done")
    }),
    probe("work-lock", |t| {
        rustix::fs::flock(File::open(t.own()?)?, rustix::fs::FlockOperation::LockExclusive)?;
        got("it was done")
    }),
    probe("work-execute-what-was-made", |t| {
        let program = t.own_missing()?;
        fs::copy("/bin/true", &program)?;
        let status = Command::new(program).status()?;
        if status.success() { got("it ran") } else { Err(refused(format!("it ended with {status}"))) }
    }),
    probe("work-read-system", |_| {
        fs::read_dir("/usr/bin")?;
        File::open("/bin/sh")?;
        got("it can be read")
    }),
    probe("work-shell", |_| {
        let output = Command::new("/bin/sh").args(["-c", "echo one | cat; (sleep 0 & wait)"]).output()?;
        if output.stdout == b"one\n" { got("it ran") } else { Err(refused(format!("it ended with {}", output.status))) }
    }),
    probe("work-signal-own-child", |_| {
        let mut child = Command::new("/bin/sleep").arg("100").stdin(Stdio::null()).spawn()?;
        child.kill()?;
        child.wait()?;
        got("it was ended")
    }),
    probe("work-wait-by-descriptor", |_| {
        let mut child = Command::new("/bin/true").spawn()?;
        let descriptor = call!(libc::SYS_pidfd_open, child.id(), 0);
        child.wait()?;
        descriptor?;
        got("a descriptor of a child")
    }),
    probe("work-thread", |_| {
        std::thread::Builder::new().spawn(|| ())?.join().map_err(|_| refused("the thread failed"))?;
        got("it ran")
    }),
    probe("work-null", |_| done(OpenOptions::new().write(true).open("/dev/null")?.write_all(b"x"))),
    probe("work-random", |_| done(File::open("/dev/urandom")?.read_exact(&mut [0; 8]))),
    probe("work-terminal-pair", |_| {
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let terminal = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&terminal)?;
        got("a terminal")
    }),
    probe("work-own-proc", |_| {
        fs::read_to_string("/proc/self/status")?;
        fs::read_dir("/proc/self/fd")?;
        got("its own entries")
    }),
    probe("work-change-name", |_| reached_call(call!(libc::SYS_prctl, libc::PR_SET_NAME, c"prober".as_ptr()))),
    probe("work-memory-file", |_| {
        rustix::fs::memfd_create("prober", rustix::fs::MemfdFlags::CLOEXEC)?;
        got("a file in memory")
    }),
    probe("work-shared-memory", |_| {
        let result = call!(libc::SYS_mmap, 0, 4096, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1i32, 0);
        reached_call(result)
    }),
    probe("work-event-poll", |_| reached_call(call!(libc::SYS_epoll_create1, 0))),
    probe("work-watch-files", |t| {
        let watcher = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC)?;
        rustix::fs::inotify::add_watch(&watcher, t.in_workspace("")?, rustix::fs::inotify::WatchFlags::CREATE)?;
        got("a watch")
    }),
    probe("work-lower-priority", |_| {
        // The raw call answers 20 - nice, and 19 is the lowest priority.
        let nice = 20 - call!(libc::SYS_getpriority, libc::PRIO_PROCESS, 0)?.cast_signed();
        reached_call(call!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, (nice + 1).min(19)))
    }),
    probe("work-read-protected", |t| {
        fs::read(t.protected()?)?;
        got("it can be read")
    }),
    probe("work-slash-tmp", |_| {
        let path = PathBuf::from(format!("/tmp/prober-{}", std::process::id()));
        fs::write(&path, "x")?;
        done(fs::remove_file(path))
    }),
];

fn done(result: std::io::Result<()>) -> Attempt {
    result?;
    got("it was done")
}

fn reached_call(result: Result<usize, Failure>) -> Attempt {
    crate::attempt::reached(result, &[])
}

/// A name in the workspace that nobody else uses.
fn fresh(t: &Targets<'_>) -> Result<PathBuf, Failure> {
    Ok(t.own_missing()?.with_extension("fresh"))
}
