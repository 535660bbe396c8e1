//! All text files of the repository, read once, and the Rust ones scanned.
//!
//! The walk asks no version control: it must work in an exported directory too. It skips the
//! directories that tools fill, and files that are no text.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::source::Source;
use crate::workspace::{Package, Workspace};

/// Directories that tools fill, wherever they are.
const SKIPPED_DIRECTORIES: &[&str] = &[".git", "target", "node_modules"];

/// What the rules look at.
pub(super) struct Tree {
    pub(super) files: Vec<TextFile>,
    pub(super) sources: Vec<Source>,
    pub(super) members: Vec<Member>,
    /// Absolute paths of this checkout and of the user's home directory.
    pub(super) machine_directories: Vec<String>,
}

/// One file that is text.
pub(super) struct TextFile {
    /// From the root, with slashes.
    pub(super) path: String,
    pub(super) text: String,
}

/// A crate of the workspace, and where its manifest is.
pub(super) struct Member {
    pub(super) manifest: String,
    pub(super) package: Package,
}

impl Tree {
    /// Reads the repository.
    pub(super) fn read(workspace: &Workspace) -> Result<Self> {
        let mut files = Vec::new();
        collect(workspace, &workspace.root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let members = workspace
            .packages
            .iter()
            .map(|package| Member { manifest: workspace.relative(&package.manifest_path), package: package.clone() });
        let machine_directories = machine_directories(&workspace.root);
        Ok(Self { machine_directories, ..Self::from_parts(files, members.collect()) })
    }

    /// The text of one file.
    pub(super) fn text_of(&self, path: &str) -> Option<&str> {
        let file = self.files.iter().find(|file| file.path == path);
        file.map(|file| file.text.as_str())
    }

    /// Scans what is Rust among the files.
    pub(super) fn from_parts(files: Vec<TextFile>, members: Vec<Member>) -> Self {
        let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
        let sources = rust.map(|file| Source::scan(&file.path, &file.text)).collect();
        Self { files, sources, members, machine_directories: Vec::new() }
    }

    /// A made-up repository, for tests of rules.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| TextFile { path: (*path).to_owned(), text: (*text).to_owned() });
        Self::from_parts(files.collect(), Vec::new())
    }
}

/// A home such as `/root` has no name of its own, and documents may mention it.
fn machine_directories(root: &Path) -> Vec<String> {
    let home = std::env::home_dir().filter(|home| home.components().count() > 2);
    let directories = home.into_iter().chain([root.to_owned()]);
    directories.map(|directory| directory.to_string_lossy().into_owned()).collect()
}

fn collect(workspace: &Workspace, directory: &Path, files: &mut Vec<TextFile>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {directory:?}"))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {directory:?}"))?;
        let path = entry.path();
        let kind = entry.file_type().with_context(|| format!("cannot read the type of {path:?}"))?;
        if kind.is_dir() {
            let name = entry.file_name();
            if !SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped) {
                collect(workspace, &path, files)?;
            }
        } else if kind.is_file() {
            let bytes = fs::read(&path).with_context(|| format!("cannot read {path:?}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(TextFile { path: workspace.relative(&path), text });
            }
        }
    }
    Ok(())
}
