//! A server of an account of its own, on free ports.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use exec_testkit::binaries;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// An account with a state folder of its own. What its server in the background runs ends with this.
pub(crate) struct Account {
    home: TempDir,
}

/// A running `exec-server e2b`.
pub(crate) struct E2bProcess {
    child: Child,
    /// `127.0.0.1:PORT`
    pub(crate) envd: String,
    pub(crate) api: String,
    pub(crate) key: String,
}

impl Account {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) async fn start(&self, arguments: &[&str]) -> E2bProcess {
        let mut command = Command::new(binaries::exec_server());
        command.args(["e2b", "--listen-envd", "127.0.0.1:0", "--listen-api", "127.0.0.1:0"]).args(arguments);
        command.env("EXEC_SERVER_HOME", self.state()).current_dir(self.path());
        for variable in ["EXEC_SERVER_URL", "CODEX_EXEC_SERVER_URL"] {
            command.env_remove(variable);
        }
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut value = async |name: &str| {
            let line = lines.next_line().await.expect("it can be read").expect("it prints its addresses");
            let (found, value) = line.split_once('=').expect("a variable");
            assert_eq!(found, name);
            value.trim_start_matches("http://").to_owned()
        };
        let (api, envd) = (value("E2B_API_URL").await, value("E2B_SANDBOX_URL").await);
        let key = value("E2B_API_KEY").await;
        E2bProcess { child, envd, api, key }
    }

    /// Processes whose command line names this file of the state folder.
    fn processes_with(&self, file: &str) -> Vec<Pid> {
        let path = self.state().join(file);
        let path = path.to_str().expect("temporary folders are plain").as_bytes().to_vec();
        let is_ours = |entry: &PathBuf| {
            let line = std::fs::read(entry.join("cmdline")).unwrap_or_default();
            line.windows(path.len()).any(|window| window == path)
        };
        let entries = std::fs::read_dir("/proc").expect("there is a /proc").flatten().map(|entry| entry.path());
        let pids = entries.filter(is_ours).filter_map(|entry| entry.file_name()?.to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // The server, which ends what it has started; if that was killed, its keeper.
        for file in ["daemon/socket", "daemon/state"] {
            for pid in self.processes_with(file) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    }
}

impl E2bProcess {
    /// As a crash does.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it is ours");
    }

    /// Peak of its memory, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let pid = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel tells it");
        line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
    }
}
