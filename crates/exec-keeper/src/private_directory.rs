//! A directory that only our user can use: it is made, or it is checked before anything in it is believed.
//!
//! Another user of the machine may have made it first, as a directory of his own or as a link to one of ours; or it was
//! open to others for a while, and what lies in it may be theirs. So it is opened without following a link, the handle
//! is asked, and the handle is changed: nothing else can come in between.
//!
//! Deliberately absent: the directories above it. Who may rename those can do more than this guards against.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::start_keeper::KeeperStartError;

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Writable for the group or for everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes sure that the directory exists, that it is ours and no link, that only our user can enter it from now on, and
/// that nobody else has put anything into it before.
pub fn create(path: &Path) -> Result<(), KeeperStartError> {
    // A slash at the end would make the kernel follow a link.
    let path: &Path = &path.components().collect::<PathBuf>();
    let at = |error: io::Error| KeeperStartError::Directory { path: path.to_owned(), error };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at)?;
    let handle = match rustix::fs::open(path, OPEN_DIRECTORY, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(KeeperStartError::Link { path: path.to_owned() }),
        other => other.map_err(|errno| at(errno.into()))?,
    };
    let found = rustix::fs::fstat(&handle).map_err(|errno| at(errno.into()))?;
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(KeeperStartError::Foreign { path: path.to_owned(), uid: found.st_uid });
    }
    let was_open = found.st_mode & WRITABLE_BY_OTHERS != 0;
    if was_open {
        // It stays as it is, so that the next start refuses it as well.
        refuse_contents(&handle, path)?;
    }
    if found.st_mode & 0o077 != 0 {
        rustix::fs::fchmod(&handle, Mode::RWXU).map_err(|errno| at(errno.into()))?;
    }
    // Again, because somebody may have been quicker than the change of its mode.
    if was_open { refuse_contents(&handle, path) } else { check_contents(&handle, path, true) }
}

/// Opens a file of the directory for appending, and makes it if it is not there. Whatever else has its name is refused,
/// because to open a FIFO would wait for ever.
pub(crate) fn open_file(path: &Path) -> io::Result<std::fs::File> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    match file_type(&rustix::fs::fstat(&file)?) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a plain file", path.display()))),
    }
}

/// For a directory into which others could write: there must be nothing in it.
fn refuse_contents(handle: &OwnedFd, path: &Path) -> Result<(), KeeperStartError> {
    for_each_entry(handle, path, |entry, _| Err(KeeperStartError::Untrusted { path: path.to_owned(), entry }))
}

/// Everything in it must be ours, and nothing writable for others. Of the directories in it, what lies in them too.
fn check_contents(handle: &OwnedFd, path: &Path, look_below: bool) -> Result<(), KeeperStartError> {
    let ours = rustix::process::geteuid().as_raw();
    for_each_entry(handle, path, |entry, stat| {
        let kind = file_type(&stat);
        // The mode of a link says nothing, and that of a socket little: who may connect is asked when somebody does.
        let has_mode = !matches!(kind, FileType::Symlink | FileType::Socket);
        if stat.st_uid != ours || (has_mode && stat.st_mode & WRITABLE_BY_OTHERS != 0) {
            return Err(KeeperStartError::Untrusted { path: path.to_owned(), entry });
        }
        if kind == FileType::Directory && look_below {
            let below = path.join(&entry);
            match rustix::fs::openat(handle, &entry, OPEN_DIRECTORY, Mode::empty()) {
                Ok(handle) => return check_contents(&handle, &below, false),
                // Another owner may have removed it.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(KeeperStartError::Directory { path: below, error: errno.into() }),
            }
        }
        Ok(())
    })
}

fn for_each_entry(
    handle: &OwnedFd,
    path: &Path,
    mut visit: impl FnMut(PathBuf, Stat) -> Result<(), KeeperStartError>,
) -> Result<(), KeeperStartError> {
    use std::os::unix::ffi::OsStrExt;
    let at = |errno: Errno| KeeperStartError::Directory { path: path.to_owned(), error: errno.into() };
    for entry in Dir::read_from(handle.as_fd()).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => visit(PathBuf::from(name), stat)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(at(errno)),
        }
    }
    Ok(())
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory can be made")
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777
    }

    #[test]
    fn it_is_made_private_and_one_that_others_could_read_becomes_private() {
        let folder = folder();
        let path = folder.path().join("a/b");
        create(&path).expect("nobody is in the way");
        assert_eq!(mode(&path), 0o700);
        std::fs::write(path.join("log"), "ours").expect("it is ours");
        set_mode(&path, 0o755);
        create(&path).expect("others could look, and change nothing");
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_link_is_refused_and_its_target_is_left_alone() {
        let folder = folder();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::fs::create_dir(&target).expect("the folder is ours");
        set_mode(&target, 0o755);
        symlink(&target, &link).expect("the folder is ours");
        for path in [link.clone(), link.join("")] {
            assert!(matches!(create(&path), Err(KeeperStartError::Link { .. })), "{path:?}");
        }
        assert_eq!(mode(&target), 0o755);
    }

    #[test]
    fn what_others_could_write_is_not_believed() {
        let folder = folder();
        let path = folder.path().join("state");
        std::fs::create_dir(&path).expect("the folder is ours");
        set_mode(&path, 0o777);
        create(&path).expect("it is empty");
        assert_eq!(mode(&path), 0o700);

        std::fs::create_dir(path.join("sessions")).expect("it is ours");
        std::fs::write(path.join("sessions/x"), "").expect("it is ours");
        create(&path).expect("all of it is ours");
        set_mode(&path.join("sessions/x"), 0o666);
        assert!(matches!(create(&path), Err(KeeperStartError::Untrusted { .. })));
        set_mode(&path.join("sessions/x"), 0o600);

        set_mode(&path, 0o770);
        let refused = create(&path).expect_err("it is open, and not empty");
        assert!(refused.to_string().contains("sessions"), "{refused}");
        assert_eq!(mode(&path), 0o770, "it stays refused");
    }

    #[test]
    fn a_fifo_in_the_place_of_a_file_is_refused_at_once() {
        let folder = folder();
        let fifo = folder.path().join("keeper.lock");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it is ours");
        open_file(&fifo).expect_err("nobody reads it, and it is no file");
        open_file(&folder.path().join("other")).expect("made anew");
    }
}
