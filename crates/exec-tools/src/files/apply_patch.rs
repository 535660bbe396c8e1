//! `apply_patch`: a patch in Codex's format, all or none.
//!
//! A patch that fits changes the same files to the same contents as Codex's own tool does; the comparison with the real one
//! is in exec-testkit. Different on purpose: if a part does not fit, nothing is changed (Codex keeps the parts before it); a
//! file that is moved keeps its permission bits; a file that is moved onto itself stays (Codex removes it); a link is deleted
//! wherever it leads (Codex deletes only links to files); and a link that is deleted gets no file in its place in the same
//! patch, which is refused.
//!
//! [`parser`] reads the patch, `matching` finds the lines; both are pure.

mod matching;
pub mod parser;

use std::path::PathBuf;

use bytes::Bytes;

use super::limits::{CHANGE_ATTEMPTS, PATCH_BYTES};
use super::overlay::{ChangedFiles, Overlay, always_changed};
use super::similar::similar_places;
use super::{FileToolError, FileTools};
use matching::NoMatch;
use parser::{Chunk, Hunk, Patch};

/// A patch to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchRequest {
    /// From `*** Begin Patch` to `*** End Patch`. Paths in it are absolute, or relative to the working directory.
    pub patch: String,
}

impl FileTools {
    /// Applies a patch, or changes nothing.
    pub async fn apply_patch(&self, request: PatchRequest) -> Result<ChangedFiles, FileToolError> {
        if request.patch.len() > PATCH_BYTES {
            let (size_bytes, limit_bytes) = (request.patch.len() as u64, PATCH_BYTES as u64);
            return Err(FileToolError::TooLarge { path: PathBuf::new(), size_bytes, limit_bytes });
        }
        let patch = Patch::parse(&request.patch)?;
        for _ in 0..CHANGE_ATTEMPTS {
            let mut overlay = Overlay::new(self, true);
            for hunk in &patch.hunks {
                self.apply_hunk(&mut overlay, hunk).await?;
            }
            if let Some(changed) = overlay.commit().await? {
                return Ok(changed);
            }
            // Somebody else was faster. Another round sees what is there now.
        }
        Err(always_changed())
    }

    async fn apply_hunk(&self, overlay: &mut Overlay<'_>, hunk: &Hunk) -> Result<(), FileToolError> {
        match hunk {
            Hunk::Add { path, contents } => overlay.write(&self.resolve(path)?, Bytes::from(contents.clone())).await,
            Hunk::Delete { path } => overlay.remove(&self.resolve(path)?).await,
            Hunk::Update { path, move_to, chunks } => {
                let path = self.resolve(path)?;
                let loaded = overlay.contents(&path).await?;
                let Ok(text) = std::str::from_utf8(&loaded.bytes) else {
                    return Err(FileToolError::Binary { path });
                };
                let updated = matching::update(text, chunks)
                    .map_err(|no_match| mismatch(path.clone(), text, chunks, no_match))?;
                let Some(to) = move_to else { return overlay.write(&path, updated.into()).await };
                let to = self.resolve(to)?;
                overlay.write(&to, updated.into()).await?;
                if to != path {
                    overlay.inherit_mode(&path, &to).await?;
                    overlay.remove(&path).await?;
                }
                Ok(())
            }
        }
    }
}

fn mismatch(path: PathBuf, text: &str, chunks: &[Chunk], no_match: NoMatch) -> FileToolError {
    let expected = match no_match {
        NoMatch::Context(line) => line,
        NoMatch::Lines(lines) => lines.join("\n"),
    };
    // Codex does not find such a first line either. Nobody sees the mark, so it is told.
    let hidden_mark = text.strip_prefix('\u{feff}').is_some_and(|text| matching::update(text, chunks).is_ok());
    FileToolError::PatchMismatch { path, similar: similar_places(text, &expected), expected, hidden_mark }
}
