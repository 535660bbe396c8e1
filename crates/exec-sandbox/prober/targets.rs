//! What the probes attack, given as `KEY=VALUE`.
//!
//! | key | |
//! |---|---|
//! | `outside` | a directory out of the sandbox's writable roots, made by `prepare`: a file and a directory for each probe |
//! | `workspace` | a writable root; in it `.git`, `project/.git` and the missing `.codex` are protected |
//! | `secret` | a directory that must not be read |
//! | `pid` | a process of the same user out of the sandbox, in `secret`, with `secret/secret` as its standard input |
//! | `pid-namespace` | the namespace of that process, as `readlink /proc/self/ns/pid` shows it there |
//! | `tcp`, `udp` | ports of the loopback where the test listens |
//! | `socket`, `abstract` | unix sockets where the test listens: a path, and a name without the leading zero |
//! | `server` | the port of an exec-server without authentication |
//! | `setuid` | a copy of this program that belongs to root and has the setuid bit |

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::attempt::{Failure, absent};
use crate::races::VICTIM;

pub(crate) struct Targets<'a> {
    /// The name of the probe, which is the name of its files.
    probe: &'a str,
    arguments: &'a [String],
}

impl<'a> Targets<'a> {
    pub(crate) fn new(probe: &'a str, arguments: &'a [String]) -> Self {
        Self { probe, arguments }
    }

    pub(crate) fn get(&self, key: &str) -> Result<&'a str, Failure> {
        let pairs = self.arguments.iter().filter_map(|argument| argument.split_once('='));
        let found = pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next();
        found.ok_or_else(|| absent(format!("no {key}=… was given")))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<T, Failure> {
        self.get(key)?.parse().map_err(|_| absent(format!("{key} is not a number")))
    }

    pub(crate) fn arguments(&self) -> &'a [String] {
        self.arguments
    }

    /// A file of this probe that must not be changed.
    pub(crate) fn victim(&self) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("outside")?).join(self.probe))
    }

    /// An empty directory of this probe that must not be changed.
    pub(crate) fn victim_directory(&self) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("outside")?).join(format!("{}.d", self.probe)))
    }

    /// A name that is not there, and that must not appear.
    pub(crate) fn missing(&self) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("outside")?).join(format!("{}.new", self.probe)))
    }

    /// A file of this probe in the workspace.
    pub(crate) fn own(&self) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("workspace")?).join(self.probe))
    }

    /// A name of this probe in the workspace that is not there yet.
    pub(crate) fn own_missing(&self) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("workspace")?).join(format!("{}.new", self.probe)))
    }

    /// A file of this probe in the protected directory of the workspace.
    pub(crate) fn protected(&self) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("workspace")?).join(".git").join(self.probe))
    }

    pub(crate) fn in_workspace(&self, path: &str) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("workspace")?).join(path))
    }

    pub(crate) fn secret(&self, path: &str) -> Result<PathBuf, Failure> {
        Ok(Path::new(self.get("secret")?).join(path))
    }
}

/// For system calls.
pub(crate) fn c_path(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).expect("paths of tests contain no NUL")
}

/// Makes the files of every probe, which are given by group and name.
pub(crate) fn prepare<'a>(
    targets: &Targets<'_>,
    probes: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), String> {
    let workspace = targets.get("workspace").map(PathBuf::from).ok();
    let outside = targets.get("outside").map(PathBuf::from).ok();
    let fixtures = Fixtures { workspace, outside };
    let text = |error: io::Error| error.to_string();
    fixtures.make_protected_directories().map_err(text)?;
    for (group, name) in probes {
        fixtures.make(group, name).map_err(text)?;
    }
    for directory in [targets.get("secret").ok(), fixtures.workspace.as_deref().and_then(Path::to_str)] {
        directory.map_or(Ok(()), |directory| make_secrets(Path::new(directory))).map_err(text)?;
    }
    Ok(())
}

struct Fixtures {
    workspace: Option<PathBuf>,
    outside: Option<PathBuf>,
}

impl Fixtures {
    fn make_protected_directories(&self) -> io::Result<()> {
        let Some(workspace) = &self.workspace else { return Ok(()) };
        fs::create_dir_all(workspace.join(".git/hooks"))?;
        fs::create_dir_all(workspace.join("project/.git"))?;
        for directory in [Some(workspace.join(".git")), Some(workspace.join("project/.git")), self.outside.clone()] {
            directory.map_or(Ok(()), |directory| fs::write(directory.join(VICTIM), "raced for\n"))?;
        }
        Ok(())
    }

    /// Only what the probe uses: files take time to make and to remove. What is missing here is noticed, because a probe
    /// without its files does not get through where there is no sandbox.
    fn make(&self, group: &str, name: &str) -> io::Result<()> {
        if let Some(workspace) = &self.workspace
            && (["daily-work", "writing", "protected"].contains(&group) || name.contains("exchange"))
        {
            fs::write(workspace.join(name), "workspace\n")?;
        }
        if let Some(workspace) = &self.workspace
            && name.contains("protected")
        {
            for directory in [".git", "project/.git"] {
                fs::write(workspace.join(directory).join(name), "workspace\n")?;
            }
        }
        if let Some(outside) = &self.outside
            && ["confinement", "writing", "kernel", "legacy-calls"].contains(&group)
        {
            Self::make_victim(&outside.join(name))?;
            if group == "kernel" || WITH_A_DIRECTORY.contains(&name) {
                fs::create_dir_all(outside.join(format!("{name}.d")))?;
            }
        }
        Ok(())
    }

    fn make_victim(path: &Path) -> io::Result<()> {
        fs::write(path, "outside\n")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
        // Where the file system keeps no attributes, the probes that remove one are told so by the kernel.
        let _ = rustix::fs::setxattr(path, "user.kept", b"kept", rustix::fs::XattrFlags::empty());
        Ok(())
    }
}

/// Probes, besides those of the kernel, that attack a directory.
const WITH_A_DIRECTORY: &[&str] = &[
    "create-from-inside",
    "create-at-a-path-descriptor",
    "temporary-file",
    "remove-directory",
    "rename-directory-in",
    "symlinked-directory-and-create",
    "change-mode-of-directory",
    "legacy-rmdir",
];

/// In the workspace these are what the globs of a policy deny: files that end in `.key`.
fn make_secrets(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory.join("deeper"))?;
    for name in ["secret", "secret.key", "deeper/secret.key", "deeper/moved.key"] {
        fs::write(directory.join(name), "secret\n")?;
        let _ = rustix::fs::setxattr(directory.join(name), "user.kept", b"secret", rustix::fs::XattrFlags::empty());
    }
    fs::copy("/bin/true", directory.join("program"))?;
    let link = directory.join("link");
    if link.symlink_metadata().is_err() {
        symlink("a-secret-target", link)?;
    }
    Ok(())
}
