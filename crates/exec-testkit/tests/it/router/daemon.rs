//! Servers that can be killed: real daemons, each on a unix socket and with a state directory.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use exec_testkit::os_process::OsProcess;
use rustix::process::Signal;

pub(crate) struct Daemon {
    child: Child,
    pub(crate) url: String,
    args: Vec<String>,
}

impl Daemon {
    /// Serves on the socket `folder/name`, with its state beside it.
    pub(crate) fn start(folder: &Path, name: &str, more: &[&str]) -> Self {
        let url = format!("unix://{}", folder.join(name).display());
        let state = folder.join(format!("{name}-state")).display().to_string();
        let args = ["serve", "--listen", &url, "--state-dir", &state].into_iter().chain(more.iter().copied());
        let args: Vec<String> = args.map(str::to_owned).collect();
        Self { child: spawn(&args), url, args }
    }

    /// `kill -9`. When this returns, the kernel has closed everything that it held.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is our child and not waited for");
        self.child.wait().expect("it is our child");
    }

    /// Another one with the same socket and state.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.args);
    }
}

impl Drop for Daemon {
    /// In order, so that its keeper ends, too.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            if let Some(process) = OsProcess::of(self.child.id()) {
                process.signal(Signal::TERM);
            }
            let _ = self.child.wait();
        }
    }
}

fn spawn(args: &[String]) -> Child {
    let mut command = Command::new(exec_testkit::binaries::exec_server());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the server was built with this test");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("it was asked for");
    BufReader::new(stdout).read_line(&mut line).expect("it prints its URL");
    assert!(line.starts_with("unix://"), "it listens: {line:?}");
    child
}
