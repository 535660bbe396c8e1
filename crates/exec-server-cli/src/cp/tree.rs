//! Copies a directory with everything in it, entry by entry.
//!
//! Both roots are paths without links, and below them no link is followed on either side: the kernel refuses it while it
//! resolves a path. So neither the contents of the source, nor a link that was put into the target, can make us write
//! outside of the target. Names come from the other machine and are checked before they are used.
//!
//! What fails is reported and left out; the rest is copied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exec_env::files::{Copied, CreateDirectoryOptions, DirectoryEntry, FileError, FileKind, LinkPolicy, Metadata};
use exec_wire::{Extension, Method};
use futures_util::StreamExt;
use libc::EEXIST;
use tokio::sync::mpsc;

use super::copier::{Copier, FileCopy, LinkPolicies, retry_unreachable};
use super::error::{AtLocation, CopyError};
use crate::failures::Failures;

/// Concurrent entries: enough to hide the latency of a connection, few enough for memory.
const AT_ONCE: usize = 8;

/// Failures that a copy may be ahead of what is printed.
const FAILURES_AHEAD: usize = 64;

/// Entries of one tree. A tree with more has no end, or is a disk, which is better copied by other means.
const TREE_ENTRIES: u64 = 10_000_000;

/// The paths of directories that were seen and are not copied yet: a hundred thousand, of usual length.
const TREE_PATH_BYTES: usize = 32 << 20;

/// Copies `from` to `to`. Failures of entries are reported; an error ends the whole command.
pub(super) async fn copy(
    copier: &Copier,
    from: PathBuf,
    to: PathBuf,
    is_new: bool,
    failures: &mut Failures,
) -> Result<(), CopyError> {
    if copier.is_one_machine() && is_new && copier.to.supports(Extension::COPY_KEEP_TIMES) {
        return copy_on_one_machine(copier, &from, &to, failures).await;
    }
    let mut steps = TreeSteps::default();
    steps.push(TreeStep::Copy { from, to });
    let copied = copy_entries(copier, &mut steps, failures).await;
    if let Err(CopyError::Stdout(_)) = copied {
        return copied;
    }
    // What was begun before an error gets its mode and times all the same.
    while let Some(step) = steps.pop() {
        step.finish(copier, failures).await?;
    }
    copied
}

/// Lets the machine copy the tree by itself, and reports what it leaves out.
async fn copy_on_one_machine(
    copier: &Copier,
    from: &Path,
    to: &Path,
    failures: &mut Failures,
) -> Result<(), CopyError> {
    // When it is full, the copy waits until we have printed.
    let (sender, mut left_out) = mpsc::channel(FAILURES_AHEAD);
    let location = Arc::clone(&copier.to);
    let failed = move |error: FileError| {
        let at_location = CopyError::at(&location, error.clone());
        // Nobody receives it: then the copy is not wanted any more, either.
        match at_location.ends_all() || sender.blocking_send(at_location).is_err() {
            true => Err(error),
            false => Ok(()),
        }
    };
    let mut copying = std::pin::pin!(copier.copy_on_one_machine(from, to, Some(Arc::new(failed))));
    let copied = loop {
        tokio::select! {
            Some(error) = left_out.recv() => error.report(failures)?,
            copied = &mut copying => break copied,
        }
    };
    while let Ok(error) = left_out.try_recv() {
        error.report(failures)?;
    }
    copied
}

/// What is left to do in a tree, the next last. It is bounded: a server can invent a tree without an end.
#[derive(Default)]
struct TreeSteps {
    left: Vec<TreeStep>,
    path_bytes: usize,
}

enum TreeStep {
    /// The directory `from` is to become `to`.
    Copy { from: PathBuf, to: PathBuf },
    /// All that is in a directory is copied.
    Finish(CreatedDirectory),
}

impl TreeStep {
    fn path_bytes(&self) -> usize {
        match self {
            Self::Copy { from, to } => from.as_os_str().len() + to.as_os_str().len(),
            Self::Finish(directory) => directory.path.as_os_str().len(),
        }
    }

    async fn finish(self, copier: &Copier, failures: &mut Failures) -> anyhow::Result<()> {
        let Self::Finish(directory) = self else { return Ok(()) };
        match directory.finish(copier).await {
            Ok(()) => Ok(()),
            Err(error) => error.report(failures),
        }
    }
}

impl TreeSteps {
    fn push(&mut self, step: TreeStep) {
        self.path_bytes += step.path_bytes();
        self.left.push(step);
    }

    fn pop(&mut self) -> Option<TreeStep> {
        let step = self.left.pop()?;
        self.path_bytes -= step.path_bytes();
        Some(step)
    }
}

/// A directory that we have created. We can write to it while it is filled; it gets its mode last, because that may
/// forbid writing.
struct CreatedDirectory {
    path: PathBuf,
    metadata: Metadata,
}

impl CreatedDirectory {
    async fn finish(&self, copier: &Copier) -> Result<(), CopyError> {
        let files = copier.to.files();
        if copier.to.supports(Method::FsSetTimes) {
            files.set_times(&self.path, self.metadata.times(), LinkPolicy::Refuse).await.at(&copier.to)?;
        }
        if copier.to.supports(Method::FsSetPermissions) {
            let mode = copier.mode(&self.metadata);
            files.set_permissions(&self.path, mode, LinkPolicy::Refuse).await.at(&copier.to)?;
        }
        Ok(())
    }
}

async fn copy_entries(copier: &Copier, steps: &mut TreeSteps, failures: &mut Failures) -> Result<(), CopyError> {
    let mut entries = 0_u64;
    while let Some(step) = steps.pop() {
        let TreeStep::Copy { from, to } = step else {
            step.finish(copier, failures).await?;
            continue;
        };
        let (listed, created) = match create_and_list(copier, &from, &to).await {
            Ok(listed) => listed,
            Err(error) if error.ends_all() => return Err(error),
            Err(error) => {
                error.report(failures)?;
                continue;
            }
        };
        if let Some(created) = created {
            steps.push(TreeStep::Finish(created));
        }
        entries += listed.len() as u64;
        if entries > TREE_ENTRIES || steps.path_bytes > TREE_PATH_BYTES {
            return Err(CopyError::TreeTooLarge { path: copier.from.display_path(&from) });
        }
        let mut below = Vec::new();
        let mut others = Vec::new();
        for entry in listed {
            if !is_plain_name(&entry.name) {
                let error = CopyError::Outside { path: copier.from.display_path(&from), name: entry.name };
                error.report(failures)?;
            } else if entry.kind == FileKind::Directory && !entry.is_symlink {
                below.push(TreeStep::Copy { from: from.join(&entry.name), to: to.join(&entry.name) });
            } else {
                others.push(copy_entry(copier, &from, &to, entry));
            }
        }
        let mut others = futures_util::stream::iter(others).buffer_unordered(AT_ONCE);
        while let Some(copied) = others.next().await {
            match copied {
                Ok(()) => {}
                Err(error) if error.ends_all() => return Err(error),
                Err(error) => error.report(failures)?,
            }
        }
        // Reversed, because `pop` takes them from the end.
        below.into_iter().rev().for_each(|step| steps.push(step));
    }
    Ok(())
}

/// Creates the directory if it does not exist, and lists what is to be copied into it, sorted.
async fn create_and_list(
    copier: &Copier,
    from: &Path,
    to: &Path,
) -> Result<(Vec<DirectoryEntry>, Option<CreatedDirectory>), CopyError> {
    let metadata = copier.from.files().metadata(from, LinkPolicy::Refuse).await.at(&copier.from)?;
    let mut listed = copier.from.files().read_directory(from).await.at(&copier.from)?;
    let mode = copier.to.supports(Extension::CREATE_DIRECTORY_MODE).then_some(0o700);
    let options = CreateDirectoryOptions { recursive: false, links: LinkPolicy::Refuse, mode };
    let (outcome, unsure) = retry_unreachable(|| copier.to.files().create_directory(to, options)).await;
    let created = match outcome {
        Ok(()) => Some(CreatedDirectory { path: to.to_owned(), metadata }),
        // An earlier attempt, whose reply was lost, has created it.
        Err(error) if error.errno() == Some(EEXIST) && unsure => {
            Some(CreatedDirectory { path: to.to_owned(), metadata })
        }
        Err(error) if error.errno() == Some(EEXIST) => {
            let existing = copier.to.files().metadata(to, LinkPolicy::Refuse).await;
            if !existing.is_ok_and(|existing| existing.kind == FileKind::Directory) {
                return Err(CopyError::InTheWay { path: copier.to.display_path(to) });
            }
            None
        }
        Err(error) => return Err(CopyError::at(&copier.to, error)),
    };
    copier.progress.add(&Copied { directories: 1, ..Copied::default() });
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((listed, created))
}

async fn copy_entry(copier: &Copier, from: &Path, to: &Path, entry: DirectoryEntry) -> Result<(), CopyError> {
    let (from, to): (PathBuf, PathBuf) = (from.join(&entry.name), to.join(&entry.name));
    if entry.is_symlink {
        return copier.copy_link(&from, &to, LinkPolicies::REFUSE).await;
    }
    if entry.kind != FileKind::File {
        copier.progress.add(&Copied { skipped: 1, ..Copied::default() });
        return Ok(());
    }
    let metadata = copier.from.files().metadata(&from, LinkPolicy::Refuse).await.at(&copier.from)?;
    let existing = copier.to.files().metadata(&to, LinkPolicy::Refuse).await.ok();
    match existing.map(|existing| existing.kind) {
        Some(FileKind::Directory) => Err(CopyError::DirectoryInTheWay { path: copier.to.display_path(&to) }),
        Some(FileKind::Special) => Err(CopyError::Special { path: copier.to.display_path(&to) }),
        _ => {
            let file = FileCopy { from: &from, to: &to, metadata: &metadata, links: LinkPolicies::REFUSE };
            copier.copy_file(file).await
        }
    }
}

/// Whether it is one name of a directory entry, and not a path that leads up, down or elsewhere.
fn is_plain_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes, b"" | b"." | b"..") && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_anywhere_is_refused() {
        let plain = |name: &str| is_plain_name(OsStr::new(name));
        assert!(["a", "...", ".a", "a b", "\u{e9}"].into_iter().all(plain));
        assert!(!["", ".", "..", "/", "a/b", "../a", "/etc", "a\0b"].into_iter().any(plain));
    }
}
