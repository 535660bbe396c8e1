//! The changes themselves: each is judged by where the handle is, and made on that handle or on a name in it.
//!
//! Errors are those of a read-only mount (`EROFS`), of a mount that is in the way (`EBUSY`), and of the kernel.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use exec_core::writable_paths::{NewFile, WritablePaths, WriteRefusal};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chmod,
    chownat, fcntl_getfl, fcntl_setfl, ftruncate, linkat, mkdirat, mknodat, open, openat, removexattr, renameat_with,
    setxattr, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::call::{AttributeChange, Call, PathArgument, Target};
use super::caller::{Caller, umask_of};
use super::path_lookup::{self, LastName, Name, PathTarget, kind, path_of, proc_path, without_deleted_mark};

/// How often a file that others make and remove is looked for again.
const CREATE_TRIES: usize = 100;

/// An open file without a name (`O_TMPFILE` without the other bit that it has).
const TEMPORARY: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// What an opened file keeps of the flags. The others say how it is found, or are not for us to set.
const KEPT_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_LARGEFILE;

pub(super) struct Changes {
    places: WritablePaths,
    /// Bits that the kernel takes from the files that we make, whatever the caller's mask is.
    own_umask: u32,
}

pub(super) enum Answer {
    Done,
    Opened {
        file: OwnedFd,
        cloexec: bool,
    },
    OpenWhenRead(FifoOpen),
    /// Nothing that we would do: what the kernel then lets happen is for Landlock to say.
    KernelDecides,
}

/// A FIFO that is opened for writing when somebody reads it. We never wait for that ourselves.
pub(super) struct FifoOpen {
    handle: OwnedFd,
    flags: i32,
}

impl Changes {
    pub(super) fn new(places: WritablePaths) -> Self {
        Self { places, own_umask: umask_of("/proc/self/status").unwrap_or(0o7777) }
    }

    pub(super) fn carry_out(&self, caller: &Caller<'_>, call: Call) -> Result<Answer, Errno> {
        match call {
            Call::Open { at, flags, mode } => return self.open(caller, &at, flags, mode),
            Call::MakeDirectory { at, mode } => self.make_directory(caller, &at, mode)?,
            Call::MakeNode { at, mode } => self.make_node(caller, &at, mode)?,
            Call::MakeLink { text, at } => {
                let name = path_lookup::name(caller, &at)?;
                let last = self.new_name(&name, NewFile::Other)?;
                symlinkat(text, &name.directory, last)?;
            }
            Call::Link { from, to } => self.link(caller, &from, &to)?,
            Call::Remove { at, directory } => self.remove(caller, &at, directory)?,
            Call::Rename { from, to, flags } => self.rename(caller, &from, &to, flags)?,
            Call::Truncate { at, length } => self.truncate(caller, &at, length)?,
            Call::Change { target, change } => self.change(caller, &target, change)?,
        }
        Ok(Answer::Done)
    }
}

/// Opening.
impl Changes {
    fn open(&self, caller: &Caller<'_>, at: &PathArgument, flags: i32, mode: u32) -> Result<Answer, Errno> {
        let creates = flags & libc::O_CREAT != 0;
        let exclusive = creates && flags & libc::O_EXCL != 0;
        if creates && flags & (libc::O_DIRECTORY | TEMPORARY) != 0 {
            return Err(Errno::INVAL);
        }
        let follow = flags & libc::O_NOFOLLOW == 0 && !exclusive;
        for _ in 0..CREATE_TRIES {
            match path_lookup::find(caller, at, follow)? {
                PathTarget::File(..) if exclusive => return Err(Errno::EXIST),
                PathTarget::File(handle, stat) => return self.open_existing(caller, handle, &stat, flags, mode),
                PathTarget::Nothing(_) if !creates => return Err(Errno::NOENT),
                PathTarget::Nothing(name) if name.slash => return Err(Errno::ISDIR),
                PathTarget::Nothing(name) => match self.create(caller, &name, flags, mode) {
                    // Somebody was faster; then it is to be opened.
                    Err(Errno::EXIST) if !exclusive => {}
                    created => return created.map(|file| opened(file, flags)),
                },
            }
        }
        Err(Errno::AGAIN)
    }

    fn open_existing(
        &self,
        caller: &Caller<'_>,
        handle: OwnedFd,
        stat: &Stat,
        flags: i32,
        mode: u32,
    ) -> Result<Answer, Errno> {
        let changes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        match kind(stat) {
            FileType::Symlink => Err(Errno::LOOP),
            FileType::Directory if flags & TEMPORARY != 0 => {
                self.require_writing(&handle)?;
                let file = self.make_file(caller, &handle, Path::new("."), flags, OFlags::TMPFILE, mode)?;
                Ok(opened(file, flags))
            }
            FileType::Directory => Err(Errno::ISDIR),
            _ if flags & libc::O_DIRECTORY != 0 => Err(Errno::NOTDIR),
            FileType::RegularFile | FileType::Fifo if !changes => Ok(Answer::KernelDecides),
            // A pipe, or memory: not in any directory, and its descriptor is the caller's already.
            FileType::RegularFile | FileType::Fifo if is_nowhere(&handle) => Ok(Answer::KernelDecides),
            FileType::RegularFile => {
                self.require_writing(&handle)?;
                Ok(opened(reopen(&handle, flags & (KEPT_FLAGS | libc::O_TRUNC))?, flags))
            }
            FileType::Fifo => {
                self.require_writing(&handle)?;
                let fifo = FifoOpen { handle, flags };
                match fifo.try_now() {
                    Err(Errno::NXIO) if flags & libc::O_NONBLOCK == 0 => Ok(Answer::OpenWhenRead(fifo)),
                    file => Ok(opened(file?, flags)),
                }
            }
            FileType::Socket => Err(Errno::NXIO),
            // The terminals of others are out of reach; Landlock knows no more of them than that they are devices.
            FileType::CharacterDevice if may_be_terminal(stat) && caller.terminal()? == device_number(stat) => {
                Ok(opened(FifoOpen { handle, flags }.try_now()?, flags))
            }
            _ => Ok(Answer::KernelDecides),
        }
    }

    fn create(&self, caller: &Caller<'_>, name: &Name, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
        let last = self.new_name(name, NewFile::Other)?;
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.make_file(caller, &name.directory, Path::new(last), flags, how, mode)
    }

    fn make_file(
        &self,
        caller: &Caller<'_>,
        directory: &OwnedFd,
        name: &Path,
        flags: i32,
        how: OFlags,
        mode: u32,
    ) -> Result<OwnedFd, Errno> {
        let kept = flags & KEPT_FLAGS | if how.contains(OFlags::TMPFILE) { flags & libc::O_EXCL } else { 0 };
        let flags = OFlags::from_bits_retain(kept as u32) | how | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = mode & !caller.umask()?;
        let file = openat(directory, name, flags, Mode::from_raw_mode(mode))?;
        if mode & self.own_umask != 0 {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        Ok(file)
    }
}

/// Names.
impl Changes {
    fn make_directory(&self, caller: &Caller<'_>, at: &PathArgument, mode: u32) -> Result<(), Errno> {
        let name = Name { slash: false, ..path_lookup::name(caller, at)? };
        let last = self.new_name(&name, NewFile::Directory)?;
        let mode = mode & !caller.umask()?;
        mkdirat(&name.directory, last, Mode::from_raw_mode(mode))?;
        self.restore_mode(&name, mode)
    }

    fn make_node(&self, caller: &Caller<'_>, at: &PathArgument, mode: u32) -> Result<(), Errno> {
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Unknown if mode & libc::S_IFMT == 0 => FileType::RegularFile,
            kind @ (FileType::RegularFile | FileType::Fifo | FileType::Socket) => kind,
            _ => return Err(Errno::PERM),
        };
        let name = path_lookup::name(caller, at)?;
        let last = self.new_name(&name, NewFile::Other)?;
        let mode = mode & 0o7777 & !caller.umask()?;
        mknodat(&name.directory, last, kind, Mode::from_raw_mode(mode), 0)?;
        self.restore_mode(&name, mode)
    }

    /// Gives what was just made the bits that our own mask took from it. If somebody has put something else in its place,
    /// that is in a place where he may change it himself.
    fn restore_mode(&self, name: &Name, mode: u32) -> Result<(), Errno> {
        let LastName::Name(last) = &name.last else { return Ok(()) };
        if mode & self.own_umask == 0 {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&name.directory, last, flags, Mode::empty())?;
        self.require_writing(&made)?;
        match kind(&rustix::fs::fstat(&made)?) {
            FileType::Symlink => Ok(()),
            _ => chmod(proc_path(&made), Mode::from_raw_mode(mode)),
        }
    }

    fn link(&self, caller: &Caller<'_>, from: &Target, to: &PathArgument) -> Result<(), Errno> {
        let (file, stat) = path_lookup::find_target(caller, from)?;
        if kind(&stat) == FileType::Directory {
            return Err(Errno::PERM);
        }
        let to = path_lookup::name(caller, to)?;
        let last = self.new_name(&to, NewFile::Other)?;
        self.require_writing(&file)?;
        linkat(CWD, proc_path(&file), &to.directory, last, AtFlags::SYMLINK_FOLLOW)
    }

    fn remove(&self, caller: &Caller<'_>, at: &PathArgument, directory: bool) -> Result<(), Errno> {
        let name = path_lookup::name(caller, at)?;
        let Some((path, last)) = name.path()? else {
            return Err(match (directory, &name.last) {
                (true, LastName::Parent) => Errno::NOTEMPTY,
                (true, _) => Errno::INVAL,
                (false, _) => Errno::ISDIR,
            });
        };
        let is_directory = kind(&name.stat()?) == FileType::Directory;
        if name.slash && !directory {
            return Err(if is_directory { Errno::ISDIR } else { Errno::NOTDIR });
        }
        self.places.require_removing(&path).map_err(errno_of)?;
        unlinkat(&name.directory, last, if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
    }

    fn rename(&self, caller: &Caller<'_>, from: &PathArgument, to: &PathArgument, flags: u32) -> Result<(), Errno> {
        let flags = RenameFlags::from_bits_retain(flags);
        let exchanges = flags.contains(RenameFlags::EXCHANGE);
        if !(RenameFlags::EXCHANGE | RenameFlags::NOREPLACE).contains(flags) {
            return Err(Errno::INVAL);
        }
        let (from, to) = (path_lookup::name(caller, from)?, path_lookup::name(caller, to)?);
        let (Some((from_path, from_last)), Some((to_path, to_last))) = (from.path()?, to.path()?) else {
            return Err(Errno::BUSY);
        };
        let is_directory = kind(&from.stat()?) == FileType::Directory;
        if (from.slash || (to.slash && !exchanges)) && !is_directory {
            return Err(Errno::NOTDIR);
        }
        self.places.require_removing(&from_path).map_err(errno_of)?;
        self.places.require_making(&to_path, NewFile::Other).map_err(errno_of)?;
        if exchanges {
            self.places.require_removing(&to_path).map_err(errno_of)?;
            self.places.require_making(&from_path, NewFile::Other).map_err(errno_of)?;
        }
        renameat_with(&from.directory, from_last, &to.directory, to_last, flags)
    }

    /// The name, if something may come into being under it.
    fn new_name<'n>(&self, name: &'n Name, new: NewFile) -> Result<&'n std::ffi::OsStr, Errno> {
        let Some((path, last)) = name.path()? else { return Err(Errno::EXIST) };
        if let Err(refusal) = self.places.require_making(&path, new) {
            // As the kernel has it on a read-only mount, so that whoever makes directories step by step gets on.
            return Err(if name.stat().is_ok() { Errno::EXIST } else { errno_of(refusal) });
        }
        if name.slash { Err(Errno::NOENT) } else { Ok(last) }
    }
}

/// Contents and attributes.
impl Changes {
    fn truncate(&self, caller: &Caller<'_>, at: &PathArgument, length: i64) -> Result<(), Errno> {
        let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
        let PathTarget::File(handle, stat) = path_lookup::find(caller, at, true)? else { return Err(Errno::NOENT) };
        match kind(&stat) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        self.require_writing(&handle)?;
        ftruncate(reopen(&handle, libc::O_WRONLY)?, length)
    }

    fn change(&self, caller: &Caller<'_>, target: &Target, change: AttributeChange) -> Result<(), Errno> {
        let (handle, stat) = path_lookup::find_target(caller, target)?;
        self.require_writing(&handle)?;
        let is_link = kind(&stat) == FileType::Symlink;
        match change {
            AttributeChange::Mode(_) if is_link => Err(Errno::OPNOTSUPP),
            AttributeChange::Mode(mode) => chmod(proc_path(&handle), Mode::from_raw_mode(mode)),
            AttributeChange::Owner { user, group } => {
                let user = (user != u32::MAX).then(|| Uid::from_raw(user));
                let group = (group != u32::MAX).then(|| Gid::from_raw(group));
                chownat(&handle, "", user, group, AtFlags::EMPTY_PATH)
            }
            AttributeChange::Times(times) => {
                let now = (0, libc::UTIME_NOW);
                let [last_access, last_modification] =
                    times.unwrap_or([now, now]).map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
                let times = Timestamps { last_access, last_modification };
                utimensat(&handle, "", &times, AtFlags::EMPTY_PATH)
            }
            AttributeChange::Set { .. } | AttributeChange::Remove { .. } if is_link => Err(Errno::PERM),
            AttributeChange::Set { name, value, flags } => {
                setxattr(proc_path(&handle), name, &value, XattrFlags::from_bits_retain(flags as u32))
            }
            AttributeChange::Remove { name } => removexattr(proc_path(&handle), name),
        }
    }

    /// Whether the file of a handle may be changed, by where it is.
    fn require_writing(&self, handle: &OwnedFd) -> Result<(), Errno> {
        let path = path_of(handle)?;
        self.places.require_writing(&path).map_err(errno_of)?;
        // A file whose name is gone is judged by the name that it had.
        match without_deleted_mark(&path) {
            Some(path) => self.places.require_writing(&path).map_err(errno_of),
            None => Ok(()),
        }
    }
}

impl FifoOpen {
    /// `ENXIO` if nobody reads it yet.
    pub(super) fn try_now(&self) -> Result<OwnedFd, Errno> {
        let file = reopen(&self.handle, self.flags & KEPT_FLAGS | libc::O_NONBLOCK)?;
        if self.flags & libc::O_NONBLOCK == 0 {
            fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
        }
        Ok(file)
    }

    pub(super) fn cloexec(&self) -> bool {
        self.flags & libc::O_CLOEXEC != 0
    }
}

fn opened(file: OwnedFd, flags: i32) -> Answer {
    Answer::Opened { file, cloexec: flags & libc::O_CLOEXEC != 0 }
}

/// Opens for real what a handle is: the very same file, whatever its name leads to by now.
fn reopen(handle: impl AsFd, flags: i32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(proc_path(handle), flags, Mode::empty())
}

/// Whether a file is in no directory and never was.
fn is_nowhere(handle: &OwnedFd) -> bool {
    match rustix::fs::readlinkat(CWD, proc_path(handle), Vec::new()) {
        Ok(path) => !path.as_bytes().starts_with(b"/") || path.as_bytes().starts_with(b"/memfd:"),
        Err(_) => false,
    }
}

/// By the numbers that the kernel gives to terminals: those of the machine, and pseudo-terminals. To ask for the caller's
/// takes longer than to open a device.
fn may_be_terminal(stat: &Stat) -> bool {
    matches!(rustix::fs::major(stat.st_rdev), 4 | 136..=143)
}

/// As `/proc/PID/stat` has it.
fn device_number(stat: &Stat) -> u64 {
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}

fn errno_of(refusal: WriteRefusal) -> Errno {
    match refusal {
        WriteRefusal::ReadOnly => Errno::ROFS,
        WriteRefusal::Denied => Errno::ACCESS,
        WriteRefusal::HeldInPlace => Errno::BUSY,
    }
}
