//! `kill -9` in the middle of changes of several files: afterwards there are all of them or none.
//!
//! The victim (the binary `editor`) does nothing but change sets, so a random moment is nearly always in the middle of one.
//! Half of the kills wait until a change set is decided, which is the moment from which it must be finished by somebody else.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exec_env::files::Files;
use exec_local::files::LocalFiles;
use exec_testkit::os_process::eventually;
use exec_tools::files::{EditManyRequest, EditRequest, FileEdit, FileTools, ReadRequest};
use rustix::process::{Pid, Signal, kill_process};

use super::random_edits::Random;

/// Kills in the normal run; a soak makes ten for each of its rounds, which are a thousand.
const KILLS: u32 = 40;

fn kills() -> u32 {
    std::env::var("EXEC_SOAK_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse::<u32>().ok())
        .map_or(KILLS, |rounds| rounds * 10)
}

struct Victim {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Victim {
    fn start(registry: &Path, directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_editor"));
        command.arg(registry).arg(directory).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the editor was built with this test");
        let mut lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says when it begins");
        assert_eq!(line, "ready\n");
        Self { child, lines }
    }

    fn kill(mut self) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("pids are small")).expect("it is not 0");
        kill_process(pid, Signal::KILL).expect("it is our child");
        self.child.wait().expect("it is our child");
        for line in self.lines.lines() {
            let line = line.expect("a generation");
            assert!(!line.starts_with("failed"), "no change set may fail: {line}");
        }
    }
}

fn begin(directory: &Path) {
    std::fs::create_dir_all(directory.join("deep")).expect("it is ours");
    std::fs::create_dir_all(directory.join("fresh-0")).expect("it is ours");
    for name in ["a", "b", "deep/c", "fresh-0/only-0"] {
        std::fs::write(directory.join(name), "0\n").expect("it is ours");
    }
    std::fs::write(directory.join("moved-0"), "moved\n").expect("it is ours");
}

/// All files below, with their contents.
fn tree(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("it is ours") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else {
            let contents = std::fs::read_to_string(&path).expect("it is text");
            found.insert(path, contents);
        }
    }
    found
}

/// The generation, if all files are of the same, and there is nothing else.
fn generation(directory: &Path) -> u64 {
    let found = tree(directory);
    let number: u64 = found[&directory.join("a")].trim().parse().expect("a number");
    let mut expected = BTreeMap::new();
    for name in ["a".to_owned(), "b".to_owned(), "deep/c".to_owned(), format!("fresh-{number}/only-{number}")] {
        expected.insert(directory.join(name), format!("{number}\n"));
    }
    expected.insert(directory.join(format!("moved-{number}")), "moved\n".to_owned());
    assert_eq!(found, expected);
    number
}

fn decided(journals: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(journals) else { return 0 };
    entries.flatten().filter(|entry| entry.path().extension().is_some_and(|kind| kind == "commit")).count()
}

#[test]
fn killed_at_random_either_all_files_of_a_change_set_are_changed_or_none() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let root = home.path().canonicalize().expect("it exists");
    let (registry, journals, directory) = (root.join("writes"), root.join("change-sets"), root.join("work"));
    begin(&directory);
    let mut random = Random(11);
    let (mut in_the_middle, mut last) = (0, 0);
    for round in 0..kills() {
        let victim = Victim::start(&registry, &directory);
        let moment = Duration::from_micros(random.below(12_000) as u64);
        let began = Instant::now();
        // The delay is what is tested: any moment at all. Half of the time it begins when a change set is decided.
        while round % 2 == 1 && decided(&journals) == 0 && began.elapsed() < Duration::from_secs(20) {}
        let began = Instant::now();
        let moment = if round % 2 == 1 { moment / 20 } else { moment };
        while began.elapsed() < moment {}
        victim.kill();
        in_the_middle += usize::from(decided(&journals) > 0);
        // Whoever opens the files next finishes what was decided, and removes what was not.
        drop(LocalFiles::open(Some(&registry)));
        let now = generation(&directory);
        assert!(now >= last, "round {round}: nothing that was made is undone");
        last = now;
        assert_eq!(std::fs::read_dir(&journals).map_or(0, Iterator::count), 0, "round {round}: no journal is left");
    }
    assert!(last > 0, "the victims did something");
    assert!(
        in_the_middle > kills() as usize / 10,
        "only {in_the_middle} of {} kills hit a decided change set",
        kills()
    );
}

/// The daemon is killed; the client's next call, after the restart, sees all or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_leaves_all_or_none_to_its_successor() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let root = home.path().canonicalize().expect("it exists");
    let (state, work) = (root.join("state"), root.join("work"));
    std::fs::create_dir_all(&work).expect("it is ours");
    let names: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
    for name in &names {
        std::fs::write(work.join(name), "<0>\n").expect("it is ours");
    }
    let mut random = Random(3);
    for _ in 0..kills() / 10 {
        let mut daemon = Daemon::start(&root, &state).await;
        let environment = daemon.connect().await;
        let tools = FileTools::of(&environment, &work).expect("it is absolute");
        let editor = tokio::spawn(async move {
            let mut number = first_number(&tools).await;
            loop {
                let edit = |name: &String| {
                    let (old, new) = (format!("<{number}>"), format!("<{}>", number + 1));
                    FileEdit::Replace(EditRequest::new(name, old, new))
                };
                let edits = names_of(8).iter().map(edit).collect();
                if tools.edit_many(EditManyRequest { edits, make_directories: false }).await.is_err() {
                    return;
                }
                number += 1;
            }
        });
        let began = Instant::now();
        let moment = Duration::from_micros(5_000 + random.below(40_000) as u64);
        while began.elapsed() < moment {
            tokio::task::yield_now().await;
        }
        daemon.kill();
        editor.abort();
        let _aborted = editor.await;
        let mut successor = Daemon::start(&root, &state).await;
        let environment = successor.connect().await;
        let tools = FileTools::of(&environment, &work).expect("it is absolute");
        let number = first_number(&tools).await;
        for name in &names {
            let contents = std::fs::read_to_string(work.join(name)).expect("it is there");
            assert_eq!(contents, format!("<{number}>\n"), "{name}");
        }
        assert_eq!(std::fs::read_dir(&work).expect("it is ours").count(), names.len(), "no side file is left");
        successor.kill();
    }
}

fn names_of(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("f{number}")).collect()
}

async fn first_number(tools: &FileTools) -> u64 {
    let text = tools.read(ReadRequest::new("f0")).await.expect("it is there").text();
    let (_, rest) = text.split_once('<').expect("a number is in angle brackets");
    rest.split_once('>').and_then(|(number, _)| number.parse().ok()).expect("it is a number")
}

/// The real `exec-server serve` on a state directory.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    async fn start(root: &Path, state: &Path) -> Self {
        let socket = root.join("exec.sock");
        let _old = std::fs::remove_file(&socket);
        let mut command = Command::new(exec_testkit::binaries::exec_server());
        command.args(["serve", "--listen"]).arg(format!("unix://{}", socket.display()));
        command.arg("--state-dir").arg(state).args(["--max-detached-ttl", "1s", "--detached-ttl", "1s"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("exec-server can be started");
        eventually("the daemon listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok()).await;
        Self { child, socket }
    }

    async fn connect(&self) -> exec_client::RemoteEnvironment {
        let target = format!("unix://{}", self.socket.display()).parse().expect("a URL");
        let dial = exec_client::TargetDial::new(target, exec_transport::ConnectOptions::default());
        let options = exec_client::Options { give_up: Some(Duration::from_millis(100)), ..Default::default() };
        exec_client::RemoteEnvironment::open(std::sync::Arc::new(dial), options).await.expect("the daemon answers")
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

/// Without a directory for journals nothing is begun that could not be finished.
#[tokio::test]
async fn without_a_directory_for_journals_there_are_no_change_sets() {
    let files = LocalFiles::open(None);
    let refused = files.change_set(exec_env::files::ChangeSet::default()).await.expect_err("there is none");
    assert!(refused.to_string().contains("directory for their journal"), "{refused}");
}
