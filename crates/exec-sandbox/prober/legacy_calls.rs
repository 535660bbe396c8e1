//! The other ways into the kernel of x86-64: calls of before `*at`, the 32-bit table, and the x32 table. A filter that
//! does not know them lets through what it refuses by another name.

use libc::c_long;

use crate::attempt::{Attempt, Failure, Probe, got, probe, reached};
use crate::system_call::{call, call_as_32_bit};
use crate::targets::c_path;

/// This bit makes a number one of the x32 table.
const X32: c_long = 0x4000_0000;

pub(crate) const PROBES: &[Probe] = &[
    probe("legacy-open", |t| by_path(libc::SYS_open, t.victim()?, &[libc::O_WRONLY as usize])),
    probe("legacy-creat", |t| by_path(libc::SYS_creat, t.missing()?, &[0o600])),
    probe("legacy-mkdir", |t| by_path(libc::SYS_mkdir, t.missing()?, &[0o700])),
    probe("legacy-mknod", |t| by_path(libc::SYS_mknod, t.missing()?, &[libc::S_IFIFO as usize | 0o600, 0])),
    probe("legacy-chmod", |t| by_path(libc::SYS_chmod, t.victim()?, &[0o600])),
    probe("legacy-chown", |t| by_path(libc::SYS_chown, t.victim()?, &[user(), usize::MAX])),
    probe("legacy-lchown", |t| by_path(libc::SYS_lchown, t.victim()?, &[user(), usize::MAX])),
    probe("legacy-utime", |t| by_path(libc::SYS_utime, t.victim()?, &[0])),
    probe("legacy-utimes", |t| by_path(libc::SYS_utimes, t.victim()?, &[0])),
    probe("legacy-futimesat", |t| {
        let path = c_path(t.victim()?);
        reached(call!(libc::SYS_futimesat, libc::AT_FDCWD, path.as_ptr(), 0), &[])
    }),
    probe("legacy-rename", |t| {
        let (from, to) = (c_path(t.victim()?), c_path(t.missing()?));
        reached(call!(libc::SYS_rename, from.as_ptr(), to.as_ptr()), &[])
    }),
    probe("legacy-link", |t| {
        let (from, to) = (c_path(t.victim()?), c_path(t.missing()?));
        reached(call!(libc::SYS_link, from.as_ptr(), to.as_ptr()), &[])
    }),
    probe("legacy-symlink", |t| {
        let to = c_path(t.missing()?);
        reached(call!(libc::SYS_symlink, c"anywhere".as_ptr(), to.as_ptr()), &[])
    }),
    probe("legacy-unlink", |t| by_path(libc::SYS_unlink, t.victim()?, &[])),
    probe("legacy-rmdir", |t| by_path(libc::SYS_rmdir, t.victim_directory()?, &[])),
    probe("protected-legacy-chmod", |t| by_path(libc::SYS_chmod, t.protected()?, &[0o600])),
    probe("protected-legacy-open", |t| by_path(libc::SYS_open, t.protected()?, &[libc::O_WRONLY as usize])),
    probe("read-legacy-open", |t| by_path(libc::SYS_open, t.secret("secret")?, &[libc::O_RDONLY as usize])),
    probe("read-legacy-access", |t| by_path(libc::SYS_access, t.secret("secret")?, &[libc::R_OK as usize])),
    probe("io-ports", |_| reached(call!(libc::SYS_ioperm, 0x80, 1, 1), &[])),
    probe("io-privilege", |_| reached(call!(libc::SYS_iopl, 3), &[])),
    probe("x32-getpid", |_| as_x32(libc::SYS_getpid, &[])),
    probe("x32-socket", |_| as_x32(libc::SYS_socket, &[libc::AF_INET as usize, libc::SOCK_STREAM as usize, 0])),
    probe("x32-unshare", |_| as_x32(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize])),
    // ptrace has a number of its own there.
    probe("x32-ptrace", |_| as_x32(521, &[libc::PTRACE_TRACEME as usize])),
    probe("as-32-bit-getpid", |_| as_32_bit(20, [0; 3])),
    probe("as-32-bit-socket", |_| as_32_bit(359, [2, 1, 0])),
    probe("as-32-bit-unshare", |_| as_32_bit(310, [libc::CLONE_NEWUSER as u32, 0, 0])),
    probe("as-32-bit-ptrace", |_| as_32_bit(26, [0; 3])),
    probe("as-32-bit-io-uring", |_| match as_32_bit(426, [u32::MAX, 0, 0]) {
        Err(Failure::Errno(libc::EBADF)) => got("it was let in and answered EBADF"),
        other => other,
    }),
];

fn by_path(number: c_long, path: std::path::PathBuf, others: &[usize]) -> Attempt {
    let path = c_path(path);
    let arguments: Vec<usize> = std::iter::once(path.as_ptr() as usize).chain(others.iter().copied()).collect();
    reached(crate::system_call::raw(number, &arguments), &[])
}

fn user() -> usize {
    rustix::process::getuid().as_raw() as usize
}

fn as_x32(number: c_long, arguments: &[usize]) -> Attempt {
    reached(crate::system_call::raw(X32 | number, arguments), &[])
}

fn as_32_bit(number: u32, arguments: [u32; 3]) -> Attempt {
    reached(call_as_32_bit(number, arguments), &[])
}
