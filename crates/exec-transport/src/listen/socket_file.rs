//! The file of a unix socket: made so that nobody else may connect, replaced when it is stale,
//! removed when the listener is dropped.
//!
//! Two servers that start at once must not take each other's fresh file for a stale one: between
//! `bind` and `listen` a live socket refuses connections just as a dead one does. So probing,
//! removing, binding and listening happen under a lock on the directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use tokio::net::UnixListener;
use tokio::time::{Instant, sleep};

use super::BindError;

/// As many as the kernel's usual `somaxconn` lets wait.
const BACKLOG: i32 = 1024;

/// How long another server may take to bind in the same directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The socket file we made. Dropping it removes the file, if it is still ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have replaced the file; then it must stay.
        if identity(&self.path).is_ok_and(|found| found == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove the socket file {}: {error}", self.path.display());
        }
    }
}

/// Listens at `path`, mode 0600.
pub(crate) async fn listen_at(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let failed =
        |operation: &'static str| move |source: io::Error| BindError::Unix { operation, path: path.to_owned(), source };
    let _lock = lock_directory(path).await.map_err(failed("lock the directory of"))?;
    let listener = match try_listen(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            try_listen(path)
        }
        other => other,
    };
    let listener = listener.map_err(failed("listen on"))?;
    let identity = identity(path).map_err(failed("look at"))?;
    let file = SocketFile { path: path.to_owned(), identity };
    let listener = UnixListener::from_std(listener).map_err(failed("listen on"))?;
    Ok((listener, file))
}

fn try_listen(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux gives the file the mode of the socket, so there is no moment at which others could
    // connect. Changing the file after `bind`, or the umask of all threads, would leave one.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |operation| move |source| BindError::Unix { operation, path: path.to_owned(), source };
    let found = std::fs::symlink_metadata(path).map_err(failed("look at"))?;
    // Connecting to a plain file is refused too; it must not be mistaken for a dead socket.
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match probe(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!("replacing the stale socket file {}", path.display());
            std::fs::remove_file(path).map_err(failed("remove the stale file of"))
        }
        // It accepts, its queue is full, or we may not connect: in each case a server is there.
        Ok(()) | Err(_) => Err(BindError::SocketInUse { path: path.to_owned() }),
    }
}

/// Connects without blocking: a server whose queue is full would hold us up for ever.
fn probe(path: &Path) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(connect(&socket, &SocketAddrUnix::new(path)?)?)
}

/// Only our own servers respect this lock; it is released when the file is dropped.
async fn lock_directory(path: &Path) -> io::Result<File> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = File::open(directory)?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            // Anybody may hold such a lock, even by accident. After the timeout we continue without it.
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= until => return Ok(directory),
            Err(rustix::io::Errno::WOULDBLOCK) => sleep(Duration::from_millis(20)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
