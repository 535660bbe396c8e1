//! The ignore files below a watched root, which exclude paths from the reported changes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use exec_env::files::LinkPolicy;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use super::super::policy::CallPolicy;
use super::super::resolve::open_regular;

const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// How much of an ignore file is read. Longer ones are no work of a person.
const IGNORE_FILE_BYTES: u64 = 1 << 20;

/// The rules of every watched directory that has an ignore file.
#[derive(Default)]
pub(in super::super) struct IgnoreRules {
    root: PathBuf,
    policy: CallPolicy,
    of_directory: HashMap<PathBuf, Gitignore>,
}

impl IgnoreRules {
    pub(in super::super) fn below(root: &Path, policy: CallPolicy) -> Self {
        Self { root: root.to_owned(), policy, of_directory: HashMap::new() }
    }

    /// Reads the ignore files of `directory`, which is new or has changed ignore files.
    pub(in super::super) fn load(&mut self, directory: &Path) {
        let mut builder = GitignoreBuilder::new(directory);
        for name in IGNORE_FILES {
            let path = directory.join(name);
            let Ok((file, _)) = open_regular(&self.policy, &path, LinkPolicy::Follow, OFlags::RDONLY) else { continue };
            for line in BufReader::new(File::from(file).take(IGNORE_FILE_BYTES)).lines().map_while(Result::ok) {
                // A line that does not parse is skipped, as Git does.
                let _bad_line = builder.add_line(Some(path.clone()), &line);
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
    pub(in super::super) fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
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
