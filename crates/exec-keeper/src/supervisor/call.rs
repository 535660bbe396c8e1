//! A call that changes files, in one form: the kernel has several numbers for most of them.
//!
//! Everything that is behind a pointer is copied here, and nowhere else; afterwards the memory of the caller does not matter.

use std::ffi::CString;
use std::path::PathBuf;

use rustix::io::Errno;

use super::caller::Caller;
use crate::sys::listener::Notification;

/// Longest name and value of an extended attribute, as the kernel has them.
const ATTRIBUTE_NAME_BYTES: usize = 256;
const ATTRIBUTE_VALUE_BYTES: usize = 64 << 10;

/// No number of libc yet.
const SYS_FCHMODAT2: libc::c_long = 452;

/// A path, and the descriptor of the directory from which it goes if it is not absolute.
#[derive(Debug)]
pub(super) struct PathArgument {
    pub(super) directory: i32,
    pub(super) path: PathBuf,
}

/// A file that exists.
#[derive(Debug)]
pub(super) enum Target {
    Path { at: PathArgument, follow: bool },
    Descriptor(i32),
}

#[derive(Debug)]
pub(super) enum Call {
    Open { at: PathArgument, flags: i32, mode: u32 },
    MakeDirectory { at: PathArgument, mode: u32 },
    MakeNode { at: PathArgument, mode: u32 },
    MakeLink { text: CString, at: PathArgument },
    Link { from: Target, to: PathArgument },
    Remove { at: PathArgument, directory: bool },
    Rename { from: PathArgument, to: PathArgument, flags: u32 },
    Truncate { at: PathArgument, length: i64 },
    Change { target: Target, change: AttributeChange },
}

#[derive(Debug)]
pub(super) enum AttributeChange {
    Mode(u32),
    Owner {
        user: u32,
        group: u32,
    },
    /// Of the last access and the last change, each in seconds and nanoseconds; `None` is now.
    Times(Option<[(i64, i64); 2]>),
    Set {
        name: CString,
        value: Vec<u8>,
        flags: i32,
    },
    Remove {
        name: CString,
    },
}

impl Call {
    /// `ENOSYS` if the filter sends what we do not know.
    pub(super) fn read(caller: &Caller<'_>, asked: &Notification) -> Result<Self, Errno> {
        let arguments = Arguments { caller, values: asked.arguments };
        #[cfg(target_arch = "x86_64")]
        if let Some(call) = arguments.old_call(asked.number) {
            return call;
        }
        arguments.call(asked.number)
    }
}

/// The registers of a call. The kernel reads 32 bits of most of them.
struct Arguments<'a> {
    caller: &'a Caller<'a>,
    values: [u64; 6],
}

impl Arguments<'_> {
    fn call(&self, number: libc::c_long) -> Result<Call, Errno> {
        Ok(match number {
            libc::SYS_openat => Call::Open { at: self.at(0)?, flags: self.int(2), mode: self.mode(3) },
            libc::SYS_mkdirat => Call::MakeDirectory { at: self.at(0)?, mode: self.mode(2) },
            libc::SYS_mknodat => Call::MakeNode { at: self.at(0)?, mode: self.uint(2) },
            libc::SYS_symlinkat => Call::MakeLink { text: self.link_text(0)?, at: self.at(1)? },
            libc::SYS_linkat => {
                let flags = self.flags(4, libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
                let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
                Call::Link { from: self.target(0, follow, flags)?, to: self.at(2)? }
            }
            libc::SYS_unlinkat => {
                let directory = self.flags(2, libc::AT_REMOVEDIR)? != 0;
                Call::Remove { at: self.at(0)?, directory }
            }
            libc::SYS_renameat => Call::Rename { from: self.at(0)?, to: self.at(2)?, flags: 0 },
            libc::SYS_renameat2 => Call::Rename { from: self.at(0)?, to: self.at(2)?, flags: self.uint(4) },
            libc::SYS_truncate => Call::Truncate { at: self.in_cwd(0)?, length: self.values[1] as i64 },
            libc::SYS_fchmod => change(Target::Descriptor(self.int(0)), AttributeChange::Mode(self.mode(1))),
            libc::SYS_fchmodat => change(self.target(0, true, 0)?, AttributeChange::Mode(self.mode(2))),
            SYS_FCHMODAT2 => change(self.target_with_flags(3)?, AttributeChange::Mode(self.mode(2))),
            libc::SYS_fchown => change(Target::Descriptor(self.int(0)), self.owner(1)),
            libc::SYS_fchownat => change(self.target_with_flags(4)?, self.owner(2)),
            libc::SYS_utimensat => {
                let times = self.times(2, 1)?;
                change(self.target_with_flags(3)?, times)
            }
            libc::SYS_setxattr => change(self.path_target(true)?, self.attribute()?),
            libc::SYS_lsetxattr => change(self.path_target(false)?, self.attribute()?),
            libc::SYS_fsetxattr => change(Target::Descriptor(self.int(0)), self.attribute()?),
            libc::SYS_removexattr => change(self.path_target(true)?, self.removed_attribute()?),
            libc::SYS_lremovexattr => change(self.path_target(false)?, self.removed_attribute()?),
            libc::SYS_fremovexattr => change(Target::Descriptor(self.int(0)), self.removed_attribute()?),
            _ => return Err(Errno::NOSYS),
        })
    }

    /// Calls that newer architectures do not have.
    #[cfg(target_arch = "x86_64")]
    fn old_call(&self, number: libc::c_long) -> Option<Result<Call, Errno>> {
        const CREATE: i32 = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        let at = || self.in_cwd(0);
        Some(match number {
            libc::SYS_open => at().map(|at| Call::Open { at, flags: self.int(1), mode: self.mode(2) }),
            libc::SYS_creat => at().map(|at| Call::Open { at, flags: CREATE, mode: self.mode(1) }),
            libc::SYS_mkdir => at().map(|at| Call::MakeDirectory { at, mode: self.mode(1) }),
            libc::SYS_rmdir => at().map(|at| Call::Remove { at, directory: true }),
            libc::SYS_unlink => at().map(|at| Call::Remove { at, directory: false }),
            libc::SYS_mknod => at().map(|at| Call::MakeNode { at, mode: self.uint(1) }),
            libc::SYS_rename => at().and_then(|from| Ok(Call::Rename { from, to: self.in_cwd(1)?, flags: 0 })),
            libc::SYS_link => self.path_target(false).and_then(|from| Ok(Call::Link { from, to: self.in_cwd(1)? })),
            libc::SYS_symlink => self.link_text(0).and_then(|text| Ok(Call::MakeLink { text, at: self.in_cwd(1)? })),
            libc::SYS_chmod => self.path_target(true).map(|target| change(target, AttributeChange::Mode(self.mode(1)))),
            libc::SYS_chown => self.path_target(true).map(|target| change(target, self.owner(1))),
            libc::SYS_lchown => self.path_target(false).map(|target| change(target, self.owner(1))),
            libc::SYS_utime => self.old_times().and_then(|times| Ok(change(self.path_target(true)?, times))),
            libc::SYS_utimes => self.times(1, 1000).and_then(|times| Ok(change(self.path_target(true)?, times))),
            libc::SYS_futimesat => self.times(2, 1000).and_then(|times| Ok(change(self.target(0, true, 0)?, times))),
            _ => return None,
        })
    }

    fn int(&self, at: usize) -> i32 {
        self.values[at] as u32 as i32
    }

    fn uint(&self, at: usize) -> u32 {
        self.values[at] as u32
    }

    fn mode(&self, at: usize) -> u32 {
        self.uint(at) & 0o7777
    }

    fn flags(&self, at: usize, known: i32) -> Result<i32, Errno> {
        if self.int(at) & !known == 0 { Ok(self.int(at)) } else { Err(Errno::INVAL) }
    }

    fn at(&self, first: usize) -> Result<PathArgument, Errno> {
        Ok(PathArgument { directory: self.int(first), path: self.caller.path(self.values[first + 1])? })
    }

    fn in_cwd(&self, argument: usize) -> Result<PathArgument, Errno> {
        Ok(PathArgument { directory: libc::AT_FDCWD, path: self.caller.path(self.values[argument])? })
    }

    fn path_target(&self, follow: bool) -> Result<Target, Errno> {
        Ok(Target::Path { at: self.in_cwd(0)?, follow })
    }

    /// The file by the first two arguments. Without a path, or with an empty one if a flag allows that, it is the descriptor.
    fn target(&self, first: usize, follow: bool, flags: i32) -> Result<Target, Errno> {
        let by_descriptor = matches!(self.values[first + 1], 0) && flags & libc::AT_SYMLINK_FOLLOW == 0;
        if by_descriptor && self.int(first) != libc::AT_FDCWD {
            return Ok(Target::Descriptor(self.int(first)));
        }
        let at = self.at(first)?;
        if at.path.as_os_str().is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            return Ok(Target::Descriptor(at.directory));
        }
        Ok(Target::Path { at, follow })
    }

    fn target_with_flags(&self, flags: usize) -> Result<Target, Errno> {
        let flags = self.flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        self.target(0, flags & libc::AT_SYMLINK_NOFOLLOW == 0, flags)
    }

    fn link_text(&self, argument: usize) -> Result<CString, Errno> {
        self.caller.string(self.values[argument], libc::PATH_MAX as usize, Errno::NAMETOOLONG)
    }

    fn owner(&self, first: usize) -> AttributeChange {
        AttributeChange::Owner { user: self.uint(first), group: self.uint(first + 1) }
    }

    /// Four numbers: seconds and a fraction of them, twice. `nanoseconds` are those of one unit of the fraction.
    fn times(&self, argument: usize, nanoseconds: i64) -> Result<AttributeChange, Errno> {
        if self.values[argument] == 0 {
            return Ok(AttributeChange::Times(None));
        }
        let [accessed, accessed_part, changed, changed_part] = self.caller.numbers(self.values[argument])?;
        let fraction = |part: i64| match nanoseconds {
            1 => Ok(part),
            _ if (0..1_000_000).contains(&part) => Ok(part * nanoseconds),
            _ => Err(Errno::INVAL),
        };
        let times = [(accessed, fraction(accessed_part)?), (changed, fraction(changed_part)?)];
        Ok(AttributeChange::Times(Some(times)))
    }

    #[cfg(target_arch = "x86_64")]
    fn old_times(&self) -> Result<AttributeChange, Errno> {
        if self.values[1] == 0 {
            return Ok(AttributeChange::Times(None));
        }
        let [accessed, changed] = self.caller.numbers(self.values[1])?;
        Ok(AttributeChange::Times(Some([(accessed, 0), (changed, 0)])))
    }

    fn attribute(&self) -> Result<AttributeChange, Errno> {
        let length = usize::try_from(self.values[3]).unwrap_or(usize::MAX);
        if length > ATTRIBUTE_VALUE_BYTES {
            return Err(Errno::TOOBIG);
        }
        let value = self.caller.bytes(self.values[2], length)?;
        Ok(AttributeChange::Set { name: self.attribute_name()?, value, flags: self.int(4) })
    }

    fn removed_attribute(&self) -> Result<AttributeChange, Errno> {
        Ok(AttributeChange::Remove { name: self.attribute_name()? })
    }

    fn attribute_name(&self) -> Result<CString, Errno> {
        self.caller.string(self.values[1], ATTRIBUTE_NAME_BYTES, Errno::RANGE)
    }
}

fn change(target: Target, change: AttributeChange) -> Call {
    Call::Change { target, change }
}
