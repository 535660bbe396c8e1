//! Files under a policy: what it allows works as ever, and what it does not is answered as the kernel answers it.
//!
//! `EROFS` where something may only be read, `EACCES` where it is denied, `ENOENT` where no rule names it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxPolicy};
use exec_env::files::{
    Change, CopyOptions, CreateDirectoryOptions, FileKind, FileReason, FileTimes, Files, GlobQuery, HashAlgorithm,
    LinkPolicy, OpenMode, Pattern, RemoveOptions, RenameOptions, SearchItem, SearchQuery, WalkItem, WalkOptions,
    WatchOptions, WriteOptions,
};

use super::{FilesTestEnvironment, contents, names_in, reason};

const ENOENT: Option<FileReason> = Some(FileReason::Os(2));
const EEXIST: Option<FileReason> = Some(FileReason::Os(17));
const EBUSY: Option<FileReason> = Some(FileReason::Os(16));
const EACCES: Option<FileReason> = Some(FileReason::Os(13));
const EROFS: Option<FileReason> = Some(FileReason::Os(30));

const FOLLOW: LinkPolicy = LinkPolicy::Follow;
const REMOVE: RemoveOptions = RemoveOptions { recursive: true, force: false, links: FOLLOW };
const MAKE: CreateDirectoryOptions = CreateDirectoryOptions { recursive: false, links: FOLLOW, mode: None };
const RENAME: RenameOptions = RenameOptions { no_replace: false, links: FOLLOW };
const WALK: WalkOptions = WalkOptions {
    max_depth: 9,
    max_directories: 99,
    max_entries: 99,
    follow_directory_symlinks: false,
    prune_hidden_directories: false,
};

/// The files under these rules; a path with a `*` is a glob.
pub(super) fn under(env: &FilesTestEnvironment, rules: &[(PathBuf, FileAccess)]) -> Arc<dyn Files> {
    let rules = rules.iter().map(|(path, access)| {
        let text = path.to_str().expect("the test's paths are UTF-8");
        let target = match text.contains('*') {
            true => RuleTarget::Glob(text.to_owned()),
            false => RuleTarget::Path(path.clone()),
        };
        FileRule { target, access: *access }
    });
    let files = FilePolicy::Restricted { rules: rules.collect(), glob_scan_depth: None };
    env.files().under_policy(Arc::new(SandboxPolicy { files, network: NetworkPolicy::Restricted }))
}

fn readable() -> (PathBuf, FileAccess) {
    ("/".into(), FileAccess::Read)
}

/// As Codex's preset is: everything is read, the workspace `w` is written but for its `.git`, which needs no rule.
fn workspace(env: &FilesTestEnvironment) -> Arc<dyn Files> {
    under(env, &[readable(), (env.path("w"), FileAccess::Write)])
}

fn bytes() -> Bytes {
    Bytes::from_static(b"new")
}

fn times() -> FileTimes {
    let at = std::time::SystemTime::UNIX_EPOCH;
    FileTimes { accessed: at, modified: at }
}

/// What every verb that changes something says about a file, a directory and a name that is free, all in `dir`.
async fn changing(files: &dyn Files, dir: &Path) -> BTreeMap<&'static str, Option<FileReason>> {
    let (file, folder, free) = (dir.join("file"), dir.join("folder"), dir.join("free"));
    let append = WriteOptions { append: true, ..WriteOptions::default() };
    let deep = CreateDirectoryOptions { recursive: true, ..MAKE };
    BTreeMap::from([
        ("write", reason(files.write(&file, bytes(), WriteOptions::default()).await)),
        ("write new", reason(files.write(&free, bytes(), WriteOptions::default()).await)),
        ("append", reason(files.write(&file, bytes(), append).await)),
        ("append new", reason(files.write(&free, bytes(), append).await)),
        ("open", reason(files.open(&file, OpenMode::Replace, FOLLOW).await)),
        ("open new", reason(files.open(&free, OpenMode::Replace, FOLLOW).await)),
        ("open to append", reason(files.open(&file, OpenMode::Append, FOLLOW).await)),
        ("make", reason(files.create_directory(&free, MAKE).await)),
        ("make deep", reason(files.create_directory(&free.join("a/b"), deep).await)),
        ("remove", reason(files.remove(&file, REMOVE).await)),
        ("remove folder", reason(files.remove(&folder, REMOVE).await)),
        ("copy", reason(files.copy(&file, &free, CopyOptions::default()).await)),
        ("copy over", reason(files.copy(&folder.join("inner"), &file, CopyOptions::default()).await)),
        ("copy tree", reason(files.copy(&folder, &free, CopyOptions { recursive: true, ..Default::default() }).await)),
        ("rename", reason(files.rename(&file, &free, RENAME).await)),
        ("permissions", reason(files.set_permissions(&file, 0o777, FOLLOW).await)),
        ("times", reason(files.set_times(&file, times(), FOLLOW).await)),
        ("attributes", reason(files.set_attributes(&file, [("a".into(), Some(bytes()))].into(), FOLLOW).await)),
        ("symlink", reason(files.create_symlink(Path::new("file"), &free, FOLLOW).await)),
    ])
}

/// What every verb that looks says about a file and a directory in `dir`.
async fn looking(files: &dyn Files, dir: &Path) -> BTreeMap<&'static str, Option<FileReason>> {
    let (file, folder) = (dir.join("file"), dir.join("folder"));
    let search = SearchQuery::new(folder.clone(), Pattern::Literal("x".to_owned()));
    BTreeMap::from([
        ("read", reason(files.read(&file, FOLLOW).await)),
        ("hash", reason(files.hash(&file, HashAlgorithm::Blake3, FOLLOW).await)),
        ("open", reason(files.open(&file, OpenMode::Read, FOLLOW).await)),
        ("metadata", reason(files.metadata(&file, FOLLOW).await)),
        ("attributes", reason(files.attributes(&file, FOLLOW).await)),
        ("canonicalize", reason(files.canonicalize(&file).await)),
        ("list", reason(files.read_directory(&folder).await)),
        ("list a page", reason(files.read_directory_page(&folder, None, 9).await)),
        ("walk", reason(files.walk(&folder, WALK).await)),
        ("walk a page", reason(files.walk_page(&folder, WALK, None).await)),
        ("search", reason(files.search(search).await)),
        ("glob", reason(files.glob(GlobQuery::new(folder.clone(), "**")).await)),
        ("watch", reason(files.watch(&folder, WatchOptions::default()).await)),
    ])
}

fn all(names: BTreeMap<&'static str, Option<FileReason>>) -> Vec<Option<FileReason>> {
    let first = names.values().next().cloned();
    let same = names.values().all(|reason| Some(reason) == first.as_ref());
    assert!(same, "{names:#?}");
    first.into_iter().collect()
}

fn three_names(env: &FilesTestEnvironment, dir: &str) -> PathBuf {
    env.file(format!("{dir}/file"), "x");
    env.file(format!("{dir}/folder/inner"), "x");
    env.path(dir)
}

pub async fn a_read_only_policy_shows_everything_and_changes_nothing(env: &FilesTestEnvironment) {
    let dir = three_names(env, "d");
    let files = under(env, &[readable()]);
    assert_eq!(all(looking(&*files, &dir).await), [None]);
    assert_eq!(all(changing(&*files, &dir).await), [EROFS]);
    assert_eq!(reason(files.read(&dir.join("file"), LinkPolicy::Refuse).await), None);
    assert_eq!(reason(files.metadata(&dir.join("file"), LinkPolicy::Refuse).await), None);
    let refusing = WriteOptions { links: LinkPolicy::Refuse, ..WriteOptions::default() };
    assert_eq!(reason(files.write(&dir.join("file"), bytes(), refusing).await), EROFS);
    assert_eq!(names_in(&dir), ["file", "folder"]);
    assert_eq!(contents(&dir.join("file")), b"x");
}

/// As on a file system that is mounted read-only.
pub async fn what_is_there_or_missing_is_told_before_what_is_not_allowed(env: &FilesTestEnvironment) {
    let dir = three_names(env, "d");
    let files = under(env, &[readable()]);
    let missing = env.path("d/missing");
    assert_eq!(reason(files.read(&missing, FOLLOW).await), ENOENT);
    assert_eq!(reason(files.write(&missing.join("x"), bytes(), WriteOptions::default()).await), ENOENT);
    assert_eq!(reason(files.remove(&missing, REMOVE).await), ENOENT);
    assert_eq!(reason(files.remove(&missing, RemoveOptions { force: true, ..REMOVE }).await), None);
    assert_eq!(reason(files.create_directory(&dir, MAKE).await), Some(FileReason::Os(17)));
    assert_eq!(reason(files.create_directory(&dir, CreateDirectoryOptions { recursive: true, ..MAKE }).await), None);
    assert_eq!(reason(files.write(&dir, bytes(), WriteOptions::default()).await), Some(FileReason::Os(21)));
    assert_eq!(reason(files.set_permissions(&missing, 0o700, FOLLOW).await), ENOENT);
}

pub async fn a_workspace_is_written_and_what_is_protected_in_it_is_not(env: &FilesTestEnvironment) {
    let git = three_names(env, "w/.git");
    let work = env.path("w");
    let outside = three_names(env, "outside");
    let files = workspace(env);
    assert_eq!(all(changing(&*files, &git).await), [EROFS]);
    assert_eq!(all(changing(&*files, &outside).await), [EROFS]);
    assert_eq!(all(looking(&*files, &git).await), [None]);

    files.write(&work.join("new"), bytes(), WriteOptions::default()).await.expect("it may be written");
    files.create_directory(&work.join("a/b"), CreateDirectoryOptions::default()).await.expect("it may be written");
    let copied = work.join("a/copied");
    let tree = CopyOptions { recursive: true, ..Default::default() };
    files.copy(&outside, &copied, tree.clone()).await.expect("one may be read and the other written");
    files.rename(&work.join("new"), &work.join("a/renamed"), RENAME).await.expect("both may be written");
    files.create_symlink(Path::new("renamed"), &work.join("a/link"), FOLLOW).await.expect("it may be written");
    assert_eq!(files.read(&work.join("a/link"), FOLLOW).await, Ok(bytes()));
    files.set_permissions(&work.join("a/link"), 0o640, FOLLOW).await.expect("it may be written");
    let open = files.open(&work.join("blocks"), OpenMode::Replace, FOLLOW).await.expect("it may be written");
    open.write_block(0, bytes()).await.expect("it is open for writing");
    open.close().await.expect("it was written");
    assert_eq!(contents(&work.join("blocks")), b"new");
    files.remove(&copied, REMOVE).await.expect("nothing in it is protected");
    assert_eq!(names_in(&work), [".git", "a", "blocks"]);
    assert_eq!(names_in(&work.join("a")), ["b", "link", "renamed"]);
    // Nothing comes into what is protected or outside, from wherever it is taken.
    assert_eq!(reason(files.copy(&work.join("blocks"), &git.join("file"), CopyOptions::default()).await), EROFS);
    assert_eq!(reason(files.rename(&work.join("blocks"), &outside.join("file"), RENAME).await), EROFS);
    assert_eq!(reason(files.rename(&outside.join("file"), &work.join("taken"), RENAME).await), EROFS);
    assert_eq!(names_in(&git), ["file", "folder"]);
}

/// It is protected before it exists: to whoever changes something it is an empty directory that may only be read.
pub async fn what_is_protected_cannot_be_made_by_somebody_else(env: &FilesTestEnvironment) {
    let work = env.directory("w");
    env.file("w/other/config", "mine");
    let files = workspace(env);
    let git = work.join(".git");
    assert_eq!(reason(files.create_directory(&git, MAKE).await), EEXIST);
    assert_eq!(reason(files.rename(&work.join("other"), &git, RENAME).await), EROFS);
    assert_eq!(reason(files.create_symlink(Path::new("other"), &git, FOLLOW).await), EEXIST);
    assert_eq!(reason(files.write(&git.join("config"), bytes(), WriteOptions::default()).await), EROFS);
    let tree = CopyOptions { recursive: true, ..Default::default() };
    assert_eq!(reason(files.copy(&work.join("other"), &git, tree).await), EROFS);
    assert_eq!(names_in(&work), ["other"]);
}

pub async fn what_is_denied_is_denied_to_every_verb_whether_it_exists_or_not(env: &FilesTestEnvironment) {
    let denied = three_names(env, "w/denied");
    let rules = [readable(), (env.path("w"), FileAccess::Write), (denied.clone(), FileAccess::Deny)];
    let files = under(env, &rules);
    assert_eq!(all(looking(&*files, &denied).await), [EACCES]);
    assert_eq!(all(changing(&*files, &denied).await), [EACCES]);
    assert_eq!(reason(files.read(&denied.join("no/such"), FOLLOW).await), EACCES);
    assert_eq!(reason(files.read_link(&denied.join("file"), FOLLOW).await), EACCES);
    let mask = files.metadata(&denied, FOLLOW).await.expect("its name may be seen");
    assert_eq!((mask.kind, mask.inode, mask.mode), (FileKind::Directory, 0, 0));
    assert_eq!(files.canonicalize(&denied).await, Ok(denied.clone()));
    // Its name is there for all to see; a tree with it in it is not copied, moved or removed.
    let listed = files.read_directory(&env.path("w")).await.expect("it may be read");
    assert_eq!(listed.iter().map(|entry| entry.name.to_str()).collect::<Vec<_>>(), [Some("denied")]);
    let tree = CopyOptions { recursive: true, ..Default::default() };
    assert_eq!(reason(files.copy(&env.path("w"), &env.path("w2"), tree).await), EROFS);
    assert_eq!(reason(files.remove(&denied, REMOVE).await), EACCES);
    assert_eq!(names_in(&denied), ["file", "folder"]);
}

/// A process in the same sandbox has no capabilities, so it would be refused as well, root's included. A policy that denies
/// something takes them from calls that only look, too.
pub async fn what_its_mode_forbids_is_refused_to_every_verb_also_to_root(env: &FilesTestEnvironment) {
    let locked = three_names(env, "w/locked");
    let rules = [readable(), (env.path("w"), FileAccess::Write), (env.path("w/denied"), FileAccess::Deny)];
    let files = under(env, &rules);
    let set_mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&locked, permissions).expect("the scratch directory is ours");
    };
    assert_eq!(all(looking(&*files, &locked).await), [None]);
    set_mode(0);
    assert_eq!(all(looking(&*files, &locked).await), [EACCES]);
    assert_eq!(all(changing(&*files, &locked).await), [EACCES]);
    // Whoever asks without a policy has the rights of the server.
    let is_root = rustix::process::geteuid().is_root();
    let as_server = reason(env.files().read(&locked.join("file"), FOLLOW).await);
    assert_eq!(as_server, if is_root { None } else { EACCES });
    set_mode(0o755);
    assert_eq!(names_in(&locked), ["file", "folder"]);
    assert_eq!(contents(&locked.join("file")), b"x");
}

pub async fn a_denied_pattern_matches_at_any_depth_and_stays_with_its_tree(env: &FilesTestEnvironment) {
    let work = env.directory("w");
    let key = env.file("w/a/b/one.key", "secret needle");
    env.file("w/a/b/plain", "needle");
    env.file("w/free/plain", "");
    let rules = [readable(), (work.clone(), FileAccess::Write), (env.path("w/**/*.key"), FileAccess::Deny)];
    let files = under(env, &rules);
    assert_eq!(reason(files.read(&key, FOLLOW).await), EACCES);
    assert_eq!(reason(files.write(&key, bytes(), WriteOptions::default()).await), EROFS);
    assert_eq!(reason(files.write(&work.join("new.key"), bytes(), WriteOptions::default()).await), EACCES);
    assert_eq!(reason(files.rename(&work.join("a/b/plain"), &work.join("x.key"), RENAME).await), EACCES);
    assert_eq!(files.read(&work.join("a/b/plain"), FOLLOW).await, Ok(Bytes::from_static(b"needle")));
    // Elsewhere the pattern might not match any more.
    assert_eq!(reason(files.rename(&work.join("a"), &work.join("c"), RENAME).await), EACCES);
    assert_eq!(reason(files.remove(&work.join("a"), REMOVE).await), EBUSY);
    files.rename(&work.join("free"), &work.join("freed"), RENAME).await.expect("nothing in it is denied");
    assert_eq!(contents(&key), b"secret needle");
}

pub async fn what_no_rule_names_does_not_exist(env: &FilesTestEnvironment) {
    let work = three_names(env, "w");
    let hidden = three_names(env, "hidden");
    env.link("w/out", &hidden);
    let files = under(env, &[(work.clone(), FileAccess::Write)]);
    assert_eq!(all(looking(&*files, &hidden).await), [ENOENT]);
    assert_eq!(all(changing(&*files, &hidden).await), [ENOENT]);
    assert_eq!(all(looking(&*files, &work.join("out")).await), [ENOENT]);
    for path in [hidden.clone(), hidden.join("file/below"), hidden.join("no/such"), env.path("no/such")] {
        assert_eq!(reason(files.metadata(&path, FOLLOW).await), ENOENT, "{}", path.display());
    }
    // What is on the way to it is a directory with nothing else in it.
    let above = files.metadata(&env.scratch(), FOLLOW).await.expect("it is on the way");
    assert_eq!((above.kind, above.inode, above.mode), (FileKind::Directory, 0, 0));
    let listed = files.read_directory(&env.scratch()).await.expect("it is on the way");
    assert_eq!(listed.iter().map(|entry| entry.name.to_str()).collect::<Vec<_>>(), [Some("w")]);
    assert_eq!(reason(files.write(&env.path("new"), bytes(), WriteOptions::default()).await), ENOENT);
    assert_eq!(all(looking(&*files, &work).await), [None]);
    assert_eq!(files.canonicalize(&work.join("folder/../file")).await, Ok(work.join("file")));
    assert_eq!(reason(files.rename(&work.join("file"), &hidden.join("file"), RENAME).await), ENOENT);
    files.write(&work.join("file"), bytes(), WriteOptions::default()).await.expect("it may be written");
    assert_eq!(contents(&hidden.join("file")), b"x");
}

/// Also where the link does not lead to anything yet, and where it leads up.
pub async fn a_link_gives_no_more_than_the_place_it_leads_to(env: &FilesTestEnvironment) {
    let git = three_names(env, "w/.git");
    let outside = three_names(env, "outside");
    let denied = three_names(env, "denied");
    let work = env.path("w");
    let rules = [
        readable(),
        (work.clone(), FileAccess::Write),
        (git.clone(), FileAccess::Read),
        (denied.clone(), FileAccess::Deny),
    ];
    let files = under(env, &rules);
    for (name, text) in [("to-git", ".git"), ("to-outside", "sub/../../outside")] {
        env.directory("w/sub");
        env.link(Path::new("w").join(name), text);
        assert_eq!(all(changing(&*files, &work.join(name)).await), [EROFS], "{name}");
        assert_eq!(all(looking(&*files, &work.join(name)).await), [None], "{name}");
    }
    env.link("w/to-denied", &denied);
    assert_eq!(all(looking(&*files, &work.join("to-denied")).await), [EACCES]);
    assert_eq!(all(changing(&*files, &work.join("to-denied")).await), [EACCES]);
    let dangling = env.link("w/dangling", "../outside/made");
    assert_eq!(reason(files.write(&dangling, bytes(), WriteOptions::default()).await), EROFS);
    assert_eq!(reason(files.open(&dangling, OpenMode::Replace, FOLLOW).await), EROFS);
    let into_git = env.link("w/into-git", ".git/config");
    assert_eq!(reason(files.write(&into_git, bytes(), WriteOptions::default()).await), EROFS);
    let to_file = env.link("w/to-file", outside.join("file"));
    assert_eq!(reason(files.set_permissions(&to_file, 0o777, FOLLOW).await), EROFS);
    let copied = files.copy(&work.join("to-git/file"), &to_file, CopyOptions::default()).await;
    assert_eq!(reason(copied), EROFS);
    // The link itself is in the workspace.
    assert_eq!(files.read_link(&to_file, FOLLOW).await, Ok(outside.join("file")));
    files.remove(&to_file, REMOVE).await.expect("only the link is removed");
    for dir in [&git, &outside, &denied] {
        assert_eq!(names_in(dir), ["file", "folder"]);
        assert_eq!(contents(&dir.join("file")), b"x");
    }
}

/// A tree is copied into a directory that has a link in it.
pub async fn a_copy_does_not_leave_through_a_link_in_its_destination(env: &FilesTestEnvironment) {
    env.file("w/tree/sub/file", "new");
    let outside = env.file("outside/file", "old");
    env.directory("w/to");
    env.link("w/to/sub", env.path("outside"));
    let files = workspace(env);
    let (tree, to) = (env.path("w/tree"), env.path("w/to"));
    let copied = files.copy(&tree, &to, CopyOptions { recursive: true, ..Default::default() }).await;
    assert_eq!(reason(copied), EROFS);
    assert_eq!((contents(&outside), names_in(&env.path("outside")).len()), (b"old".to_vec(), 1));
}

pub async fn a_directory_with_something_protected_in_it_is_not_moved_or_removed(env: &FilesTestEnvironment) {
    let git = env.file("w/deep/repo/.git/config", "kept");
    env.file("w/other/.git/config", "mine");
    let (work, repo) = (env.path("w"), env.path("w/deep/repo"));
    let rules = [readable(), (work.clone(), FileAccess::Write), (repo.join(".git"), FileAccess::Read)];
    let files = under(env, &rules);
    for moved in [&repo, &env.path("w/deep")] {
        assert_eq!(reason(files.rename(moved, &work.join("away"), RENAME).await), EROFS);
        assert_eq!(reason(files.remove(moved, REMOVE).await), EROFS);
    }
    // Nor does anything take the place of one that is not there.
    let rules = [readable(), (work.clone(), FileAccess::Write), (env.path("w/none/.git"), FileAccess::Read)];
    let files = under(env, &rules);
    assert_eq!(reason(files.rename(&work.join("other"), &work.join("none"), RENAME).await), EROFS);
    assert_eq!(reason(files.create_symlink(Path::new("other"), &work.join("none"), FOLLOW).await), EROFS);
    let tree = CopyOptions { recursive: true, ..Default::default() };
    assert_eq!(reason(files.copy(&work.join("other"), &work.join("none"), tree).await), EROFS);
    assert_eq!(contents(&git), b"kept");
}

/// Its name belongs to the directory above.
pub async fn a_writable_directory_stays_where_it_is(env: &FilesTestEnvironment) {
    let work = env.directory("w");
    env.file("w/file", "");
    let files = under(env, &[readable(), (work.clone(), FileAccess::Write), (env.path("new"), FileAccess::Write)]);
    assert_eq!(reason(files.remove(&work, REMOVE).await), EBUSY);
    assert_eq!(reason(files.rename(&work, &env.path("w2"), RENAME).await), EBUSY);
    assert_eq!(reason(files.create_symlink(Path::new("/etc"), &env.path("new"), FOLLOW).await), EROFS);
    files.create_directory(&env.path("new"), MAKE).await.expect("it may be written, so it may be made");
    assert_eq!(names_in(&work), ["file"]);
}

/// Who may write a directory can put a link where a rule expects another one.
pub async fn a_link_in_the_place_of_a_writable_directory_grants_nothing(env: &FilesTestEnvironment) {
    let outside = three_names(env, "outside");
    let work = env.directory("w");
    let project = env.link("w/project", &outside);
    let rules = [readable(), (work, FileAccess::Write), (project.clone(), FileAccess::Write)];
    let files = under(env, &rules);
    assert_eq!(all(changing(&*files, &outside).await), [EROFS]);
    assert_eq!(all(changing(&*files, &project).await), [EROFS]);
}

/// A link that only others can change is followed, to where it leads now.
pub async fn a_rule_is_about_where_its_link_leads_now(env: &FilesTestEnvironment) {
    let (old, new) = (three_names(env, "old"), three_names(env, "new"));
    let link = env.link("current", "old");
    let files = under(env, &[(link.clone(), FileAccess::Write)]);
    let write = |path: PathBuf| {
        let files = &files;
        async move { reason(files.write(&path, bytes(), WriteOptions::default()).await) }
    };
    assert_eq!([write(old.join("file")).await, write(link.join("file")).await], [None, None]);
    assert_eq!(write(new.join("file")).await, ENOENT);
    std::fs::remove_file(&link).expect("the scratch directory is ours");
    env.link("current", "new");
    assert_eq!([write(new.join("file")).await, write(link.join("file")).await], [None, None]);
    assert_eq!(write(old.join("file")).await, ENOENT);
}

/// Nothing else may be made beside it, so it is not replaced but rewritten.
pub async fn a_file_that_alone_is_writable_is_written_in_place(env: &FilesTestEnvironment) {
    let (file, free) = (env.file("d/file", "old"), env.path("d/free"));
    let before = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&file).expect("it was just made"));
    let files = under(env, &[readable(), (file.clone(), FileAccess::Write), (free.clone(), FileAccess::Write)]);
    files.write(&file, bytes(), WriteOptions::default()).await.expect("it may be written");
    files.write(&free, bytes(), WriteOptions::default()).await.expect("it may be written, so it may be made");
    assert_eq!((contents(&file), contents(&free)), (b"new".to_vec(), b"new".to_vec()));
    let after = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&file).expect("it is there"));
    assert_eq!(before, after);
    assert_eq!(reason(files.write(&env.path("d/other"), bytes(), WriteOptions::default()).await), EROFS);
    // The kernel asks the read-only directory before the mount that the file is.
    assert_eq!(reason(files.remove(&file, REMOVE).await), EROFS);
    assert_eq!(names_in(&env.path("d")), ["file", "free"]);
}

pub async fn nothing_of_proc_exists_under_a_policy(env: &FilesTestEnvironment) {
    let link = env.link("w", "/proc/self/environ");
    let cwd = env.link("cwd", "/proc/self/cwd/../../../etc/passwd");
    let files = under(env, &[readable()]);
    let paths =
        ["/proc", "/proc/self", "/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/1/cmdline", "/dev/fd/0"];
    for path in paths.into_iter().map(Path::new).chain([link.as_path(), cwd.as_path()]) {
        let outcomes = [
            reason(files.read(path, FOLLOW).await),
            reason(files.open(path, OpenMode::Read, FOLLOW).await),
            reason(files.canonicalize(path).await),
            reason(files.hash(path, HashAlgorithm::Sha256, FOLLOW).await),
            reason(files.copy(path, &env.path("copied"), CopyOptions::default()).await)
                .filter(|_| !path.starts_with(env.scratch()))
                .or(ENOENT),
            reason(files.read_directory(path).await),
        ];
        assert_eq!(outcomes, [ENOENT; 6], "{}", path.display());
    }
    let root = files.read_directory(Path::new("/")).await.expect("it may be read");
    assert!(root.iter().all(|entry| entry.name != "proc"));
}

pub async fn walks_searches_and_globs_keep_to_what_may_be_read(env: &FilesTestEnvironment) {
    let work = env.directory("w");
    env.file("w/.gitignore", "ignored\n");
    env.file("w/ignored", "needle");
    env.file("w/plain", "needle");
    env.file("w/sub/inner", "needle");
    env.file("w/denied/inner", "needle");
    env.file("w/sub/one.key", "needle");
    env.file("outside/found", "needle");
    env.link("w/out", env.path("outside"));
    env.link("w/.ignore", env.path("outside/found"));
    let rules = [
        (work.clone(), FileAccess::Write),
        (work.join("denied"), FileAccess::Deny),
        (work.join("**/*.key"), FileAccess::Deny),
    ];
    let files = under(env, &rules);
    let below = |path: &Path| path.strip_prefix(&work).expect("it stays below its root").display().to_string();

    let walked = files.walk(&work, WalkOptions { follow_directory_symlinks: true, ..WALK }).await;
    let mut entries = Vec::new();
    let mut unreadable = Vec::new();
    for item in walked.expect("it may be read").items {
        match item {
            WalkItem::Entry(entry) => entries.push(below(&entry.path)),
            WalkItem::Unreadable(error) => unreadable.push((below(&error.path), Some(error.reason))),
        }
    }
    assert_eq!(entries, [".gitignore", "denied", "ignored", "plain", "sub", "sub/inner", "sub/one.key"]);
    assert_eq!(unreadable, [("denied".to_owned(), EACCES)]);

    let globbed = files.glob(GlobQuery::new(work.clone(), "**")).await.expect("it may be read");
    let paths: Vec<String> = globbed.paths.iter().map(|path| below(path)).collect();
    assert_eq!(paths, [".gitignore", ".ignore", "out", "plain", "sub", "sub/inner"]);

    let mut query = SearchQuery::new(work.clone(), Pattern::Literal("needle".to_owned()));
    query.follow_symlinks = true;
    let mut found = files.search(query).await.expect("it may be read");
    let mut hits = Vec::new();
    while let SearchItem::Lines(lines) = found.next().await.expect("the files are ours") {
        hits.push(below(&lines.path));
    }
    assert_eq!(hits, ["plain", "sub/inner"]);
}

pub async fn a_watch_reports_what_may_be_read(env: &FilesTestEnvironment) {
    let work = env.directory("w");
    env.directory("w/denied");
    let files = under(env, &[(work.clone(), FileAccess::Write), (work.join("denied"), FileAccess::Deny)]);
    let mut changes = files.watch(&work, WatchOptions::default()).await.expect("the kernel has watches left");
    env.file("w/denied/unseen", "");
    let seen = env.file("w/seen", "");
    loop {
        let batch = changes.next().await.expect("the watch works").expect("the root is there");
        assert!(!batch.changes.contains(&Change::Created(work.join("denied/unseen"))), "{batch:?}");
        if batch.changes.contains(&Change::Created(seen.clone())) || batch.overflow.is_some() {
            break;
        }
    }
}

pub async fn only_what_may_be_seen_is_waited_for(env: &FilesTestEnvironment) {
    let work = env.directory("w");
    env.directory("hidden");
    let files = under(env, &[(work.clone(), FileAccess::Write), (work.join("denied"), FileAccess::Deny)]);
    for path in [env.path("hidden/soon"), work.join("denied"), work.join("denied/soon")] {
        let watched = files.watch_missing(std::slice::from_ref(&path), None).await.expect("that is no error");
        assert!(watched.is_none(), "{}", path.display());
    }
    let soon = work.join("soon");
    let watched = files.watch_missing(std::slice::from_ref(&soon), None).await.expect("that is no error");
    let mut watched = watched.expect("it may be seen, and is not there yet");
    env.file("w/soon", "");
    watched.changed().await;
}
