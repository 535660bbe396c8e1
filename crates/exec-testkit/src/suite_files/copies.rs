//! Copies on one machine.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use exec_env::files::{Copied, CopyOptions, FileReason};

use super::{FilesBench, contents, names_in};

async fn copy(bench: &FilesBench, from: &Path, to: &Path, recursive: bool) -> Result<Copied, FileReason> {
    let options = CopyOptions { recursive, ..CopyOptions::default() };
    bench.files().copy(from, to, options).await.map_err(|error| error.reason)
}

/// And nothing is left beside it.
pub async fn a_copied_file_has_contents_and_mode(bench: &FilesBench) {
    let from = bench.file("from", "x".repeat(300_000));
    std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o751)).expect("it is ours");
    let to = bench.path("to");
    let copied = copy(bench, &from, &to, false).await;
    assert_eq!(copied, Ok(Copied { files: 1, bytes: 300_000, ..Copied::default() }));
    assert!(contents(&to) == contents(&from));
    assert_eq!(std::fs::metadata(&to).expect("it is there").mode() & 0o7777, 0o751);
    assert_eq!(names_in(&bench.scratch()), ["from", "to"]);
}

/// EISDIR. Through a link, the target is replaced.
pub async fn a_copy_replaces_a_file_but_not_a_folder(bench: &FilesBench) {
    let from = bench.file("from", "new");
    let target = bench.file("target", "old and longer");
    let link = bench.link("link", "target");
    copy(bench, &from, &link, false).await.expect("the folder is ours");
    assert_eq!((contents(&target), link.is_symlink()), (b"new".to_vec(), true));
    let folder = bench.folder("folder");
    assert_eq!(copy(bench, &from, &folder, false).await, Err(FileReason::Os(21)));
    assert_eq!(copy(bench, &bench.path("missing"), &target, false).await, Err(FileReason::Os(2)));
    assert_eq!(copy(bench, &from, &bench.path("missing/x"), false).await, Err(FileReason::Os(2)));
}

/// EEXIST.
pub async fn a_copied_link_is_a_link_and_replaces_nothing(bench: &FilesBench) {
    let link = bench.link("link", "some text");
    let to = bench.path("to");
    assert_eq!(copy(bench, &link, &to, false).await, Ok(Copied { symlinks: 1, ..Copied::default() }));
    assert_eq!(std::fs::read_link(&to).expect("it is a link"), Path::new("some text"));
    assert_eq!(copy(bench, &link, &to, false).await, Err(FileReason::Os(17)));
}

/// What the destination has besides stays.
pub async fn a_folder_is_copied_only_on_request_and_merges(bench: &FilesBench) {
    let from = bench.folder("from");
    bench.file("from/a", "1");
    bench.file("from/sub/b", "22");
    bench.link("from/link", "a");
    std::fs::set_permissions(bench.path("from/sub"), std::fs::Permissions::from_mode(0o500)).expect("it is ours");
    let to = bench.folder("to");
    bench.file("to/a", "old");
    bench.file("to/kept", "k");
    assert_eq!(copy(bench, &from, &to, false).await, Err(FileReason::RecursiveRequired));
    let copied = copy(bench, &from, &to, true).await;
    assert_eq!(copied, Ok(Copied { files: 2, directories: 2, symlinks: 1, bytes: 3, skipped: 0 }));
    assert_eq!(names_in(&to), ["a", "kept", "link", "sub"]);
    assert_eq!((contents(&to.join("a")), contents(&to.join("sub/b"))), (b"1".to_vec(), b"22".to_vec()));
    let mode = std::fs::metadata(to.join("sub")).expect("it is there").mode() & 0o7777;
    assert_eq!(mode, 0o500);
    // So that the scratch folder can be removed by anybody.
    for sub in ["from/sub", "to/sub"] {
        std::fs::set_permissions(bench.path(sub), std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
}

/// Not through a link either.
pub async fn a_folder_is_not_copied_into_itself(bench: &FilesBench) {
    let from = bench.folder("from");
    bench.file("from/file", "x");
    bench.link("link", "from");
    bench.folder("from-beside");
    for to in ["from", "from/below", "from/missing/below", "link/below"] {
        assert_eq!(copy(bench, &from, &bench.path(to), true).await, Err(FileReason::CopyIntoItself), "{to}");
    }
    assert_eq!(names_in(&from), ["file"]);
    copy(bench, &from, &bench.path("from-beside"), true).await.expect("that is another folder");
}

/// Under whatever name; Codex's server empties it.
pub async fn a_file_is_not_copied_onto_itself(bench: &FilesBench) {
    let file = bench.file("file", "precious");
    let link = bench.link("link", "file");
    std::fs::hard_link(&file, bench.path("hard")).expect("it is ours");
    for to in [&file, &link, &bench.path("hard")] {
        assert_eq!(copy(bench, &file, to, false).await, Err(FileReason::CopyOntoItself));
    }
    assert_eq!(contents(&file), b"precious");
}

/// Refused by themselves, left out of a tree.
pub async fn special_files_are_not_copied(bench: &FilesBench) {
    let folder = bench.folder("folder");
    let fifo = folder.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("a FIFO can be made");
    assert_eq!(copy(bench, &fifo, &bench.path("to"), false).await, Err(FileReason::CopySpecial));
    let copied = copy(bench, &folder, &bench.path("tree"), true).await;
    assert_eq!(copied, Ok(Copied { directories: 1, skipped: 1, ..Copied::default() }));
    assert!(names_in(&bench.path("tree")).is_empty());
}

/// 1 GiB that takes no room.
pub async fn holes_stay_holes(bench: &FilesBench) {
    let from = bench.path("from");
    let file = std::fs::File::create(&from).expect("the folder is ours");
    file.set_len(1 << 30).expect("a hole takes no room");
    file.write_all_at(b"begin", 0).expect("it is ours");
    file.write_all_at(b"middle", 512 << 20).expect("it is ours");
    let to = bench.path("to");
    let copied = copy(bench, &from, &to, false).await.expect("the folder is ours");
    assert_eq!(copied.bytes, 1 << 30);
    let found = std::fs::metadata(&to).expect("it is there");
    assert_eq!(found.len(), 1 << 30);
    assert!(found.blocks() * 512 < 16 << 20, "{} blocks", found.blocks());
    let copy = std::fs::File::open(&to).expect("it is there");
    let mut middle = [0; 6];
    copy.read_exact_at(&mut middle, 512 << 20).expect("it is long enough");
    assert_eq!(&middle, b"middle");
}

/// Its size is zero, its contents are not.
pub async fn a_file_of_proc_is_copied_though_it_says_it_is_empty(bench: &FilesBench) {
    let to = bench.path("to");
    copy(bench, Path::new("/proc/version"), &to, false).await.expect("every Linux has it");
    assert_eq!(contents(&to), contents(Path::new("/proc/version")));
}

/// Files and folders; what is not asked for is new.
pub async fn a_copy_keeps_times_where_it_is_asked_to(bench: &FilesBench) {
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7);
    let file = bench.file("from/sub/file", "x");
    for path in [file, bench.path("from/sub"), bench.path("from")] {
        std::fs::File::open(path).and_then(|file| file.set_modified(old)).expect("it is ours");
    }
    let modified = |path: &str| std::fs::metadata(bench.path(path)).and_then(|found| found.modified()).ok();
    for (to, keep_times) in [("new", false), ("old", true)] {
        let options = CopyOptions { recursive: true, keep_times, ..CopyOptions::default() };
        bench.files().copy(&bench.path("from"), &bench.path(to), options).await.expect("the folder is ours");
        for path in [to.to_owned(), format!("{to}/sub"), format!("{to}/sub/file")] {
            assert_eq!(modified(&path) == Some(old), keep_times, "{path}");
        }
    }
}

/// Never backwards, and to the end.
pub async fn a_copy_reports_its_progress(bench: &FilesBench) {
    for number in 0..5 {
        bench.file(format!("from/{number}"), vec![1; 100_000]);
    }
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    let progress = move |copied: &Copied| seen.lock().expect("nobody panics with it").push(*copied);
    let options = CopyOptions { recursive: true, progress: Some(Arc::new(progress)), ..CopyOptions::default() };
    let copied = bench.files().copy(&bench.path("from"), &bench.path("to"), options).await;
    let copied = copied.expect("the folder is ours");
    let reports = reports.lock().expect("nobody panics with it");
    assert_eq!(reports.last(), Some(&copied));
    assert!(reports.len() >= 5);
    assert!(reports.is_sorted_by_key(|report| (report.bytes, report.files)));
}
