//! The files of this machine: what the waist does not show. The conformance suite runs on them in `exec-testkit`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxPolicy};
use exec_env::Environment as _;
use exec_env::files::{
    Change, CopyOptions, FileError, FileReason, Files, Pattern, RemoveOptions, SearchItem, SearchQuery, WatchOptions,
    WriteOptions,
};
use exec_local::files::LocalFiles;
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};

/// Where the victim of a kill writes.
const VICTIM_FOLDER: &str = "EXEC_LOCAL_VICTIM_FOLDER";

/// Files the victim rewrites, over and over.
const VICTIM_FILES: usize = 1000;

fn victim_contents(letter: u8) -> Vec<u8> {
    vec![letter; 20_000]
}

/// Not a test of its own: the process that [`a_kill_leaves_every_file_old_or_new_and_no_temporary_file`] kills.
#[test]
fn victim_of_a_kill() {
    let Some(folder) = std::env::var_os(VICTIM_FOLDER).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a test can make a runtime");
    runtime.block_on(async {
        let files = LocalFiles::open(Some(&folder.join("registers")));
        println!("ready");
        for letter in (b'b'..=b'z').cycle() {
            for number in 0..VICTIM_FILES {
                let path = folder.join(format!("files/{number}"));
                let bytes = Bytes::from(victim_contents(letter));
                files.write(&path, bytes, WriteOptions::default()).await.expect("the folder is ours");
            }
        }
    });
}

#[test]
fn a_kill_leaves_every_file_old_or_new_and_no_temporary_file() {
    let folder = tempfile::tempdir().expect("a test needs a temporary folder");
    let files = folder.path().join("files");
    std::fs::create_dir(&files).expect("the folder is ours");
    for number in 0..VICTIM_FILES {
        std::fs::write(files.join(format!("{number}")), victim_contents(b'a')).expect("the folder is ours");
    }
    let rounds = std::env::var("EXEC_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let mut left_behind = 0;
    for round in 0..rounds {
        kill_a_victim(folder.path(), round);
        left_behind += temporary_files(&files).len();
        // The next start cleans up.
        drop(LocalFiles::open(Some(&folder.path().join("registers"))));
        assert_eq!(temporary_files(&files), Vec::<PathBuf>::new());
        for number in 0..VICTIM_FILES {
            let contents = std::fs::read(files.join(format!("{number}"))).expect("every file is still there");
            assert_eq!(contents, victim_contents(contents[0]), "file {number} is neither old nor new");
        }
    }
    eprintln!("{left_behind} temporary files were left by {rounds} kills, and cleaned up");
}

/// Starts one and kills it after it has written for a while; how long differs by round, so that kills hit anywhere.
fn kill_a_victim(folder: &Path, round: usize) {
    let mut victim = Command::new(std::env::current_exe().expect("a test knows its own program"))
        .args(["--exact", "files::victim_of_a_kill", "--nocapture"])
        .env(VICTIM_FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("our own program runs");
    let mut lines = BufReader::new(victim.stdout.take().expect("it was piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("ready"))));
    // Wait for an event, not for time: until the file of this round is no longer what it was.
    let watched = folder.join(format!("files/{}", round * 97 % VICTIM_FILES));
    let before = std::fs::read(&watched).expect("every file is there");
    while std::fs::read(&watched).expect("every file is there") == before {}
    victim.kill().expect("it writes until it is killed");
    victim.wait().expect("it was killed");
}

/// What the victim of [`a_killed_call_with_fewer_rights_leaves_its_temporary_file_to_the_next_server`] calls, with which rights.
const VICTIM_CALL: &str = "EXEC_LOCAL_VICTIM_CALL";

const VICTIM_RIGHTS: &str = "EXEC_LOCAL_VICTIM_RIGHTS";

/// Not a test of its own: a process that the kernel kills in the middle of a call, because its file gets too large.
#[test]
fn victim_of_a_limit() {
    let [Some(folder), Some(call), Some(rights)] = [VICTIM_FOLDER, VICTIM_CALL, VICTIM_RIGHTS].map(std::env::var_os)
    else {
        return;
    };
    let folder = PathBuf::from(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a test can make a runtime");
    runtime.block_on(async {
        let files = LocalFiles::open(Some(&folder.join("closed/registers")));
        let files = match rights.to_str() {
            Some("user") => files.as_user("nobody").await.expect("we are root"),
            _ => files.under_policy(std::sync::Arc::new(writing_in(&folder.join("files")))),
        };
        let limit = |bytes| Rlimit { current: Some(bytes), maximum: None };
        setrlimit(Resource::Core, limit(0)).expect("a process may limit itself");
        setrlimit(Resource::Fsize, limit(4096)).expect("a process may limit itself");
        let (source, to) = (folder.join("source"), folder.join("files/new"));
        match call.to_str() {
            Some("copy") => drop(files.copy(&source, &to, CopyOptions::default()).await),
            _ => drop(files.write(&to, Bytes::from(victim_contents(b'a')), WriteOptions::default()).await),
        }
    });
}

/// The server's own directory is not within the reach of these rights, but what is there has to be known to the next server.
#[test]
fn a_killed_call_with_fewer_rights_leaves_its_temporary_file_to_the_next_server() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root has more rights than its calls");
    }
    for (call, rights) in [("write", "user"), ("write", "policy"), ("copy", "user"), ("copy", "policy")] {
        let home = tempfile::tempdir().expect("a test needs a temporary folder");
        let folder = home.path().canonicalize().expect("it exists");
        let (closed, files) = (folder.join("closed"), folder.join("files"));
        for (path, mode) in [(&folder, 0o755), (&closed, 0o700), (&files, 0o777)] {
            std::fs::create_dir_all(path).expect("the folder is ours");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the folder is ours");
        }
        chown(&closed, Some(12_345), Some(12_345)).expect("root may");
        std::fs::write(folder.join("source"), victim_contents(b'a')).expect("the folder is ours");
        let mut victim = Command::new(std::env::current_exe().expect("a test knows its own program"));
        victim.args(["--exact", "files::victim_of_a_limit"]).env(VICTIM_FOLDER, &folder);
        victim.env(VICTIM_CALL, call).env(VICTIM_RIGHTS, rights);
        let ended = victim.output().expect("our own program runs");
        assert_eq!(ended.status.signal(), Some(Signal::XFSZ.as_raw()), "{call} {rights}: {ended:?}");
        assert_eq!(temporary_files(&files).len(), 1, "{call} {rights}");
        drop(LocalFiles::open(Some(&closed.join("registers"))));
        assert_eq!(temporary_files(&files), Vec::<PathBuf>::new(), "{call} {rights}");
    }
}

/// All may be read.
fn writing_in(folder: &Path) -> SandboxPolicy {
    let rule = |path: &Path, access| FileRule { target: RuleTarget::Path(path.to_owned()), access };
    let rules = vec![rule(Path::new("/"), FileAccess::Read), rule(folder, FileAccess::Write)];
    let files = FilePolicy::Restricted { rules, glob_scan_depth: None };
    SandboxPolicy { files, network: NetworkPolicy::Restricted }
}

fn temporary_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is ours");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths.filter(|path| path.to_string_lossy().contains(".exec-server-write-")).collect()
}

#[tokio::test]
async fn an_overflow_is_told_with_the_root_to_look_through_again() {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("every Linux has it");
    let limit: usize = limit.trim().parse().expect("it is a number");
    if limit > 200_000 {
        eprintln!("not judged: a queue of {limit} events takes too long to fill");
        return;
    }
    let folder = tempfile::tempdir().expect("a test needs a temporary folder");
    let root = folder.path().canonicalize().expect("it is there");
    let files = LocalFiles::open(None);
    let mut changes = files.watch(&root, WatchOptions::default()).await.expect("the kernel has watches left");
    // Nobody asks meanwhile, so the kernel's queue has to hold it all, and cannot.
    std::fs::create_dir(root.join("early")).expect("the folder is ours");
    for number in 0..limit {
        std::fs::write(root.join(format!("{number}")), "x").expect("the folder is ours");
    }
    std::fs::create_dir(root.join("late")).expect("the folder is ours");
    loop {
        let batch = changes.next().await.expect("the watch works").expect("the root is there");
        if let Some(rescan) = batch.overflow {
            assert_eq!(rescan, root);
            break;
        }
    }
    // The folder whose creation was lost is watched all the same.
    let inside = root.join("late/inside");
    std::fs::write(&inside, "x").expect("the folder is ours");
    loop {
        let batch = changes.next().await.expect("the watch works").expect("the root is there");
        if batch.changes.contains(&Change::Created(inside.clone())) {
            break;
        }
    }
}

#[tokio::test]
async fn an_abandoned_copy_stops_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a test needs a temporary folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::create_dir(&from).expect("the folder is ours");
    for number in 0..2000 {
        std::fs::write(from.join(format!("{number:04}")), vec![1; 10_000]).expect("the folder is ours");
    }
    let files = LocalFiles::open(None);
    let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
    let progress = move |_: &_| {
        // Full: one report is enough.
        let _told = begun.try_send(());
    };
    let options = exec_env::files::CopyOptions {
        recursive: true,
        keep_times: true,
        progress: Some(std::sync::Arc::new(progress)),
    };
    {
        let copy = files.copy(&from, &to, options);
        tokio::pin!(copy);
        tokio::select! {
            _ = &mut copy => panic!("2,000 files cannot be copied before the first report"),
            _ = has_begun.recv() => {}
        }
    }
    // The reporter is dropped when the copy is over.
    while has_begun.recv().await.is_some() {}
    let copied = std::fs::read_dir(&to).expect("it was begun").count();
    assert!(copied < 2000, "it went on to the end");
    assert_eq!(temporary_files(&to), Vec::<PathBuf>::new());
}

#[cfg(feature = "search")]
#[tokio::test]
async fn long_calls_do_not_keep_short_ones_waiting() {
    let folder = tempfile::tempdir().expect("a test needs a temporary folder");
    let root = folder.path().canonicalize().expect("it is there");
    std::fs::write(root.join("file"), "x\n".repeat(100_000)).expect("the folder is ours");
    let files = LocalFiles::open(None);
    // Searches that nobody reads fill every place there is for searches.
    let mut unread = Vec::new();
    for _ in 0..20 {
        let pattern = exec_env::files::Pattern::Literal("x".to_owned());
        let query =
            exec_env::files::SearchQuery { max_matches: u64::MAX, ..exec_env::files::SearchQuery::new(&root, pattern) };
        unread.push(files.search(query).await.expect("the query is good"));
    }
    let told = files.metadata(&root.join("file"), exec_env::files::LinkPolicy::Follow).await.expect("it is there");
    assert_eq!(told.size_bytes, 200_000);
    let found = files.glob(exec_env::files::GlobQuery::new(&root, "*")).await.expect("the pattern is good");
    assert_eq!(found.paths, [root.join("file")]);
}

/// The files of somebody who may not read everything, and a folder that belongs to nobody in particular.
async fn files_of_an_ordinary_user() -> (Arc<dyn Files>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a test needs a temporary folder");
    set_mode(folder.path(), 0o777);
    let files = LocalFiles::open(None);
    let files = match rustix::process::geteuid().is_root() {
        true => files.as_user("nobody").await.expect("every machine has this user"),
        false => Arc::new(files),
    };
    (files, folder)
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn mode(path: PathBuf) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

/// A tree `from` of which `a/b/secret` and what is in `a/closed` cannot be read.
fn write_unreadable_tree(folder: &Path) {
    let from = folder.join("from");
    std::fs::create_dir_all(from.join("a/b")).expect("the folder is ours");
    std::fs::create_dir_all(from.join("a/closed/deeper")).expect("the folder is ours");
    for name in ["a/b/first", "a/b/secret", "a/b/third", "a/closed/file", "last"] {
        std::fs::write(from.join(name), name).expect("the folder is ours");
    }
    for (name, mode) in [("a/b/secret", 0o000), ("a/closed", 0o311), ("a/b", 0o755), ("a", 0o775), ("", 0o715)] {
        set_mode(&from.join(name), mode);
    }
}

#[tokio::test]
async fn a_copy_that_is_asked_to_go_on_tells_what_it_leaves_out_and_copies_the_rest() {
    let (files, folder) = files_of_an_ordinary_user().await;
    write_unreadable_tree(folder.path());
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let failed = Arc::new(move |error: FileError| {
        tell.lock().expect("nobody panics with it").push((error.path, error.reason));
        Ok(())
    });
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let copied = files.copy_what_can_be(&from, &to, options, failed).await.expect("it goes on");
    assert_eq!((copied.files, copied.directories), (3, 4));
    let denied = FileReason::Os(Errno::ACCESS.raw_os_error());
    let wanted = [(from.join("a/b/secret"), denied.clone()), (from.join("a/closed"), denied)];
    assert_eq!(*told.lock().expect("nobody panics with it"), wanted);
    for name in ["a/b/first", "a/b/third", "last"] {
        assert_eq!(std::fs::read(to.join(name)).ok().as_deref(), Some(name.as_bytes()));
    }
    assert_eq!((mode(to.join("a")), mode(to.join("a/b")), mode(to)), (0o775, 0o755, 0o715));
}

#[tokio::test]
async fn a_copy_that_fails_half_way_leaves_the_folders_it_has_made_with_their_modes() {
    let (files, folder) = files_of_an_ordinary_user().await;
    write_unreadable_tree(folder.path());
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let failed = files.copy(&from, &to, options).await.expect_err("a file cannot be read");
    assert_eq!((failed.path, failed.reason), (from.join("a/b/secret"), FileReason::Os(Errno::ACCESS.raw_os_error())));
    assert!(!to.join("last").exists(), "the first failure ends it");
    assert_eq!((mode(to.join("a")), mode(to.join("a/b")), mode(to)), (0o775, 0o755, 0o715));
}

#[cfg(feature = "search")]
#[tokio::test]
async fn a_search_tells_a_folder_that_may_not_be_read_as_such() {
    let (files, folder) = files_of_an_ordinary_user().await;
    write_unreadable_tree(folder.path());
    let query = SearchQuery::new(folder.path().join("from"), Pattern::Literal("last".to_owned()));
    let mut found = files.search(query).await.expect("the query is good");
    let summary = loop {
        if let SearchItem::Done(summary) = found.next().await.expect("the rest is searched") {
            break summary;
        }
    };
    let problems: Vec<_> = summary.problems.into_iter().map(|problem| (problem.path, problem.reason)).collect();
    let from = folder.path().join("from");
    let denied = FileReason::Os(Errno::ACCESS.raw_os_error());
    assert_eq!(problems, [(from.join("a/b/secret"), denied.clone()), (from.join("a/closed"), denied)]);
    assert_eq!(summary.matches, 1);
}

/// Levels of a tree that is far deeper than a path can be long.
const LEVELS: usize = 10_000;

#[tokio::test]
async fn a_tree_deeper_than_any_path_is_copied_and_removed() {
    let folder = tempfile::tempdir().expect("a test needs a temporary folder");
    let (tree, copy) = (folder.path().join("tree"), folder.path().join("copy"));
    std::fs::create_dir(&tree).expect("the folder is ours");
    let mut dir = OwnedFd::from(File::open(&tree).expect("it was just made"));
    for _ in 0..LEVELS {
        mkdirat(&dir, "d", Mode::RWXU).expect("the folder is ours");
        dir = openat(&dir, "d", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it was just made");
    }
    openat(&dir, "leaf", OFlags::CREATE | OFlags::CLOEXEC, Mode::RWXU).expect("the folder is ours");
    drop(dir);
    let files = LocalFiles::open(None);
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let copied = files.copy(&tree, &copy, options).await.expect("depth is no reason to fail");
    assert_eq!((copied.directories, copied.files), (LEVELS as u64 + 1, 1));
    for path in [tree, copy] {
        files.remove(&path, RemoveOptions::default()).await.expect("depth is no reason to fail");
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn a_hundred_searches_of_one_caller_do_not_delay_that_of_another() {
    let folder = tempfile::tempdir().expect("a test needs a temporary folder");
    std::fs::write(folder.path().join("file"), "needle\n".repeat(1 << 20)).expect("the folder is ours");
    let query = || SearchQuery::new(folder.path(), Pattern::Literal("needle".to_owned()));
    let files = LocalFiles::open(None);
    // Nobody reads what they find, so none of them ends.
    let mut searches = Vec::new();
    for _ in 0..128 {
        searches.push(files.search(SearchQuery { max_matches: u64::MAX, ..query() }).await.expect("the query is good"));
    }
    let other = files.for_caller();
    let mut found = other.search(SearchQuery { max_matches: 1, ..query() }).await.expect("the query is good");
    assert!(matches!(found.next().await, Ok(SearchItem::Lines(_))));
    assert!(matches!(found.next().await, Ok(SearchItem::Done(_))));
    // Whoever leaves frees what its searches had at once, and the first caller is served again.
    drop(searches);
    let mut found = files.search(SearchQuery { max_matches: 1, ..query() }).await.expect("the query is good");
    assert!(matches!(found.next().await, Ok(SearchItem::Lines(_))));
}

/// Whatever the policy says, and under any name.
#[tokio::test]
async fn no_policy_reaches_the_folders_of_the_server_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let top = folder.path().canonicalize().expect("it exists");
    let options = exec_local::LocalOptions { spool_folder: Some(top.join("spool")), ..Default::default() };
    let environment = exec_local::LocalEnvironment::open(options).await.expect("the folder is ours");
    std::os::unix::fs::symlink(top.join("spool"), top.join("link")).expect("the folder is ours");
    let rule = |path: &str, access| FileRule { target: RuleTarget::Path(path.into()), access };
    let rules = vec![rule("/", FileAccess::Write), rule("/no/such", FileAccess::Deny)];
    let files = FilePolicy::Restricted { rules, glob_scan_depth: None };
    let policy = SandboxPolicy { files, network: NetworkPolicy::Restricted };
    let bound = environment.files().under_policy(std::sync::Arc::new(policy));
    for path in ["spool/log", "link/log"] {
        let written = bound.write(&top.join(path), "x".into(), WriteOptions::default()).await;
        assert_eq!(written.map_err(|error| error.reason), Err(FileReason::Os(13)), "{path}");
    }
    bound.write(&top.join("beside"), "x".into(), WriteOptions::default()).await.expect("it may be written");
    environment.end().await;
}
