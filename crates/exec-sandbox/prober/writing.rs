//! Changes to files out of the writable roots, by every call that can make one.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use libc::{AT_EMPTY_PATH, AT_FDCWD};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};

use crate::attempt::{Attempt, Failure, Probe, absent, got, probe};
use crate::system_call::call;
use crate::targets::{Targets, c_path};

pub(crate) const PROBES: &[Probe] = &[
    probe("write-file", |t| write_into(t.victim()?)),
    probe("append-file", |t| {
        OpenOptions::new().append(true).open(t.victim()?)?.write_all(b"x")?;
        got("a byte was appended")
    }),
    probe("open-for-writing", |t| opened(OpenOptions::new().write(true).open(t.victim()?))),
    probe("open-for-reading-and-writing", |t| opened(OpenOptions::new().read(true).write(true).open(t.victim()?))),
    probe("open-and-truncate", |t| opened(OpenOptions::new().write(true).truncate(true).open(t.victim()?))),
    probe("open-for-reading-and-truncate", |t| {
        // Linux truncates although the descriptor cannot write.
        let path = c_path(t.victim()?);
        call!(libc::SYS_openat, AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_TRUNC)?;
        got("the file was truncated")
    }),
    probe("openat2-for-writing", openat2_for_writing),
    probe("create-file", |t| opened(OpenOptions::new().write(true).create_new(true).open(t.missing()?))),
    probe("create-for-reading", |t| {
        let path = c_path(t.missing()?);
        call!(libc::SYS_openat, AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CREAT, 0o600)?;
        got("a file was made")
    }),
    probe("create-beside-dot-dot", |t| {
        // From the workspace upwards and down again.
        std::env::set_current_dir(t.in_workspace("")?)?;
        opened(File::create_new(up_to_the_root(t)?.join(relative(&t.missing()?))))
    }),
    probe("create-from-inside", |t| {
        std::env::set_current_dir(t.victim_directory()?)?;
        opened(File::create_new("new"))
    }),
    probe("create-at-a-path-descriptor", |t| {
        let directory = rustix::fs::open(t.victim_directory()?, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        rustix::fs::openat(&directory, "new", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR)?;
        got("a file was made")
    }),
    probe("temporary-file", |t| {
        rustix::fs::open(t.victim_directory()?, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR)?;
        got("a file without a name was made")
    }),
    probe("temporary-file-linked-out", |t| {
        let file = rustix::fs::open(t.in_workspace("")?, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, path, CWD, t.missing()?, AtFlags::SYMLINK_FOLLOW)?;
        got("it was given a name")
    }),
    probe("truncate-path", |t| {
        let path = c_path(t.victim()?);
        call!(libc::SYS_truncate, path.as_ptr(), 1)?;
        got("the file was truncated")
    }),
    probe("truncate-descriptor", |t| {
        OpenOptions::new().write(true).open(t.victim()?)?.set_len(1)?;
        got("the file was truncated")
    }),
    probe("allocate", |t| {
        let file = OpenOptions::new().write(true).open(t.victim()?)?;
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 4096)?;
        got("space was allocated")
    }),
    probe("make-directory", |t| done(fs::create_dir(t.missing()?), "a directory was made")),
    probe("remove-directory", |t| done(fs::remove_dir(t.victim_directory()?), "a directory was removed")),
    probe("remove-file", |t| done(fs::remove_file(t.victim()?), "a file was removed")),
    probe("rename-within", |t| done(fs::rename(t.victim()?, t.missing()?), "a file was renamed")),
    probe("rename-out", |t| done(fs::rename(t.own()?, t.missing()?), "a file was moved there")),
    probe("rename-in", |t| done(fs::rename(t.victim()?, t.own_missing()?), "a file was moved from there")),
    probe("rename-over", |t| done(fs::rename(t.own()?, t.victim()?), "a file was replaced")),
    probe("rename-directory-in", |t| {
        done(fs::rename(t.victim_directory()?, t.own_missing()?), "a directory was moved")
    }),
    probe("rename-without-replacing", |t| {
        rustix::fs::renameat_with(CWD, t.own()?, CWD, t.missing()?, RenameFlags::NOREPLACE)?;
        got("a file was moved there")
    }),
    probe("rename-exchange", |t| {
        rustix::fs::renameat_with(CWD, t.own()?, CWD, t.victim()?, RenameFlags::EXCHANGE)?;
        got("two files were exchanged")
    }),
    probe("rename-the-workspace", |t| {
        let workspace = t.in_workspace("")?;
        let away = workspace.with_extension("away");
        fs::rename(&workspace, &away)?;
        fs::rename(&away, &workspace)?;
        got("it was moved, and back")
    }),
    probe("link-out", |t| done(fs::hard_link(t.own()?, t.missing()?), "a file has a second name there")),
    probe("link-within", |t| done(fs::hard_link(t.victim()?, t.missing()?), "a file has a second name there")),
    probe("link-in-and-write", |t| {
        fs::hard_link(t.victim()?, t.own_missing()?)?;
        write_into(t.own_missing()?)
    }),
    probe("link-in-by-descriptor", |t| {
        let file = File::open(t.victim()?)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, path, CWD, t.own_missing()?, AtFlags::SYMLINK_FOLLOW)?;
        write_into(t.own_missing()?)
    }),
    probe("symlink-out", |t| done(symlink("anywhere", t.missing()?), "a link was made there")),
    probe("symlink-in-and-write", |t| {
        symlink(t.victim()?, t.own_missing()?)?;
        write_into(t.own_missing()?)
    }),
    probe("symlink-in-and-create", |t| {
        symlink(t.missing()?, t.own_missing()?)?;
        opened(File::create(t.own_missing()?))
    }),
    probe("symlinked-directory-and-create", |t| {
        symlink(t.victim_directory()?, t.own_missing()?)?;
        opened(File::create(t.own_missing()?.join("new")))
    }),
    probe("make-fifo", |t| {
        rustix::fs::mknodat(CWD, t.missing()?, FileType::Fifo, Mode::RUSR, 0)?;
        got("a pipe was made")
    }),
    probe("make-regular-node", |t| {
        rustix::fs::mknodat(CWD, t.missing()?, FileType::RegularFile, Mode::RUSR, 0)?;
        got("a file was made")
    }),
    probe("make-device", |t| {
        rustix::fs::mknodat(CWD, t.missing()?, FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 3))?;
        got("a device was made")
    }),
    probe("make-device-in-the-workspace", |t| {
        let null = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(CWD, t.own_missing()?, FileType::CharacterDevice, Mode::RUSR, null)?;
        got("a device was made")
    }),
    probe("bind-socket-outside", |t| {
        UnixListener::bind(t.missing()?)?;
        got("a socket was made")
    }),
    probe("change-mode", |t| done(fs::set_permissions(t.victim()?, mode(0o600)), "the mode was changed")),
    probe("change-mode-of-directory", |t| {
        done(fs::set_permissions(t.victim_directory()?, mode(0o700)), "the mode was changed")
    }),
    probe("change-mode-of-descriptor", |t| {
        done(File::open(t.victim()?)?.set_permissions(mode(0o600)), "the mode was changed")
    }),
    probe("change-mode-by-proc", |t| {
        let file = path_descriptor(t.victim()?)?;
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        done(fs::set_permissions(link, mode(0o600)), "the mode was changed")
    }),
    probe("fchmodat2", |t| {
        let path = c_path(t.victim()?);
        call!(libc::SYS_fchmodat2, AT_FDCWD, path.as_ptr(), 0o600, 0)?;
        got("the mode was changed")
    }),
    probe("fchmodat2-of-descriptor", |t| {
        let file = path_descriptor(t.victim()?)?;
        call!(libc::SYS_fchmodat2, file.as_raw_fd(), c"".as_ptr(), 0o600, AT_EMPTY_PATH)?;
        got("the mode was changed")
    }),
    probe("change-owner", |t| done(chown(t.victim()?, owner(), group()), "the owner was set")),
    probe("change-owner-of-link", |t| done(lchown(t.victim()?, owner(), group()), "the owner was set")),
    probe("change-owner-of-descriptor", |t| {
        done(std::os::unix::fs::fchown(File::open(t.victim()?)?, owner(), group()), "the owner was set")
    }),
    probe("fchownat-of-descriptor", |t| {
        let file = path_descriptor(t.victim()?)?;
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        rustix::fs::chownat(&file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        got("the owner was set")
    }),
    probe("change-times", |t| {
        rustix::fs::utimensat(CWD, t.victim()?, &long_ago(), AtFlags::empty())?;
        got("the times were set")
    }),
    probe("change-times-of-link", |t| {
        rustix::fs::utimensat(CWD, t.victim()?, &long_ago(), AtFlags::SYMLINK_NOFOLLOW)?;
        got("the times were set")
    }),
    probe("change-times-of-descriptor", |t| {
        rustix::fs::futimens(File::open(t.victim()?)?, &long_ago())?;
        got("the times were set")
    }),
    probe("change-times-to-now", |t| {
        let path = c_path(t.victim()?);
        call!(libc::SYS_utimensat, AT_FDCWD, path.as_ptr(), 0, 0)?;
        got("the times were set")
    }),
    probe("set-attribute", |t| {
        rustix::fs::setxattr(t.victim()?, "user.probe", b"x", XattrFlags::empty())?;
        got("an attribute was set")
    }),
    probe("set-attribute-of-link", |t| {
        rustix::fs::lsetxattr(t.victim()?, "user.probe", b"x", XattrFlags::empty())?;
        got("an attribute was set")
    }),
    probe("set-attribute-of-descriptor", |t| {
        rustix::fs::fsetxattr(File::open(t.victim()?)?, "user.probe", b"x", XattrFlags::empty())?;
        got("an attribute was set")
    }),
    probe("setxattrat", set_attribute_at),
    probe("set-access-list", |t| {
        // The smallest list: owner, group and others may read.
        let entries = [(1u16, 4u16), (4, 4), (32, 4)];
        let entry = |(tag, bits): (u16, u16)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &[0xff; 4]].concat();
        let list = [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat();
        rustix::fs::setxattr(t.victim()?, "system.posix_acl_access", &list, XattrFlags::empty())?;
        got("the access list was set")
    }),
    probe("remove-attribute", |t| {
        rustix::fs::removexattr(t.victim()?, "user.kept")?;
        got("an attribute was removed")
    }),
    probe("remove-attribute-of-link", |t| {
        rustix::fs::lremovexattr(t.victim()?, "user.kept")?;
        got("an attribute was removed")
    }),
    probe("remove-attribute-of-descriptor", |t| {
        rustix::fs::fremovexattr(File::open(t.victim()?)?, "user.kept")?;
        got("an attribute was removed")
    }),
    probe("removexattrat", |t| {
        let path = c_path(t.victim()?);
        call!(REMOVEXATTRAT, AT_FDCWD, path.as_ptr(), 0, c"user.kept".as_ptr())?;
        got("an attribute was removed")
    }),
    probe("set-file-flags", |t| {
        let file = File::open(t.victim()?)?;
        let flags = rustix::fs::ioctl_getflags(&file)?;
        rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::NODUMP)?;
        got("the flag `nodump` was set")
    }),
    probe("set-project-of-file", |t| {
        // `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR` with what was got.
        let file = File::open(t.victim()?)?;
        let mut attributes = [0u8; 28];
        call!(libc::SYS_ioctl, file.as_raw_fd(), 0x801c_581f_u64, attributes.as_mut_ptr())?;
        call!(libc::SYS_ioctl, file.as_raw_fd(), 0x401c_5820_u64, attributes.as_ptr())?;
        got("the attributes were set again")
    }),
    probe("request-to-file-system", |t| {
        // `EXT4_IOC_ALLOC_DA_BLKS`: of those that change something through a handle that may only read, one that does no harm.
        let file = File::open(t.victim()?)?;
        crate::attempt::reached(call!(libc::SYS_ioctl, file.as_raw_fd(), 0x660c), &[])
    }),
    probe("copy-into", |t| {
        let (from, to) = (File::open(t.own()?)?, OpenOptions::new().write(true).open(t.victim()?)?);
        rustix::fs::copy_file_range(from, None, to, None, 4)?;
        got("bytes were copied there")
    }),
    probe("sendfile-into", |t| {
        let (from, to) = (File::open(t.own()?)?, OpenOptions::new().write(true).open(t.victim()?)?);
        rustix::fs::sendfile(to, from, None, 4)?;
        got("bytes were copied there")
    }),
    probe("splice-into", |t| {
        let (reader, writer) = rustix::pipe::pipe()?;
        rustix::io::write(&writer, b"pipe")?;
        let to = OpenOptions::new().write(true).open(t.victim()?)?;
        rustix::pipe::splice(reader, None, to, None, 4, rustix::pipe::SpliceFlags::empty())?;
        got("bytes were moved there")
    }),
    probe("map-shared", map_shared),
    probe("clone-range-into", |t| {
        // `FICLONE` needs a descriptor that writes; ext4 has no clones, and says so only then.
        let (from, to) = (File::open(t.own()?)?, OpenOptions::new().write(true).open(t.victim()?)?);
        let result = call!(libc::SYS_ioctl, to.as_raw_fd(), 0x4004_9409_u64, from.as_raw_fd());
        crate::attempt::reached(result, &[libc::EOPNOTSUPP, libc::EINVAL, libc::EXDEV])
    }),
    probe("write-by-root-of-self", |t| write_into(below("/proc/self/root", &t.victim()?))),
    probe("write-by-root-of-thread", |t| write_into(below("/proc/thread-self/root", &t.victim()?))),
    probe("write-by-root-of-init", |t| write_into(below("/proc/1/root", &t.victim()?))),
    probe("write-by-root-of-parent", |t| {
        let parent = std::os::unix::process::parent_id();
        write_into(below(&format!("/proc/{parent}/root"), &t.victim()?))
    }),
    probe("write-by-root-of-outsider", |t| write_into(below(&format!("/proc/{}/root", t.get("pid")?), &t.victim()?))),
    probe("write-by-cwd-of-self", |t| {
        std::env::set_current_dir(t.in_workspace("")?)?;
        write_into(Path::new("/proc/self/cwd").join(up_to_the_root(t)?).join(relative(&t.victim()?)))
    }),
    probe("write-by-dev-fd", |t| {
        let file = File::open(t.victim()?)?;
        write_into(format!("/dev/fd/{}", file.as_raw_fd()))
    }),
    probe("write-by-path-descriptor", |t| {
        let file = path_descriptor(t.victim()?)?;
        write_into(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }),
    probe("write-by-directory-in-proc", |t| {
        let directory = path_descriptor(t.get("outside")?)?;
        let name = t.victim()?.file_name().map(PathBuf::from).ok_or_else(|| absent("it has no name"))?;
        write_into(Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
    }),
];

/// In libc's tables only since lately.
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;

fn write_into(path: impl AsRef<Path>) -> Attempt {
    // Without `O_CREAT`: it is about a file that exists.
    let mut file = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    file.write_all(b"X")?;
    got("a byte was written")
}

fn opened(result: std::io::Result<File>) -> Attempt {
    result?;
    got("a descriptor")
}

fn done(result: std::io::Result<()>, what: &str) -> Attempt {
    result?;
    got(what)
}

fn path_descriptor(path: impl AsRef<Path>) -> Result<rustix::fd::OwnedFd, Failure> {
    Ok(rustix::fs::open(path.as_ref(), OFlags::PATH, Mode::empty())?)
}

fn mode(bits: u32) -> fs::Permissions {
    fs::Permissions::from_mode(bits)
}

fn owner() -> Option<u32> {
    Some(rustix::process::getuid().as_raw())
}

fn group() -> Option<u32> {
    Some(rustix::process::getgid().as_raw())
}

fn long_ago() -> Timestamps {
    let time = Timespec { tv_sec: 1, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// `root` and below it the absolute path.
fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(relative(path))
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// As many `..` as lead from the workspace to the root.
fn up_to_the_root(t: &Targets<'_>) -> Result<PathBuf, Failure> {
    Ok(t.in_workspace("")?.components().skip(1).map(|_| "..").collect())
}

fn openat2_for_writing(t: &Targets<'_>) -> Attempt {
    let flags = rustix::fs::ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(CWD, t.victim()?, OFlags::WRONLY, Mode::empty(), flags)?;
    got("a descriptor")
}

fn set_attribute_at(t: &Targets<'_>) -> Attempt {
    /// `struct xattr_args`.
    #[repr(C)]
    struct Arguments {
        value: u64,
        size: u32,
        flags: u32,
    }
    let (path, value) = (c_path(t.victim()?), *b"x");
    let arguments = Arguments { value: value.as_ptr() as u64, size: 1, flags: 0 };
    let name = c"user.probe".as_ptr();
    call!(SETXATTRAT, AT_FDCWD, path.as_ptr(), 0, name, &raw const arguments, size_of::<Arguments>())?;
    got("an attribute was set")
}

fn map_shared(t: &Targets<'_>) -> Attempt {
    let mut file = OpenOptions::new().read(true).write(true).open(t.victim()?)?;
    let address =
        call!(libc::SYS_mmap, 0, 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)?;
    // SAFETY: the kernel has just mapped this page for writing, nobody else knows of it, and the file has a byte.
    unsafe { (address as *mut u8).write_volatile(b'M') };
    file.rewind()?;
    got("a byte was written through memory")
}
