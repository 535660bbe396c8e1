//! A file system mounted for one test. Needs root; without it the test prints that it tests nothing, and skips.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmounted when dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Runs `mount ARGUMENTS AT`.
    pub fn new(arguments: &[&str], at: &Path) -> Option<Self> {
        match Command::new("mount").args(arguments).arg(at).output() {
            Ok(done) if done.status.success() => Some(Self(at.to_owned())),
            Ok(done) => {
                eprintln!("not tested: cannot mount: {}", String::from_utf8_lossy(&done.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("not tested: there is no mount: {error}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, because an environment that is dropped later may still hold files.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        // A second panic would abort the test process and hide the first.
        let unmounted = unmounted.is_ok_and(|status| status.success());
        assert!(unmounted || std::thread::panicking(), "cannot unmount {:?}", self.0);
    }
}
