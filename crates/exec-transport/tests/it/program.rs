//! A program as the peer: spoken to, listened to, ended with everything it started.

use std::ffi::OsString;
use std::io;
use std::sync::{Arc, Mutex};

use exec_transport::{
    CloseReason, ConnectError, ConnectOptions, Connection, ConnectionEnd, PeerKind, Program, Target, connect,
};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::support::{closed, long_text, message, text, within};

fn program(name: &str, args: &[&str]) -> Program {
    Program { program: name.into(), args: args.iter().map(OsString::from).collect(), ..Program::default() }
}

async fn start(program: Program) -> Connection {
    connect(&Target::Program(program), &ConnectOptions::default()).await.expect("the program starts")
}

/// A named pipe that a child can hold open: reading it ends when the last holder is dead.
struct Tripwire {
    folder: tempfile::TempDir,
    reader: pipe::Receiver,
}

impl Tripwire {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("wire");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("a named pipe");
        let reader = pipe::OpenOptions::new().open_receiver(&path).expect("readers open at once");
        Self { folder, reader }
    }

    fn path(&self) -> String {
        self.folder.path().join("wire").display().to_string()
    }

    /// Waits until nobody holds the writing end. It must have been opened before.
    async fn is_released(&mut self) {
        let mut bytes = Vec::new();
        within(self.reader.read_to_end(&mut bytes)).await.expect("a readable pipe");
    }
}

#[tokio::test]
async fn lines_go_to_its_stdin_and_come_from_its_stdout() {
    let mut connection = start(program("cat", &[])).await;
    assert_eq!(connection.peer.kind(), PeerKind::Stdio);
    assert!(connection.peer.to_string().starts_with("stdio of cat (pid "), "{}", connection.peer);
    for size in [1, 5000, 300_000] {
        let content = long_text(size);
        let (echoed, ()) = {
            let sending = async {
                connection.sender.feed(text(content.clone())).await.expect("it reads");
                connection.sender.flush().await.expect("it reads");
            };
            tokio::join!(message(&mut connection.receiver), within(sending))
        };
        assert!(echoed == text(content), "changed at {size} bytes");
    }
    within(connection.sender.close(CloseReason::normal())).await;
    assert!(matches!(closed(&mut connection.receiver).await, ConnectionEnd::EndOfStream));
}

#[tokio::test]
async fn it_gets_its_arguments_environment_and_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut program = program("sh", &["-c", "echo \"$1 $MARK ${HOME:+home} $(pwd)\"", "sh", "argument"]);
    program.env = vec![("MARK".into(), "here".into()), ("HOME".into(), "/".into())];
    program.cwd = Some(folder.path().canonicalize().expect("it exists"));
    let cwd = program.cwd.clone().expect("just set");
    let mut connection = start(program).await;
    assert_eq!(message(&mut connection.receiver).await, text(format!("argument here home {}", cwd.display())));
}

#[tokio::test]
async fn closing_ends_the_whole_group_even_if_it_ignores_sigterm() {
    let mut wire = Tripwire::new();
    let script =
        "exec 9>\"$1\"; trap '' TERM; (trap '' TERM; sleep 1000) & echo ready; while :; do wait; sleep 1; done";
    let mut connection = start(program("sh", &["-c", script, "sh", &wire.path()])).await;
    assert_eq!(message(&mut connection.receiver).await, text("ready"));
    within(connection.sender.close(CloseReason::normal())).await;
    wire.is_released().await;
}

#[tokio::test]
async fn closing_lets_a_program_end_by_itself_and_takes_its_children_along() {
    let mut wire = Tripwire::new();
    let script = "exec 9>\"$1\"; sleep 1000 & trap 'echo goodbye; exit 0' TERM; echo ready; while :; do wait; done";
    let mut connection = start(program("sh", &["-c", script, "sh", &wire.path()])).await;
    assert_eq!(message(&mut connection.receiver).await, text("ready"));
    let pid = match &connection.peer {
        exec_transport::Peer::Program { pid, .. } => *pid,
        other => panic!("not a program: {other}"),
    };
    within(connection.sender.close(CloseReason::normal())).await;
    assert_eq!(message(&mut connection.receiver).await, text("goodbye"));
    wire.is_released().await;
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it was not reaped");
}

#[tokio::test]
async fn dropping_kills_the_group() {
    let mut wire = Tripwire::new();
    let script = "exec 9>\"$1\"; trap '' TERM; sleep 1000 & echo ready; wait";
    let mut connection = start(program("sh", &["-c", script, "sh", &wire.path()])).await;
    assert_eq!(message(&mut connection.receiver).await, text("ready"));
    drop(connection);
    wire.is_released().await;
}

#[tokio::test]
async fn its_end_is_reported_and_writing_fails() {
    let mut connection = start(program("true", &[])).await;
    assert!(matches!(closed(&mut connection.receiver).await, ConnectionEnd::EndOfStream));
    within(async {
        while connection.sender.feed(text("anybody?")).await.is_ok() && connection.sender.flush().await.is_ok() {}
    })
    .await;
    within(connection.sender.close(CloseReason::normal())).await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_that_names_it() {
    let target = Target::Program(program("/does/not/exist", &[]));
    let error = connect(&target, &ConnectOptions::default()).await.expect_err("it cannot start");
    assert!(matches!(error, ConnectError::Spawn { .. }));
    assert_eq!(error.to_string(), "cannot start /does/not/exist: No such file or directory (os error 2)");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn its_stderr_goes_to_our_log_line_by_line() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).without_time().finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let script = "echo first >&2; printf 'sec\\377ond' >&2; echo done";
    let mut connection = start(program("sh", &["-c", script])).await;
    assert_eq!(message(&mut connection.receiver).await, text("done"));
    within(connection.sender.close(CloseReason::normal())).await;
    let log = String::from_utf8(log.0.lock().expect("nobody panics with it").clone()).expect("text");
    let lines: Vec<_> = log.lines().filter(|line| line.contains("INFO exec_transport::child: ")).collect();
    assert!(
        matches!(lines[..], [first, second] if first.contains("first") && second.contains("sec\u{fffd}ond")),
        "{log}"
    );
}
