//! Files with secrets: made for nobody but us, and looked at before they are believed.
//!
//! The mode is asked of the opened file, not of the path.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What to do about a secret that others can read. One that others can write is refused in any case: they could put in
/// one that they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    Refused,
    /// For the flags that Codex has too: its server does not look at the mode, and files of mode 0644 are in use.
    Reported,
}

#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("other users can {verb} the secret in {} (mode {mode:04o}): chmod 600 it, and make a new one", path.display())]
    Exposed { path: PathBuf, verb: &'static str, mode: u32 },
    #[error("{} exists already; remove it, or choose another name", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write {}: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

/// A secret, and whether others can read it.
pub struct SecretFile {
    /// Without the white space around it.
    pub content: Vec<u8>,
    pub is_exposed: bool,
}

/// Reads a secret.
pub fn read_secret_file(path: &Path, exposure: Exposure) -> Result<SecretFile, SecretFileError> {
    let unreadable = |source| SecretFileError::Unreadable { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
    let exposed = |verb| Err(SecretFileError::Exposed { path: path.to_owned(), verb, mode });
    if mode & 0o022 != 0 {
        return exposed("change");
    }
    let is_exposed = mode & 0o044 != 0;
    if is_exposed && exposure == Exposure::Refused {
        return exposed("read");
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content).map_err(unreadable)?;
    Ok(SecretFile { content: content.trim_ascii().to_vec(), is_exposed })
}

/// Makes a file of mode 0600 with this text. There must be none of the name, not even a link.
pub fn create_secret_file(path: &Path, text: &str) -> Result<(), SecretFileError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = made.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => SecretFileError::Exists { path: path.to_owned() },
        _ => SecretFileError::Unwritable { path: path.to_owned(), source },
    })?;
    let written = writeln!(file, "{}", text.trim_end()).and_then(|()| file.sync_all());
    written.map_err(|source| SecretFileError::Unwritable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_made_for_us_alone_and_never_over_another_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("token");
        create_secret_file(&path, "secret").expect("the folder is ours");
        assert_eq!(std::fs::metadata(&path).expect("it was made").mode() & 0o7777, 0o600);
        let read = read_secret_file(&path, Exposure::Refused).expect("it is ours alone");
        assert_eq!((read.content.as_slice(), read.is_exposed), (&b"secret"[..], false));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).expect("the folder is ours");
        for taken in [&path, &link] {
            let refused = create_secret_file(taken, "other");
            assert!(matches!(refused, Err(SecretFileError::Exists { .. })), "{refused:?}");
        }
    }

    #[test]
    fn what_others_can_change_is_refused_and_what_they_can_read_as_was_asked() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("token");
        create_secret_file(&path, "secret").expect("the folder is ours");
        // Whether it is read where exposure is refused, and where it is reported.
        for (mode, refused, reported) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o644, false, true),
            (0o640, false, true),
            (0o604, false, true),
            (0o660, false, false),
            (0o620, false, false),
            (0o602, false, false),
            (0o666, false, false),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            let is_read = |exposure| read_secret_file(&path, exposure).is_ok();
            assert_eq!((is_read(Exposure::Refused), is_read(Exposure::Reported)), (refused, reported), "{mode:o}");
        }
    }
}
