//! A server that means harm and the real binary as its client: what may it write, what may it print, when does it stop.

mod bounds;
mod copies;
mod text;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use exec_testkit::hostile_server::{Action, HostileServer};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use super::support;

/// No command against such a server may take longer, on however busy a machine.
const DEADLINE: Duration = Duration::from_secs(90);

/// How a command ended.
struct Ended {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ended {
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

fn exec_server(home: &Path, args: &[&str]) -> Command {
    let mut command = support::exec_server(args);
    command.env("EXEC_SERVER_HOME", home).env("HOME", home).current_dir(home).stderr(Stdio::piped());
    command
}

/// Runs the binary to its end, with a pipe for its stdout.
async fn run(home: &Path, args: &[&str]) -> Ended {
    let mut command = exec_server(home, args);
    command.stdout(Stdio::piped());
    finish(command, args, None).await
}

/// The same, with a terminal.
async fn run_on_terminal(home: &Path, args: &[&str]) -> Ended {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("there are terminals");
    grantpt(&screen).and_then(|()| unlockpt(&screen)).expect("it is ours");
    let name = ptsname(&screen, Vec::new()).expect("it has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(&name, flags, Mode::empty()).expect("it is unlocked");
    let mut command = exec_server(home, args);
    command.env("NO_COLOR", "1").stdout(Stdio::from(slave));
    finish(command, args, Some(File::from(screen))).await
}

async fn finish(mut command: Command, args: &[&str], screen: Option<File>) -> Ended {
    let args = format!("{args:?}");
    let run = move || {
        let child = command.spawn().expect("the binary can be started");
        // It holds the other end of the terminal, and reading would not end.
        drop(command);
        let pid = rustix::process::Pid::from_child(&child);
        let reader = screen.map(|mut screen| {
            std::thread::spawn(move || {
                let (mut bytes, mut block) = (Vec::new(), [0; 4096]);
                // The end of a terminal is an error.
                while let Ok(count @ 1..) = screen.read(&mut block) {
                    bytes.extend_from_slice(&block[..count]);
                }
                bytes
            })
        });
        let (done, is_done) = std::sync::mpsc::sync_channel::<()>(0);
        let watchdog = std::thread::spawn(move || {
            if is_done.recv_timeout(DEADLINE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        let started = Instant::now();
        let Output { status, stdout, stderr } = child.wait_with_output().expect("it is our child");
        drop(done);
        watchdog.join().expect("it only waits");
        assert!(started.elapsed() < DEADLINE, "exec-server {args} never ended");
        let stdout = reader.map_or(stdout, |reader| reader.join().expect("it only reads"));
        Ended { code: status.code(), stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    };
    tokio::task::spawn_blocking(run).await.expect("it did not panic")
}

/// The path of a request about a file.
fn path(params: &Value) -> &str {
    params["path"].as_str().and_then(|uri| uri.strip_prefix("file://")).unwrap_or("")
}

/// One entry of a listing. `kind` is `file`, `directory` or `link`.
fn entry(directory: &str, name: &str, kind: &str) -> Value {
    json!({
        "fileName": name,
        "path": format!("file://{directory}/{name}"),
        "isDirectory": kind == "directory",
        "isFile": kind == "file",
        "isSymlink": kind == "link",
    })
}

fn metadata(kind: &str, size: usize) -> Value {
    json!({
        "isDirectory": kind == "directory",
        "isFile": kind == "file",
        "isSymlink": kind == "link",
        "kind": if kind == "link" { "file" } else { kind },
        "size": size,
        "createdAtMs": 0,
        "modifiedAtMs": 0,
        "mode": 0o644,
        "uid": 0,
        "gid": 0,
    })
}

fn contents(bytes: &[u8]) -> Action {
    Action::Result(json!({ "dataBase64": encode(bytes) }))
}

fn encode(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

/// A server that welcomes its client without `fs/hash`, which it could not answer.
async fn server(script: impl Fn(&str, &Value) -> Option<Vec<Action>> + Send + Sync + 'static) -> HostileServer {
    HostileServer::start(move |method, params| match script(method, params) {
        None if method == "initialize" => {
            let without = ["fs/hash", "fs/writeFile.ifMatch", "fs/writeFile.append"];
            Some(vec![Action::Result(exec_testkit::hostile_server::welcome(&without))])
        }
        decided => decided,
    })
    .await
}
