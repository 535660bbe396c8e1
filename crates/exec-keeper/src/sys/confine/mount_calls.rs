//! The system calls about mounts and the files that are made to mount on, as a child makes them between `clone` and `exec`.
//!
//! All of them run under the conditions of [`PreparedConfinement::enter`](super::PreparedConfinement::enter): system calls
//! only, no allocation, no lock, no panic. Those that return a number return what the system call returned. What is mounted
//! where is decided by the caller.

use std::ffi::{CStr, c_char};
use std::os::fd::RawFd;

/// Bits of the kernel's interfaces that libc does not have for every target.
const OPEN_TREE_CLONE: i32 = 1;
const AT_RECURSIVE: i32 = 0x8000;
const MOVE_FROM_HANDLE_TO_HANDLE: u32 = 0x4 | 0x40;
const MOUNT_ATTR_RDONLY: u64 = 1;
pub(super) const MOUNT_ATTR_NODEV: u64 = 4;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_BENEATH: u64 = 0x08;

/// No descriptor.
pub(super) const NONE: RawFd = -1;

/// Opens what is at `path` below `root`, without any effect on it. A link anywhere in it is an error.
pub(super) unsafe fn open_below(root: RawFd, path: &CStr) -> libc::c_long {
    let how =
        [(libc::O_PATH | libc::O_CLOEXEC) as u64, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH];
    // SAFETY: the path and the kernel's open_how (three numbers) are live.
    unsafe { libc::syscall(libc::SYS_openat2, root, path.as_ptr(), how.as_ptr(), size_of_val(&how)) }
}

/// A copy of the mount at `handle`, attached nowhere.
pub(super) unsafe fn copy_mount(handle: RawFd, with_all_below: bool) -> libc::c_long {
    let below = if with_all_below { AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH | below;
    // SAFETY: plain values.
    unsafe { libc::syscall(libc::SYS_open_tree, handle, c"".as_ptr(), flags) }
}

/// The terminal that is our standard input, by its name; [`NONE`] if it has none.
pub(super) unsafe fn copy_own_terminal(root: RawFd) -> RawFd {
    let mut name = [0u8; 64];
    // SAFETY: the kernel writes at most 63 bytes into the live local, so that it ends with NUL.
    unsafe {
        if libc::isatty(0) == 0 {
            return NONE;
        }
        let length = libc::readlink(c"/proc/self/fd/0".as_ptr(), name.as_mut_ptr().cast(), name.len() - 1);
        if length < 2 || name[0] != b'/' {
            return NONE;
        }
        let path = CStr::from_ptr(name.as_ptr().add(1).cast());
        let handle = open_below(root, path) as RawFd;
        if handle < 0 {
            return NONE;
        }
        let copy = copy_mount(handle, false) as RawFd;
        libc::close(handle);
        copy
    }
}

pub(super) unsafe fn move_mount(mount: RawFd, target: RawFd) -> Result<(), i32> {
    let empty = c"".as_ptr();
    // SAFETY: plain values.
    let moved = unsafe { libc::syscall(libc::SYS_move_mount, mount, empty, target, empty, MOVE_FROM_HANDLE_TO_HANDLE) };
    result(moved).map(drop)
}

pub(super) unsafe fn make_read_only(mount: RawFd, with_all_below: bool) -> Result<(), i32> {
    // SAFETY: plain values.
    unsafe { set_attributes(mount, MOUNT_ATTR_RDONLY, with_all_below) }
}

pub(super) unsafe fn set_attributes(mount: RawFd, set: u64, with_all_below: bool) -> Result<(), i32> {
    let attributes = [set, 0, 0, 0];
    let flags = libc::AT_EMPTY_PATH | if with_all_below { AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel's mount_attr is four numbers.
    let made = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            c"".as_ptr(),
            flags,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    result(made).map(drop)
}

/// A new file system, attached nowhere.
pub(super) unsafe fn new_file_system(kind: &CStr, options: &[(&CStr, &CStr)]) -> Result<RawFd, i32> {
    // SAFETY: strings that live, and plain values.
    unsafe {
        let context = result(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC))?;
        for (name, value) in options {
            let set = libc::syscall(libc::SYS_fsconfig, context, FSCONFIG_SET_STRING, name.as_ptr(), value.as_ptr(), 0);
            result(set)?;
        }
        let nothing = std::ptr::null::<c_char>();
        result(libc::syscall(libc::SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nothing, nothing, 0))?;
        let mount = result(libc::syscall(libc::SYS_fsmount, context, FSMOUNT_CLOEXEC, 0))?;
        libc::close(context);
        Ok(mount)
    }
}

/// Something at `path` below `root` on which can be mounted; made if it is not there.
pub(super) unsafe fn mount_point(root: RawFd, path: &CStr, directory: bool) -> Result<RawFd, i32> {
    // SAFETY: as for `enter`.
    unsafe {
        match result(open_below(root, path)) {
            Err(libc::ENOENT) => {}
            other => return other,
        }
        let (parent, name) = make_parent(root, path)?;
        if directory {
            result(libc::mkdirat(parent, name, 0o755).into())?;
        } else {
            make_file(parent, CStr::from_ptr(name), 0o444)?;
        }
        result(open_below(root, path))
    }
}

/// The directory in which `path` is, made if it is not there, and the last name of `path`.
pub(super) unsafe fn make_parent(root: RawFd, path: &CStr) -> Result<(RawFd, *const c_char), i32> {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let bytes = path.to_bytes_with_nul();
    let mut here = root;
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'/' {
            continue;
        }
        let (Some(name), Some(space)) = (bytes.get(start..at), buffer.get_mut(..at - start + 1)) else {
            return Err(libc::ENAMETOOLONG);
        };
        if let [space @ .., end] = space {
            space.copy_from_slice(name);
            *end = 0;
        }
        // SAFETY: the buffer holds the name and the NUL behind it.
        unsafe {
            let name = CStr::from_ptr(buffer.as_ptr().cast());
            if libc::mkdirat(here, name.as_ptr(), 0o755) < 0 && errno() != libc::EEXIST {
                return Err(errno());
            }
            here = result(open_below(here, name))?;
        }
        start = at + 1;
    }
    // SAFETY: `start` is behind a slash of the string or at its beginning, so within it.
    Ok((here, unsafe { path.as_ptr().add(start) }))
}

pub(super) unsafe fn make_file(directory: RawFd, name: &CStr, mode: u32) -> Result<(), i32> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: a live string and plain values.
    unsafe {
        let file = result(libc::openat(directory, name.as_ptr(), flags, mode).into())?;
        libc::close(file);
    }
    Ok(())
}

pub(super) unsafe fn bind_file(source: RawFd, directory: RawFd, name: &CStr) -> Result<(), i32> {
    // SAFETY: as for `enter`.
    unsafe {
        make_file(directory, name, 0o444)?;
        let target = result(open_below(directory, name))?;
        move_mount(source, target)?;
        libc::close(target);
        libc::close(source);
    }
    Ok(())
}

pub(super) unsafe fn mount_in(mount: RawFd, directory: RawFd, name: &CStr, mode: u32) -> Result<(), i32> {
    // SAFETY: as for `enter`.
    unsafe {
        result(libc::mkdirat(directory, name.as_ptr(), mode).into())?;
        let target = result(open_below(directory, name))?;
        move_mount(mount, target)?;
        libc::close(target);
    }
    Ok(())
}

pub(super) unsafe fn is_directory(handle: RawFd) -> bool {
    // SAFETY: zeroed is a value of this plain C struct, and the kernel fills in the live local.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(handle, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFDIR
    }
}

pub(super) fn result(returned: libc::c_long) -> Result<RawFd, i32> {
    if returned < 0 { Err(errno()) } else { Ok(returned as RawFd) }
}

fn errno() -> i32 {
    // SAFETY: the slot of this thread; in a child that shares our memory it is the one of the suspended thread.
    unsafe { *libc::__errno_location() }
}
