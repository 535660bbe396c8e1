//! Files with the rights of another user. Environments that are not root's refuse, which is asserted instead.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use exec_core::sandbox::FileAccess;
use exec_env::files::{
    Change, ChangeSet, CreateDirectoryOptions, FileReason, Files, LinkPolicy, OpenMode, Pattern, RemoveOptions,
    RenameOptions, SearchItem, SearchQuery, WatchOptions, WriteOptions,
};

use super::policies::under;
use super::{FilesTestEnvironment, contents, reason};

const FOLLOW: LinkPolicy = LinkPolicy::Follow;
const EACCES: Option<FileReason> = Some(FileReason::Os(13));
const ENOENT: Option<FileReason> = Some(FileReason::Os(2));

/// A user that every machine has and that owns nothing, with its primary group.
const USER: &str = "nobody";

/// The user's files; `None` if the environment is not root's: then it refuses, and says so.
async fn as_user(files: &dyn Files) -> Option<Arc<dyn Files>> {
    let refused = match files.as_user(USER).await {
        // At the far end of a connection the first call is refused.
        Ok(files) => match files.metadata(Path::new("/"), FOLLOW).await {
            Ok(_) => return Some(files),
            Err(error) => error.reason,
        },
        Err(reason) => reason,
    };
    let is_root = rustix::process::geteuid().is_root();
    assert!(
        !is_root && matches!(&refused, FileReason::UserUnavailable { why } if why.contains("only root")),
        "{refused:?}"
    );
    None
}

/// Ids of the user and of its primary group, from the machine's own database.
fn ids() -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("every machine has it");
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| fields[0] == USER).expect("every machine has this user");
    let id = |at: usize| fields[at].parse().expect("it is a number");
    (id(2), id(3))
}

fn owner(path: &Path) -> (u32, u32) {
    let metadata = std::fs::symlink_metadata(path).expect("the test knows that it is there");
    (metadata.uid(), metadata.gid())
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the scratch directory is ours");
}

/// A directory that everybody may write, and the way to it.
fn open_directory(env: &FilesTestEnvironment) -> std::path::PathBuf {
    let directory = env.directory("open");
    set_mode(&directory, 0o777);
    let mut above = env.scratch();
    while above != std::env::temp_dir() && above.parent().is_some() {
        set_mode(&above, 0o755);
        above.pop();
    }
    directory
}

pub async fn what_a_user_makes_belongs_to_it_and_its_group(env: &FilesTestEnvironment) {
    let Some(files) = as_user(env.files()).await else { return };
    let open = open_directory(env);
    files.write(&open.join("written"), Bytes::from_static(b"1"), WriteOptions::default()).await.expect("it may");
    let opened = files.open(&open.join("opened"), OpenMode::Replace, FOLLOW).await.expect("it may");
    opened.write_block(0, Bytes::from_static(b"2")).await.expect("it is open");
    opened.close().await.expect("it is open");
    files.create_directory(&open.join("a/b"), CreateDirectoryOptions::default()).await.expect("it may");
    files.create_symlink(Path::new("written"), &open.join("link"), FOLLOW).await.expect("it may");
    for name in ["written", "opened", "a", "a/b", "link"] {
        assert_eq!(owner(&open.join(name)), ids(), "{name}");
    }
    // Whoever asked without a user is what it was.
    env.files().write(&open.join("own"), Bytes::new(), WriteOptions::default()).await.expect("it may");
    assert_eq!(owner(&open.join("own")).0, rustix::process::geteuid().as_raw());
}

pub async fn what_a_user_may_not_reach_is_refused_and_not_told(env: &FilesTestEnvironment) {
    let Some(files) = as_user(env.files()).await else { return };
    open_directory(env);
    let secret = env.file("secret", "s");
    set_mode(&secret, 0o600);
    // The groups of the server are not the user's.
    let of_group = env.file("group", "s");
    set_mode(&of_group, 0o640);
    let closed = env.path("closed");
    std::fs::DirBuilder::new().mode(0o700).create(&closed).expect("the scratch directory is ours");
    let inside = env.file("closed/inside", "s");
    set_mode(&inside, 0o666);
    for path in [&secret, &of_group, &inside] {
        assert_eq!(reason(files.read(path, FOLLOW).await), EACCES, "{path:?}");
        assert_eq!(reason(files.open(path, OpenMode::Read, FOLLOW).await), EACCES, "{path:?}");
        assert_eq!(reason(files.open(path, OpenMode::Replace, FOLLOW).await), EACCES, "{path:?}");
    }
    assert_eq!(reason(files.metadata(&inside, FOLLOW).await), EACCES);
    assert_eq!(reason(files.read_directory(&closed).await), EACCES);
    let watch = WatchOptions { recursive: true, ignore_files: false };
    assert_eq!(reason(files.watch(&closed, watch).await), EACCES);
    assert_eq!(reason(files.remove(&secret, RemoveOptions::default()).await), EACCES);
    let renamed = files.rename(&secret, &env.path("open/taken"), RenameOptions::default()).await;
    assert_eq!(reason(renamed), EACCES);
    let write = files.write(&env.path("new"), Bytes::new(), WriteOptions::default()).await;
    assert_eq!(reason(write), EACCES);
    // A link that the user made leads no further than the user itself.
    let link = env.path("open/link");
    files.create_symlink(&inside, &link, FOLLOW).await.expect("it may");
    assert_eq!(reason(files.read(&link, FOLLOW).await), EACCES);
    assert_eq!(contents(&inside), b"s");
    assert_eq!(env.files().read(&inside, FOLLOW).await.expect("root may"), "s");
}

pub async fn nothing_of_procfs_exists_for_a_user(env: &FilesTestEnvironment) {
    let Some(files) = as_user(env.files()).await else { return };
    // For the kernel the call is made by the server, whose descriptors and settings these are.
    for path in ["/proc/self/fd", "/proc/thread-self/environ", "/proc/sys/kernel/core_pattern", "/dev/fd/0"] {
        assert_eq!(reason(files.read(Path::new(path), FOLLOW).await), ENOENT, "{path}");
    }
    assert_eq!(reason(files.read_directory(Path::new("/proc/self/fd")).await), ENOENT);
}

pub async fn a_user_is_bound_by_a_policy_as_well(env: &FilesTestEnvironment) {
    let open = open_directory(env);
    let bound = under(env, &[("/".into(), FileAccess::Read), (env.path("open/w"), FileAccess::Write)]);
    let Some(files) = as_user(&*bound).await else { return };
    std::fs::create_dir(open.join("w")).expect("the scratch directory is ours");
    set_mode(&open.join("w"), 0o777);
    let write = async |path: &str| reason(files.write(&env.path(path), Bytes::new(), WriteOptions::default()).await);
    assert_eq!(write("open/w/x").await, None);
    assert_eq!(owner(&open.join("w/x")), ids());
    assert_eq!(write("open/x").await, Some(FileReason::Os(30)));
}

pub async fn a_user_watches_and_searches_what_it_may_read(env: &FilesTestEnvironment) {
    let Some(files) = as_user(env.files()).await else { return };
    let open = open_directory(env);
    env.file("open/readable", "needle\n");
    set_mode(&env.file("open/secret", "needle\n"), 0o600);
    let query = SearchQuery::new(&open, Pattern::Literal("needle".to_owned()));
    let mut results = files.search(query).await.expect("it may");
    let mut found = Vec::new();
    while let SearchItem::Lines(lines) = results.next().await.expect("the search goes on") {
        found.push(lines.path);
    }
    assert_eq!(found, [open.join("readable")]);
    let options = WatchOptions { recursive: true, ignore_files: false };
    let mut changes = files.watch(&open, options).await.expect("it may");
    std::fs::write(open.join("new"), "").expect("the scratch directory is ours");
    let batch = changes.next().await.expect("the watch goes on").expect("the directory is there");
    assert!(batch.overflow.is_some() || batch.changes == [Change::Created(open.join("new"))], "{batch:?}");
}

pub async fn there_are_no_change_sets_of_another_user(env: &FilesTestEnvironment) {
    let Some(files) = as_user(env.files()).await else { return };
    let refused = reason(files.change_set(ChangeSet::default()).await);
    assert!(matches!(refused, Some(FileReason::Unsupported { .. })), "{refused:?}");
}

pub async fn files_of_a_user_that_does_not_exist_are_refused(env: &FilesTestEnvironment) {
    let refused = match env.files().as_user("no-such-user").await {
        Ok(files) => reason(files.metadata(Path::new("/"), FOLLOW).await),
        Err(reason) => Some(reason),
    };
    assert!(
        matches!(&refused, Some(FileReason::UserUnavailable { why }) if why.contains("no-such-user")),
        "{refused:?}"
    );
}
