//! Names and what is known of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_env::files::{
    CreateDirectoryOptions, FileKind, LinkPolicy, OpenMode, FileReason, RemoveOptions, RenameOptions, FileTimes, WalkOptions,
    WriteOptions,
};

use super::{FilesBench, contents, names_in, reason};

/// Idempotent.
pub async fn a_folder_is_made_with_its_parents_and_again_without_complaint(bench: &FilesBench) {
    let path = bench.path("a/b/c/d");
    for _ in 0..2 {
        let made = bench.files().create_directory(&path, CreateDirectoryOptions::default()).await;
        made.expect("the scratch folder is ours");
        assert!(path.is_dir());
    }
    bench.link("link", "a");
    let through = bench.path("link/x/y");
    let options = CreateDirectoryOptions { mode: Some(0o711), ..Default::default() };
    bench.files().create_directory(&through, options).await.expect("the scratch folder is ours");
    let made = std::fs::metadata(bench.path("a/x/y")).expect("it was just made");
    assert_eq!(made.mode() & 0o7777, 0o711);
}

/// EEXIST, or ENOTDIR on the way.
pub async fn a_folder_is_not_made_where_a_file_is(bench: &FilesBench) {
    let file = bench.file("file", "");
    let make = |path: PathBuf| async move {
        reason(bench.files().create_directory(&path, CreateDirectoryOptions::default()).await)
    };
    assert_eq!(make(file.clone()).await, Some(FileReason::Os(17)));
    assert_eq!(make(file.join("below")).await, Some(FileReason::Os(20)));
    assert_eq!(make(bench.link("dangling", "nowhere")).await, Some(FileReason::Os(17)));
}

/// As mkdir without -p.
pub async fn without_recursive_a_parent_must_exist_and_the_folder_must_not(bench: &FilesBench) {
    let options = CreateDirectoryOptions { recursive: false, ..Default::default() };
    let make = |path: PathBuf| async move { reason(bench.files().create_directory(&path, options).await) };
    assert_eq!(make(bench.path("a/b")).await, Some(FileReason::Os(2)));
    assert_eq!(make(bench.path("a")).await, None);
    assert_eq!(make(bench.path("a")).await, Some(FileReason::Os(17)));
}

/// To the nanosecond.
pub async fn metadata_tells_what_the_kernel_knows(bench: &FilesBench) {
    let path = bench.file("file", "12345");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("it is ours");
    std::fs::hard_link(&path, bench.path("second")).expect("it is ours");
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    let opened = std::fs::File::options().write(true).open(&path).expect("it is ours");
    opened.set_modified(time).expect("it is ours");
    let known = std::fs::metadata(&path).expect("it is there");
    let told = bench.files().metadata(&path, LinkPolicy::Follow).await.expect("it is there");
    assert_eq!((told.kind, told.is_symlink, told.size_bytes), (FileKind::File, false, 5));
    assert_eq!((told.mode, told.nlink, told.modified), (0o640, 2, time));
    assert_eq!((told.uid, told.gid), (known.uid(), known.gid()));
    assert_eq!((told.inode, told.device), (known.ino(), known.dev()));
    assert_eq!(told.created, known.created().ok());
    let folder = bench.files().metadata(&bench.scratch(), LinkPolicy::Refuse).await.expect("it is there");
    assert_eq!(folder.kind, FileKind::Directory);
}

/// Type, size and times are the target's.
pub async fn metadata_follows_a_link_and_says_that_it_was_one(bench: &FilesBench) {
    bench.file("file", "12345");
    let link = bench.link("link", "file");
    let told = bench.files().metadata(&link, LinkPolicy::Follow).await.expect("it is there");
    assert_eq!((told.kind, told.is_symlink, told.size_bytes), (FileKind::File, true, 5));
}

/// What it leads to is not there.
pub async fn metadata_of_a_dangling_link_is_not_found(bench: &FilesBench) {
    let link = bench.link("link", "nowhere");
    assert_eq!(reason(bench.files().metadata(&link, LinkPolicy::Follow).await), Some(FileReason::Os(2)));
}

/// realpath.
pub async fn a_path_becomes_canonical(bench: &FilesBench) {
    let file = bench.file("a/b/file", "");
    bench.link("link", "a/b");
    let crooked = bench.path("a/../link/./file");
    assert_eq!(bench.files().canonicalize(&crooked).await, Ok(file));
    assert_eq!(reason(bench.files().canonicalize(&bench.path("missing")).await), Some(FileReason::Os(2)));
}

/// EEXIST.
pub async fn a_rename_replaces_unless_told_not_to(bench: &FilesBench) {
    let (one, two) = (bench.file("one", "1"), bench.file("two", "2"));
    let keep = RenameOptions { no_replace: true, ..Default::default() };
    assert_eq!(reason(bench.files().rename(&one, &two, keep).await), Some(FileReason::Os(17)));
    assert_eq!((contents(&one), contents(&two)), (b"1".to_vec(), b"2".to_vec()));
    assert_eq!(reason(bench.files().rename(&one, &two, RenameOptions::default()).await), None);
    assert_eq!((names_in(&bench.scratch()), contents(&two)), (vec!["two".into()], b"1".to_vec()));
    assert_eq!(reason(bench.files().rename(&two, &bench.path("three"), keep).await), None);
    assert_eq!(reason(bench.files().rename(&two, &one, keep).await), Some(FileReason::Os(2)));
}

/// Its target stays where it is.
pub async fn a_rename_moves_a_link_itself(bench: &FilesBench) {
    let file = bench.file("file", "x");
    let link = bench.link("link", "file");
    let moved = bench.files().rename(&link, &bench.path("moved"), RenameOptions::default()).await;
    moved.expect("the folder is ours");
    assert!(bench.path("moved").is_symlink() && file.is_file());
}

/// EXDEV, for the caller to copy instead.
pub async fn a_rename_across_file_systems_is_told(bench: &FilesBench) {
    let here = bench.file("file", "x");
    let there = Path::new("/dev/shm").join(format!("exec-testkit-{}", std::process::id()));
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    if device(Path::new("/dev/shm")).is_none_or(|shm| Some(shm) == device(&here)) {
        eprintln!("not judged: no second file system at /dev/shm");
        return;
    }
    let outcome = bench.files().rename(&here, &there, RenameOptions::default()).await;
    assert_eq!(reason(outcome), Some(FileReason::Os(18)));
}

/// All twelve bits.
pub async fn permissions_are_set_with_their_special_bits(bench: &FilesBench) {
    let path = bench.file("file", "");
    for mode in [0o000, 0o4755, 0o1777, 0o644] {
        bench.files().set_permissions(&path, mode, LinkPolicy::Follow).await.expect("it is ours");
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o7777, mode);
    }
    let missing = bench.files().set_permissions(&bench.path("missing"), 0o644, LinkPolicy::Follow).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
}

/// To the nanosecond, before 1970 too; a link only where it may be followed.
pub async fn times_are_set_to_the_nanosecond(bench: &FilesBench) {
    let path = bench.file("file", "");
    let link = bench.link("link", "file");
    let epoch = SystemTime::UNIX_EPOCH;
    let span = Duration::new(1_234_567, 89);
    for times in [
        FileTimes { accessed: epoch + span, modified: epoch + 2 * span },
        FileTimes { accessed: epoch, modified: epoch - span },
    ] {
        bench.files().set_times(&path, times, LinkPolicy::Refuse).await.expect("it is ours");
        let found = bench.files().metadata(&path, LinkPolicy::Follow).await.expect("it is there");
        assert_eq!(found.times(), times);
        let refused = bench.files().set_times(&link, times, LinkPolicy::Refuse).await;
        assert_eq!(reason(refused), Some(FileReason::SymlinkInPath));
        bench.files().set_times(&link, times, LinkPolicy::Follow).await.expect("it leads to a file of ours");
    }
}

/// The text need not be a path, nor text.
pub async fn a_link_reads_back_its_text_byte_for_byte(bench: &FilesBench) {
    let path = bench.path("link");
    let text = Path::new(OsStr::from_bytes(b"../\xff\xfe %41 nowhere"));
    bench.files().create_symlink(text, &path, LinkPolicy::Follow).await.expect("the folder is ours");
    assert_eq!(bench.files().read_link(&path, LinkPolicy::Follow).await.as_deref(), Ok(text));
    let again = bench.files().create_symlink(text, &path, LinkPolicy::Follow).await;
    assert_eq!(reason(again), Some(FileReason::Os(17)));
    let file = bench.file("file", "");
    assert_eq!(reason(bench.files().read_link(&file, LinkPolicy::Follow).await), Some(FileReason::Os(22)));
}

/// Latin-1, newlines, percent signs, invalid UTF-8: a name is bytes.
pub async fn names_that_are_not_text_work_everywhere(bench: &FilesBench) {
    for name in [&b"caf\xe9"[..], b"\xff\xfe\xfd", b"a%20b%zz", b"new\nline", b" ", b"\x01\x7f", "日本語".as_bytes()]
    {
        let name = OsStr::from_bytes(name);
        let folder = bench.path(name);
        let file = folder.join(name);
        let files = bench.files();
        files.create_directory(&folder, CreateDirectoryOptions::default()).await.expect("the folder is ours");
        files.write(&file, Bytes::from_static(b"x"), WriteOptions::default()).await.expect("the folder is ours");
        assert_eq!(files.read(&file, LinkPolicy::Refuse).await.as_deref(), Ok(&b"x"[..]));
        let listed = files.read_directory(&folder).await.expect("it is ours");
        assert_eq!(listed.iter().map(|entry| entry.name.as_os_str()).collect::<Vec<_>>(), [name]);
        let options = WalkOptions {
            max_depth: 2,
            max_directories: 10,
            max_entries: 10,
            follow_directory_symlinks: false,
            prune_hidden_directories: false,
        };
        let walked = files.walk(&folder, options).await.expect("it is ours");
        assert_eq!(walked.entries.iter().map(|entry| &entry.path).collect::<Vec<_>>(), [&file]);
        assert_eq!(files.canonicalize(&file).await, Ok(file.clone()));
        let opened = files.open(&file, OpenMode::Read, LinkPolicy::Follow).await.expect("it is ours");
        opened.close().await.expect("nothing can go wrong on a local disk");
        let missing = files.read(&file.join("x"), LinkPolicy::Follow).await.expect_err("a file is no folder");
        assert_eq!((missing.path, missing.reason), (file.join("x"), FileReason::Os(20)));
        files.remove(&folder, RemoveOptions::default()).await.expect("it is ours");
    }
    assert_eq!(names_in(&bench.scratch()), Vec::<std::ffi::OsString>::new());
}

/// ENAMETOOLONG.
pub async fn a_name_too_long_is_told(bench: &FilesBench) {
    let longest = bench.path("x".repeat(255));
    let options = WriteOptions::default();
    bench.files().write(&longest, Bytes::from_static(b"x"), options).await.expect("that is just allowed");
    let longer = bench.path("x".repeat(256));
    let outcome = bench.files().write(&longer, Bytes::from_static(b"x"), options).await;
    assert_eq!(reason(outcome), Some(FileReason::Os(36)));
    assert_eq!(reason(bench.files().read(&longer, LinkPolicy::Follow).await), Some(FileReason::Os(36)));
}
