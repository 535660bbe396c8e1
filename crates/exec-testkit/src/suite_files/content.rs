//! Whole files: read, replace, append, expect.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use bytes::Bytes;
use exec_env::files::{ContentHash, ExpectedFile, FileHash, FileReason, HashAlgorithm, LinkPolicy, WriteOptions};
use futures_util::future::join_all;

use super::{FilesTestEnvironment, contents, names_in, reason};

fn hash_of(bytes: impl AsRef<[u8]>) -> ContentHash {
    ContentHash(blake3::hash(bytes.as_ref()))
}

async fn write(
    env: &FilesTestEnvironment,
    path: &std::path::Path,
    text: &str,
    options: WriteOptions,
) -> Option<FileReason> {
    reason(env.files().write(path, Bytes::copy_from_slice(text.as_bytes()), options).await)
}

fn mode_of(path: &std::path::Path) -> u32 {
    std::fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

/// Every byte value, and an empty file.
pub async fn a_file_reads_as_it_was_written(env: &FilesTestEnvironment) {
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for bytes in [Vec::new(), all] {
        let path = env.path("file");
        let wrote = env.files().write(&path, Bytes::from(bytes.clone()), WriteOptions::default()).await;
        wrote.expect("the directory is ours");
        assert_eq!(contents(&path), bytes);
        let read = env.files().read(&path, LinkPolicy::Follow).await.expect("it was just written");
        assert_eq!(read, bytes);
    }
}

pub async fn a_missing_file_is_not_found_and_names_its_path(env: &FilesTestEnvironment) {
    let path = env.path("nothing/here");
    let error = env.files().read(&path, LinkPolicy::Follow).await.expect_err("it does not exist");
    assert_eq!((error.reason.clone(), error.path.clone()), (FileReason::Os(2), path));
    assert_eq!(error.reason.to_string(), "No such file or directory (os error 2)");
}

pub async fn a_new_file_has_mode_0666_less_the_umask(env: &FilesTestEnvironment) {
    let like = env.file("like", "");
    assert_eq!(write(env, &env.path("new"), "x", WriteOptions::default()).await, None);
    assert_eq!(mode_of(&env.path("new")), mode_of(&like));
}

/// Although it is another inode.
pub async fn a_replaced_file_keeps_its_mode_and_attributes(env: &FilesTestEnvironment) {
    let path = env.file("file", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).expect("it is ours");
    let set = rustix::fs::setxattr(&path, "user.colour", b"green", rustix::fs::XattrFlags::empty());
    assert_eq!(write(env, &path, "new", WriteOptions::default()).await, None);
    assert_eq!((contents(&path), mode_of(&path)), (b"new".to_vec(), 0o750));
    if set.is_ok() {
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(&path, "user.colour", &mut value[..]).expect("it was kept");
        assert_eq!(&value[..len], b"green");
    } else {
        eprintln!("attributes not tested: this file system has none");
    }
}

/// And set-user-id, which a change of owner clears.
pub async fn a_replaced_file_keeps_its_owner(env: &FilesTestEnvironment) {
    let path = env.file("file", "old");
    if std::os::unix::fs::chown(&path, Some(12345), Some(54321)).is_err() {
        eprintln!("not tested: only root can give files away");
        return;
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("we are root");
    assert_eq!(write(env, &path, "new", WriteOptions::default()).await, None);
    let found = std::fs::metadata(&path).expect("it is there");
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (12345, 54321, 0o4755));
}

/// Relative links are relative to where they are.
pub async fn a_link_stays_a_link_and_its_target_is_written(env: &FilesTestEnvironment) {
    let target = env.file("deep/target", "old");
    env.link("deep/near", "target");
    let link = env.link("far", "deep/near");
    assert_eq!(write(env, &link, "new", WriteOptions::default()).await, None);
    assert_eq!(contents(&target), b"new");
    assert!(link.is_symlink() && env.path("deep/near").is_symlink());
}

pub async fn a_dangling_link_gets_its_target(env: &FilesTestEnvironment) {
    let link = env.link("link", "target");
    assert_eq!(write(env, &link, "new", WriteOptions::default()).await, None);
    assert_eq!(contents(&env.path("target")), b"new");
    assert!(link.is_symlink());
}

/// ELOOP, not a hang.
pub async fn a_circle_of_links_is_told(env: &FilesTestEnvironment) {
    let one = env.link("one", "two");
    env.link("two", "one");
    assert_eq!(write(env, &one, "x", WriteOptions::default()).await, Some(FileReason::Os(40)));
    assert_eq!(reason(env.files().read(&one, LinkPolicy::Follow).await), Some(FileReason::Os(40)));
}

/// EISDIR and ENOENT.
pub async fn a_folder_cannot_be_written_and_a_missing_one_is_not_made(env: &FilesTestEnvironment) {
    let folder = env.directory("folder");
    assert_eq!(write(env, &folder, "x", WriteOptions::default()).await, Some(FileReason::Os(21)));
    let appended = write(env, &folder, "x", WriteOptions { append: true, ..Default::default() }).await;
    assert_eq!(appended, Some(FileReason::Os(21)));
    let orphan = env.path("missing/file");
    assert_eq!(write(env, &orphan, "x", WriteOptions::default()).await, Some(FileReason::Os(2)));
    let below_file = env.file("file", "").join("x");
    assert_eq!(write(env, &below_file, "x", WriteOptions::default()).await, Some(FileReason::Os(20)));
}

/// Whether the write succeeded or not.
pub async fn no_temporary_file_is_left_beside_what_was_written(env: &FilesTestEnvironment) {
    let folder = env.directory("folder");
    for _ in 0..10 {
        assert_eq!(write(env, &folder.join("file"), "x", WriteOptions::default()).await, None);
    }
    let expect = ExpectedFile::Content(hash_of("other"));
    let refused = write(env, &folder.join("file"), "y", WriteOptions { expect, ..Default::default() }).await;
    assert!(matches!(refused, Some(FileReason::Changed { .. })));
    assert_eq!(names_in(&folder), ["file"]);
}

pub async fn a_reader_sees_the_old_or_the_new_file_but_no_mixture(env: &FilesTestEnvironment) {
    let path = env.file("file", "a".repeat(100_000));
    let writers = (0..10_u8).map(|writer| {
        let path = path.clone();
        async move {
            for _ in 0..20 {
                let bytes = Bytes::from(vec![b'a' + writer; 100_000]);
                env.files().write(&path, bytes, WriteOptions::default()).await.expect("the directory is ours");
            }
        }
    });
    let reader = async {
        for _ in 0..100 {
            let read = env.files().read(&path, LinkPolicy::Follow).await.expect("it is always there");
            assert_eq!(read.len(), 100_000);
            assert!(read.iter().all(|byte| *byte == read[0]));
        }
    };
    futures_util::future::join(join_all(writers), reader).await;
}

/// Also on a file that exists.
pub async fn a_wanted_mode_is_set_whatever_the_umask(env: &FilesTestEnvironment) {
    let path = env.path("file");
    for mode in [0o777, 0o600, 0o666] {
        let options = WriteOptions { mode: Some(mode), ..Default::default() };
        assert_eq!(write(env, &path, "x", options).await, None);
        assert_eq!(mode_of(&path), mode);
    }
}

/// The inode stays the same.
pub async fn an_append_adds_to_the_end_and_creates(env: &FilesTestEnvironment) {
    let path = env.path("file");
    let options = WriteOptions { append: true, ..Default::default() };
    assert_eq!(write(env, &path, "one\n", options).await, None);
    let inode = std::fs::metadata(&path).expect("it is there").ino();
    assert_eq!(write(env, &path, "two\n", options).await, None);
    assert_eq!(contents(&path), b"one\ntwo\n");
    assert_eq!(std::fs::metadata(&path).expect("it is there").ino(), inode);
}

pub async fn appends_at_once_all_arrive(env: &FilesTestEnvironment) {
    let path = env.path("file");
    let options = WriteOptions { append: true, ..Default::default() };
    let lines: Vec<String> = (0..100).map(|line| format!("{line:050}\n")).collect();
    let results = join_all(lines.iter().map(|line| write(env, &path, line, options))).await;
    assert!(results.iter().all(Option::is_none));
    let found = String::from_utf8(contents(&path)).expect("only digits were written");
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>());
}

pub async fn a_write_that_expects_other_contents_is_refused_with_the_present_hash(env: &FilesTestEnvironment) {
    let path = env.file("file", "present");
    let expecting = |text: &str| WriteOptions { expect: ExpectedFile::Content(hash_of(text)), ..Default::default() };
    let refused = write(env, &path, "new", expecting("past")).await;
    assert_eq!(refused, Some(FileReason::Changed { present: Some(hash_of("present")) }));
    assert_eq!(contents(&path), b"present");
    assert_eq!(write(env, &path, "new", expecting("present")).await, None);
    assert_eq!(contents(&path), b"new");
    let missing = write(env, &env.path("missing"), "new", expecting("past")).await;
    assert_eq!(missing, Some(FileReason::Changed { present: None }));
}

/// Compare and swap.
pub async fn of_many_writers_with_one_expectation_exactly_one_wins(env: &FilesTestEnvironment) {
    let path = env.file("file", "0");
    for round in 0..10 {
        let expect = ExpectedFile::Content(hash_of(contents(&path)));
        let options = WriteOptions { expect, ..Default::default() };
        let texts: Vec<String> = (0..8).map(|writer| format!("{round}-{writer}")).collect();
        let results = join_all(texts.iter().map(|text| write(env, &path, text, options))).await;
        let winners: Vec<_> = texts.iter().zip(&results).filter(|(_, result)| result.is_none()).collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        assert_eq!(contents(&path), winners[0].0.as_bytes());
    }
}

pub async fn a_write_that_expects_nothing_finds_something(env: &FilesTestEnvironment) {
    let path = env.path("file");
    let options = WriteOptions { expect: ExpectedFile::Absent, ..Default::default() };
    assert_eq!(write(env, &path, "first", options).await, None);
    let refused = write(env, &path, "second", options).await;
    assert_eq!(refused, Some(FileReason::Changed { present: Some(hash_of("first")) }));
    assert_eq!(contents(&path), b"first");
}

/// What a power cut does cannot be tested here.
pub async fn a_synced_write_arrives_like_any_other(env: &FilesTestEnvironment) {
    let path = env.file("file", "old");
    assert_eq!(write(env, &path, "new", WriteOptions { sync: true, ..Default::default() }).await, None);
    assert_eq!(contents(&path), b"new");
}

/// Although the rename that replaces it would succeed.
pub async fn a_read_only_file_is_refused_to_those_it_is_closed_to(env: &FilesTestEnvironment) {
    let path = env.file("file", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).expect("it is ours");
    let closed = std::fs::OpenOptions::new().write(true).open(&path).is_err();
    let wrote = write(env, &path, "new", WriteOptions::default()).await;
    if closed {
        assert_eq!(wrote, Some(FileReason::Os(13)));
    } else {
        // Root may write anything; the mode stays all the same.
        assert_eq!((wrote, mode_of(&path)), (None, 0o444));
    }
}

/// The kernel forbids writing into it (ETXTBSY), so it must be renamed over.
pub async fn a_running_program_can_be_replaced(env: &FilesTestEnvironment) {
    let program = env.path("program");
    std::fs::copy("/bin/sleep", &program).expect("every Linux has it");
    let mut child = std::process::Command::new(&program).arg("600").spawn().expect("it is a program");
    let wrote = write(env, &program, "new", WriteOptions::default()).await;
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    assert_eq!((wrote, contents(&program)), (None, b"new".to_vec()));
}

pub async fn a_large_file_arrives_whole(env: &FilesTestEnvironment) {
    let bytes: Vec<u8> = (0..20_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = env.path("file");
    let wrote = env.files().write(&path, Bytes::from(bytes.clone()), WriteOptions::default()).await;
    wrote.expect("the directory is ours");
    let read = env.files().read(&path, LinkPolicy::Follow).await.expect("it was just written");
    assert!(read == bytes);
}

/// The digests are those of other implementations.
pub async fn a_hash_is_the_digest_of_the_contents(env: &FilesTestEnvironment) {
    let (empty, large) = (Vec::new(), (0..=250).cycle().take((3 << 20) + 1).collect());
    for (bytes, blake3, sha256) in [
        (
            empty,
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (
            large,
            "fd984eaa20053d346cc7c79a175338f91556e68b871d877b23568a4587d9875b",
            "fc66cb381d8de4396b685896bfef3b1811ca920b052873bea5227a354fd64f37",
        ),
    ] {
        let path = env.file("file", &bytes);
        for (algorithm, hex) in [(HashAlgorithm::Blake3, blake3), (HashAlgorithm::Sha256, sha256)] {
            let expected = FileHash::from_hex(hex, bytes.len() as u64).expect("64 digits");
            assert_eq!(expected.hex(), hex);
            assert_eq!(env.files().hash(&path, algorithm, LinkPolicy::Refuse).await, Ok(expected), "{algorithm:?}");
        }
    }
}

/// As in [`super::special`] for reading: nothing is opened for real that is no regular file.
pub async fn a_hash_is_of_regular_files_only(env: &FilesTestEnvironment) {
    let file = env.file("file", "contents");
    let link = env.link("link", "file");
    let hash = async |path: &std::path::Path, links| env.files().hash(path, HashAlgorithm::Blake3, links).await;
    assert_eq!(hash(&link, LinkPolicy::Follow).await, hash(&file, LinkPolicy::Refuse).await);
    assert_eq!(reason(hash(&link, LinkPolicy::Refuse).await), Some(FileReason::Os(40)));
    assert_eq!(reason(hash(&env.path("missing"), LinkPolicy::Follow).await), Some(FileReason::Os(2)));
    for path in [env.directory("folder"), env.fifo("fifo")] {
        assert_eq!(reason(hash(&path, LinkPolicy::Follow).await), Some(FileReason::NotAFile));
        assert_eq!(reason(hash(&path, LinkPolicy::Refuse).await), Some(FileReason::NotRegular));
    }
}
