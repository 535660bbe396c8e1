//! What a probe is, and how an attempt ends.

use std::io;

use crate::targets::Targets;

/// One way to get out, by name.
pub(crate) struct Probe {
    pub(crate) name: &'static str,
    pub(crate) attempt: fn(&Targets<'_>) -> Attempt,
}

/// What the attempt got, or why it got nothing.
pub(crate) type Attempt = Result<String, Failure>;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The kernel refused it.
    Errno(i32),
    /// It was refused in another way.
    Refused(String),
    /// It could not be tried, so nothing is known.
    Absent(String),
}

/// One probe of a table.
pub(crate) const fn probe(name: &'static str, attempt: fn(&Targets<'_>) -> Attempt) -> Probe {
    Probe { name, attempt }
}

/// An attempt that has got this.
pub(crate) fn got(what: &str) -> Attempt {
    Ok(what.to_owned())
}

/// For calls that are made with arguments that cannot succeed: these errors say that the kernel had already decided to
/// let the caller do it.
pub(crate) fn reached(result: Result<usize, Failure>, beyond: &[i32]) -> Attempt {
    match result {
        Ok(value) => Ok(format!("it returned {value}")),
        Err(Failure::Errno(errno)) if beyond.contains(&errno) => {
            Ok(format!("it was let in and answered {}", errno_name(errno)))
        }
        Err(failure) => Err(failure),
    }
}

pub(crate) fn refused(why: impl Into<String>) -> Failure {
    Failure::Refused(why.into())
}

pub(crate) fn absent(why: impl Into<String>) -> Failure {
    Failure::Absent(why.into())
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::Refused(error.to_string()), Self::Errno)
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Errno(errno.raw_os_error())
    }
}

pub(crate) fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::ENOEXEC => "ENOEXEC",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::ENOTBLK => "ENOTBLK",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EXDEV => "EXDEV",
        libc::ENODEV => "ENODEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENOTTY => "ENOTTY",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::ELOOP => "ELOOP",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::ESOCKTNOSUPPORT => "ESOCKTNOSUPPORT",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EPROTOTYPE => "EPROTOTYPE",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ENOKEY => "ENOKEY",
        libc::EUSERS => "EUSERS",
        libc::ETIMEDOUT => "ETIMEDOUT",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}
