//! Files for models: read, write, edit, several changes at once, patches, listings, searches and images.
//!
//! [`FileTools`] is what a front binds its tools to: the files of one environment and a working directory. In the order in
//! which a model meets them:
//!
//! - [`read`]: lines with their numbers, and the hash that guards a later change;
//! - [`write`](mod@write), [`edit`]: one file, whole or not at all, and never over somebody else's change;
//! - [`edit_many`]: several files at once or not at all; [`apply_patch`] is the same from a patch in Codex's format;
//! - [`list`], [`glob`], [`grep`], [`view_image`]: finding and looking.
//!
//! Every result is a value with a `text()` for a model, and every error ([`FileToolError`]) is a sentence that says what to
//! do next. What a result leaves out it says in numbers.
//!
//! Everything goes through the environment's [`Files`], which enforce its policies and ceilings. Deliberately absent: JSON,
//! the names of parameters on any wire, `std::fs`, and ids of environments.

pub mod apply_patch;
pub mod edit;
pub mod edit_many;
pub mod error;
pub mod glob;
pub mod grep;
pub mod limits;
pub mod list;
mod overlay;
mod paths;
mod patterns;
pub mod read;
mod similar;
mod text_file;
pub mod view_image;
pub mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exec_env::{Environment, Files};

pub use apply_patch::PatchRequest;
pub use edit::{EditRequest, Edited, Occurrences};
pub use edit_many::{EditManyRequest, FileEdit};
pub use error::FileToolError;
pub use glob::{GlobRequest, Globbed};
pub use grep::{GrepMode, GrepRequest, Grepped};
pub use list::{ListRequest, Listed};
pub use overlay::{ChangedFile, ChangedFiles, FileChangeKind};
pub use read::{ReadRequest, Start, Viewed};
pub use similar::SimilarPlace;
pub use view_image::{Image, ImageRequest};
pub use write::{Guard, WriteRequest, Written};

/// The tools over the files of one environment, for one working directory.
#[derive(Clone)]
pub struct FileTools {
    files: Arc<dyn Files>,
    cwd: PathBuf,
}

impl FileTools {
    /// `cwd` is where relative paths begin; it must be absolute, and need not exist.
    pub fn new(files: Arc<dyn Files>, cwd: impl Into<PathBuf>) -> Result<Self, FileToolError> {
        let cwd = cwd.into();
        if !cwd.is_absolute() {
            return Err(FileToolError::RelativeDirectory { path: cwd });
        }
        Ok(Self { files, cwd })
    }

    /// The same over the files of `environment`, as a caller of its own.
    pub fn of(environment: &dyn Environment, cwd: impl Into<PathBuf>) -> Result<Self, FileToolError> {
        Self::new(environment.files_for_caller(), cwd)
    }

    /// Where relative paths begin.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf, FileToolError> {
        paths::resolve(&self.cwd, path)
    }
}
