//! Changes to what is protected inside a writable root: `.git` of the workspace, `.git` of a project deeper down, and
//! `.codex`, which does not exist.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};

use crate::attempt::{Attempt, Probe, got, probe, refused};
use crate::system_call::call;
use crate::targets::{Targets, c_path};

pub(crate) const PROBES: &[Probe] = &[
    probe("protected-write", |t| write_into(&t.protected()?)),
    probe("protected-append", |t| {
        OpenOptions::new().append(true).open(t.protected()?)?.write_all(b"x")?;
        got("a byte was appended")
    }),
    probe("protected-truncate", |t| {
        let path = c_path(t.protected()?);
        call!(libc::SYS_truncate, path.as_ptr(), 1)?;
        got("it was truncated")
    }),
    probe("protected-create", |t| done(fs::write(t.in_workspace(".git/created")?, "x"))),
    probe("protected-create-hook", |t| done(fs::write(t.in_workspace(".git/hooks/pre-commit")?, "x"))),
    probe("protected-create-at-descriptor", |t| {
        let directory = rustix::fs::open(t.in_workspace(".git")?, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        rustix::fs::openat(&directory, "at-descriptor", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR)?;
        got("a file was made")
    }),
    probe("protected-make-directory", |t| done(fs::create_dir(t.in_workspace(".git/made")?))),
    probe("protected-remove-directory", |t| {
        fs::remove_dir(t.in_workspace(".git/hooks")?).or_else(|error| match error.raw_os_error() {
            // It is not empty any more if other probes got through.
            Some(libc::ENOTEMPTY) => Ok(()),
            _ => Err(error),
        })?;
        got("a directory could be removed")
    }),
    probe("protected-remove", |t| done(fs::remove_file(t.protected()?))),
    probe("protected-rename-within", |t| done(fs::rename(t.protected()?, t.in_workspace(".git/renamed")?))),
    probe("protected-rename-in", |t| done(fs::rename(t.own()?, t.in_workspace(".git/moved-in")?))),
    probe("protected-rename-over", |t| done(fs::rename(t.own()?, t.protected()?))),
    probe("protected-rename-out", |t| done(fs::rename(t.protected()?, t.own_missing()?))),
    probe("protected-exchange", |t| {
        rustix::fs::renameat_with(CWD, t.own()?, CWD, t.protected()?, RenameFlags::EXCHANGE)?;
        got("two files were exchanged")
    }),
    probe("protected-link-in", |t| done(fs::hard_link(t.own()?, t.in_workspace(".git/linked-in")?))),
    probe("protected-link-out-and-write", |t| {
        fs::hard_link(t.protected()?, t.own_missing()?)?;
        write_into(&t.own_missing()?)
    }),
    probe("protected-symlink-in", |t| done(symlink("anywhere", t.in_workspace(".git/link")?))),
    probe("protected-write-by-symlink", |t| {
        symlink(t.protected()?, t.own_missing()?)?;
        write_into(&t.own_missing()?)
    }),
    probe("protected-write-by-symlinked-directory", |t| {
        symlink(".git", t.own_missing()?)?;
        done(fs::write(t.own_missing()?.join("by-symlink"), "x"))
    }),
    probe("protected-write-by-cwd-of-self", |t| {
        std::env::set_current_dir(t.in_workspace("")?)?;
        done(fs::write("/proc/self/cwd/.git/by-cwd", "x"))
    }),
    probe("protected-write-by-root-of-self", |t| {
        let path = t.protected()?;
        write_into(&Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap_or(&path)))
    }),
    probe("protected-write-by-dev-fd", |t| {
        let file = File::open(t.protected()?)?;
        write_into(Path::new(&format!("/dev/fd/{}", file.as_raw_fd())))
    }),
    probe("protected-change-mode", |t| done(fs::set_permissions(t.protected()?, fs::Permissions::from_mode(0o600)))),
    probe("protected-change-mode-of-directory", |t| {
        done(fs::set_permissions(t.in_workspace(".git")?, fs::Permissions::from_mode(0o755)))
    }),
    probe("protected-change-owner", |t| done(chown(t.protected()?, Some(rustix::process::getuid().as_raw()), None))),
    probe("protected-change-times", |t| {
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, t.protected()?, &times, AtFlags::empty())?;
        got("the times were set")
    }),
    probe("protected-set-attribute", |t| {
        rustix::fs::setxattr(t.protected()?, "user.probe", b"x", XattrFlags::empty())?;
        got("an attribute was set")
    }),
    probe("protected-make-fifo", |t| {
        rustix::fs::mknodat(CWD, t.in_workspace(".git/fifo")?, FileType::Fifo, Mode::RUSR, 0)?;
        got("a pipe was made")
    }),
    probe("protected-bind-socket", |t| {
        UnixListener::bind(t.in_workspace(".git/socket")?)?;
        got("a socket was made")
    }),
    probe("protected-temporary-file", |t| {
        rustix::fs::open(t.in_workspace(".git")?, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR)?;
        got("a file without a name was made")
    }),
    probe("protected-moved-away", |t| moved_and_back(&t.in_workspace(".git")?, &t.own_missing()?)),
    probe("protected-exchanged-with-directory", |t| {
        let (git, other) = (t.in_workspace(".git")?, t.own_missing()?);
        fs::create_dir(&other)?;
        rustix::fs::renameat_with(CWD, &git, CWD, &other, RenameFlags::EXCHANGE)?;
        rustix::fs::renameat_with(CWD, &git, CWD, &other, RenameFlags::EXCHANGE)?;
        got("it was replaced, and put back")
    }),
    probe("protected-parent-replaced", |t| {
        let (project, away) = (t.in_workspace("project")?, t.own_missing()?);
        fs::rename(&project, &away)?;
        let replaced = fs::create_dir_all(project.join(".git")).and_then(|()| fs::write(project.join(".git/x"), "x"));
        let _ = fs::remove_dir_all(&project);
        fs::rename(&away, &project)?;
        replaced?;
        got("its parent was renamed and another one put in its place")
    }),
    probe("protected-parent-moved-and-written", |t| {
        let (project, away) = (t.in_workspace("project")?, t.own_missing()?);
        fs::rename(&project, &away)?;
        let written = write_into(&away.join(".git/protected-parent-moved-and-written"));
        fs::rename(&away, &project)?;
        written
    }),
    probe("protected-parent-exchanged", |t| {
        let (project, other) = (t.in_workspace("project")?, t.own_missing()?);
        fs::create_dir_all(other.join(".git"))?;
        rustix::fs::renameat_with(CWD, &project, CWD, &other, RenameFlags::EXCHANGE)?;
        rustix::fs::renameat_with(CWD, &project, CWD, &other, RenameFlags::EXCHANGE)?;
        got("its parent was replaced, and put back")
    }),
    probe("protected-deeper-write", |t| write_into(&t.in_workspace("project/.git/protected-deeper-write")?)),
    probe("missing-protected-filled", |t| {
        let missing = t.in_workspace(".codex")?;
        // It may look as if it were there and empty.
        let _ = fs::create_dir(&missing);
        fs::write(missing.join("config"), "x")?;
        let _ = fs::remove_dir_all(&missing);
        got("a file was made in it")
    }),
    probe("missing-protected-as-symlink", |t| appears_as(t, |path| Ok(symlink("anywhere", path)?))),
    probe("missing-protected-as-file", |t| appears_as(t, |path| Ok(File::create_new(path).map(drop)?))),
    probe("missing-protected-by-rename", |t| {
        let own = t.own()?;
        appears_as(t, |path| Ok(fs::rename(&own, path)?))
    }),
];

fn write_into(path: &Path) -> Attempt {
    OpenOptions::new().write(true).open(path)?.write_all(b"X")?;
    got("a byte was written")
}

fn done(result: std::io::Result<()>) -> Attempt {
    result?;
    got("it was done")
}

fn moved_and_back(path: &Path, away: &Path) -> Attempt {
    fs::rename(path, away)?;
    fs::rename(away, path)?;
    got("it was moved, and back")
}

/// Makes the missing directory appear as something else, and takes it away again.
fn appears_as(t: &Targets<'_>, make: impl Fn(&Path) -> Result<(), crate::attempt::Failure>) -> Attempt {
    let missing = t.in_workspace(".codex")?;
    make(&missing)?;
    fs::remove_file(&missing).map_err(|error| refused(format!("it was made and cannot be removed: {error}")))?;
    got("it was made")
}
