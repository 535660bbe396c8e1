//! Absolute paths of the machine, as Codex reads them: not URIs, never relative, and normalised by their text alone.
//!
//! `/a/../b` is `/b` even if `/a` is a link, and a slash at the end is dropped. That is Codex's rule, and clients compare
//! the paths that come back.

use std::path::{Component, Path, PathBuf};

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// The kernel's bound for the bytes of a path, with the NUL at its end.
const PATH_MAX: usize = 4096;

/// An absolute, normalised path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NativePath(PathBuf);

impl NativePath {
    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }

    /// The kernel ends a path at a NUL byte, so no file can have it.
    pub(crate) fn has_nul(&self) -> bool {
        self.0.as_os_str().as_encoded_bytes().contains(&0)
    }

    /// The kernel refuses a path of that length. Our files are reached folder by folder and could be deeper, but nobody
    /// else could open them by their path.
    pub(crate) fn is_too_long(&self) -> bool {
        self.0.as_os_str().len() >= PATH_MAX
    }
}

/// Removes `.`, `..`, repeated and trailing slashes from an absolute path, by its text.
pub(crate) fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    normal
}

struct NativePathVisitor;

impl Visitor<'_> for NativePathVisitor {
    type Value = NativePath;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("path string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<NativePath, E> {
        match text.starts_with('/') {
            true => Ok(NativePath(normalize(Path::new(text)))),
            false => Err(E::custom("AbsolutePathBuf deserialized without a base path")),
        }
    }
}

impl<'de> Deserialize<'de> for NativePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NativePathVisitor)
    }
}

/// What is not UTF-8 in it becomes U+FFFD; JSON has nothing else for it.
impl Serialize for NativePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_by_their_text() {
        for (text, normal) in
            [("/", "/"), ("/a/./b//c/", "/a/b/c"), ("/a/../../b", "/b"), ("/..", "/"), ("/a/b/..", "/a")]
        {
            assert_eq!(normalize(Path::new(text)), Path::new(normal), "{text}");
        }
    }
}
