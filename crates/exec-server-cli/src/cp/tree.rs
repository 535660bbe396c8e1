//! A directory with everything in it, as a stream of entries.
//!
//! Both roots are without links, and below them no link is followed, on either side: the kernel over there refuses it
//! while it resolves a path. So nothing that a source contains, or that somebody put into the target, can lead a write
//! out of the target. Names come from the other machine and are judged before they are used.
//!
//! What fails is told and left out; the rest is copied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use exec_env::files::{Copied, CreateDirectoryOptions, DirectoryEntry, FileKind, LinkPolicy, Metadata};
use futures_util::StreamExt;

use super::copier::Copier;
use super::error::CopyError;
use super::retry::retry_unreachable;
use crate::failures::{EEXIST, Failures};

/// Entries at one time: enough to hide the way there and back, few enough for memory.
const AT_ONCE: usize = 8;

/// Copies `from` to `to`. The outer failure is of stdout; the inner one ends everything.
pub(super) async fn copy(
    copier: &Copier,
    from: PathBuf,
    to: PathBuf,
    is_new: bool,
    failures: &mut Failures,
) -> anyhow::Result<Result<(), CopyError>> {
    if copier.is_one_machine() && is_new && copier.to.supports("fs/copy.keepTimes") {
        return Ok(copier.copy_on_one_machine(&from, &to, true).await);
    }
    let mut created = Vec::new();
    let copied = copy_entries(copier, from, to, &mut created, failures).await?;
    // Deepest first: what is done below a directory makes it new again.
    for directory in created.iter().rev() {
        if let Err(error) = directory.finish(copier).await {
            failures.report(error.reason(), &error.to_string())?;
        }
    }
    Ok(copied)
}

/// A directory that we made. It is open to us while it is filled; its own mode comes last, because that may close it.
struct CreatedDirectory {
    path: PathBuf,
    metadata: Metadata,
}

impl CreatedDirectory {
    async fn finish(&self, copier: &Copier) -> Result<(), CopyError> {
        let files = copier.to.files();
        if copier.to.supports("fs/setTimes") {
            let kept = files.set_times(&self.path, self.metadata.times(), LinkPolicy::Refuse).await;
            kept.map_err(|error| copier.at_target(error))?;
        }
        if copier.to.supports("fs/setPermissions") {
            let kept = files.set_permissions(&self.path, copier.mode(&self.metadata), LinkPolicy::Refuse).await;
            kept.map_err(|error| copier.at_target(error))?;
        }
        Ok(())
    }
}

async fn copy_entries(
    copier: &Copier,
    from: PathBuf,
    to: PathBuf,
    created: &mut Vec<CreatedDirectory>,
    failures: &mut Failures,
) -> anyhow::Result<Result<(), CopyError>> {
    let mut directories_left = vec![(from, to)];
    while let Some((from, to)) = directories_left.pop() {
        let listed = match create_and_list(copier, &from, &to, created).await {
            Ok(listed) => listed,
            Err(error) if error.ends_all() => return Ok(Err(error)),
            Err(error) => {
                failures.report(error.reason(), &error.to_string())?;
                continue;
            }
        };
        let mut below = Vec::new();
        let mut others = Vec::new();
        for entry in listed {
            if !is_plain_name(&entry.name) {
                let error = CopyError::Outside { path: copier.from.display_path(&from), name: entry.name };
                failures.report(error.reason(), &error.to_string())?;
            } else if entry.kind == FileKind::Directory && !entry.is_symlink {
                below.push((from.join(&entry.name), to.join(&entry.name)));
            } else {
                others.push(copy_entry(copier, &from, &to, entry));
            }
        }
        let mut others = futures_util::stream::iter(others).buffer_unordered(AT_ONCE);
        while let Some(copied) = others.next().await {
            match copied {
                Ok(()) => {}
                Err(error) if error.ends_all() => return Ok(Err(error)),
                Err(error) => failures.report(error.reason(), &error.to_string())?,
            }
        }
        // Reversed, so that they are taken from the end in their order.
        directories_left.extend(below.into_iter().rev());
    }
    Ok(Ok(()))
}

/// Makes a directory, if it is not there, and tells what is to be copied into it, sorted.
async fn create_and_list(
    copier: &Copier,
    from: &Path,
    to: &Path,
    created: &mut Vec<CreatedDirectory>,
) -> Result<Vec<DirectoryEntry>, CopyError> {
    let metadata = copier.from.files().metadata(from, LinkPolicy::Refuse).await.map_err(|error| copier.at_source(error))?;
    let mut listed = copier.from.files().read_directory(from).await.map_err(|error| copier.at_source(error))?;
    let mode = copier.to.supports("fs/createDirectory.mode").then_some(0o700);
    let options = CreateDirectoryOptions { recursive: false, links: LinkPolicy::Refuse, mode };
    let (outcome, unsure) = retry_unreachable(|| copier.to.files().create_directory(to, options)).await;
    match outcome {
        Ok(()) => created.push(CreatedDirectory { path: to.to_owned(), metadata }),
        // The question that broke was ours, and was carried out.
        Err(error) if error.errno() == Some(EEXIST) && unsure => {
            created.push(CreatedDirectory { path: to.to_owned(), metadata })
        }
        Err(error) if error.errno() == Some(EEXIST) => {
            let existing = copier.to.files().metadata(to, LinkPolicy::Refuse).await;
            if !existing.is_ok_and(|existing| existing.kind == FileKind::Directory) {
                return Err(CopyError::with_path(&copier.to, to, |path| CopyError::InTheWay { path }));
            }
        }
        Err(error) => return Err(copier.at_target(error)),
    }
    copier.progress.add(&Copied { directories: 1, ..Copied::default() });
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

async fn copy_entry(copier: &Copier, from: &Path, to: &Path, entry: DirectoryEntry) -> Result<(), CopyError> {
    let (from, to): (PathBuf, PathBuf) = (from.join(&entry.name), to.join(&entry.name));
    if entry.is_symlink {
        return copier.copy_link(&from, &to, LinkPolicy::Refuse).await;
    }
    if entry.kind != FileKind::File {
        copier.progress.add(&Copied { skipped: 1, ..Copied::default() });
        return Ok(());
    }
    let metadata = copier.from.files().metadata(&from, LinkPolicy::Refuse).await.map_err(|error| copier.at_source(error))?;
    let existing = copier.to.files().metadata(&to, LinkPolicy::Refuse).await.ok();
    match existing.map(|existing| existing.kind) {
        Some(FileKind::Directory) => {
            Err(CopyError::with_path(&copier.to, &to, |path| CopyError::DirectoryInTheWay { path }))
        }
        Some(FileKind::Special) => Err(CopyError::with_path(&copier.to, &to, |path| CopyError::Special { path })),
        _ => copier.copy_file(&from, &to, &metadata, LinkPolicy::Refuse).await,
    }
}

/// Whether it is the name of an entry and nothing more: no way up, no way down, no way elsewhere.
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
