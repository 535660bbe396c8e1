//! Paths as a model writes them: absolute, or relative to the working directory.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use super::FileToolError;

/// The absolute path without `.` and `..`. They are resolved by text, as Codex does it: `a/../b` is `b` even where `a` is a
/// link, because whoever wrote it meant the name.
pub(super) fn resolve(cwd: &Path, path: &Path) -> Result<PathBuf, FileToolError> {
    if path.as_os_str().is_empty() {
        return Err(FileToolError::EmptyPath);
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(FileToolError::BadRequest {
            what: format!("the path {path:?} has a NUL byte, and no file has: check it"),
        });
    }
    let mut resolved = PathBuf::from("/");
    for component in cwd.join(path).components() {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            Component::Normal(name) => resolved.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(resolved)
}

/// A path as a model is shown it, always on one line: quoted and escaped where it would be taken for another, or for more than
/// a path.
pub(super) fn shown(path: &Path) -> Cow<'_, str> {
    let is_plain = |path: &str| !path.contains(char::is_control) && path.trim() == path && !path.starts_with('"');
    match path.to_str() {
        Some(plain) if is_plain(plain) => Cow::Borrowed(plain),
        _ => Cow::Owned(format!("{path:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_or_begin_at_the_working_directory() {
        let cases =
            [("/a/b", "/a/b"), ("b", "/w/b"), ("./b/../c", "/w/c"), ("../x", "/x"), ("../../../x", "/x"), (".", "/w")];
        for (given, expected) in cases {
            let resolved = resolve(Path::new("/w"), Path::new(given)).expect("it is not empty");
            assert_eq!(resolved, Path::new(expected), "{given}");
        }
        for no_path in ["", "a\0b"] {
            assert!(resolve(Path::new("/w"), Path::new(no_path)).is_err(), "{no_path:?}");
        }
    }
}
