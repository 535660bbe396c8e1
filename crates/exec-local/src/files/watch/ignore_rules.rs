//! The ignore files below a watched root, which exclude paths from the reported changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The rules of every watched directory that has an ignore file.
#[derive(Default)]
pub(super) struct IgnoreRules {
    root: PathBuf,
    of_directory: HashMap<PathBuf, Gitignore>,
}

impl IgnoreRules {
    pub(super) fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), of_directory: HashMap::new() }
    }

    /// Reads the ignore files of `directory`, which is new or has changed ignore files.
    pub(super) fn load(&mut self, directory: &Path) {
        let mut builder = GitignoreBuilder::new(directory);
        for name in IGNORE_FILES {
            let file = directory.join(name);
            if file.is_file() {
                // A line that does not parse is skipped, as Git does.
                let _bad_line = builder.add(file);
            }
        }
        match builder.build() {
            Ok(rules) if !rules.is_empty() => {
                self.of_directory.insert(directory.to_owned(), rules);
            }
            _ => {
                self.of_directory.remove(directory);
            }
        }
    }

    pub(super) fn is_ignore_file(path: &Path) -> bool {
        path.file_name().is_some_and(|name| IGNORE_FILES.iter().any(|file| name == *file))
    }

    /// The nearest directory with a rule that matches decides.
    pub(super) fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
        if path.file_name().is_some_and(|name| name == ".git") {
            return true;
        }
        for directory in path.ancestors().skip(1) {
            if let Some(rules) = self.of_directory.get(directory) {
                let verdict = rules.matched(path, is_directory);
                if verdict.is_ignore() {
                    return true;
                }
                if verdict.is_whitelist() {
                    return false;
                }
            }
            if directory == self.root {
                break;
            }
        }
        false
    }
}
