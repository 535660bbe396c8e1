//! Which policies a supervisor can enforce where there are no mounts, and the rules by which it does.
//!
//! Landlock grants reading, and a supervisor (`exec-keeper`) changes files in place of the process. It judges by names, so
//! names must mean what they say; and what Landlock grants cannot be taken away again, so nothing secret may lie where new
//! files must be readable.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use exec_core::sandbox::FileAccess;
use exec_core::writable_paths::WritablePaths;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, statat};

use crate::path_rules::{MachinePaths, PathAccess, PathRules};

/// What is no directory of files, whatever a policy says.
const NOT_FILES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Why a supervisor cannot enforce a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSupervisable {
    #[error("it denies files, or does not let all others be read")]
    Reading,
    #[error("it lets {path:?} be written, which has no files of users")]
    NotFiles { path: PathBuf },
    #[error(
        "the server's own directory {private:?} is in {writable:?}, which is writable: give the server another one"
    )]
    PrivateInWritable { private: PathBuf, writable: PathBuf },
    #[error("names in {directory:?} are the same in capitals and small letters, or it cannot be told whether they are")]
    NamesIgnoreCase { directory: PathBuf },
}

/// The rules for the supervisor, if it can enforce them.
pub fn writable_paths(rules: &PathRules, machine: &MachinePaths) -> Result<WritablePaths, NotSupervisable> {
    let is_private = |path: &Path| machine.private.iter().any(|private| path.starts_with(private));
    if rules.access(Path::new("/")) != PathAccess::Read || !rules.denied_globs().0.is_empty() {
        return Err(NotSupervisable::Reading);
    }
    let mut by_path = Vec::new();
    for (path, access) in rules.by_path() {
        let access = match access {
            PathAccess::Read => FileAccess::Read,
            PathAccess::Denied if is_private(path) => FileAccess::Deny,
            PathAccess::Denied | PathAccess::Hidden => return Err(NotSupervisable::Reading),
            PathAccess::Write if NOT_FILES.iter().any(|other| path.starts_with(other)) => {
                return Err(NotSupervisable::NotFiles { path: path.clone() });
            }
            PathAccess::Write => FileAccess::Write,
        };
        by_path.push((path.clone(), access));
    }
    let writable = || by_path.iter().filter(|(_, access)| *access == FileAccess::Write).map(|(path, _)| path);
    for writable in writable() {
        if let Some(private) = machine.private.iter().find(|private| private.starts_with(writable)) {
            return Err(NotSupervisable::PrivateInWritable { private: private.clone(), writable: writable.clone() });
        }
        // Between a writable directory and what is protected in it, names decide.
        let below = by_path.iter().filter(|(path, access)| *access != FileAccess::Write && path.starts_with(writable));
        let mut deciding: Vec<&Path> = below
            .flat_map(|(path, _)| path.ancestors().skip(1).take_while(|above| above.starts_with(writable)))
            .collect();
        deciding.sort_unstable();
        deciding.dedup();
        if let Some(directory) = deciding.into_iter().find(|path| path.is_dir() && !tells_case_apart(path)) {
            return Err(NotSupervisable::NamesIgnoreCase { directory: directory.to_owned() });
        }
    }
    Ok(WritablePaths::new(by_path))
}

/// File systems on which names differ by case, unless a directory says otherwise.
const CASE_SENSITIVE: [u32; 6] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlayfs
    0xf2f5_2010, // f2fs
];

/// Whether names in a directory differ if they differ in case only. Seen by looking for something that is there under its
/// other name; where nothing is there, told by the file system. False if that is not clear.
fn tells_case_apart(directory: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(handle) = rustix::fs::openat(CWD, directory, flags, Mode::empty()) else { return false };
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    for (other, name) in names.filter_map(|name| Some((in_other_case(&name)?, name))).take(LOOKED_AT) {
        let stat = |name: &OsStr| statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW);
        match (stat(&name), stat(&other)) {
            (Ok(one), Ok(two)) if (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino) => return false,
            (Ok(_), Err(rustix::io::Errno::NOENT)) => return true,
            // Both are there, or somebody is changing them.
            _ => {}
        }
    }
    let known = rustix::fs::fstatfs(&handle).is_ok_and(|system| CASE_SENSITIVE.contains(&(system.f_type as u32)));
    let folds = rustix::fs::ioctl_getflags(&handle).is_ok_and(|flags| flags.bits() & CASE_FOLDING != 0);
    known && !folds
}

/// `FS_CASEFOLD_FL`.
const CASE_FOLDING: u32 = 0x4000_0000;

/// Entries of a directory that are looked at, at most.
const LOOKED_AT: usize = 64;

fn in_other_case(name: &OsStr) -> Option<OsString> {
    let flip =
        |byte: &u8| if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
    let other: Vec<u8> = name.as_bytes().iter().map(flip).collect();
    (other != name.as_bytes()).then(|| OsString::from_vec(other))
}

#[cfg(test)]
mod tests {
    use exec_core::sandbox::{FilePolicy, FileRule, RuleTarget};

    use super::*;

    fn places(rules: &[(&Path, FileAccess)], private: &[&Path]) -> Result<WritablePaths, NotSupervisable> {
        let rules =
            rules.iter().map(|(path, access)| FileRule { target: RuleTarget::Path((*path).into()), access: *access });
        let policy = FilePolicy::Restricted { rules: rules.collect(), glob_scan_depth: None };
        let private = private.iter().map(|path| path.to_path_buf()).collect();
        let machine = MachinePaths { private, ..MachinePaths::default() };
        writable_paths(&PathRules::resolve(&policy, &machine).expect("there are no globs"), &machine)
    }

    #[test]
    fn a_workspace_can_be_supervised_and_what_the_supervisor_cannot_enforce_is_refused() {
        let root = Path::new("/");
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let workspace = dir.path().canonicalize().expect("it exists");
        let state = workspace.join("state");
        let all = (root, FileAccess::Read);
        let write = (workspace.as_path(), FileAccess::Write);
        let supervised = places(&[all, write], &[]).expect("it is the usual policy");
        assert!(supervised.require_writing(&workspace.join("x")).is_ok());
        assert!(supervised.require_writing(&workspace.join(".git/config")).is_err());
        for (rules, private, refused) in [
            (vec![write], vec![], NotSupervisable::Reading),
            (vec![all, (Path::new("/no-d"), FileAccess::Deny), write], vec![], NotSupervisable::Reading),
            (vec![(root, FileAccess::Write)], vec![], NotSupervisable::Reading),
            (
                vec![all, (Path::new("/dev/shm"), FileAccess::Write)],
                vec![],
                NotSupervisable::NotFiles { path: "/dev/shm".into() },
            ),
            (
                vec![all, write],
                vec![state.as_path()],
                NotSupervisable::PrivateInWritable { private: state.clone(), writable: workspace.clone() },
            ),
        ] {
            assert_eq!(places(&rules, &private), Err(refused), "{rules:?}");
        }
    }

    #[test]
    fn the_case_of_names_is_told_by_what_is_there() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::write(dir.path().join("Name"), "").expect("it is new");
        assert!(tells_case_apart(dir.path()), "tests run on a file system of Linux");
        assert!(!tells_case_apart(&dir.path().join("missing")));
        assert_eq!(in_other_case(OsStr::new("1.A-b")), Some("1.a-B".into()));
        assert_eq!(in_other_case(OsStr::new("1.2")), None);
    }
}
