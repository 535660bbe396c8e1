//! Adds an environment to environments.toml, and leaves everything else in it as it is.
//!
//! The entry is appended as text, because a file that people edit has comments and an order of theirs. The whole is read as
//! a file of environments before it is written, so that what is written can be read.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{ConfigFileError, Endpoint, EnvironmentKind, Environments, FILE_NAME, own_configuration_file};

/// What became of an environment that was to be saved, with the path of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavedEnvironment {
    /// It is new.
    Added(PathBuf),
    /// The file had it already, with the same URL.
    WasThere(PathBuf),
}

/// Why an environment is not saved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The fields are the blanks in the texts.
pub enum SaveError {
    /// There is no folder for the file.
    #[error("there is no folder for environments.toml: set EXEC_SERVER_HOME, or HOME")]
    NoFolder,
    /// The file is not valid, before or after.
    #[error(transparent)]
    File(#[from] ConfigFileError),
    /// The id is another environment.
    #[error("{} has an environment `{id}` already, and it is {other}: choose another id, or change it there", path.display())]
    Taken { path: PathBuf, id: String, other: String },
    /// It cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

/// Saves it in our own file, and never in Codex's, which would be refused as a whole; makes the file if there is none.
pub fn save(id: &str, url: &str) -> Result<SavedEnvironment, SaveError> {
    let file = own_configuration_file(&|name| std::env::var_os(name)).ok_or(SaveError::NoFolder)?;
    save_to(&file, id, url)
}

/// Saves it in that file.
pub fn save_to(path: &Path, id: &str, url: &str) -> Result<SavedEnvironment, SaveError> {
    let write_error = |source| SaveError::Write { path: path.to_owned(), source };
    // A link stays a link: the file that it leads to is replaced.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(ConfigFileError::Read { path: path.clone(), why: error.to_string() }.into()),
    };
    let known = Environments::parse(&text, path)?;
    if let Ok(same) = known.get(id)
        && let EnvironmentKind::Remote(server) = &same.kind
    {
        return match &server.endpoint {
            Endpoint::Url { url: known, .. } if known == url => Ok(SavedEnvironment::WasThere(path.clone())),
            Endpoint::Url { url: other, .. } => {
                Err(SaveError::Taken { path: path.clone(), id: id.to_owned(), other: other.clone() })
            }
            Endpoint::Program(_) => {
                Err(SaveError::Taken { path: path.clone(), id: id.to_owned(), other: "a program".to_owned() })
            }
        };
    }
    let gap = match text.as_str() {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let entry = format!("[[environments]]\nid = {}\nurl = {}\n", toml_string(id), toml_string(url));
    let text = format!("{text}{gap}{entry}");
    Environments::parse(&text, path)?;
    replace(path, &text).map_err(write_error)?;
    Ok(SavedEnvironment::Added(path.clone()))
}

/// Whole or not at all, and with the mode that it had: there may be tokens in it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(".{FILE_NAME}.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
        if let Ok(known) = std::fs::metadata(path) {
            file.set_permissions(known.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    let written = write();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Both are checked for odd characters when the result is read; this only keeps one from ending the string.
fn toml_string(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_added_once_and_nothing_else_changes() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("sub").join(FILE_NAME);
        assert_eq!(save_to(&path, "a", "ssh://a").expect("saved"), SavedEnvironment::Added(path.clone()));
        let mine = "# mine\n[[environments]] # first\nid = \"x\"\nurl = \"ws://127.0.0.1:1\" # keep";
        std::fs::write(&path, mine).expect("ours");
        save_to(&path, "b", "ssh://me@b:22").expect("saved");
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, format!("{mine}\n\n[[environments]]\nid = \"b\"\nurl = \"ssh://me@b:22\"\n"));
        let again = save_to(&path, "b", "ssh://me@b:22").expect("no error");
        assert_eq!(again, SavedEnvironment::WasThere(path.clone()));
        let taken = save_to(&path, "b", "ssh://c").expect_err("another one").to_string();
        assert!(taken.contains("`b` already, and it is ssh://me@b:22"), "{taken}");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), text);
    }

    #[test]
    fn an_id_that_the_file_cannot_have_is_not_written() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join(FILE_NAME);
        for id in ["local", "a b", "a\"\nx = \"", ""] {
            save_to(&path, id, "ssh://a").expect_err(id);
        }
        assert!(!path.exists());
    }
}
