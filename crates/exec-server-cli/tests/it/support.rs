//! How a test starts the binary and observes it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The binary with these arguments, and nothing on its stdin.
pub(crate) fn exec_server(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exec-server"));
    command.args(args).stdin(Stdio::null());
    unconfigured(&mut command);
    command
}

/// Variables and files of whoever runs the tests must not decide what they test.
pub(crate) fn unconfigured(command: &mut Command) {
    let tls = ["EXEC_SERVER_TLS_CA", "EXEC_SERVER_TLS_FINGERPRINT", "EXEC_SERVER_TOKEN_FILE"];
    for name in ["CODEX_HOME", "EXEC_SERVER_URL", "CODEX_EXEC_SERVER_URL", "XDG_STATE_HOME"].iter().chain(&tls) {
        command.env_remove(name);
    }
    command.env("EXEC_SERVER_HOME", "/nonexistent");
}

/// `exec-server run` with these arguments, to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    finish(&mut exec_server(&[&["run"], args].concat()))
}

/// `exec-server run -- sh -c script`, to its end.
pub(crate) fn run_shell(script: &str) -> Output {
    run(&["--", "sh", "-c", script])
}

pub(crate) fn finish(command: &mut Command) -> Output {
    command.output().expect("the binary can be started")
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("the binary ends by itself, never by a signal")
}

pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("this test prints text")
}

pub(crate) fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("this test prints text")
}

/// A running command, with pipes on all sides.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, stdin, stdout }
    }

    /// `exec-server run` with these arguments before `-- sh -c script`.
    pub(crate) fn shell(args: &[&str], script: &str) -> Self {
        Self::start(&mut exec_server(&[&["run"], args, &["--", "sh", "-c", script]].concat()))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The next line on stdout, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().expect("not closed by this test").read_line(&mut line).expect("the pipe can be read");
        line.trim_end_matches('\n').to_owned()
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("not closed by this test");
        stdin.write_all(text.as_bytes()).expect("the binary reads its stdin");
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is our child and not waited for");
    }

    /// Reaps one that a signal has ended.
    pub(crate) fn abandon(mut self) {
        self.child.wait().expect("it is our child");
    }

    /// Waits for the end with stdin still open; what is left of stdout, stderr, and the code.
    pub(crate) fn end(mut self) -> (String, String, i32) {
        let (mut out, mut err) = (String::new(), String::new());
        if let Some(stdout) = &mut self.stdout {
            stdout.read_to_string(&mut out).expect("this test prints text");
        }
        self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("this test prints text");
        let code = self.child.wait().expect("it is our child").code();
        (out, err, code.expect("the binary ends by itself, never by a signal"))
    }
}

/// A server that a test has left running, or one that a failed test did not come to end.
impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether a process runs. A zombie does not.
pub(crate) fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// A fifo in `folder`, by which a child and a test talk without our output.
pub(crate) fn fifo(folder: &std::path::Path) -> std::path::PathBuf {
    let path = folder.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("the folder is ours");
    path
}
