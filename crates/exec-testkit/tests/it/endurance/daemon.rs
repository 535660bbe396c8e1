//! The real daemon, which can be killed and started again.

use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use exec_testkit::binaries;
use exec_transport::Target;
use rustix::process::{Pid, Signal, kill_process};

/// A daemon in a process of its own; it ends with this.
pub(crate) struct Daemon {
    child: Child,
    url: String,
    arguments: Vec<PathBuf>,
}

impl Daemon {
    /// On a free port, without a state directory.
    pub(crate) fn on_a_port() -> Self {
        Self::start(vec!["serve".into(), "--listen".into(), "ws://127.0.0.1:0".into()])
    }

    /// On a unix socket, which the next daemon will use again; the socket and the state are in `directory`.
    pub(crate) fn with_state(directory: &Path) -> Self {
        let socket = format!("unix://{}", directory.join("socket").display());
        Self::start(vec![
            "serve".into(),
            "--listen".into(),
            socket.into(),
            "--state-dir".into(),
            directory.join("state"),
        ])
    }

    fn start(mut arguments: Vec<PathBuf>) -> Self {
        arguments.extend(["--workers".into(), exec_testkit::worker_count().to_string().into()]);
        let (child, url) = spawn(&arguments);
        Self { child, url, arguments }
    }

    pub(crate) fn target(&self) -> Target {
        self.url.parse().expect("what is listened on can be connected to")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("ws://").parse().expect("an address and a port")
    }

    /// `kill -9`, and the same daemon again.
    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// `kill -9`. When this returns, the kernel has closed everything it held.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// The same daemon again, after it was killed.
    pub(crate) fn restart(&mut self) {
        (self.child, self.url) = spawn(&self.arguments);
    }

    /// Ends it with SIGTERM, which must succeed.
    pub(crate) async fn shut_down(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        let status = tokio::task::block_in_place(|| self.child.wait()).expect("it is ours");
        assert!(status.success(), "{status}");
    }
}

fn spawn(arguments: &[PathBuf]) -> (Child, String) {
    let mut command = Command::new(binaries::exec_server());
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("the binary is there");
    let stdout = child.stdout.take().expect("it is piped");
    let mut line = String::new();
    std::io::BufReader::new(stdout).read_line(&mut line).expect("it prints its URL");
    assert!(!line.is_empty(), "the daemon must start");
    (child, line.trim().to_owned())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
