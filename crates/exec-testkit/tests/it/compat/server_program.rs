//! The two servers that are compared, started alike: same home, same working directory, same variables.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::DEADLINE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Implementation {
    Codex,
    Ours,
}

/// The variables of both servers: names of every kind that a policy knows.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("USER", "tester"),
    ("lc_all", "lower"),
    ("LC_MESSAGES", "C"),
    ("MY_API_KEY", "k"),
    ("Client_Secret", "s"),
    ("github_token", "t"),
    ("DB_PASSWORD", "p"),
    ("PLAIN", "plain"),
    ("PLAIN2", "plain two"),
    ("EMPTY", ""),
    ("UMLAUT", "ü"),
    ("TWO_LINES", "one\ntwo"),
    ("NODE_REPL_AUTH_TOKEN", "never"),
    ("openai_identity_token_file", "never"),
];

pub(crate) struct ServerProgram {
    pub(crate) implementation: Implementation,
    binary: PathBuf,
    home: PathBuf,
}

impl ServerProgram {
    pub(crate) fn new(implementation: Implementation, binary: PathBuf, home: &Path) -> Self {
        std::fs::create_dir_all(home.join(".codex")).expect("a home can be made");
        Self { implementation, binary, home: home.to_owned() }
    }

    /// The command line that serves, followed by `arguments`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(match self.implementation {
            Implementation::Codex => "exec-server",
            Implementation::Ours => "serve",
        });
        command.args(arguments).current_dir(&self.home).env_clear().envs(VARIABLES.iter().copied());
        command.env("HOME", &self.home).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Serves on a free port of the loopback.
    pub(crate) async fn listen(&self, arguments: &[&str]) -> ListeningServer {
        let arguments = [&["--listen", "ws://127.0.0.1:0"], arguments].concat();
        let mut child = self.command(&arguments).stderr(Stdio::null()).spawn().expect("the server starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        let read = async { BufReader::new(stdout).read_line(&mut line).await };
        tokio::time::timeout(DEADLINE, read).await.expect("the server prints its URL").expect("a pipe");
        let address = line.trim().strip_prefix("ws://").expect("the first line is a URL").to_owned();
        ListeningServer { child, address }
    }

    /// Serves one connection on stdio.
    pub(crate) fn on_stdio(&self) -> Child {
        let mut command = self.command(&["--listen", "stdio"]);
        command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the server starts")
    }
}

/// A server that listens; it is killed with this.
pub(crate) struct ListeningServer {
    pub(crate) child: Child,
    /// `IP:PORT`.
    pub(crate) address: String,
}
