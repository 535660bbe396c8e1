//! `edit_many`: several edits in several files, all or none.
//!
//! Edits are made in their order, each on what the ones before left; a file may be edited several times. Nothing is on the
//! disk before all of them fit. Then the environment makes the difference with its journal, all or none, also after
//! `kill -9` of whoever takes part.

use std::path::PathBuf;

use super::edit::Replacement;
use super::limits::{CHANGE_ATTEMPTS, MANY_EDITS};
use super::overlay::{ChangedFiles, Overlay, always_changed};
use super::{EditRequest, FileToolError, FileTools, Guard, WriteRequest};

/// What to change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EditManyRequest {
    /// In the order in which they are made.
    pub edits: Vec<FileEdit>,
    /// Make the directories that new names need.
    pub make_directories: bool,
}

/// One of several changes. A guard is about the file on the disk, not about what an edit before has made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEdit {
    /// A text for another.
    Replace(EditRequest),
    /// A whole file. Its own `make_directories` counts for all.
    Write(WriteRequest),
    /// A file or a link goes.
    Remove {
        /// Which.
        path: PathBuf,
        /// What it must be.
        guard: Guard,
    },
    /// A file gets another name, which nothing has.
    Rename {
        /// Which.
        from: PathBuf,
        /// The new name, in the same file system.
        to: PathBuf,
    },
}

impl FileTools {
    /// Makes several changes, all or none.
    pub async fn edit_many(&self, request: EditManyRequest) -> Result<ChangedFiles, FileToolError> {
        if request.edits.is_empty() || request.edits.len() > MANY_EDITS {
            let what = format!("give 1 to {MANY_EDITS} edits");
            return Err(FileToolError::BadRequest { what });
        }
        let makes = |edit: &FileEdit| matches!(edit, FileEdit::Write(write) if write.make_directories);
        let make_directories = request.make_directories || request.edits.iter().any(makes);
        for _ in 0..CHANGE_ATTEMPTS {
            let mut overlay = Overlay::new(self, make_directories);
            for edit in &request.edits {
                self.describe(&mut overlay, edit).await?;
            }
            if let Some(changed) = overlay.commit().await? {
                return Ok(changed);
            }
            // Somebody else was faster. Another round sees what is there now, and every guard is asked again.
        }
        Err(always_changed())
    }

    async fn describe(&self, overlay: &mut Overlay<'_>, edit: &FileEdit) -> Result<(), FileToolError> {
        match edit {
            FileEdit::Replace(edit) => {
                let path = self.resolve(&edit.path)?;
                let replacement = Replacement::of(&path, edit)?;
                overlay.require(&path, edit.if_hash.map_or(Guard::Anything, Guard::Hash)).await?;
                let loaded = overlay.contents(&path).await?;
                let replaced = replacement.apply(&path, &loaded)?;
                overlay.write(&path, replaced.bytes).await
            }
            FileEdit::Write(write) => {
                let path = self.resolve(&write.path)?;
                overlay.require(&path, write.guard).await?;
                overlay.write(&path, write.contents.clone()).await
            }
            FileEdit::Remove { path, guard } => {
                let path = self.resolve(path)?;
                overlay.require(&path, *guard).await?;
                overlay.remove(&path).await
            }
            FileEdit::Rename { from, to } => overlay.rename(&self.resolve(from)?, &self.resolve(to)?).await,
        }
    }
}
