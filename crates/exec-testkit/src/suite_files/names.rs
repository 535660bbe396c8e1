//! Names and what is known of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_env::files::{
    CreateDirectoryOptions, FileKind, FileReason, FileTimes, LinkPolicy, OpenMode, RemoveOptions, RenameOptions,
    WalkOptions, WriteOptions, limits,
};

use super::{FilesTestEnvironment, contents, names_in, reason};

pub async fn a_folder_is_made_with_its_parents_and_again_without_complaint(env: &FilesTestEnvironment) {
    let path = env.path("a/b/c/d");
    for _ in 0..2 {
        let made = env.files().create_directory(&path, CreateDirectoryOptions::default()).await;
        made.expect("the scratch directory is ours");
        assert!(path.is_dir());
    }
    env.link("link", "a");
    let through = env.path("link/x/y");
    let options = CreateDirectoryOptions { mode: Some(0o711), ..Default::default() };
    env.files().create_directory(&through, options).await.expect("the scratch directory is ours");
    let made = std::fs::metadata(env.path("a/x/y")).expect("it was just made");
    assert_eq!(made.mode() & 0o7777, 0o711);
}

/// EEXIST, or ENOTDIR on the way.
pub async fn a_folder_is_not_made_where_a_file_is(env: &FilesTestEnvironment) {
    let file = env.file("file", "");
    let make = |path: PathBuf| async move {
        reason(env.files().create_directory(&path, CreateDirectoryOptions::default()).await)
    };
    assert_eq!(make(file.clone()).await, Some(FileReason::Os(17)));
    assert_eq!(make(file.join("below")).await, Some(FileReason::Os(20)));
    assert_eq!(make(env.link("dangling", "nowhere")).await, Some(FileReason::Os(17)));
}

pub async fn without_recursive_a_parent_must_exist_and_the_folder_must_not(env: &FilesTestEnvironment) {
    let options = CreateDirectoryOptions { recursive: false, ..Default::default() };
    let make = |path: PathBuf| async move { reason(env.files().create_directory(&path, options).await) };
    assert_eq!(make(env.path("a/b")).await, Some(FileReason::Os(2)));
    assert_eq!(make(env.path("a")).await, None);
    assert_eq!(make(env.path("a")).await, Some(FileReason::Os(17)));
}

pub async fn metadata_tells_what_the_kernel_knows(env: &FilesTestEnvironment) {
    let path = env.file("file", "12345");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("it is ours");
    std::fs::hard_link(&path, env.path("second")).expect("it is ours");
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    let opened = std::fs::File::options().write(true).open(&path).expect("it is ours");
    opened.set_modified(time).expect("it is ours");
    let known = std::fs::metadata(&path).expect("it is there");
    let metadata = env.files().metadata(&path, LinkPolicy::Follow).await.expect("it is there");
    assert_eq!((metadata.kind, metadata.is_symlink, metadata.size_bytes), (FileKind::File, false, 5));
    assert_eq!((metadata.mode, metadata.nlink, metadata.modified), (0o640, 2, time));
    assert_eq!((metadata.uid, metadata.gid), (known.uid(), known.gid()));
    assert_eq!((metadata.inode, metadata.device), (known.ino(), known.dev()));
    assert_eq!(metadata.created, known.created().ok());
    let folder = env.files().metadata(&env.scratch(), LinkPolicy::Refuse).await.expect("it is there");
    assert_eq!(folder.kind, FileKind::Directory);
}

pub async fn metadata_follows_a_link_and_says_that_it_was_one(env: &FilesTestEnvironment) {
    env.file("file", "12345");
    let link = env.link("link", "file");
    let metadata = env.files().metadata(&link, LinkPolicy::Follow).await.expect("it is there");
    assert_eq!((metadata.kind, metadata.is_symlink, metadata.size_bytes), (FileKind::File, true, 5));
}

pub async fn metadata_of_a_dangling_link_is_not_found(env: &FilesTestEnvironment) {
    let link = env.link("link", "nowhere");
    assert_eq!(reason(env.files().metadata(&link, LinkPolicy::Follow).await), Some(FileReason::Os(2)));
}

pub async fn a_path_becomes_canonical(env: &FilesTestEnvironment) {
    let file = env.file("a/b/file", "");
    env.link("link", "a/b");
    let crooked = env.path("a/../link/./file");
    assert_eq!(env.files().canonicalize(&crooked).await, Ok(file));
    assert_eq!(reason(env.files().canonicalize(&env.path("missing")).await), Some(FileReason::Os(2)));
}

/// EEXIST.
pub async fn a_rename_replaces_unless_told_not_to(env: &FilesTestEnvironment) {
    let (one, two) = (env.file("one", "1"), env.file("two", "2"));
    let keep = RenameOptions { no_replace: true, ..Default::default() };
    assert_eq!(reason(env.files().rename(&one, &two, keep).await), Some(FileReason::Os(17)));
    assert_eq!((contents(&one), contents(&two)), (b"1".to_vec(), b"2".to_vec()));
    assert_eq!(reason(env.files().rename(&one, &two, RenameOptions::default()).await), None);
    assert_eq!((names_in(&env.scratch()), contents(&two)), (vec!["two".into()], b"1".to_vec()));
    assert_eq!(reason(env.files().rename(&two, &env.path("three"), keep).await), None);
    assert_eq!(reason(env.files().rename(&two, &one, keep).await), Some(FileReason::Os(2)));
}

pub async fn a_rename_moves_a_link_itself(env: &FilesTestEnvironment) {
    let file = env.file("file", "x");
    let link = env.link("link", "file");
    let moved = env.files().rename(&link, &env.path("moved"), RenameOptions::default()).await;
    moved.expect("the directory is ours");
    assert!(env.path("moved").is_symlink() && file.is_file());
}

/// EXDEV, so that the caller copies instead.
pub async fn a_rename_across_file_systems_is_told(env: &FilesTestEnvironment) {
    let here = env.file("file", "x");
    let there = Path::new("/dev/shm").join(format!("exec-testkit-{}", std::process::id()));
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    if device(Path::new("/dev/shm")).is_none_or(|shm| Some(shm) == device(&here)) {
        eprintln!("not tested: no second file system at /dev/shm");
        return;
    }
    let outcome = env.files().rename(&here, &there, RenameOptions::default()).await;
    assert_eq!(reason(outcome), Some(FileReason::Os(18)));
}

/// All twelve bits.
pub async fn permissions_are_set_with_their_special_bits(env: &FilesTestEnvironment) {
    let path = env.file("file", "");
    for mode in [0o000, 0o4755, 0o1777, 0o644] {
        env.files().set_permissions(&path, mode, LinkPolicy::Follow).await.expect("it is ours");
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o7777, mode);
    }
    let missing = env.files().set_permissions(&env.path("missing"), 0o644, LinkPolicy::Follow).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
}

/// Before 1970 too; those of a link's target only if links may be followed.
pub async fn times_are_set_to_the_nanosecond(env: &FilesTestEnvironment) {
    let path = env.file("file", "");
    let link = env.link("link", "file");
    let epoch = SystemTime::UNIX_EPOCH;
    let span = Duration::new(1_234_567, 89);
    for times in [
        FileTimes { accessed: epoch + span, modified: epoch + 2 * span },
        FileTimes { accessed: epoch, modified: epoch - span },
    ] {
        env.files().set_times(&path, times, LinkPolicy::Refuse).await.expect("it is ours");
        let found = env.files().metadata(&path, LinkPolicy::Follow).await.expect("it is there");
        assert_eq!(found.times(), times);
        let refused = env.files().set_times(&link, times, LinkPolicy::Refuse).await;
        assert_eq!(reason(refused), Some(FileReason::SymlinkInPath));
        env.files().set_times(&link, times, LinkPolicy::Follow).await.expect("it leads to a file of ours");
    }
}

/// Byte for byte; those of other namespaces are neither shown nor changed.
pub async fn attributes_are_set_told_and_removed(env: &FilesTestEnvironment) {
    let path = env.file("file", "");
    let link = env.link("link", "file");
    let (files, follow) = (env.files(), LinkPolicy::Follow);
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    assert_eq!(files.attributes(&path, follow).await, Ok(BTreeMap::new()));
    let both = [(name(b"a.b"), Bytes::from_static(b"\0\xff")), (name(b"\xff"), Bytes::new())];
    let set = both.clone().map(|(name, value)| (name, Some(value))).into();
    files.set_attributes(&path, set, LinkPolicy::Refuse).await.expect("it is ours");
    assert_eq!(files.attributes(&link, follow).await, Ok(both.clone().into()));
    let changes = [(name(b"\xff"), None), (name(b"never there"), None), (name(b"c"), Some(Bytes::from_static(b"1")))];
    files.set_attributes(&link, changes.into(), follow).await.expect("it leads to a file of ours");
    let left = [both[0].clone(), (name(b"c"), Bytes::from_static(b"1"))].into();
    assert_eq!(files.attributes(&path, LinkPolicy::Refuse).await, Ok(left));
    assert_eq!(reason(files.attributes(&link, LinkPolicy::Refuse).await), Some(FileReason::SymlinkInPath));
    let missing = files.set_attributes(&env.path("missing"), [(name(b"c"), None)].into(), follow).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
    let large = [(name(b"l"), Some(Bytes::from(vec![0; limits::ATTRIBUTE_BYTES])))].into();
    let limit_bytes = limits::ATTRIBUTE_BYTES as u64;
    assert_eq!(reason(files.set_attributes(&path, large, follow).await), Some(FileReason::TooLarge { limit_bytes }));
    assert_eq!(
        reason(files.set_attributes(&path, [(name(b"a\0b"), None)].into(), follow).await),
        Some(FileReason::Os(22))
    );
}

/// It need not be a path, nor UTF-8.
pub async fn a_link_reads_back_its_text_byte_for_byte(env: &FilesTestEnvironment) {
    let path = env.path("link");
    let text = Path::new(OsStr::from_bytes(b"../\xff\xfe %41 nowhere"));
    env.files().create_symlink(text, &path, LinkPolicy::Follow).await.expect("the directory is ours");
    assert_eq!(env.files().read_link(&path, LinkPolicy::Follow).await.as_deref(), Ok(text));
    let again = env.files().create_symlink(text, &path, LinkPolicy::Follow).await;
    assert_eq!(reason(again), Some(FileReason::Os(17)));
    let file = env.file("file", "");
    assert_eq!(reason(env.files().read_link(&file, LinkPolicy::Follow).await), Some(FileReason::Os(22)));
}

/// Latin-1, newlines, percent signs, invalid UTF-8: a name is bytes.
pub async fn names_that_are_not_text_work_everywhere(env: &FilesTestEnvironment) {
    for name in [&b"caf\xe9"[..], b"\xff\xfe\xfd", b"a%20b%zz", b"new\nline", b" ", b"\x01\x7f", "日本語".as_bytes()]
    {
        let name = OsStr::from_bytes(name);
        let folder = env.path(name);
        let file = folder.join(name);
        let files = env.files();
        files.create_directory(&folder, CreateDirectoryOptions::default()).await.expect("the directory is ours");
        files.write(&file, Bytes::from_static(b"x"), WriteOptions::default()).await.expect("the directory is ours");
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
        assert_eq!(walked.items.iter().map(|item| item.path()).collect::<Vec<_>>(), [&file]);
        assert_eq!(files.canonicalize(&file).await, Ok(file.clone()));
        let opened = files.open(&file, OpenMode::Read, LinkPolicy::Follow).await.expect("it is ours");
        opened.close().await.expect("nothing can go wrong on a local disk");
        let missing = files.read(&file.join("x"), LinkPolicy::Follow).await.expect_err("a file is no folder");
        assert_eq!((missing.path, missing.reason), (file.join("x"), FileReason::Os(20)));
        files.remove(&folder, RemoveOptions::default()).await.expect("it is ours");
    }
    assert_eq!(names_in(&env.scratch()), Vec::<std::ffi::OsString>::new());
}

/// ENAMETOOLONG.
pub async fn a_name_too_long_is_told(env: &FilesTestEnvironment) {
    let longest = env.path("x".repeat(255));
    let options = WriteOptions::default();
    env.files().write(&longest, Bytes::from_static(b"x"), options).await.expect("that is just allowed");
    let longer = env.path("x".repeat(256));
    let outcome = env.files().write(&longer, Bytes::from_static(b"x"), options).await;
    assert_eq!(reason(outcome), Some(FileReason::Os(36)));
    assert_eq!(reason(env.files().read(&longer, LinkPolicy::Follow).await), Some(FileReason::Os(36)));
}
