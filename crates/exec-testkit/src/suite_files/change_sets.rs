//! Several changes at once: all of them or none.

use std::path::Path;

use bytes::Bytes;
use exec_core::sandbox::FileAccess;
use exec_env::files::{ChangeAction, ChangeSet, ContentHash, ExpectedFile, FileChange, FileReason};

use super::policies::under;
use super::{FilesTestEnvironment, contents, names_in, reason};

fn write(path: impl AsRef<Path>, text: &'static str) -> FileChange {
    let action = ChangeAction::Write { bytes: Bytes::from_static(text.as_bytes()), mode: None };
    FileChange { path: path.as_ref().to_owned(), expect: ExpectedFile::Anything, action }
}

fn set(changes: impl IntoIterator<Item = FileChange>) -> ChangeSet {
    ChangeSet { changes: changes.into_iter().collect(), make_directories: true }
}

fn hash(text: &str) -> ContentHash {
    ContentHash(blake3::hash(text.as_bytes()))
}

pub async fn a_change_set_writes_creates_removes_and_renames(env: &FilesTestEnvironment) {
    let (old, gone, from) = (env.file("old", "1"), env.file("gone", "2"), env.file("from", "3"));
    let (new, to) = (env.path("d/e/new"), env.path("d/to"));
    let changes = [
        FileChange { expect: ExpectedFile::Content(hash("1")), ..write(&old, "one") },
        FileChange { expect: ExpectedFile::Absent, ..write(&new, "new") },
        FileChange { path: gone, expect: ExpectedFile::Content(hash("2")), action: ChangeAction::Remove },
        FileChange { path: from, expect: ExpectedFile::Anything, action: ChangeAction::Rename { to: to.clone() } },
    ];
    assert_eq!(env.files().change_set(set(changes)).await, Ok(()));
    assert_eq!((contents(&old), contents(&new), contents(&to)), (b"one".into(), b"new".into(), b"3".into()));
    assert_eq!(names_in(&env.scratch()), ["d", "old"]);
}

pub async fn a_change_set_of_which_one_change_cannot_be_made_makes_none(env: &FilesTestEnvironment) {
    let (one, other) = (env.file("one", "1"), env.file("other", "2"));
    env.file("directory/f", "");
    let missing = env.path("missing");
    let bad = [
        (
            FileChange { expect: ExpectedFile::Content(hash("x")), ..write(&other, "x") },
            FileReason::Changed { present: Some(hash("2")) },
        ),
        (
            FileChange { expect: ExpectedFile::Absent, ..write(&other, "x") },
            FileReason::Changed { present: Some(hash("2")) },
        ),
        (write(env.path("directory"), "x"), FileReason::Os(21)),
        (write(env.path("other/below"), "x"), FileReason::Os(20)),
        (write(env.fifo("fifo"), "x"), FileReason::NotAFile),
        (
            FileChange { path: missing.clone(), expect: ExpectedFile::Anything, action: ChangeAction::Remove },
            FileReason::Os(2),
        ),
        (
            FileChange {
                path: other.clone(),
                expect: ExpectedFile::Anything,
                action: ChangeAction::Rename { to: env.path("directory/f") },
            },
            FileReason::Os(17),
        ),
        // Two changes of one file have no order.
        (write(&one, "x"), FileReason::Os(22)),
    ];
    for (change, expected) in bad {
        let path = change.path.clone();
        let refused = env.files().change_set(set([write(&one, "x"), write(env.path("n/new"), "x"), change])).await;
        let refused = refused.expect_err("one of them cannot be made");
        assert_eq!((refused.reason, refused.path), (expected, path));
        assert_eq!((contents(&one), contents(&other)), (b"1".into(), b"2".into()));
        assert_eq!(names_in(&env.scratch()), ["directory", "fifo", "one", "other"]);
    }
}

pub async fn a_change_set_keeps_modes_and_follows_links(env: &FilesTestEnvironment) {
    use std::os::unix::fs::PermissionsExt;
    let file = env.file("real", "1");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o751)).expect("it is ours");
    let link = env.link("link", "real");
    assert_eq!(env.files().change_set(set([write(&link, "2")])).await, Ok(()));
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((contents(&file), mode, link.is_symlink()), (b"2".into(), 0o751, true));
}

pub async fn a_change_set_of_two_names_of_one_file_parts_them(env: &FilesTestEnvironment) {
    let (one, other) = (env.file("one", "1"), env.path("other"));
    std::fs::hard_link(&one, &other).expect("the scratch directory is ours");
    assert_eq!(env.files().change_set(set([write(&one, "2"), write(&other, "3")])).await, Ok(()));
    assert_eq!((contents(&one), contents(&other)), (b"2".into(), b"3".into()));
}

pub async fn a_change_set_under_a_policy_changes_nothing_outside(env: &FilesTestEnvironment) {
    let (inside, outside) = (env.file("w/in", "1"), env.file("out", "1"));
    env.link("w/way", env.scratch());
    let files = under(env, &[("/".into(), FileAccess::Read), (env.path("w"), FileAccess::Write)]);
    for path in [outside.clone(), env.path("w/way/out"), env.path("w/../new")] {
        let refused = files.change_set(set([write(&inside, "2"), write(path, "2")])).await;
        assert_eq!(reason(refused), Some(FileReason::Os(30)));
    }
    let move_out = ChangeAction::Rename { to: env.path("moved") };
    let refused = FileChange { path: inside.clone(), expect: ExpectedFile::Anything, action: move_out };
    assert_eq!(reason(files.change_set(set([refused])).await), Some(FileReason::Os(30)));
    assert_eq!((contents(&inside), contents(&outside)), (b"1".into(), b"1".into()));
    assert_eq!(names_in(&env.scratch()), ["out", "w"]);
    assert_eq!(files.change_set(set([write(&inside, "2"), write(env.path("w/a/b"), "2")])).await, Ok(()));
    assert_eq!((contents(&inside), contents(&env.path("w/a/b"))), (b"2".into(), b"2".into()));
}

pub async fn change_sets_that_race_are_made_one_after_the_other(env: &FilesTestEnvironment) {
    let (a, b) = (env.file("a", "0"), env.file("b", "0"));
    let texts: Vec<&'static str> = vec!["1", "2", "3", "4", "5", "6"];
    let all = texts.iter().enumerate().map(|(number, text)| {
        let mut changes = vec![write(&a, text), write(&b, text)];
        if number % 2 == 0 {
            changes.reverse();
        }
        env.files().change_set(ChangeSet { changes, make_directories: false })
    });
    let outcomes = futures_util::future::join_all(all).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(contents(&a), contents(&b));
}
