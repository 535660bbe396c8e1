//! `cp`: between local and remote, whole, checked, and never outside of the target.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::other_users::OrdinaryUser;
use super::server::{Server, Transport};
use super::support::{Running, code, exec_server, fifo, finish, stderr, stdout};

/// Two directories; commands name the second one as one of the environment `far`.
struct Fixture {
    local: tempfile::TempDir,
    remote: tempfile::TempDir,
    server: Server,
}

impl Fixture {
    fn new(transport: Transport) -> Self {
        let server = Server::start(transport);
        server.name("far");
        let folder = || tempfile::tempdir().expect("a folder can be made");
        Self { local: folder(), remote: folder(), server }
    }

    fn local(&self, name: &str) -> PathBuf {
        self.local.path().join(name)
    }

    fn remote(&self, name: &str) -> PathBuf {
        self.remote.path().join(name)
    }

    /// The path as an argument.
    fn remote_arg(&self, name: &str) -> String {
        format!("far:{}", self.remote(name).display())
    }

    fn local_arg(&self, name: &str) -> String {
        self.local(name).display().to_string()
    }

    fn cp(&self, args: &[&str]) -> Output {
        self.server.finish(&[&["cp"], args].concat())
    }
}

const OLD: Duration = Duration::new(1_000_000_000, 123_456_789);

fn age(path: &Path) {
    let file = std::fs::File::open(path).expect("it is ours");
    file.set_modified(SystemTime::UNIX_EPOCH + OLD).expect("it is ours");
}

fn is_old(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path).expect("it is there");
    found.modified().expect("Linux knows it") == SystemTime::UNIX_EPOCH + OLD
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").mode() & 0o7777
}

fn names(folder: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(folder).expect("it is a folder").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

/// Bytes that do not repeat within a block, with a hole in the middle.
fn large(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut bytes: Vec<u8> = words.take(bytes / 8).flatten().collect();
    let middle = bytes.len() / 2;
    let hole = bytes.len() / 8;
    bytes[middle..middle + hole].fill(0);
    bytes
}

fn hash(path: &Path) -> blake3::Hash {
    blake3::hash(&std::fs::read(path).expect("it is there"))
}

/// Every look at this file finds another text, as with one that is being written.
#[test]
fn a_file_that_changes_while_it_is_copied_leaves_the_target_as_it_was() {
    let fixture = Fixture::new(Transport::Unix);
    std::fs::write(fixture.local("there"), "old").expect("the folder is ours");
    for (name, after) in [("there", Some("old")), ("new", None)] {
        let output = fixture.cp(&["far:/proc/sys/kernel/random/uuid", &fixture.local_arg(name)]);
        assert_eq!(code(&output), 1);
        assert!(stderr(&output).contains("changed while it was copied"), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(fixture.local(name)).ok().as_deref(), after);
    }
}

#[test]
fn a_large_file_arrives_there_and_back_with_mode_and_time() {
    for transport in [Transport::WebSocket, Transport::Unix] {
        let fixture = Fixture::new(transport);
        std::fs::write(fixture.local("large"), large(64 << 20)).expect("the folder is ours");
        chmod(&fixture.local("large"), 0o750);
        age(&fixture.local("large"));
        let there = fixture.cp(&["--json", &fixture.local_arg("large"), &fixture.remote_arg("copy")]);
        assert_eq!((stderr(&there), code(&there)), ("", 0), "{transport:?}");
        let lines: Vec<Value> =
            stdout(&there).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
        let file = lines.iter().find(|line| line["event"] == "file").expect("it is told");
        assert_eq!(file["hash"], json!(hash(&fixture.local("large")).to_hex().to_string()));
        assert_eq!(file["to"], json!({"environment": "far", "path": fixture.remote_arg("copy")[4..]}));
        let done = lines.last().expect("it is told");
        assert_eq!((&done["event"], &done["files"], &done["bytes"]), (&json!("done"), &json!(1), &json!(64 << 20)));
        let back = fixture.cp(&["-q", &fixture.remote_arg("copy"), &fixture.local_arg("back")]);
        assert_eq!((stdout(&back), stderr(&back), code(&back)), ("", "", 0), "{transport:?}");
        for path in [fixture.remote("copy"), fixture.local("back")] {
            assert_eq!(hash(&path), hash(&fixture.local("large")), "{path:?}");
            assert!(mode(&path) == 0o750 && is_old(&path), "{path:?}");
        }
        let blocks = std::fs::metadata(fixture.remote("copy")).expect("it is there").blocks();
        assert!(blocks * 512 < 60 << 20, "the hole is one there, too: {blocks} blocks");
        assert_eq!(names(fixture.remote.path()), ["copy"], "nothing temporary is left");
    }
}

/// A tree with all the difficult cases.
fn write_tree(root: &Path) {
    std::fs::create_dir_all(root.join("sub/empty")).expect("the folder is ours");
    std::fs::write(root.join("sub/file"), "contents").expect("the folder is ours");
    std::fs::write(root.join("zero"), "").expect("the folder is ours");
    std::fs::write(root.join(OsString::from_vec(b"n\xff\n".to_vec())), "no text").expect("the folder is ours");
    std::fs::write(root.join("large"), large(4 << 20)).expect("the folder is ours");
    symlink("sub/file", root.join("link")).expect("the folder is ours");
    symlink("/nowhere/at/all", root.join("dangling")).expect("the folder is ours");
    chmod(&root.join("sub/file"), 0o600);
    chmod(&root.join("sub/empty"), 0o711);
    for name in ["sub/file", "zero", "large", "sub/empty", "sub", ""] {
        age(&root.join(name));
    }
}

fn check(copy: &Path, original: &Path) {
    assert_eq!(names(copy), names(original));
    assert_eq!(names(&copy.join("sub")), ["empty", "file"]);
    assert_eq!(names(&copy.join("sub/empty")), [""; 0]);
    assert_eq!(
        std::fs::read(copy.join(OsString::from_vec(b"n\xff\n".to_vec()))).ok().as_deref(),
        Some(&b"no text"[..])
    );
    assert_eq!(hash(&copy.join("large")), hash(&original.join("large")));
    assert_eq!(std::fs::read_link(copy.join("link")).ok(), Some("sub/file".into()));
    assert_eq!(std::fs::read_link(copy.join("dangling")).ok(), Some("/nowhere/at/all".into()));
    assert_eq!((mode(&copy.join("sub/file")), mode(&copy.join("sub/empty"))), (0o600, 0o711));
    for name in ["sub/file", "zero", "large", "sub/empty", "sub", ""] {
        assert!(is_old(&copy.join(name)), "{name:?} is as old as it was");
    }
}

#[test]
fn a_tree_arrives_there_and_back_and_within_each_machine() {
    for transport in [Transport::WebSocket, Transport::Unix] {
        let fixture = Fixture::new(transport);
        write_tree(&fixture.local("tree"));
        let ways = [
            (fixture.local_arg("tree"), fixture.remote_arg("there"), fixture.remote("there")),
            (fixture.remote_arg("there"), fixture.local_arg("back"), fixture.local("back")),
            (fixture.remote_arg("there"), fixture.remote_arg("again"), fixture.remote("again")),
            (fixture.local_arg("tree"), fixture.local_arg("beside"), fixture.local("beside")),
        ];
        for (from, to, copy) in ways {
            let output = fixture.cp(&["-r", &from, &to]);
            assert_eq!((stdout(&output), code(&output)), ("", 0), "{from} {to}: {}", stderr(&output));
            assert!(
                stderr(&output).contains("copied 4 files, 3 directories, 2 links: 4.0 MiB"),
                "{from} {to}: {}",
                stderr(&output)
            );
            check(&copy, &fixture.local("tree"));
        }
    }
}

#[test]
fn a_tree_over_an_older_copy_of_itself_makes_it_new() {
    let fixture = Fixture::new(Transport::Unix);
    write_tree(&fixture.local("tree"));
    for (to, copy) in
        [(fixture.remote_arg(""), fixture.remote("tree")), (fixture.local_arg("into"), fixture.local("into/tree"))]
    {
        std::fs::create_dir_all(fixture.local("into")).expect("the folder is ours");
        for round in 0..2 {
            let output = fixture.cp(&["-r", &fixture.local_arg("tree"), &to]);
            assert_eq!(code(&output), 0, "{round} {to}: {}", stderr(&output));
            std::fs::write(copy.join("sub/file"), "older").expect("it is ours");
            age(&copy.join("sub"));
        }
        let output = fixture.cp(&["-r", &format!("{}/.", fixture.local_arg("tree")), &format!("{to}/tree")]);
        assert_eq!(code(&output), 0, "{to}: {}", stderr(&output));
        assert_eq!(std::fs::read(copy.join("sub/file")).ok().as_deref(), Some(&b"contents"[..]));
        assert!(!copy.join("tree").exists(), "what is in it was copied, not the directory");
    }
}

#[test]
fn a_directory_needs_r_and_nothing_goes_onto_or_into_itself() {
    let fixture = Fixture::new(Transport::Unix);
    write_tree(&fixture.local("tree"));
    std::fs::write(fixture.local("file"), "x").expect("the folder is ours");
    // The same machine, over a connection: only the inode shows that it is the same file.
    let remote = |name: &str| format!("far:{}", fixture.local(name).display());
    let cases = [
        (vec![fixture.local_arg("tree"), fixture.remote_arg("x")], "it is a directory: say -r"),
        (vec![fixture.local_arg("file"), remote("file")], "onto itself"),
        (vec![fixture.local_arg("file"), fixture.local_arg("file")], "onto itself"),
        (vec!["-r".into(), fixture.local_arg("tree"), remote("tree/sub")], "into itself"),
        (vec!["-r".into(), fixture.local_arg("tree"), remote("tree/sub/new")], "into itself"),
        (vec!["-r".into(), fixture.local_arg("tree"), fixture.local_arg("tree/sub/new")], "into itself"),
        (vec!["-r".into(), format!("{}/.", fixture.local_arg("tree")), remote("tree")], "onto itself"),
        (vec![fixture.local_arg("file"), fixture.local_arg("not/")], "it is no directory"),
        (vec![fixture.local_arg("file"), fixture.local_arg("zero"), fixture.remote_arg("not")], "it is no directory"),
        (vec![fixture.local_arg("nothing"), fixture.remote_arg("x")], "no such file or directory"),
        (vec![fixture.local_arg("file"), fixture.remote_arg("no/such")], "the folder it should be in does not exist"),
    ];
    for (args, why) in cases {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = fixture.cp(&args);
        assert_eq!(code(&output), 1, "{args:?}");
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(names(fixture.remote.path()), [""; 0]);
    assert_eq!(names(&fixture.local("tree/sub")), ["empty", "file"]);
}

#[test]
fn several_files_go_into_a_directory_and_one_that_fails_does_not_stop_the_others() {
    let fixture = Fixture::new(Transport::Unix);
    for name in ["a", "b"] {
        std::fs::write(fixture.local(name), name).expect("the folder is ours");
    }
    let args = [fixture.local_arg("a"), fixture.local_arg("not"), fixture.local_arg("b"), fixture.remote_arg("")];
    let output = fixture.cp(&args.each_ref().map(String::as_str));
    assert_eq!((code(&output), names(fixture.remote.path())), (1, vec!["a".into(), "b".into()]));
    let said = format!("exec-server: cannot look at {:?}: no such file or directory\n", fixture.local_arg("not"));
    assert!(stderr(&output).starts_with(&said), "{}", stderr(&output));
}

#[test]
fn links_in_the_target_lead_no_write_out_of_it() {
    let fixture = Fixture::new(Transport::Unix);
    let outside = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(outside.path().join("file"), "safe").expect("the folder is ours");
    write_tree(&fixture.local("tree"));
    std::fs::create_dir(fixture.remote("tree")).expect("the folder is ours");
    symlink(outside.path(), fixture.remote("tree/sub")).expect("the folder is ours");
    symlink(outside.path().join("file"), fixture.remote("tree/zero")).expect("the folder is ours");
    symlink(outside.path().join("file"), fixture.remote("tree/large")).expect("the folder is ours");
    let output = fixture.cp(&["-r", &fixture.local_arg("tree"), &fixture.remote_arg("")]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("or a link that leads away"), "{}", stderr(&output));
    assert_eq!(names(outside.path()), ["file"]);
    assert_eq!(std::fs::read(outside.path().join("file")).ok().as_deref(), Some(&b"safe"[..]));
    assert_eq!(hash(&fixture.remote("tree/large")), hash(&fixture.local("tree/large")), "the link was replaced");
    assert!(!fixture.remote("tree/zero").is_symlink());
    // A single file is written through a link, as with cp.
    std::fs::write(fixture.local("new"), "new").expect("the folder is ours");
    symlink(outside.path().join("file"), fixture.remote("link")).expect("the folder is ours");
    assert_eq!(code(&fixture.cp(&["-q", &fixture.local_arg("new"), &fixture.remote_arg("link")])), 0);
    assert_eq!(std::fs::read(outside.path().join("file")).ok().as_deref(), Some(&b"new"[..]));
    assert!(fixture.remote("link").is_symlink());
}

#[test]
fn special_files_are_left_out_and_counted() {
    let fixture = Fixture::new(Transport::Unix);
    std::fs::create_dir(fixture.local("tree")).expect("the folder is ours");
    fifo(&fixture.local("tree"));
    let output = fixture.cp(&["-r", &fixture.local_arg("tree"), &fixture.remote_arg("copy")]);
    assert!(stderr(&output).contains("left out 1 FIFOs, sockets or devices"), "{}", stderr(&output));
    assert_eq!(names(&fixture.remote("copy")), [""; 0]);
    let alone = fixture.cp(&[&fixture.local_arg("tree/fifo"), &fixture.remote_arg("x")]);
    assert!(code(&alone) == 1 && stderr(&alone).contains("is a FIFO, a socket or a device"), "{alone:?}");
    std::fs::write(fixture.local("x"), "x").expect("the folder is ours");
    assert_eq!(code(&fixture.cp(&[&fixture.local_arg("x"), "far:/dev/null"])), 1);
}

#[test]
fn a_path_after_a_colon_alone_is_one_of_the_named_server() {
    let fixture = Fixture::new(Transport::WebSocket);
    std::fs::write(fixture.local("file"), "x").expect("the folder is ours");
    let to = format!(":{}", fixture.remote("copy").display());
    let output = fixture.cp(&["--connect", &fixture.server.url, &fixture.local_arg("file"), &to]);
    assert_eq!((stdout(&output), code(&output)), ("", 0), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("exec-server: copied 1 file: 1 B"), "{}", stderr(&output));
    assert!(fixture.remote("copy").exists());
    let unknown = fixture.cp(&[&fixture.local_arg("file"), "fra:/x"]);
    assert!(stderr(&unknown).contains("there is `local`, `far`"), "{}", stderr(&unknown));
}

#[test]
fn a_file_that_may_not_be_read_leaves_the_target_as_it_was() {
    if rustix::process::geteuid().is_root() {
        eprintln!("not judged: root may read everything");
        return;
    }
    let fixture = Fixture::new(Transport::Unix);
    std::fs::write(fixture.local("secret"), "new").expect("the folder is ours");
    chmod(&fixture.local("secret"), 0o000);
    std::fs::write(fixture.remote("copy"), "old").expect("the folder is ours");
    let output = fixture.cp(&[&fixture.local_arg("secret"), &fixture.remote_arg("copy")]);
    assert_eq!((code(&output), std::fs::read(fixture.remote("copy")).ok().as_deref()), (1, Some(&b"old"[..])));
    assert!(stderr(&output).contains("permission denied"), "{}", stderr(&output));
}

#[test]
fn a_tree_on_one_machine_is_copied_but_for_what_may_not_be_read_which_is_told() {
    let user = OrdinaryUser::new();
    let folder = tempfile::tempdir().expect("a folder can be made");
    chmod(folder.path(), 0o777);
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::create_dir_all(from.join("sub")).expect("the folder is ours");
    for name in ["first", "secret", "sub/secret", "sub/third", "last"] {
        std::fs::write(from.join(name), name).expect("the folder is ours");
    }
    for name in ["secret", "sub/secret"] {
        chmod(&from.join(name), 0o000);
    }
    chmod(&from.join("sub"), 0o775);
    chmod(&from, 0o715);
    let args = ["cp", "-r", "--json", &from.display().to_string(), &to.display().to_string()];
    let output = finish(&mut user.exec_server(&args));
    assert_eq!(code(&output), 1, "{output:?}");
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let failed: Vec<(&Value, &Value)> =
        lines.iter().filter(|line| line["event"] == "failed").map(|line| (&line["reason"], &line["message"])).collect();
    let message = |name: &str| {
        json!(format!("cannot copy {:?}: permission denied to the account that works there", from.join(name)))
    };
    let (first, second) = (message("secret"), message("sub/secret"));
    assert_eq!(failed, [(&json!("EACCES"), &first), (&json!("EACCES"), &second)]);
    let done = lines.last().expect("it is told");
    assert_eq!((&done["event"], &done["files"], &done["directories"]), (&json!("done"), &json!(3), &json!(2)));
    assert_eq!((names(&to), names(&to.join("sub"))), (names_of(["first", "last", "sub"]), names_of(["third"])));
    assert_eq!((mode(&to), mode(&to.join("sub"))), (0o715, 0o775));
}

fn names_of<const N: usize>(names: [&str; N]) -> Vec<OsString> {
    names.map(OsString::from).to_vec()
}

/// The new file is ours: with the bits it would lend our rights, and root's are all.
#[test]
fn a_file_of_another_user_that_is_replaced_from_stdin_loses_set_user_id() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("file");
    std::fs::write(&file, "old").expect("the folder is ours");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65_534), Some(65_534)).expect("root may");
    }
    chmod(&file, 0o6755);
    assert_eq!(code(&finish(&mut exec_server(&["cp", "-", &file.display().to_string()]))), 0);
    assert_eq!((std::fs::read(&file).ok().as_deref(), mode(&file)), (Some(&b""[..]), 0o755));
}

#[test]
fn a_copy_goes_on_when_the_server_dies_and_returns() {
    let mut server = Server::start_durable();
    server.name("far");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, large(24 << 20)).expect("the folder is ours");
    let word = format!("far:{}", to.display());
    let mut child =
        server.command(&["cp", "-q", &from.display().to_string(), &word]).spawn().expect("it can be started");
    // The copy is in progress as soon as the temporary file has something in it.
    let begun = || {
        let sizes = std::fs::read_dir(folder.path()).into_iter().flatten().flatten();
        sizes
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(".exec-server-cp-"))
            .any(|entry| entry.metadata().is_ok_and(|found| found.len() > 0))
    };
    while !begun() && child.try_wait().is_ok_and(|ended| ended.is_none()) {
        std::thread::yield_now();
    }
    server.crash_and_return();
    assert!(child.wait().expect("it is our child").success());
    assert_eq!(hash(&to), hash(&from));
    assert_eq!(names(folder.path()), ["from", "to"]);
}

/// There is something temporary in the folder.
fn has_begun(folder: &Path) -> bool {
    names(folder).iter().any(|name| name.to_string_lossy().starts_with(".exec-server-"))
}

#[test]
fn a_terminal_that_is_closed_in_the_middle_of_a_copy_leaves_nothing_temporary_at_either_end() {
    let fixture = Fixture::new(Transport::Unix);
    let source = std::fs::File::create(fixture.local("large")).expect("the folder is ours");
    std::io::Write::write_all(&mut &source, &large(4 << 20)).expect("the folder is ours");
    // It is not copied before the signal comes, and costs no space.
    source.set_len(64 << 30).expect("the file is ours");
    std::fs::rename(fixture.local("large"), fixture.remote("large")).expect("the folders are ours");
    let there = fixture.remote_arg("copy");
    let here = fixture.local_arg("copy");
    let large = fixture.remote("large").display().to_string();
    let stdin = "x".repeat(3 << 20);
    let cases: [(&[&str], &str, &Path); 4] = [
        (&["cp", "-q", &large, &there], "", fixture.remote.path()),
        (&["cp", "-q", &fixture.remote_arg("large"), &here], "", fixture.local.path()),
        (&["cp", "-q", "-", &there], &stdin, fixture.remote.path()),
        (&["fs", "write", &there], &stdin, fixture.remote.path()),
    ];
    for (args, stdin, folder) in cases {
        let mut running = Running::start(&mut fixture.server.command(args));
        running.type_in(stdin);
        while !has_begun(folder) {
            std::thread::yield_now();
        }
        running.signal(Signal::HUP);
        assert_eq!(running.end().2, 128 + 1, "{args:?}");
        let left: Vec<OsString> = names(folder).into_iter().filter(|name| name != "large").collect();
        assert_eq!(left, [""; 0], "{args:?}");
    }
}

#[test]
fn a_copy_that_is_started_with_nohup_goes_on_when_its_terminal_is_closed() {
    let fixture = Fixture::new(Transport::Unix);
    let binary = exec_server(&[]).get_program().display().to_string();
    let script = format!("trap '' HUP; exec {binary} cp -q - {}", fixture.remote_arg("copy"));
    let mut shell = std::process::Command::new("sh");
    super::support::unconfigured(&mut shell);
    super::server::at_home(&mut shell, &fixture.server.home);
    let mut running = Running::start(shell.args(["-c", &script]));
    running.type_in(&"x".repeat(3 << 20));
    while !has_begun(fixture.remote.path()) {
        std::thread::yield_now();
    }
    running.signal(Signal::HUP);
    running.type_in("end");
    running.close_stdin();
    assert_eq!(running.end(), (String::new(), String::new(), 0));
    assert_eq!(std::fs::metadata(fixture.remote("copy")).map(|copy| copy.len()).ok(), Some((3 << 20) + 3));
}

#[test]
fn the_words_of_cp_and_fs_are_in_help_manual_and_completions() {
    let completions = finish(&mut exec_server(&["completions", "bash"]));
    for verb in ["ls", "cat", "stat", "rm", "mkdir", "mv", "find", "grep", "watch"] {
        let help = finish(&mut exec_server(&["fs", verb, "--help"]));
        let manual = finish(&mut exec_server(&["man", "fs", verb]));
        assert_eq!((code(&help), code(&manual)), (0, 0), "{verb}");
        assert!(stdout(&help).contains("ENV:PATH") && stdout(&manual).contains("ENV:PATH"), "{verb}");
        assert!(
            stdout(&completions).contains(&format!("exec__server__subcmd__fs__subcmd__{verb}"))
                || stdout(&completions).contains(&format!("exec__server__fs__{verb}")),
            "{verb}"
        );
    }
    let manual = finish(&mut exec_server(&["man", "cp"]));
    assert!(stdout(&manual).contains("ENV:PATH") && stdout(&manual).contains("\\-\\-recursive"));
}
