//! `write`: a whole file, if it is what the caller thinks it is, and what it replaced.
//!
//! The environment replaces a file in one step and keeps its mode, and checks what it replaces in the same step. An
//! unguarded write uses that, too: it looks, and writes over exactly what it saw, so that what it says it replaced is what
//! it replaced.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use exec_env::files::{
    ContentHash, CreateDirectoryOptions, ExpectedFile, FileReason, HashAlgorithm, LinkPolicy, WriteOptions,
};

use super::limits::{CHANGE_ATTEMPTS, WRITE_BYTES};
use super::paths::shown;
use super::text_file::hash_of;
use super::{FileToolError, FileTools};

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRequest {
    /// Which file.
    pub path: PathBuf,
    /// Its new contents.
    pub contents: Bytes,
    /// What it must be before.
    pub guard: Guard,
    /// Make the directories on the way to it.
    pub make_directories: bool,
}

impl WriteRequest {
    /// Whatever is there, in a directory that exists.
    pub fn new(path: impl Into<PathBuf>, contents: impl Into<Bytes>) -> Self {
        Self { path: path.into(), contents: contents.into(), guard: Guard::Anything, make_directories: false }
    }
}

/// What a file must be for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guard {
    /// Whatever it is.
    #[default]
    Anything,
    /// There is no such file.
    Absent,
    /// It has these contents: the hash of a `read`, or of an earlier change.
    Hash(ContentHash),
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Absolute.
    pub path: PathBuf,
    /// What it replaced; `None` if the file is new.
    pub replaced: Option<FileStamp>,
    /// What is there now.
    pub now: FileStamp,
}

/// What a file contained at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Of the whole file.
    pub hash: ContentHash,
    /// Its size.
    pub size_bytes: u64,
}

impl FileStamp {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { hash: hash_of(bytes), size_bytes: bytes.len() as u64 }
    }
}

impl Written {
    /// For a model: what happened, and the hash that guards the next change.
    pub fn text(&self) -> String {
        let mut out = match &self.replaced {
            None => format!("created {}", shown(&self.path)),
            Some(old) if old.hash == self.now.hash => format!("{} had these contents already", shown(&self.path)),
            Some(old) => {
                format!("replaced {} (it had {} bytes, hash {})", shown(&self.path), old.size_bytes, old.hash)
            }
        };
        let _ = writeln!(out, ": now {} bytes, hash {}", self.now.size_bytes, self.now.hash);
        out
    }
}

impl FileTools {
    /// Writes a whole file.
    pub async fn write(&self, request: WriteRequest) -> Result<Written, FileToolError> {
        let path = self.resolve(&request.path)?;
        if request.contents.len() > WRITE_BYTES {
            let size_bytes = request.contents.len() as u64;
            return Err(FileToolError::TooLarge { path, size_bytes, limit_bytes: WRITE_BYTES as u64 });
        }
        if request.make_directories
            && let Some(parent) = path.parent()
        {
            self.files.create_directory(parent, CreateDirectoryOptions::default()).await?;
        }
        let now = FileStamp::of(&request.contents);
        for _ in 0..CHANGE_ATTEMPTS {
            let replaced = self.stamp(&path).await?;
            let expect = match (request.guard, replaced) {
                (Guard::Absent, Some(present)) => return Err(FileToolError::Exists { path, present: present.hash }),
                (Guard::Hash(_), None) => return Err(FileToolError::Changed { path, present: None }),
                (Guard::Hash(wanted), Some(present)) if wanted != present.hash => {
                    return Err(FileToolError::Changed { path, present: Some(present.hash) });
                }
                (_, None) => ExpectedFile::Absent,
                (_, Some(present)) => ExpectedFile::Content(present.hash),
            };
            if self.write_expecting(&path, request.contents.clone(), expect).await? {
                return Ok(Written { path, replaced, now });
            }
        }
        Err(FileToolError::Changed { present: self.stamp(&path).await?.map(|stamp| stamp.hash), path })
    }

    /// Whether the file was as expected, and is written now.
    pub(super) async fn write_expecting(
        &self,
        path: &Path,
        contents: Bytes,
        expect: ExpectedFile,
    ) -> Result<bool, FileToolError> {
        let options = WriteOptions { expect, ..WriteOptions::default() };
        match self.files.write(path, contents, options).await {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.reason, FileReason::Changed { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What is there now; `None` if there is nothing. Anything but a regular file is an error.
    pub(super) async fn stamp(&self, path: &Path) -> Result<Option<FileStamp>, FileToolError> {
        match self.files.hash(path, HashAlgorithm::Blake3, LinkPolicy::Follow).await {
            Ok(found) => Ok(Some(FileStamp { hash: ContentHash(found.digest.into()), size_bytes: found.size_bytes })),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
