//! The original server: our client must work on a released Codex, too. Skipped, with its reason, where there is none.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use exec_client::{Options, RemoteEnvironment, connect};
use exec_core::{Command, Environ, ExitStatus, Io, ProcessId, Stream, WriteId};
use exec_env::Environment;
use exec_env::process::{
    ProcessError, ProcessReason, ProcessVerb, Signalled, SpawnStep, WaitCondition, Waited, Written,
};
use exec_testkit::codex::codex_binary;
use exec_transport::{ConnectOptions, Program, Target};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::peer::within;

struct Served {
    environment: RemoteEnvironment,
    /// Killed when dropped.
    _server: Option<tokio::process::Child>,
    _home: tempfile::TempDir,
}

async fn over_websocket() -> Option<Served> {
    let home = tempfile::tempdir().expect("a folder");
    let mut server = tokio::process::Command::new(codex_binary()?)
        .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
        .env("CODEX_HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("codex starts");
    let stdout = server.stdout.take().expect("piped above");
    let mut lines = BufReader::new(stdout).lines();
    let url = within(lines.next_line()).await.expect("readable").expect("it prints its URL");
    let target: Target = url.parse().expect("a URL");
    let environment = connect(target, ConnectOptions::default(), Options::default()).await.expect("it answers");
    Some(Served { environment, _server: Some(server), _home: home })
}

async fn over_stdio() -> Option<Served> {
    let home = tempfile::tempdir().expect("a folder");
    let program = Program {
        program: codex_binary()?.into(),
        args: ["exec-server", "--listen", "stdio"].map(Into::into).into(),
        env: vec![("CODEX_HOME".into(), home.path().into())],
        cwd: None,
    };
    let environment = connect(Target::Program(program), ConnectOptions::default(), Options::default()).await;
    Some(Served { environment: environment.expect("it answers"), _server: None, _home: home })
}

fn shell(script: &str) -> Command {
    let mut command = Command::new(["/bin/sh", "-c", script], "/");
    command.environ = Environ::inherit_and([("A", "1")]);
    command
}

/// Everything a process prints, and how it ended.
async fn transcript(served: &Served, id: &ProcessId) -> (String, String, ExitStatus) {
    let mut follower = served.environment.processes().follow(id, 0).await.expect("it is there");
    let (mut out, mut err, mut status) = (Vec::new(), Vec::new(), None);
    let mut last = 0;
    while let Some(page) = within(follower.next(65_536)).await.expect("readable") {
        assert_eq!(page.gap, None);
        for entry in page.entries {
            assert_eq!(entry.seq, last + 1);
            last = entry.seq;
            match entry.body {
                exec_core::EntryBody::Output { stream: Stream::Stderr, bytes } => err.extend_from_slice(&bytes),
                exec_core::EntryBody::Output { bytes, .. } => out.extend_from_slice(&bytes),
                exec_core::EntryBody::Exited(exit) => status = Some(exit.status),
                exec_core::EntryBody::Closed => {}
            }
        }
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(out), text(err), status.expect("it ended"))
}

fn id(name: &str) -> ProcessId {
    ProcessId::new(name).expect("short")
}

async fn runs_commands(served: Served) {
    let processes = served.environment.processes();
    let info = served.environment.info();
    assert_eq!((info.os.as_str(), info.version.as_str()), ("linux", "0.166.0"));

    processes.start(&id("one"), shell("echo out; sleep 0.1; echo err >&2; exit 3")).await.expect("it starts");
    let expected = ("out\n".to_owned(), "err\n".to_owned(), ExitStatus::Code(3));
    assert_eq!(transcript(&served, &id("one")).await, expected);
    // The same once more, now fetched from the server.
    assert_eq!(transcript(&served, &id("one")).await, expected);

    let again = processes.start(&id("one"), shell("true")).await;
    assert_eq!(again, Err(ProcessError::new(ProcessVerb::Start, &id("one"), ProcessReason::IdInUse)));
    let missing = processes.start(&id("no"), Command::new(["/nonexistent"], "/")).await;
    let Err(ProcessError { reason: ProcessReason::SpawnFailed(failure), .. }) = missing else { panic!("{missing:?}") };
    assert_eq!((failure.step, failure.errno), (SpawnStep::Exec, 2));
    let unknown = processes.follow(&id("never"), 0).await.err();
    assert_eq!(unknown, Some(ProcessError::new(ProcessVerb::Follow, &id("never"), ProcessReason::UnknownProcess)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_over_websocket() {
    if let Some(served) = over_websocket().await {
        runs_commands(served).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_over_stdio() {
    if let Some(served) = over_stdio().await {
        runs_commands(served).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_a_wait_a_signal_and_an_end() {
    let Some(served) = over_websocket().await else { return };
    let processes = served.environment.processes();
    let mut command = shell("while read line; do echo \"got $line\"; done");
    command.io = Io::Pipes { stdin: true };
    processes.start(&id("cat"), command).await.expect("it starts");
    let key = WriteId::new("1").expect("short");
    for _ in 0..2 {
        // The same key twice is one write.
        let written = processes.write(&id("cat"), key.clone(), Bytes::from_static(b"hello\n")).await;
        assert_eq!(written, Ok(Written::Accepted));
    }
    let until = WaitCondition::Output { regex: "got [a-z]+\n".into(), after: 0 };
    let waited = processes.wait(&id("cat"), until, Some(Duration::from_secs(20))).await;
    assert!(matches!(&waited, Ok(Waited::Matched { text, .. }) if &text[..] == b"got hello\n"), "{waited:?}");
    let signalled = processes.signal(&id("cat"), exec_core::Signal::Interrupt).await;
    assert_eq!(signalled, Ok(Signalled::Sent));
    let (out, _, status) = transcript(&served, &id("cat")).await;
    assert_eq!((out.as_str(), status), ("got hello\n", ExitStatus::Code(130)));
    let terminated = processes.terminate(&id("cat"), Duration::ZERO).await.expect("it answers");
    assert!(!terminated.was_running);
    let listed = processes.list().await.expect("from memory");
    assert!(listed.iter().any(|info| info.id == id("cat") && info.head.closed), "{listed:?}");
    served.environment.end().await.expect("its processes are ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_megabyte_arrives_whole() {
    let Some(served) = over_websocket().await else { return };
    let processes = served.environment.processes();
    processes
        .start(&id("flood"), shell("i=0; while [ $i -lt 500 ]; do printf '%01000d\n' $i; i=$((i+1)); done"))
        .await
        .expect("it starts");
    let (out, _, status) = transcript(&served, &id("flood")).await;
    let expected: String = (0..500).map(|number| format!("{number:01000}\n")).collect();
    assert!(out == expected, "{} bytes", out.len());
    assert_eq!(status, ExitStatus::Code(0));
}
