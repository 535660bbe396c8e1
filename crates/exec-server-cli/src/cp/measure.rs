//! How much there is to copy, counted while the copying is under way. Only numbers are kept.

use std::path::PathBuf;

use exec_env::files::{FileKind, LinkPolicy};
use futures_util::StreamExt;

use super::progress::Progress;
use crate::site::Spot;

/// Looks at one time. Fewer than the copying takes, which matters more.
const AT_ONCE: usize = 4;

/// Counts. What cannot be looked at counts nothing; the copying tells why.
pub(super) async fn measure(spot: &Spot, progress: &Progress) {
    let files = spot.files();
    let Ok(found) = files.metadata(&spot.path, LinkPolicy::Follow).await else { return };
    match found.kind {
        FileKind::File => return progress.expect(&spot.path, found.size_bytes),
        FileKind::Directory => {}
        FileKind::Symlink | FileKind::Special => return,
    }
    let mut left: Vec<PathBuf> = vec![spot.path.clone()];
    while let Some(folder) = left.pop() {
        let Ok(entries) = files.read_directory(&folder).await else { continue };
        let mut looks = Vec::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_symlink) {
            let path = folder.join(&entry.name);
            match entry.kind {
                FileKind::Directory => left.push(path),
                FileKind::File => looks.push(async move { files.metadata(&path, LinkPolicy::Follow).await }),
                FileKind::Symlink | FileKind::Special => {}
            }
        }
        let mut looks = futures_util::stream::iter(looks).buffer_unordered(AT_ONCE);
        while let Some(found) = looks.next().await {
            progress.expect_more(found.map_or(0, |found| found.size_bytes));
        }
    }
}
