//! Where a supervised process may make, change and remove files. Pure: told a path without links, it decides.
//!
//! A supervisor acts on a directory's handle after it has asked about the directory's path, and whoever is confined may
//! rename directories meanwhile. These rules are made so that this changes no decision:
//!
//! - a directory with a rule of less below it can be neither moved nor replaced, so it is where its path says;
//! - any other writable directory has nothing but writable names below it, and can be moved only to where that is so, too;
//! - what may not be written can be moved neither in nor out.

use std::path::{Path, PathBuf};

use crate::sandbox::FileAccess;

/// The rules of a policy by path; the longest path that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WritablePaths {
    /// Longest first.
    rules: Vec<(PathBuf, FileAccess)>,
}

/// Why something may not be done at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRefusal {
    /// It may only be read.
    ReadOnly,
    /// It may not even be read.
    Denied,
    /// It may be written, but its name belongs to a directory that may not, or something below it is protected.
    HeldInPlace,
}

/// What is to come into being under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewFile {
    /// An empty directory.
    Directory,
    /// A file, a link, or a directory with something in it.
    Other,
}

impl WritablePaths {
    pub fn new(mut rules: Vec<(PathBuf, FileAccess)>) -> Self {
        rules.sort_by_cached_key(|(path, _)| std::cmp::Reverse(path.components().count()));
        Self { rules }
    }

    /// Longest paths first.
    pub fn rules(&self) -> &[(PathBuf, FileAccess)] {
        &self.rules
    }

    /// Whether the contents and attributes of what is at `path` may be changed.
    pub fn require_writing(&self, path: &Path) -> Result<(), WriteRefusal> {
        match self.rules.iter().find(|(root, _)| path.starts_with(root)) {
            Some((_, FileAccess::Write)) => Ok(()),
            Some((_, FileAccess::Read)) => Err(WriteRefusal::ReadOnly),
            Some((_, FileAccess::Deny)) | None => Err(WriteRefusal::Denied),
        }
    }

    /// Whether something may come into being at `path`, or take the place of what is there.
    pub fn require_making(&self, path: &Path, new: NewFile) -> Result<(), WriteRefusal> {
        self.require_writing(path)?;
        // Whoever made a link here would decide where what is protected below it is looked for.
        if !self.name_is_writable(path) || (new == NewFile::Other && self.has_less_below(path)) {
            return Err(WriteRefusal::ReadOnly);
        }
        Ok(())
    }

    /// Whether the name at `path` may go away, with all that is below it.
    pub fn require_removing(&self, path: &Path) -> Result<(), WriteRefusal> {
        self.require_writing(path)?;
        if !self.name_is_writable(path) || self.has_less_below(path) {
            return Err(WriteRefusal::HeldInPlace);
        }
        Ok(())
    }

    /// A writable directory in one that is not: what is in it may be written, but it stays.
    fn name_is_writable(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.require_writing(parent).is_ok())
    }

    fn has_less_below(&self, path: &Path) -> bool {
        self.rules
            .iter()
            .any(|(root, access)| *access != FileAccess::Write && root.as_path() != path && root.starts_with(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> WritablePaths {
        WritablePaths::new(vec![
            ("/".into(), FileAccess::Read),
            ("/w".into(), FileAccess::Write),
            ("/w/.git".into(), FileAccess::Read),
            ("/w/a/b/.git".into(), FileAccess::Read),
            ("/state".into(), FileAccess::Deny),
        ])
    }

    #[test]
    fn the_longest_path_decides() {
        for (path, expected) in [
            ("/", Err(WriteRefusal::ReadOnly)),
            ("/wide", Err(WriteRefusal::ReadOnly)),
            ("/w", Ok(())),
            ("/w/x/y", Ok(())),
            ("/w/.gitignore", Ok(())),
            ("/w/.git", Err(WriteRefusal::ReadOnly)),
            ("/w/.git/hooks/x", Err(WriteRefusal::ReadOnly)),
            ("/state/x", Err(WriteRefusal::Denied)),
        ] {
            assert_eq!(places().require_writing(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn what_is_above_something_protected_stays_and_nothing_takes_its_place() {
        let held = Err(WriteRefusal::HeldInPlace);
        for (path, removing) in [("/w", held), ("/w/a", held), ("/w/a/b", held), ("/w/a/c", Ok(())), ("/w/x", Ok(()))] {
            assert_eq!(places().require_removing(Path::new(path)), removing, "{path}");
            let making = removing.map_err(|_| WriteRefusal::ReadOnly);
            assert_eq!(places().require_making(Path::new(path), NewFile::Other), making, "{path}");
        }
        // An empty directory where one is missing gives nothing away.
        assert_eq!(places().require_making(Path::new("/w/a"), NewFile::Directory), Ok(()));
        assert_eq!(places().require_making(Path::new("/w"), NewFile::Directory), Err(WriteRefusal::ReadOnly));
        assert_eq!(places().require_making(Path::new("/w/.git"), NewFile::Directory), Err(WriteRefusal::ReadOnly));
    }
}
