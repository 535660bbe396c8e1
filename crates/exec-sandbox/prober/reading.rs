//! What must not be read: the directory `secret`, and files in the workspace that end in `.key`.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use libc::AT_FDCWD;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, StatxFlags, inotify};

use crate::attempt::{Attempt, Failure, Probe, absent, got, probe, refused};
use crate::system_call::call;
use crate::targets::c_path;

pub(crate) const PROBES: &[Probe] = &[
    probe("read-open", |t| contents(t.secret("secret")?)),
    probe("read-openat2", |t| {
        let flags = rustix::fs::ResolveFlags::empty();
        read(rustix::fs::openat2(CWD, t.secret("secret")?, OFlags::RDONLY, Mode::empty(), flags)?)
    }),
    probe("read-by-path-descriptor", |t| {
        let file = path_descriptor(t.secret("secret")?)?;
        contents(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }),
    probe("read-at-path-descriptor", |t| {
        let directory = path_descriptor(t.secret("")?)?;
        read(rustix::fs::openat(&directory, "secret", OFlags::RDONLY, Mode::empty())?)
    }),
    probe("read-after-chdir", |t| {
        std::env::set_current_dir(t.secret("")?)?;
        contents("secret")
    }),
    probe("read-stat", |t| Ok(format!("its size is {}", size(fs::metadata(t.secret("secret")?)?.len())?))),
    probe("read-lstat-of-link", |t| {
        let link = fs::symlink_metadata(t.secret("link")?)?;
        if link.file_type().is_symlink() { got("it is a link") } else { Err(refused("something else is there")) }
    }),
    probe("read-statx", |t| {
        let found = rustix::fs::statx(CWD, t.secret("secret")?, AtFlags::empty(), StatxFlags::SIZE)?;
        Ok(format!("its size is {}", size(found.stx_size)?))
    }),
    probe("read-stat-of-path-descriptor", |t| {
        let file = path_descriptor(t.secret("secret")?)?;
        Ok(format!("its size is {}", size(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or_default())?))
    }),
    probe("read-access", |t| {
        rustix::fs::accessat(CWD, t.secret("secret")?, Access::READ_OK, AtFlags::empty())?;
        got("it may be read")
    }),
    probe("read-faccessat2", |t| {
        let path = c_path(t.secret("secret")?);
        call!(libc::SYS_faccessat2, AT_FDCWD, path.as_ptr(), libc::R_OK, libc::AT_EACCESS)?;
        got("it may be read")
    }),
    probe("read-link", |t| Ok(format!("it leads to {}", fs::read_link(t.secret("link")?)?.display()))),
    probe("read-directory", |t| {
        let names: Vec<_> = fs::read_dir(t.secret("")?)?.flatten().map(|entry| entry.file_name()).collect();
        if names.iter().any(|name| name == "secret") { got("its names") } else { Err(refused("it looks empty")) }
    }),
    probe("read-deeper-directory", |t| {
        fs::read_dir(t.secret("deeper")?)?;
        got("it can be listed")
    }),
    probe("read-execute", |t| executed(Command::new(t.secret("program")?).status())),
    probe("read-execute-descriptor", |t| {
        let file = path_descriptor(t.secret("program")?)?;
        executed(Command::new(format!("/proc/self/fd/{}", file.as_raw_fd())).status())
    }),
    probe("read-execute-by-loader", |t| {
        let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let loader = loaders.iter().find(|path| Path::new(path).exists()).ok_or_else(|| absent("no loader"))?;
        let mut command = Command::new(loader);
        // It tells why it cannot run the program, and only verdicts are to be read here.
        command.arg(t.secret("program")?).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        executed(command.status())
    }),
    probe("read-execute-as-interpreter", |t| {
        let script = t.own_missing()?;
        fs::write(&script, format!("#!{}\n", t.secret("program")?.display()))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700))?;
        executed(Command::new(script).status())
    }),
    probe("read-map", |t| {
        let file = File::open(t.secret("secret")?)?;
        call!(libc::SYS_mmap, 0, 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)?;
        got("it is in memory")
    }),
    probe("read-copy-range", |t| {
        let (from, to) = (File::open(t.secret("secret")?)?, File::create(t.own_missing()?)?);
        rustix::fs::copy_file_range(from, None, to, None, 6)?;
        got("a copy")
    }),
    probe("read-sendfile", |t| {
        let from = File::open(t.secret("secret")?)?;
        let (_reader, writer) = rustix::pipe::pipe()?;
        rustix::fs::sendfile(writer, from, None, 6)?;
        got("a copy")
    }),
    probe("read-truncate-flag", |t| {
        // A denied file is not changed either.
        fs::OpenOptions::new().append(true).open(t.secret("secret")?)?;
        got("a descriptor that writes")
    }),
    probe("read-watch", |t| {
        let watcher = inotify::init(inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&watcher, t.secret("secret")?, inotify::WatchFlags::ACCESS)?;
        got("its changes are told")
    }),
    probe("read-watch-directory", |t| {
        let watcher = inotify::init(inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&watcher, t.secret("deeper")?, inotify::WatchFlags::ALL_EVENTS)?;
        got("its changes are told")
    }),
    probe("read-handle-of-name", |t| {
        handle_of(&t.secret("secret")?)?;
        got("a handle")
    }),
    probe("read-open-by-handle", |t| {
        let handle = handle_of(&t.secret("secret")?)?;
        let mount = File::open("/")?;
        let file = call!(libc::SYS_open_by_handle_at, mount.as_raw_fd(), handle.as_ptr(), libc::O_RDONLY)?;
        contents(format!("/proc/self/fd/{file}"))
    }),
    probe("read-file-system", |t| {
        rustix::fs::statfs(t.secret("secret")?)?;
        got("its file system")
    }),
    probe("read-attribute", |t| {
        let mut value = [0u8; 16];
        rustix::fs::getxattr(t.secret("secret")?, "user.kept", &mut value)?;
        got("its attribute")
    }),
    probe("read-attribute-names", |t| {
        let mut names = [0u8; 1024];
        rustix::fs::listxattr(t.secret("secret")?, &mut names)?;
        got("the names of its attributes")
    }),
    probe("read-by-link", |t| {
        fs::hard_link(t.secret("secret")?, t.own_missing()?)?;
        contents(t.own_missing()?)
    }),
    probe("read-by-symlink", |t| {
        symlink(t.secret("secret")?, t.own_missing()?)?;
        contents(t.own_missing()?)
    }),
    probe("read-by-symlinked-directory", |t| {
        symlink(t.secret("")?, t.own_missing()?)?;
        contents(t.own_missing()?.join("secret"))
    }),
    probe("read-by-rename", |t| {
        fs::rename(t.secret("secret")?, t.own_missing()?)?;
        let found = contents(t.own_missing()?);
        fs::rename(t.own_missing()?, t.secret("secret")?)?;
        found
    }),
    probe("read-by-renamed-directory", |t| {
        fs::rename(t.secret("")?, t.own_missing()?)?;
        let found = contents(t.own_missing()?.join("secret"));
        fs::rename(t.own_missing()?, t.secret("")?)?;
        found
    }),
    probe("read-by-root-of-self", |t| contents(below("/proc/self/root", &t.secret("secret")?))),
    probe("read-by-root-of-thread", |t| contents(below("/proc/thread-self/root", &t.secret("secret")?))),
    probe("read-by-root-of-init", |t| contents(below("/proc/1/root", &t.secret("secret")?))),
    probe("read-by-root-of-parent", |t| {
        let parent = std::os::unix::process::parent_id();
        contents(below(&format!("/proc/{parent}/root"), &t.secret("secret")?))
    }),
    probe("read-by-root-of-outsider", |t| {
        contents(below(&format!("/proc/{}/root", t.get("pid")?), &t.secret("secret")?))
    }),
    probe("read-by-cwd-of-outsider", |t| contents(format!("/proc/{}/cwd/secret", t.get("pid")?))),
    probe("read-by-fd-of-outsider", |t| contents(format!("/proc/{}/fd/0", t.get("pid")?))),
    probe("read-by-task-of-outsider", |t| {
        let pid = t.get("pid")?;
        contents(format!("/proc/{pid}/task/{pid}/cwd/secret"))
    }),
    probe("read-by-any-root", |t| {
        // Whoever has a root of its own may see more than we do.
        let secret = t.secret("secret")?;
        let pids = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
        let roots = pids.filter(|path| path.join("stat").exists());
        let mut paths = roots.map(|path| below(&path.join("root").to_string_lossy(), &secret));
        let found = paths.find_map(|path| contents(path).ok());
        found.ok_or_else(|| refused("no process has a root where it can be read"))
    }),
    probe("read-glob", |t| contents(t.in_workspace("secret.key")?)),
    probe("read-glob-deeper", |t| contents(t.in_workspace("deeper/secret.key")?)),
    probe("read-glob-by-link", |t| {
        fs::hard_link(t.in_workspace("secret.key")?, t.own_missing()?)?;
        contents(t.own_missing()?)
    }),
    probe("read-glob-by-symlink", |t| {
        symlink("secret.key", t.own_missing()?)?;
        contents(t.own_missing()?)
    }),
    probe("read-glob-by-rename", |t| {
        fs::rename(t.in_workspace("deeper/moved.key")?, t.own_missing()?)?;
        let found = contents(t.own_missing()?);
        fs::rename(t.own_missing()?, t.in_workspace("deeper/moved.key")?)?;
        found
    }),
    probe("read-glob-by-renamed-directory", |t| {
        fs::rename(t.in_workspace("deeper")?, t.own_missing()?)?;
        let found = contents(t.own_missing()?.join("secret.key"));
        fs::rename(t.own_missing()?, t.in_workspace("deeper")?)?;
        found
    }),
    probe("read-glob-by-exchange", |t| {
        let (key, own) = (t.in_workspace("deeper/moved.key")?, t.own()?);
        rustix::fs::renameat_with(CWD, &key, CWD, &own, rustix::fs::RenameFlags::EXCHANGE)?;
        let found = contents(&own);
        rustix::fs::renameat_with(CWD, &key, CWD, &own, rustix::fs::RenameFlags::EXCHANGE)?;
        found
    }),
];

/// Reads the secret there. A masked file may be there and empty.
fn contents(path: impl AsRef<Path>) -> Attempt {
    read(File::open(path)?)
}

fn read(file: impl Into<File>) -> Attempt {
    let mut text = String::new();
    file.into().take(4096).read_to_string(&mut text)?;
    if text.contains("secret") { got("the secret") } else { Err(refused("something else is there")) }
}

fn size(bytes: u64) -> Result<u64, Failure> {
    if bytes == 7 { Ok(bytes) } else { Err(refused("something else is there")) }
}

fn executed(result: std::io::Result<std::process::ExitStatus>) -> Attempt {
    let status = result?;
    if status.success() { got("it ran") } else { Err(refused(format!("it ended with {status}"))) }
}

fn path_descriptor(path: impl AsRef<Path>) -> Result<OwnedFd, Failure> {
    Ok(rustix::fs::open(path.as_ref(), OFlags::PATH, Mode::empty())?)
}

fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

/// `struct file_handle` with room for the largest handle, as the kernel filled it.
fn handle_of(path: &Path) -> Result<[u32; 34], Failure> {
    let path = c_path(path);
    let mut handle = [0u32; 34];
    handle[0] = 128;
    let mut mount = 0i32;
    call!(libc::SYS_name_to_handle_at, AT_FDCWD, path.as_ptr(), handle.as_mut_ptr(), &raw mut mount, 0)?;
    Ok(handle)
}
