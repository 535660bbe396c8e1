//! How much there is to copy, counted while the copying is under way. Only numbers are kept.

use std::path::PathBuf;

use exec_env::files::{FileKind, LinkPolicy};
use futures_util::StreamExt;

use super::progress::Progress;
use crate::location::FilePath;

/// Looks at one time. Fewer than the copying takes, which matters more.
const AT_ONCE: usize = 4;

/// Counts. What cannot be looked at counts nothing; the copying tells why.
pub(super) async fn measure(source: &FilePath, progress: &Progress) {
    let files = source.files();
    let Ok(metadata) = files.metadata(&source.path, LinkPolicy::Follow).await else { return };
    match metadata.kind {
        FileKind::File => return progress.expect_file(&source.path, metadata.size_bytes),
        FileKind::Directory => {}
        FileKind::Symlink | FileKind::Special => return,
    }
    let mut left: Vec<PathBuf> = vec![source.path.clone()];
    while let Some(directory) = left.pop() {
        let Ok(entries) = files.read_directory(&directory).await else { continue };
        let mut lookups = Vec::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_symlink) {
            let path = directory.join(&entry.name);
            match entry.kind {
                FileKind::Directory => left.push(path),
                FileKind::File => lookups.push(async move { files.metadata(&path, LinkPolicy::Follow).await }),
                FileKind::Symlink | FileKind::Special => {}
            }
        }
        let mut lookups = futures_util::stream::iter(lookups).buffer_unordered(AT_ONCE);
        while let Some(metadata) = lookups.next().await {
            progress.expect_more(metadata.map_or(0, |metadata| metadata.size_bytes));
        }
    }
}
