//! Watches.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_env::files::{Change, ChangeBatch, ChangeStream, FileError, FileReason, WatchOptions};

use super::{FilesBench, reason};

/// A watch, and what may become of it.
struct Watched {
    changes: Box<dyn ChangeStream>,
    root: PathBuf,
    breaks: bool,
}

/// What was told.
struct Told {
    changes: Vec<Change>,
    /// The connection broke meanwhile: somebody who looks through the root once more finds the rest.
    look_again: bool,
}

impl Watched {
    /// Reads on until every change in `wanted` was told, or that some may have been missed; answers with what was.
    async fn until(&mut self, wanted: impl IntoIterator<Item = Change>) -> Told {
        let mut missing: HashSet<Change> = wanted.into_iter().collect();
        let mut told = Told { changes: Vec::new(), look_again: false };
        while !missing.is_empty() && !told.look_again {
            let Some(batch) = self.changes.next().await.expect("the watch works") else {
                assert!(self.breaks, "the root is there");
                told.look_again = true;
                break;
            };
            told.look_again = self.says_look_again(&batch);
            for change in &batch.changes {
                missing.remove(change);
            }
            told.changes.extend(batch.changes);
        }
        told
    }

    /// The next batch, if it is more than word of a break.
    async fn at_the_end(&mut self) -> Result<Option<ChangeBatch>, FileError> {
        loop {
            match self.changes.next().await {
                Ok(Some(batch)) if self.breaks && batch.overflow.is_some() => {}
                other => return other,
            }
        }
    }

    fn says_look_again(&self, batch: &ChangeBatch) -> bool {
        assert!(batch.overflow.is_none() || self.breaks, "nothing was missed: {batch:?}");
        assert!(batch.overflow.as_ref().is_none_or(|root| *root == self.root), "{batch:?}");
        batch.overflow.is_some()
    }
}

async fn watch(bench: &FilesBench, root: &Path, options: WatchOptions) -> Watched {
    let changes = bench.files().watch(root, options).await.expect("the kernel has watches left");
    Watched { changes, root: root.to_owned(), breaks: bench.breaks }
}

/// Each by its own word.
pub async fn creating_writing_renaming_and_removing_are_told(bench: &FilesBench) {
    let mut changes = watch(bench, &bench.scratch(), WatchOptions::default()).await;
    let (a, b) = (bench.path("a"), bench.path("b"));
    bench.file("a", "");
    changes.until([Change::Created(a.clone())]).await;
    bench.file("a", "written");
    changes.until([Change::Modified(a.clone())]).await;
    std::fs::rename(&a, &b).expect("it is ours");
    changes.until([Change::Renamed { from: a, to: b.clone() }]).await;
    std::fs::remove_file(&b).expect("it is ours");
    changes.until([Change::Removed(b)]).await;
    let missing = bench.files().watch(&bench.path("missing"), WatchOptions::default()).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
}

/// What was in them before we looked is told, too.
pub async fn folders_that_come_later_are_watched_too(bench: &FilesBench) {
    let mut changes = watch(bench, &bench.scratch(), WatchOptions::default()).await;
    let deep = bench.file("new/deeper/file", "");
    changes
        .until([Change::Created(bench.path("new")), Change::Created(bench.path("new/deeper")), Change::Created(deep)])
        .await;
    let later = bench.file("new/deeper/later", "");
    changes.until([Change::Created(later)]).await;
}

/// And everything below it.
pub async fn a_renamed_folder_keeps_being_watched_under_its_new_name(bench: &FilesBench) {
    bench.folder("old/deep");
    let mut changes = watch(bench, &bench.scratch(), WatchOptions::default()).await;
    let (old, new) = (bench.path("old"), bench.path("new"));
    std::fs::rename(&old, &new).expect("it is ours");
    changes.until([Change::Renamed { from: old, to: new.clone() }]).await;
    let file = bench.file("new/deep/file", "");
    changes.until([Change::Created(file)]).await;
}

/// With everything in it.
pub async fn a_move_out_is_a_removal_and_a_move_in_a_creation(bench: &FilesBench) {
    let root = bench.folder("root");
    bench.file("root/sub/file", "");
    let mut changes = watch(bench, &root, WatchOptions::default()).await;
    let (inside, outside) = (bench.path("root/sub"), bench.path("outside"));
    std::fs::rename(&inside, &outside).expect("it is ours");
    changes.until([Change::Removed(inside.clone())]).await;
    bench.file("outside/unseen", "");
    let back = bench.path("root/back");
    std::fs::rename(&outside, &back).expect("it is ours");
    let told = changes.until([Change::Created(back.clone()), Change::Created(back.join("unseen"))]).await;
    let strange = told.changes.iter().any(|change| *change == Change::Created(inside.join("unseen")));
    assert!(!strange, "{:?}", told.changes);
}

/// Its entries, and no more.
pub async fn without_recursive_only_the_root_is_watched(bench: &FilesBench) {
    let root = bench.folder("root");
    bench.folder("root/sub");
    let mut changes = watch(bench, &root, WatchOptions { recursive: false, ..Default::default() }).await;
    bench.file("root/sub/unseen", "");
    let seen = bench.file("root/seen", "");
    let told = changes.until([Change::Created(seen)]).await;
    let below = told.changes.iter().any(|change| *change == Change::Created(bench.path("root/sub/unseen")));
    assert!(!below, "{:?}", told.changes);
}

/// A thousand writes are not a thousand words.
pub async fn a_burst_of_writes_is_told_in_few_words(bench: &FilesBench) {
    let path = bench.file("file", "");
    let end = bench.path("end");
    let mut changes = watch(bench, &bench.scratch(), WatchOptions::default()).await;
    for number in 0..1000 {
        std::fs::write(&path, format!("{number}")).expect("it is ours");
    }
    bench.file("end", "");
    let told = changes.until([Change::Created(end)]).await;
    assert!(told.look_again || told.changes.contains(&Change::Modified(path)));
    assert!(told.changes.len() < 100, "{} changes", told.changes.len());
}

/// Neither what is ignored from the start nor what comes to be.
pub async fn ignored_files_are_not_told(bench: &FilesBench) {
    bench.file(".gitignore", "target/\n*.log\n!keep.log\n");
    bench.folder(".git");
    let options = WatchOptions { ignore_files: true, ..Default::default() };
    let mut changes = watch(bench, &bench.scratch(), options).await;
    bench.file("target/debug/x", "");
    bench.file("noise.log", "");
    bench.file(".git/index", "");
    let kept = bench.file("keep.log", "");
    let end = bench.file("src/end", "");
    let told = changes.until([Change::Created(kept), Change::Created(end)]).await;
    let ignored = ["target", "target/debug/x", "noise.log", ".git/index"].map(|name| bench.path(name));
    let strange = told.changes.iter().any(|change| matches!(change, Change::Created(path) if ignored.contains(path)));
    assert!(!strange, "{:?}", told.changes);
}

/// The end is told, then there is nothing more.
pub async fn a_watch_ends_with_its_root(bench: &FilesBench) {
    let root = bench.folder("root");
    let mut changes = watch(bench, &root, WatchOptions::default()).await;
    std::fs::remove_dir(&root).expect("it is ours");
    changes.until([Change::Removed(root)]).await;
    assert_eq!(changes.at_the_end().await, Ok(None));
    assert_eq!(changes.at_the_end().await, Ok(None));
}

/// Its own changes.
pub async fn a_single_file_can_be_watched(bench: &FilesBench) {
    let path = bench.file("file", "");
    let mut changes = watch(bench, &path, WatchOptions::default()).await;
    bench.file("file", "written");
    changes.until([Change::Modified(path)]).await;
}

/// A caller may always stop waiting.
pub async fn a_cancelled_wait_loses_nothing(bench: &FilesBench) {
    let mut changes = watch(bench, &bench.scratch(), WatchOptions::default()).await;
    let mut wanted = HashSet::new();
    for number in 0..50 {
        let path = bench.file(format!("{number}"), "");
        wanted.insert(Change::Created(path));
        // Polled once or a little longer, then dropped, at whatever point it was.
        if let Ok(batch) = tokio::time::timeout(Duration::from_millis(number % 3), changes.changes.next()).await {
            let batch = batch.expect("the watch works").expect("the root is there");
            if changes.says_look_again(&batch) {
                wanted.clear();
            }
            for change in batch.changes {
                wanted.remove(&change);
            }
        }
    }
    changes.until(wanted).await;
}

/// The size of a real repository.
pub async fn changes_in_five_thousand_folders_are_told(bench: &FilesBench) {
    for number in 0..5000 {
        bench.folder(format!("{}/{}", number % 50, number / 50));
    }
    let mut changes = watch(bench, &bench.scratch(), WatchOptions::default()).await;
    // Told in steps: what the kernel can hold is bounded, and overflow is another behaviour.
    for hundred in 0..50 {
        let folders: Vec<PathBuf> = (0..100).map(|number| bench.path(format!("{hundred}/{number}"))).collect();
        let (mut made, mut renamed, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for folder in &folders {
            let (a, b) = (folder.join("a"), folder.join("b"));
            std::fs::write(&a, "x").expect("it is ours");
            std::fs::rename(&a, &b).expect("it is ours");
            std::fs::remove_file(&b).expect("it is ours");
            made.push(Change::Created(a.clone()));
            renamed.push(Change::Renamed { from: a, to: b.clone() });
            removed.push(Change::Removed(b));
        }
        changes.until(made.into_iter().chain(renamed).chain(removed)).await;
    }
}

/// Silence is the one thing that never happens.
pub async fn after_a_flood_everything_was_told_or_an_overflow_says_so(bench: &FilesBench) {
    let root = bench.folder("root");
    let mut changes = watch(bench, &root, WatchOptions::default()).await;
    let count = 30_000;
    let mut missing = HashSet::new();
    for number in 0..count {
        let path = root.join(format!("{number}"));
        std::fs::File::create(&path).expect("it is ours");
        missing.insert(path);
    }
    let mut overflowed = false;
    while !missing.is_empty() && !overflowed {
        let batch = changes.changes.next().await.expect("the watch works").expect("the root is there");
        for change in batch.changes {
            if let Change::Created(path) = change {
                missing.remove(&path);
            }
        }
        if let Some(rescan) = batch.overflow {
            assert_eq!(rescan, root);
            overflowed = true;
        }
    }
    // Afterwards it goes on, also in folders that came during the flood.
    let later = bench.file("root/new/later", "");
    loop {
        let batch = changes.changes.next().await.expect("the watch works").expect("the root is there");
        let broken = bench.breaks && batch.overflow.is_some();
        if broken || batch.changes.contains(&Change::Created(later.clone())) {
            break;
        }
    }
}

async fn wait_for(bench: &FilesBench, missing: &[PathBuf], present: Option<&Path>, then: impl FnOnce()) {
    let watched = bench.files().watch_missing(missing, present).await.expect("the kernel has watches left");
    let mut watched = watched.expect("it can be watched");
    then();
    watched.changed().await;
}

/// A file, a folder, a link to nowhere, a rename into place.
pub async fn what_is_missing_is_told_when_it_comes(bench: &FilesBench) {
    let aside = bench.file("aside", "");
    let missing: Vec<PathBuf> = (0..4).map(|number| bench.path(format!("{number}"))).collect();
    wait_for(bench, &missing[..1], None, || drop(bench.file("0", ""))).await;
    wait_for(bench, &missing[1..2], None, || drop(bench.folder("1"))).await;
    wait_for(bench, &missing[2..], None, || drop(bench.link("2", "nowhere"))).await;
    wait_for(bench, &missing[3..], None, || std::fs::rename(&aside, &missing[3]).expect("it is ours")).await;
}

/// The caller then asks again.
pub async fn an_intermediate_folder_is_told(bench: &FilesBench) {
    let deep = bench.path("a/b/c");
    wait_for(bench, std::slice::from_ref(&deep), None, || drop(bench.folder("a"))).await;
    wait_for(bench, std::slice::from_ref(&deep), None, || drop(bench.folder("a/b"))).await;
    wait_for(bench, &[deep], None, || drop(bench.file("a/b/c", ""))).await;
}

/// Written or renamed.
pub async fn a_present_file_is_told_when_it_changes(bench: &FilesBench) {
    let missing = [bench.path("missing")];
    let present = bench.file("present", "old");
    wait_for(bench, &missing, Some(&present), || drop(bench.file("present", "new"))).await;
    let moved = bench.path("moved");
    wait_for(bench, &missing, Some(&present), || std::fs::rename(&present, &moved).expect("it is ours")).await;
}

/// That is an answer, not an error.
pub async fn what_cannot_be_waited_for_is_not(bench: &FilesBench) {
    let exists = bench.file("exists", "");
    let dangling = bench.link("dangling", "nowhere");
    let missing = bench.path("missing");
    let deep = missing.join("x/".repeat(70));
    for (paths, present) in [
        (vec![], None),
        (vec![missing.clone(), exists.clone()], None),
        (vec![dangling], None),
        (vec![exists.join("below")], None),
        (vec![missing.clone()], Some(missing.as_path())),
        (vec![deep], None),
    ] {
        let watched = bench.files().watch_missing(&paths, present).await.expect("the kernel has watches left");
        assert!(watched.is_none(), "{paths:?} {present:?}");
    }
}
