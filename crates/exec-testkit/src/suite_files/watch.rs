//! Watches: changes are reported, and so is that some may have been missed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use exec_env::files::{Change, ChangeBatch, ChangeStream, FileError, FileReason, WatchOptions};

use super::{FilesTestEnvironment, reason};
use crate::mount::Mount;

struct WatchReader {
    changes: Box<dyn ChangeStream>,
    root: PathBuf,
    breaks: bool,
}

struct Reported {
    changes: Vec<Change>,
    /// The connection broke meanwhile: whoever scans the root again finds the rest.
    rescan: bool,
}

impl WatchReader {
    /// Reads on until every change in `wanted` was reported, or that some may have been missed.
    async fn read_until(&mut self, wanted: impl IntoIterator<Item = Change>) -> Reported {
        let mut missing: HashSet<Change> = wanted.into_iter().collect();
        let mut reported = Reported { changes: Vec::new(), rescan: false };
        while !missing.is_empty() && !reported.rescan {
            let Some(batch) = self.changes.next().await.expect("the watch works") else {
                assert!(self.breaks, "the root is there");
                reported.rescan = true;
                break;
            };
            reported.rescan = self.asks_for_rescan(&batch);
            for change in &batch.changes {
                missing.remove(change);
            }
            reported.changes.extend(batch.changes);
        }
        reported
    }

    /// The next batch that is not only about a broken connection.
    async fn next_batch(&mut self) -> Result<Option<ChangeBatch>, FileError> {
        loop {
            match self.changes.next().await {
                Ok(Some(batch)) if self.breaks && batch.overflow.is_some() => {}
                other => return other,
            }
        }
    }

    fn asks_for_rescan(&self, batch: &ChangeBatch) -> bool {
        assert!(batch.overflow.is_none() || self.breaks, "nothing was missed: {batch:?}");
        assert!(batch.overflow.as_ref().is_none_or(|root| *root == self.root), "{batch:?}");
        batch.overflow.is_some()
    }
}

async fn watch(env: &FilesTestEnvironment, root: &Path, options: WatchOptions) -> WatchReader {
    let changes = env.files().watch(root, options).await.expect("the kernel has watches left");
    WatchReader { changes, root: root.to_owned(), breaks: env.breaks }
}

pub async fn creating_writing_renaming_and_removing_are_told(env: &FilesTestEnvironment) {
    let mut changes = watch(env, &env.scratch(), WatchOptions::default()).await;
    let (a, b) = (env.path("a"), env.path("b"));
    env.file("a", "");
    changes.read_until([Change::Created(a.clone())]).await;
    env.file("a", "written");
    changes.read_until([Change::Modified(a.clone())]).await;
    std::fs::rename(&a, &b).expect("it is ours");
    changes.read_until([Change::Renamed { from: a, to: b.clone() }]).await;
    std::fs::remove_file(&b).expect("it is ours");
    changes.read_until([Change::Removed(b)]).await;
    let missing = env.files().watch(&env.path("missing"), WatchOptions::default()).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
}

/// What was in them before they were watched is reported, too.
pub async fn folders_that_come_later_are_watched_too(env: &FilesTestEnvironment) {
    let mut changes = watch(env, &env.scratch(), WatchOptions::default()).await;
    let deep = env.file("new/deeper/file", "");
    changes
        .read_until([Change::Created(env.path("new")), Change::Created(env.path("new/deeper")), Change::Created(deep)])
        .await;
    let later = env.file("new/deeper/later", "");
    changes.read_until([Change::Created(later)]).await;
}

pub async fn a_renamed_folder_keeps_being_watched_under_its_new_name(env: &FilesTestEnvironment) {
    env.directory("old/deep");
    let mut changes = watch(env, &env.scratch(), WatchOptions::default()).await;
    let (old, new) = (env.path("old"), env.path("new"));
    std::fs::rename(&old, &new).expect("it is ours");
    changes.read_until([Change::Renamed { from: old, to: new.clone() }]).await;
    let file = env.file("new/deep/file", "");
    changes.read_until([Change::Created(file)]).await;
}

/// What is in it has not changed.
pub async fn a_rename_of_a_folder_is_one_change(env: &FilesTestEnvironment) {
    env.file("old/deep/file", "");
    let mut changes = watch(env, &env.scratch(), WatchOptions::default()).await;
    let (old, new) = (env.path("old"), env.path("new"));
    std::fs::rename(&old, &new).expect("it is ours");
    let end = env.file("end", "");
    let renamed = Change::Renamed { from: old, to: new };
    let reported = changes.read_until([renamed.clone(), Change::Created(end.clone())]).await;
    if !reported.rescan {
        assert_eq!(reported.changes, [renamed, Change::Created(end)]);
    }
}

/// Nobody tells when a folder above the root is renamed, but then no path leads to what comes later.
pub async fn a_watch_ends_when_the_path_of_its_root_leads_elsewhere(env: &FilesTestEnvironment) {
    let root = env.directory("above/root");
    let mut changes = watch(env, &root, WatchOptions::default()).await;
    std::fs::rename(env.path("above"), env.path("elsewhere")).expect("it is ours");
    env.directory("elsewhere/root/new");
    while let Some(batch) = changes.next_batch().await.expect("the watch works") {
        assert!(!batch.changes.contains(&Change::Created(root.join("new/file"))), "{batch:?}");
    }
}

/// With what was watched on it. Needs root.
pub async fn a_watch_tells_that_a_file_system_is_gone(env: &FilesTestEnvironment) {
    let disk = env.directory("root/disk");
    let Some(mounted) = Mount::new(&["-t", "tmpfs", "none"], &disk) else { return };
    env.directory("root/disk/folder");
    let mut changes = watch(env, &env.path("root"), WatchOptions::default()).await;
    drop(mounted);
    loop {
        let batch = changes.changes.next().await.expect("the watch works").expect("the root is there");
        if batch.overflow.is_some() {
            break;
        }
    }
    let later = env.file("root/disk/later", "");
    changes.read_until([Change::Created(later)]).await;
    if env.breaks {
        // After a break the directory below is watched, which is there.
        return;
    }
    let Some(mounted) = Mount::new(&["-t", "tmpfs", "none"], &disk) else { return };
    let mut changes = watch(env, &disk, WatchOptions::default()).await;
    drop(mounted);
    while changes.next_batch().await.expect("the watch works").is_some() {}
}

/// What a folder brought is told up to a bound; a million names would take all memory.
pub async fn a_folder_with_very_many_names_is_told_as_an_overflow(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    for number in 0..20_000 {
        env.file(format!("aside/{number}"), "");
    }
    let mut changes = watch(env, &root, WatchOptions::default()).await;
    let inside = env.path("root/inside");
    std::fs::rename(env.path("aside"), &inside).expect("it is ours");
    // A connection that breaks may bring a batch once more.
    let mut told = HashSet::new();
    loop {
        let batch = changes.changes.next().await.expect("the watch works").expect("the root is there");
        told.extend(batch.changes);
        if batch.overflow.is_some() {
            break;
        }
    }
    assert!(told.len() <= 16_384, "{}", told.len());
    let later = env.file("root/inside/later", "");
    changes.read_until([Change::Created(later)]).await;
}

/// With everything below.
pub async fn a_move_out_is_a_removal_and_a_move_in_a_creation(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    env.file("root/sub/file", "");
    let mut changes = watch(env, &root, WatchOptions::default()).await;
    let (inside, outside) = (env.path("root/sub"), env.path("outside"));
    std::fs::rename(&inside, &outside).expect("it is ours");
    changes.read_until([Change::Removed(inside.clone())]).await;
    env.file("outside/unseen", "");
    let back = env.path("root/back");
    std::fs::rename(&outside, &back).expect("it is ours");
    let reported = changes.read_until([Change::Created(back.clone()), Change::Created(back.join("unseen"))]).await;
    let strange = reported.changes.iter().any(|change| *change == Change::Created(inside.join("unseen")));
    assert!(!strange, "{:?}", reported.changes);
}

pub async fn without_recursive_only_the_root_is_watched(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    env.directory("root/sub");
    let mut changes = watch(env, &root, WatchOptions { recursive: false, ..Default::default() }).await;
    env.file("root/sub/unseen", "");
    let seen = env.file("root/seen", "");
    let reported = changes.read_until([Change::Created(seen)]).await;
    let below = reported.changes.iter().any(|change| *change == Change::Created(env.path("root/sub/unseen")));
    assert!(!below, "{:?}", reported.changes);
}

pub async fn a_burst_of_writes_is_told_in_few_words(env: &FilesTestEnvironment) {
    let path = env.file("file", "");
    let end = env.path("end");
    let mut changes = watch(env, &env.scratch(), WatchOptions::default()).await;
    let begun = Instant::now();
    for number in 0..1000 {
        std::fs::write(&path, format!("{number}")).expect("it is ours");
    }
    env.file("end", "");
    let reported = changes.read_until([Change::Created(end)]).await;
    assert!(reported.rescan || reported.changes.contains(&Change::Modified(path)));
    // On a machine that is slow, they are no burst any more.
    let few = 100 + begun.elapsed().as_millis() / 25;
    assert!((reported.changes.len() as u128) < few, "{} changes", reported.changes.len());
}

pub async fn ignored_files_are_not_told(env: &FilesTestEnvironment) {
    env.file(".gitignore", "target/\n*.log\n!keep.log\n");
    env.directory(".git");
    let options = WatchOptions { ignore_files: true, ..Default::default() };
    let mut changes = watch(env, &env.scratch(), options).await;
    env.file("target/debug/x", "");
    env.file("noise.log", "");
    env.file(".git/index", "");
    let kept = env.file("keep.log", "");
    let end = env.file("src/end", "");
    let reported = changes.read_until([Change::Created(kept), Change::Created(end)]).await;
    let ignored = ["target", "target/debug/x", "noise.log", ".git/index"].map(|name| env.path(name));
    let strange =
        reported.changes.iter().any(|change| matches!(change, Change::Created(path) if ignored.contains(path)));
    assert!(!strange, "{:?}", reported.changes);
}

/// What the rules of all directories together may take is bounded, and each time these are nearly all of it.
pub async fn ignore_files_of_directories_that_were_removed_or_renamed_leave_room_for_others(
    env: &FilesTestEnvironment,
) {
    let options = WatchOptions { ignore_files: true, ..Default::default() };
    let mut changes = watch(env, &env.scratch(), options).await;
    let rules = format!("{}noise\n", format!("{}*\n", "x".repeat(4000)).repeat(20));
    for number in 0..6 {
        let directory = env.directory(format!("{number}"));
        changes.read_until([Change::Created(directory.clone())]).await;
        let file = env.file(format!("{number}/.gitignore"), &rules);
        changes.read_until([Change::Created(file)]).await;
        env.file(format!("{number}/noise"), "");
        let end = env.file(format!("{number}/end"), "");
        let reported = changes.read_until([Change::Created(end)]).await;
        let noise = directory.join("noise");
        assert!(!reported.changes.contains(&Change::Created(noise)), "{number}: {:?}", reported.changes);
        if number % 2 == 0 {
            let renamed = env.path(format!("renamed{number}"));
            std::fs::rename(&directory, &renamed).expect("it is ours");
            std::fs::remove_dir_all(renamed).expect("it is ours");
        } else {
            std::fs::remove_dir_all(&directory).expect("it is ours");
        }
    }
}

pub async fn a_watch_ends_with_its_root(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    let mut changes = watch(env, &root, WatchOptions::default()).await;
    std::fs::remove_dir(&root).expect("it is ours");
    changes.read_until([Change::Removed(root)]).await;
    assert_eq!(changes.next_batch().await, Ok(None));
    assert_eq!(changes.next_batch().await, Ok(None));
}

pub async fn a_single_file_can_be_watched(env: &FilesTestEnvironment) {
    let path = env.file("file", "");
    let mut changes = watch(env, &path, WatchOptions::default()).await;
    env.file("file", "written");
    changes.read_until([Change::Modified(path)]).await;
}

pub async fn a_cancelled_wait_loses_nothing(env: &FilesTestEnvironment) {
    let mut changes = watch(env, &env.scratch(), WatchOptions::default()).await;
    let mut wanted = HashSet::new();
    for number in 0..50 {
        let path = env.file(format!("{number}"), "");
        wanted.insert(Change::Created(path));
        // Polled once or a little longer, then dropped, at whatever point it was.
        if let Ok(batch) = tokio::time::timeout(Duration::from_millis(number % 3), changes.changes.next()).await {
            let batch = batch.expect("the watch works").expect("the root is there");
            if changes.asks_for_rescan(&batch) {
                wanted.clear();
            }
            for change in batch.changes {
                wanted.remove(&change);
            }
        }
    }
    changes.read_until(wanted).await;
}

pub async fn changes_in_five_thousand_folders_are_told(env: &FilesTestEnvironment) {
    for number in 0..5000 {
        env.directory(format!("{}/{}", number % 50, number / 50));
    }
    let mut changes = watch(env, &env.scratch(), WatchOptions::default()).await;
    // Told in steps: what the kernel can hold is bounded, and overflow is another behaviour.
    for hundred in 0..50 {
        let folders: Vec<PathBuf> = (0..100).map(|number| env.path(format!("{hundred}/{number}"))).collect();
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
        changes.read_until(made.into_iter().chain(renamed).chain(removed)).await;
    }
}

pub async fn after_a_flood_everything_was_told_or_an_overflow_says_so(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    let mut changes = watch(env, &root, WatchOptions::default()).await;
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
    let later = env.file("root/new/later", "");
    loop {
        let batch = changes.changes.next().await.expect("the watch works").expect("the root is there");
        let broken = env.breaks && batch.overflow.is_some();
        if broken || batch.changes.contains(&Change::Created(later.clone())) {
            break;
        }
    }
}

async fn expect_change(env: &FilesTestEnvironment, missing: &[PathBuf], present: Option<&Path>, then: impl FnOnce()) {
    let watched = env.files().watch_missing(missing, present).await.expect("the kernel has watches left");
    let mut watched = watched.expect("it can be watched");
    then();
    watched.changed().await;
}

/// A file, a directory, a link to nowhere, a rename into place.
pub async fn what_is_missing_is_told_when_it_comes(env: &FilesTestEnvironment) {
    let aside = env.file("aside", "");
    let missing: Vec<PathBuf> = (0..4).map(|number| env.path(format!("{number}"))).collect();
    expect_change(env, &missing[..1], None, || drop(env.file("0", ""))).await;
    expect_change(env, &missing[1..2], None, || drop(env.directory("1"))).await;
    expect_change(env, &missing[2..], None, || drop(env.link("2", "nowhere"))).await;
    expect_change(env, &missing[3..], None, || std::fs::rename(&aside, &missing[3]).expect("it is ours")).await;
}

/// The caller then asks again.
pub async fn an_intermediate_folder_is_told(env: &FilesTestEnvironment) {
    let deep = env.path("a/b/c");
    expect_change(env, std::slice::from_ref(&deep), None, || drop(env.directory("a"))).await;
    expect_change(env, std::slice::from_ref(&deep), None, || drop(env.directory("a/b"))).await;
    expect_change(env, &[deep], None, || drop(env.file("a/b/c", ""))).await;
}

/// Written or renamed.
pub async fn a_present_file_is_told_when_it_changes(env: &FilesTestEnvironment) {
    let missing = [env.path("missing")];
    let present = env.file("present", "old");
    expect_change(env, &missing, Some(&present), || drop(env.file("present", "new"))).await;
    let moved = env.path("moved");
    expect_change(env, &missing, Some(&present), || std::fs::rename(&present, &moved).expect("it is ours")).await;
}

/// That is an answer, not an error.
pub async fn what_cannot_be_waited_for_is_not(env: &FilesTestEnvironment) {
    let exists = env.file("exists", "");
    let dangling = env.link("dangling", "nowhere");
    let missing = env.path("missing");
    let deep = missing.join("x/".repeat(70));
    for (paths, present) in [
        (vec![], None),
        (vec![missing.clone(), exists.clone()], None),
        (vec![dangling], None),
        (vec![exists.join("below")], None),
        (vec![missing.clone()], Some(missing.as_path())),
        (vec![deep], None),
    ] {
        let watched = env.files().watch_missing(&paths, present).await.expect("the kernel has watches left");
        assert!(watched.is_none(), "{paths:?} {present:?}");
    }
}
