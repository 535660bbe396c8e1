//! Copies on one machine.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use exec_env::files::{Copied, CopyOptions, FileReason};

use super::{FilesTestEnvironment, contents, names_in};

async fn copy(env: &FilesTestEnvironment, from: &Path, to: &Path, recursive: bool) -> Result<Copied, FileReason> {
    let options = CopyOptions { recursive, ..CopyOptions::default() };
    env.files().copy(from, to, options).await.map_err(|error| error.reason)
}

pub async fn a_copied_file_has_contents_and_mode(env: &FilesTestEnvironment) {
    let from = env.file("from", "x".repeat(300_000));
    std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o751)).expect("it is ours");
    let to = env.path("to");
    let copied = copy(env, &from, &to, false).await;
    assert_eq!(copied, Ok(Copied { files: 1, bytes: 300_000, ..Copied::default() }));
    assert!(contents(&to) == contents(&from));
    assert_eq!(std::fs::metadata(&to).expect("it is there").mode() & 0o7777, 0o751);
    assert_eq!(names_in(&env.scratch()), ["from", "to"]);
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").mode() & 0o7777
}

/// A copy belongs to whoever makes it. With set-user-id it would run with that one's rights, and of root those are all.
pub async fn a_copy_has_set_user_id_and_set_group_id_only_of_an_owner_that_it_has(env: &FilesTestEnvironment) {
    const OTHER: u32 = 65_534;
    let own = std::fs::metadata(env.file("from/own", "x")).expect("it is there");
    let group_only = env.file("from/group", "x");
    let others = [env.file("from/other", "x"), env.directory("from/folder"), group_only.clone()];
    let gave_away = std::os::unix::fs::chown(&others[0], Some(OTHER), Some(OTHER)).is_ok();
    if gave_away {
        std::os::unix::fs::chown(&others[1], Some(OTHER), Some(OTHER)).expect("we are root");
        std::os::unix::fs::chown(&group_only, Some(OTHER), Some(own.gid())).expect("we are root");
    } else {
        eprintln!("only our own files are judged: nobody but root can give files away");
    }
    for path in others.iter().chain([&env.path("from/own")]) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o6755)).expect("they are ours, or we are root");
    }
    env.file("over", "old");
    copy(env, &env.path("from"), &env.path("to"), true).await.expect("the directory is ours");
    copy(env, &env.path("from/other"), &env.path("one"), false).await.expect("the directory is ours");
    copy(env, &env.path("from/other"), &env.path("over"), false).await.expect("the directory is ours");
    let (neither, group) = if gave_away { (0o755, 0o2755) } else { (0o6755, 0o6755) };
    let wanted = [("to/other", neither), ("to/folder", neither), ("one", neither), ("over", neither)];
    for (path, mode) in wanted.into_iter().chain([("to/group", group), ("to/own", 0o6755)]) {
        assert_eq!(format!("{:o}", mode_of(&env.path(path))), format!("{mode:o}"), "{path}");
    }
}

/// EISDIR. Through a link, the target is replaced.
pub async fn a_copy_replaces_a_file_but_not_a_folder(env: &FilesTestEnvironment) {
    let from = env.file("from", "new");
    let target = env.file("target", "old and longer");
    let link = env.link("link", "target");
    copy(env, &from, &link, false).await.expect("the directory is ours");
    assert_eq!((contents(&target), link.is_symlink()), (b"new".to_vec(), true));
    let folder = env.directory("folder");
    assert_eq!(copy(env, &from, &folder, false).await, Err(FileReason::Os(21)));
    assert_eq!(copy(env, &env.path("missing"), &target, false).await, Err(FileReason::Os(2)));
    assert_eq!(copy(env, &from, &env.path("missing/x"), false).await, Err(FileReason::Os(2)));
}

/// EEXIST.
pub async fn a_copied_link_is_a_link_and_replaces_nothing(env: &FilesTestEnvironment) {
    let link = env.link("link", "some text");
    let to = env.path("to");
    assert_eq!(copy(env, &link, &to, false).await, Ok(Copied { symlinks: 1, ..Copied::default() }));
    assert_eq!(std::fs::read_link(&to).expect("it is a link"), Path::new("some text"));
    assert_eq!(copy(env, &link, &to, false).await, Err(FileReason::Os(17)));
}

/// What the destination has besides stays.
pub async fn a_folder_is_copied_only_on_request_and_merges(env: &FilesTestEnvironment) {
    let from = env.directory("from");
    env.file("from/a", "1");
    env.file("from/sub/b", "22");
    env.link("from/link", "a");
    std::fs::set_permissions(env.path("from/sub"), std::fs::Permissions::from_mode(0o500)).expect("it is ours");
    let to = env.directory("to");
    env.file("to/a", "old");
    env.file("to/kept", "k");
    assert_eq!(copy(env, &from, &to, false).await, Err(FileReason::RecursiveRequired));
    let copied = copy(env, &from, &to, true).await;
    assert_eq!(copied, Ok(Copied { files: 2, directories: 2, symlinks: 1, bytes: 3, skipped: 0 }));
    assert_eq!(names_in(&to), ["a", "kept", "link", "sub"]);
    assert_eq!((contents(&to.join("a")), contents(&to.join("sub/b"))), (b"1".to_vec(), b"22".to_vec()));
    let mode = std::fs::metadata(to.join("sub")).expect("it is there").mode() & 0o7777;
    assert_eq!(mode, 0o500);
    // So that the scratch directory can be removed by anybody.
    for sub in ["from/sub", "to/sub"] {
        std::fs::set_permissions(env.path(sub), std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
}

/// Not through a link either.
pub async fn a_folder_is_not_copied_into_itself(env: &FilesTestEnvironment) {
    let from = env.directory("from");
    env.file("from/file", "x");
    env.link("link", "from");
    env.directory("from-beside");
    for to in ["from", "from/below", "from/missing/below", "link/below"] {
        assert_eq!(copy(env, &from, &env.path(to), true).await, Err(FileReason::CopyIntoItself), "{to}");
    }
    assert_eq!(names_in(&from), ["file"]);
    copy(env, &from, &env.path("from-beside"), true).await.expect("that is another folder");
}

/// By whatever name; Codex's server empties it.
pub async fn a_file_is_not_copied_onto_itself(env: &FilesTestEnvironment) {
    let file = env.file("file", "precious");
    let link = env.link("link", "file");
    std::fs::hard_link(&file, env.path("hard")).expect("it is ours");
    for to in [&file, &link, &env.path("hard")] {
        assert_eq!(copy(env, &file, to, false).await, Err(FileReason::CopyOntoItself));
    }
    assert_eq!(contents(&file), b"precious");
}

/// Refused by themselves, left out of a tree.
pub async fn special_files_are_not_copied(env: &FilesTestEnvironment) {
    let folder = env.directory("folder");
    let fifo = env.fifo("folder/fifo");
    assert_eq!(copy(env, &fifo, &env.path("to"), false).await, Err(FileReason::CopySpecial));
    let copied = copy(env, &folder, &env.path("tree"), true).await;
    assert_eq!(copied, Ok(Copied { directories: 1, skipped: 1, ..Copied::default() }));
    assert!(names_in(&env.path("tree")).is_empty());
}

/// 1 GiB that uses almost no disk space.
pub async fn holes_stay_holes(env: &FilesTestEnvironment) {
    let from = env.path("from");
    let file = std::fs::File::create(&from).expect("the directory is ours");
    file.set_len(1 << 30).expect("a hole takes no room");
    file.write_all_at(b"begin", 0).expect("it is ours");
    file.write_all_at(b"middle", 512 << 20).expect("it is ours");
    let to = env.path("to");
    let copied = copy(env, &from, &to, false).await.expect("the directory is ours");
    assert_eq!(copied.bytes, 1 << 30);
    let found = std::fs::metadata(&to).expect("it is there");
    assert_eq!(found.len(), 1 << 30);
    assert!(found.blocks() * 512 < 16 << 20, "{} blocks", found.blocks());
    let copy = std::fs::File::open(&to).expect("it is there");
    let mut middle = [0; 6];
    copy.read_exact_at(&mut middle, 512 << 20).expect("it is long enough");
    assert_eq!(&middle, b"middle");
}

pub async fn a_file_of_proc_is_copied_though_it_says_it_is_empty(env: &FilesTestEnvironment) {
    let to = env.path("to");
    copy(env, Path::new("/proc/version"), &to, false).await.expect("every Linux has it");
    assert_eq!(contents(&to), contents(Path::new("/proc/version")));
}

/// Of files and directories.
pub async fn a_copy_keeps_times_where_it_is_asked_to(env: &FilesTestEnvironment) {
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7);
    let file = env.file("from/sub/file", "x");
    for path in [file, env.path("from/sub"), env.path("from")] {
        std::fs::File::open(path).and_then(|file| file.set_modified(old)).expect("it is ours");
    }
    let modified = |path: &str| std::fs::metadata(env.path(path)).and_then(|found| found.modified()).ok();
    for (to, keep_times) in [("new", false), ("old", true)] {
        let options = CopyOptions { recursive: true, keep_times, ..CopyOptions::default() };
        env.files().copy(&env.path("from"), &env.path(to), options).await.expect("the directory is ours");
        for path in [to.to_owned(), format!("{to}/sub"), format!("{to}/sub/file")] {
            assert_eq!(modified(&path) == Some(old), keep_times, "{path}");
        }
    }
}

pub async fn a_copy_reports_its_progress(env: &FilesTestEnvironment) {
    for number in 0..5 {
        env.file(format!("from/{number}"), vec![1; 100_000]);
    }
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    let progress = move |copied: &Copied| seen.lock().expect("nobody panics with it").push(*copied);
    let options = CopyOptions { recursive: true, progress: Some(Arc::new(progress)), ..CopyOptions::default() };
    let copied = env.files().copy(&env.path("from"), &env.path("to"), options).await;
    let copied = copied.expect("the directory is ours");
    let reports = reports.lock().expect("nobody panics with it");
    assert_eq!(reports.last(), Some(&copied));
    assert!(reports.len() >= 5);
    assert!(reports.is_sorted_by_key(|report| (report.bytes, report.files)));
}
