//! A file as a change needs it: its bytes, their hash, and which line ending it has.

use std::path::Path;

use bytes::Bytes;
use exec_env::files::{ContentHash, FileError, FileKind, FileReason, FileVerb, LinkPolicy, Metadata};

use super::limits::{BINARY_PROBE_BYTES, EDIT_FILE_BYTES};
use super::{FileToolError, FileTools};

/// The contents of a file at a moment.
pub(super) struct LoadedFile {
    pub(super) bytes: Bytes,
    pub(super) hash: ContentHash,
}

impl LoadedFile {
    pub(super) fn is_binary(&self) -> bool {
        is_binary(&self.bytes)
    }

    /// Whether every line ends with CR and LF, and there is at least one.
    pub(super) fn has_crlf(&self) -> bool {
        let mut lines = 0;
        for end in memchr::memchr_iter(b'\n', &self.bytes) {
            if end == 0 || self.bytes[end - 1] != b'\r' {
                return false;
            }
            lines += 1;
        }
        lines > 0
    }
}

/// Whether a file that begins like this is no text: it has a NUL byte near its beginning.
pub(super) fn is_binary(beginning: &[u8]) -> bool {
    memchr::memchr(0, &beginning[..beginning.len().min(BINARY_PROBE_BYTES)]).is_some()
}

pub(super) fn hash_of(bytes: &[u8]) -> ContentHash {
    ContentHash(blake3::hash(bytes))
}

impl FileTools {
    /// The whole of a regular file that may be edited.
    pub(super) async fn load(&self, path: &Path) -> Result<LoadedFile, FileToolError> {
        let metadata = self.metadata_of_file(path).await?;
        let too_large =
            |size_bytes| FileToolError::TooLarge { path: path.to_owned(), size_bytes, limit_bytes: EDIT_FILE_BYTES };
        if metadata.size_bytes > EDIT_FILE_BYTES {
            return Err(too_large(metadata.size_bytes));
        }
        let bytes = self.files.read(path, LinkPolicy::Follow).await?;
        // It may have grown since it was looked at.
        if bytes.len() as u64 > EDIT_FILE_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        Ok(LoadedFile { hash: hash_of(&bytes), bytes })
    }

    /// What the kernel knows about a regular file; an error for anything else.
    pub(super) async fn metadata_of_file(&self, path: &Path) -> Result<Metadata, FileToolError> {
        let metadata = self.files.metadata(path, LinkPolicy::Follow).await?;
        match metadata.kind {
            FileKind::File => Ok(metadata),
            FileKind::Directory => Err(FileToolError::IsDirectory { path: path.to_owned() }),
            FileKind::Special => Err(FileToolError::NotAFile { path: path.to_owned() }),
            // A link whose target does not exist.
            FileKind::Symlink => Err(FileError::new(FileVerb::Read, path, FileReason::Os(2)).into()),
        }
    }
}
