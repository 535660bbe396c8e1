//! From a path to a handle: the only file in which symbolic links are followed or refused.
//!
//! Facts are read from handles, never from paths that somebody may swap meanwhile. A FIFO or device is not opened for
//! real before its kind is known: it is first opened with `O_PATH`, which has no effect on it.
//!
//! Under a policy (`under_policy`) the way to a handle is another one, and every open asks whether it is allowed.
//!
//! With [`LinkPolicy::Refuse`] a link before the last component is `ENOTDIR` and a link as the last is `ELOOP`.

mod under_policy;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use exec_env::files::{FileKind, FileReason, LinkPolicy};
use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat,
    statat, symlinkat,
};
use rustix::io::Errno;

use super::policy::{CallPolicy, PolicyPath, Wanted};

pub(super) use under_policy::LastLink;

/// A name in a directory to which we have a handle.
pub(super) struct ResolvedPath {
    /// The directory, opened with `O_PATH`.
    pub(super) dir: OwnedFd,
    /// One component; `.` for the root itself.
    pub(super) name: OsString,
    /// Of the directory.
    pub(super) dir_policy_path: PolicyPath,
}

impl ResolvedPath {
    /// The directory and the name of the last component of `path`, which need not exist.
    pub(super) fn resolve(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Result<Self, Errno> {
        match policy.is_restricted() {
            true => under_policy::resolve(policy, path, links, LastLink::Keep),
            false => Self::resolve_below(CWD, path, links),
        }
    }

    /// The same at the end of a chain of links that begins with the last component of `path`.
    pub(super) fn resolve_to_end(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Result<Self, Errno> {
        if policy.is_restricted() {
            return under_policy::resolve(policy, path, links, LastLink::Follow);
        }
        Self::resolve_below(CWD, path, links)?.follow(links)
    }

    /// A name in an open directory.
    pub(super) fn in_directory(dir: BorrowedFd<'_>, policy_path: &PolicyPath, name: &OsStr) -> Result<Self, Errno> {
        let dir = open_directory_handle(dir, Path::new("."), LinkPolicy::Refuse)?;
        Ok(Self { dir, name: name.to_owned(), dir_policy_path: policy_path.clone() })
    }

    /// The end of the chain of links that begins with this name. It need not exist.
    pub(super) fn follow(self, links: LinkPolicy) -> Result<Self, Errno> {
        if let Some(dir) = self.dir_policy_path.path() {
            return match self.kind_of_name() {
                Some(FileKind::Symlink) => {
                    Self::resolve_to_end(&self.dir_policy_path.policy(), &dir.join(&self.name), links)
                }
                _ => Ok(self),
            };
        }
        let mut resolved = self;
        for _ in 0..MAX_LINKS {
            let stat = match resolved.stat() {
                Ok(stat) if kind_of(&stat) == FileKind::Symlink => stat,
                Ok(_) | Err(Errno::NOENT) => return Ok(resolved),
                Err(errno) => return Err(errno),
            };
            if links == LinkPolicy::Refuse {
                return Err(Errno::LOOP);
            }
            if !may_follow(&fstat(&resolved.dir)?, &stat) {
                return Err(Errno::ACCESS);
            }
            resolved = Self::resolve_below(resolved.dir.as_fd(), &resolved.read_link()?, links)?;
        }
        Err(Errno::LOOP)
    }

    /// Without a policy, and for a path relative to `base`.
    fn resolve_below(base: BorrowedFd<'_>, path: &Path, links: LinkPolicy) -> Result<Self, Errno> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
            (Some(parent), Some(name)) => (parent, name),
            // `/`, or a path that ends in `..`: it names a directory, not a name in one.
            _ => (path, OsStr::new(".")),
        };
        let dir = open_directory_handle(base, parent, links)?;
        Ok(Self { dir, name: name.to_owned(), dir_policy_path: PolicyPath::default() })
    }

    /// Where the name is.
    pub(super) fn policy_path(&self) -> PolicyPath {
        self.dir_policy_path.name(&self.name)
    }

    pub(super) fn require(&self, wanted: Wanted) -> Result<(), Errno> {
        self.policy_path().require(wanted)
    }

    /// Of the name itself, without following a link.
    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        self.require(Wanted::Read)?;
        statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What the name is, for whoever goes on to somewhere else or needs to know no more.
    pub(super) fn kind_of_name(&self) -> Option<FileKind> {
        statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| kind_of(&stat))
    }

    /// What the name is, if its kind is all that may be known of it: see [`PolicyPath::is_only_a_name`].
    pub(super) fn kind_of_mask(&self) -> Option<FileKind> {
        let kind = self.policy_path().is_only_a_name().then(|| self.kind_of_name()).flatten();
        kind.filter(|kind| *kind != FileKind::Symlink)
    }

    /// Whether it is missing, and a process in the sandbox would see an empty directory there that nobody can write.
    pub(super) fn is_missing_protected(&self) -> bool {
        self.policy_path().is_protected_directory() && self.kind_of_name().is_none()
    }

    pub(super) fn may_be_written(&self) -> bool {
        self.policy_path().may_be_written()
    }

    /// Makes it a link. That something has its name already is found out before whether a link may be made.
    pub(super) fn make_link(&self, target: impl rustix::path::Arg) -> Result<(), Errno> {
        match self.policy_path().require_replacing() {
            Err(Errno::ROFS) if self.kind_of_name().is_some() || self.is_missing_protected() => Err(Errno::EXIST),
            permitted => permitted.and_then(|()| symlinkat(target, &self.dir, &self.name)),
        }
    }

    /// Whether it is a directory without anything in it.
    pub(super) fn is_empty(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let listed = self.open(flags, Mode::empty()).and_then(|dir| Ok(list(&dir)?.next().is_none()));
        listed.unwrap_or(false)
    }

    /// Opens it without following a link.
    pub(super) fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        self.require(wanted_by(flags))?;
        let file = openat(&self.dir, &self.name, with_common_flags(flags) | OFlags::NOFOLLOW, mode)?;
        self.dir_policy_path.require_outside_procfs(&file)?;
        Ok(file)
    }

    /// Opens it with `O_PATH`, whatever it is, also a link.
    pub(super) fn handle(&self, wanted: Wanted) -> Result<OwnedFd, Errno> {
        self.require(Wanted::Read)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(&self.dir, &self.name, flags, Mode::empty())?;
        self.require(wanted)?;
        self.dir_policy_path.require_outside_procfs(&handle)?;
        Ok(handle)
    }

    /// The text of the symbolic link.
    pub(super) fn read_link(&self) -> Result<PathBuf, Errno> {
        self.require(Wanted::Read)?;
        let text = readlinkat(&self.dir, &self.name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
    }
}

/// A handle that is good for questions and for [`reopen`], and has no effect on the file.
pub(super) fn open_handle(
    policy: &CallPolicy,
    path: &Path,
    links: LinkPolicy,
    wanted: Wanted,
) -> Result<OwnedFd, Errno> {
    if links == LinkPolicy::Follow && !policy.is_restricted() {
        return openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    }
    let handle = ResolvedPath::resolve_to_end(policy, path, links)?.handle(wanted)?;
    match kind_of(&fstat(&handle)?) {
        FileKind::Symlink => Err(Errno::LOOP),
        _ => Ok(handle),
    }
}

/// Why a name cannot be written, if it cannot be looked at: one that is denied is there, as a mount that nobody can write.
pub(super) fn refused_as_mount(resolved: &ResolvedPath, errno: Errno) -> Errno {
    match (errno, resolved.kind_of_mask()) {
        (Errno::ACCESS, Some(FileKind::Directory)) => Errno::ISDIR,
        (Errno::ACCESS, Some(_)) => Errno::ROFS,
        (errno, _) => errno,
    }
}

/// Why something cannot be put at `path`, if the kernel has said `errno`: in a protected directory that is missing it
/// says that there is no directory, but there is not to be one.
pub(super) fn why_not_created(policy: &CallPolicy, path: &Path, links: LinkPolicy, errno: Errno) -> Errno {
    let parent = || path.parent().and_then(|parent| ResolvedPath::resolve(policy, parent, links).ok());
    match errno {
        Errno::NOENT if policy.is_restricted() && parent().is_some_and(|parent| parent.is_missing_protected()) => {
            Errno::ROFS
        }
        errno => errno,
    }
}

/// A handle of a directory that may be listed, and where it is.
pub(super) fn open_directory(policy: &CallPolicy, path: &Path, last: LastLink) -> Result<(OwnedFd, PolicyPath), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !policy.is_restricted() {
        let flags = if last == LastLink::Keep { flags | OFlags::NOFOLLOW } else { flags };
        return Ok((openat(CWD, path, flags, Mode::empty())?, PolicyPath::default()));
    }
    let resolved = under_policy::resolve(policy, path, LinkPolicy::Follow, last)?;
    if resolved.kind_of_mask().is_some_and(|kind| kind != FileKind::Directory) {
        return Err(Errno::NOTDIR);
    }
    resolved.policy_path().require_listing()?;
    let dir = openat(&resolved.dir, &resolved.name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    resolved.dir_policy_path.require_outside_procfs(&dir)?;
    let policy_path = resolved.policy_path();
    Ok((dir, policy_path))
}

/// Opens a directory for real, to list it.
pub(super) fn open_listing(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// What an entry of a directory is, or what it leads to if it is a link.
pub(super) fn target_kind(dir: impl AsFd, policy_path: &PolicyPath, name: &OsStr) -> Result<FileKind, Errno> {
    let stat = match policy_path.path() {
        None => statat(dir, name, AtFlags::empty())?,
        Some(path) => {
            let end = ResolvedPath::resolve_to_end(&policy_path.policy(), &path.join(name), LinkPolicy::Follow)?;
            if let Some(kind) = end.kind_of_mask() {
                return Ok(kind);
            }
            fstat(end.handle(Wanted::Read)?)?
        }
    };
    Ok(kind_of(&stat))
}

/// What an open with these flags does to a file.
fn wanted_by(flags: OFlags) -> Wanted {
    match flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND) {
        true => Wanted::Write,
        false => Wanted::Read,
    }
}

/// Opens the regular file at `path`; anything else is refused before it is opened for real.
pub(super) fn open_regular(
    policy: &CallPolicy,
    path: &Path,
    links: LinkPolicy,
    flags: OFlags,
) -> Result<(OwnedFd, Stat), FileReason> {
    let handle = open_handle(policy, path, links, wanted_by(flags)).map_err(|errno| match errno {
        Errno::NOENT if is_on_the_way(policy, path, links) => not_a_file(links),
        errno => os(errno),
    })?;
    let stat = fstat(&handle).map_err(os)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        // What the kernel answers to an open that does not wait.
        FileType::Socket => return Err(os(Errno::NXIO)),
        FileType::Fifo if flags.contains(OFlags::WRONLY) => return Err(os(Errno::NXIO)),
        _ => return Err(not_a_file(links)),
    }
    let file = match reopen(&handle, flags) {
        // There is no /proc: open by name again, and check that it is still the same file.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let resolved = ResolvedPath::resolve_to_end(policy, path, links);
            let file = resolved.and_then(|resolved| resolved.open(flags, Mode::empty())).map_err(os)?;
            let again = fstat(&file).map_err(os)?;
            if (again.st_dev, again.st_ino) != (stat.st_dev, stat.st_ino) {
                return Err(os(Errno::AGAIN));
            }
            file
        }
        other => other.map_err(os)?,
    };
    Ok((file, stat))
}

/// Whether this is a directory that is only on the way to something that may be read.
fn is_on_the_way(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> bool {
    let resolved = || ResolvedPath::resolve_to_end(policy, path, links).ok();
    // What a ceiling has refused is said to be refused.
    policy.is_restricted()
        && !policy.has_refused()
        && resolved().is_some_and(|end| end.kind_of_mask() == Some(FileKind::Directory))
}

/// Opens for real what was opened with `O_PATH`: the very same file, whatever its name leads to by now.
pub(super) fn reopen(handle: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, proc_path(handle), with_common_flags(flags), Mode::empty())
}

/// A path that leads to the open file.
pub(super) fn proc_path(handle: impl AsFd) -> String {
    format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd())
}

/// No open may block, become our controlling terminal, or be inherited by a child.
fn with_common_flags(flags: OFlags) -> OFlags {
    flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY
}

pub(super) fn open_directory_handle(base: BorrowedFd<'_>, path: &Path, links: LinkPolicy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match links {
        LinkPolicy::Follow => openat(base, path, flags, Mode::empty()),
        LinkPolicy::Refuse if kernel_has_openat2() => loop {
            match openat2(base, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                // A rename somewhere disturbed the resolution of `..`, and the kernel wants us to try again.
                Err(Errno::AGAIN) => {}
                Err(Errno::LOOP) => return Err(Errno::NOTDIR),
                other => return other,
            }
        },
        LinkPolicy::Refuse => open_by_component(base, path),
    }
}

/// What openat2 does, for kernels and seccomp filters without it: every component is opened by itself, and none may be
/// a link.
fn open_by_component(base: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = openat(base, ".", flags, Mode::empty())?;
    for component in path.components() {
        let name = match component {
            Component::RootDir => OsStr::new("/"),
            Component::CurDir => continue,
            other => other.as_os_str(),
        };
        here = openat(here.as_fd(), name, flags, Mode::empty())?;
    }
    Ok(here)
}

/// As many links as the kernel itself follows.
const MAX_LINKS: usize = 40;

/// The kernel's rule for links in shared directories like /tmp (`fs.protected_symlinks`). We read links ourselves, so
/// the kernel does not apply it: without it, anybody could put a link into /tmp and have us write where it leads.
fn may_follow(dir: &Stat, link: &Stat) -> bool {
    let sticky_and_shared = dir.st_mode & 0o1002 == 0o1002;
    let ours = link.st_uid == rustix::process::geteuid().as_raw();
    !sticky_and_shared || ours || dir.st_uid == link.st_uid
}

fn kernel_has_openat2() -> bool {
    static PROBED: OnceLock<bool> = OnceLock::new();
    *PROBED.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok()
    })
}

/// A regular file is needed and something else was found. The text depends on the policy.
pub(super) fn not_a_file(links: LinkPolicy) -> FileReason {
    match links {
        LinkPolicy::Follow => FileReason::NotAFile,
        LinkPolicy::Refuse => FileReason::NotRegular,
    }
}

pub(super) fn os(errno: Errno) -> FileReason {
    FileReason::Os(errno.raw_os_error())
}

/// The same for errors of the standard library. Those without a number become EIO.
pub(super) fn io(error: &std::io::Error) -> FileReason {
    os(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

pub(super) fn size_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn kind_of(stat: &Stat) -> FileKind {
    kind_of_type(FileType::from_raw_mode(stat.st_mode))
}

pub(super) fn kind_of_type(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    }
}

/// The entries of a directory without `.` and `..`, in the kernel's order.
pub(super) fn list(dir: &OwnedFd) -> Result<impl Iterator<Item = Result<DirEntry, Errno>>, Errno> {
    let entries = Dir::read_from(dir)?;
    Ok(entries.filter(|entry| !entry.as_ref().is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))))
}

/// The kind of an entry itself, without following a link. Some file systems list names without it.
pub(super) fn entry_kind(dir: impl AsFd, name: impl rustix::path::Arg, file_type: FileType) -> Result<FileKind, Errno> {
    match file_type {
        FileType::Unknown => Ok(kind_of(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?)),
        known => Ok(kind_of_type(known)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_openat2_a_link_on_the_way_is_refused_all_the_same() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::create_dir_all(dir.path().join("real/deep")).expect("it is new");
        std::os::unix::fs::symlink("real", dir.path().join("link")).expect("it is new");
        let root = dir.path().canonicalize().expect("it exists");
        for resolve in [open_by_component, |base: BorrowedFd<'_>, path: &Path| {
            open_directory_handle(base, path, LinkPolicy::Refuse)
        }] {
            assert!(resolve(CWD, &root.join("real/deep")).is_ok());
            assert!(resolve(CWD, &root.join("real/../real/deep")).is_ok());
            let refused = resolve(CWD, &root.join("link/deep"));
            assert_eq!(refused.err(), Some(Errno::NOTDIR));
            let refused = resolve(CWD, &root.join("link"));
            assert_eq!(refused.err(), Some(Errno::NOTDIR));
        }
    }
}
