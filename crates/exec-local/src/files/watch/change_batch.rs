//! The changes since the last batch, without repetitions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use exec_env::files::limits::BATCH_CHANGES;
use exec_env::files::{Change, ChangeBatch};

/// Most changes of a batch to which a listing adds. A batch ends at [`BATCH_CHANGES`], but events that were read have to be
/// handled, and a directory that is moved into a tree may have a million names.
const LISTED_CHANGES: usize = 4 * BATCH_CHANGES;

#[derive(Default)]
pub(super) struct BatchBuilder {
    batch: ChangeBatch,
    /// The last change of each path in this batch.
    last: HashMap<PathBuf, Last>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Created,
    Modified,
    Removed,
}

impl BatchBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.batch.changes.is_empty() && self.batch.overflow.is_none()
    }

    pub(super) fn into_batch(self) -> ChangeBatch {
        self.batch
    }

    pub(super) fn is_full(&self) -> bool {
        self.batch.changes.len() >= BATCH_CHANGES
    }

    /// Whether what a new directory brought has to be left out.
    pub(super) fn is_overfull(&self) -> bool {
        self.batch.changes.len() >= LISTED_CHANGES
    }

    pub(super) fn overflow(&mut self, root: &Path) {
        self.batch.overflow = Some(root.to_owned());
    }

    /// Adds a change unless it repeats the last one of its path; a created file is not also reported as modified.
    pub(super) fn add(&mut self, change: Change) {
        let is_new = match &change {
            Change::Created(path) => self.last.insert(path.clone(), Last::Created) != Some(Last::Created),
            Change::Modified(path) => match self.last.get(path) {
                Some(Last::Created | Last::Modified) => false,
                Some(Last::Removed) | None => {
                    self.last.insert(path.clone(), Last::Modified);
                    true
                }
            },
            Change::Removed(path) => self.last.insert(path.clone(), Last::Removed) != Some(Last::Removed),
            Change::Renamed { from, to } => {
                self.last.insert(from.clone(), Last::Removed);
                self.last.remove(to);
                true
            }
        };
        if is_new {
            self.batch.changes.push(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_on_one_file_is_told_once_but_nothing_is_left_out() {
        let mut batch = BatchBuilder::default();
        let path = || PathBuf::from("/t/a");
        for change in [
            Change::Created(path()),
            Change::Modified(path()),
            Change::Modified(path()),
            Change::Removed(path()),
            Change::Created(path()),
            Change::Created(path()),
        ] {
            batch.add(change);
        }
        assert_eq!(batch.batch.changes, [Change::Created(path()), Change::Removed(path()), Change::Created(path()),]);
    }
}
