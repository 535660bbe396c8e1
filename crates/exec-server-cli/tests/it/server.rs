//! A real `exec-server serve` for the tests of the commands that need one, with a home of its own.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{exec_server, finish};

/// A server, and the home that the commands of a test share.
pub(crate) struct Server {
    pub(crate) home: tempfile::TempDir,
    pub(crate) url: String,
    child: Child,
    /// Held open, because a server may print to it.
    _stdout: BufReader<ChildStdout>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    WebSocket,
    Unix,
}

impl Server {
    /// A server that forgets everything when it ends.
    pub(crate) fn start(transport: Transport) -> Self {
        let home = tempfile::tempdir().expect("a folder can be made");
        let listen = match transport {
            Transport::WebSocket => "ws://127.0.0.1:0".to_owned(),
            Transport::Unix => format!("unix://{}", home.path().join("s").display()),
        };
        Self::listening(home, &["--listen", &listen])
    }

    /// A server on a port of the loopback, with these options.
    #[allow(dead_code, reason = "the tests of `forward` share this file, and only they need it")]
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let home = tempfile::tempdir().expect("a folder can be made");
        Self::listening(home, &[&["--listen", "ws://127.0.0.1:0"], args].concat())
    }

    /// A server whose keeper outlives it.
    pub(crate) fn start_durable() -> Self {
        let home = tempfile::tempdir().expect("a folder can be made");
        let listen = format!("unix://{}", home.path().join("s").display());
        let state = home.path().join("state").display().to_string();
        Self::listening(home, &["--listen", &listen, "--state-dir", &state])
    }

    /// A gateway to these environments, by id and URL.
    pub(crate) fn start_gateway(environments: &[(&str, &str)], more: &[&str]) -> Self {
        let home = tempfile::tempdir().expect("a folder can be made");
        let listen = format!("unix://{}", home.path().join("s").display());
        let table = |(id, url): &(&str, &str)| format!("[[environments]]\nid = \"{id}\"\nurl = \"{url}\"\n");
        let text: String = environments.iter().map(table).collect();
        let file = home.path().join("behind.toml");
        std::fs::write(&file, text).expect("the folder is ours");
        let file = file.display().to_string();
        Self::listening(home, &[&["--listen", &listen, "--environments", &file], more].concat())
    }

    fn listening(home: tempfile::TempDir, args: &[&str]) -> Self {
        let (child, stdout, url) = serve(&home, args);
        Self { home, url, child, _stdout: stdout }
    }

    /// Ends it as a crash does, and starts another on the same state.
    pub(crate) fn crash_and_return(&mut self) {
        self.crash();
        self.come_back();
    }

    pub(crate) fn crash(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it is our child");
    }

    pub(crate) fn come_back(&mut self) {
        let state = self.home.path().join("state").display().to_string();
        let (child, stdout, url) = serve(&self.home, &["--listen", &self.url, "--state-dir", &state]);
        assert_eq!(url, self.url);
        (self.child, self._stdout) = (child, stdout);
    }

    /// A command of ours with this server's home and no configuration of whoever runs the tests.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = exec_server(args);
        at_home(&mut command, &self.home);
        command
    }

    /// Makes it an environment of this id, for the commands that have this server's home.
    pub(crate) fn name(&self, id: &str) {
        let text = format!("default = \"local\"\n[[environments]]\nid = \"{id}\"\nurl = \"{}\"\n", self.url);
        std::fs::write(self.home.path().join("environments.toml"), text).expect("the folder is ours");
    }

    /// Runs a command to its end.
    pub(crate) fn finish(&self, args: &[&str]) -> Output {
        finish(&mut self.command(args))
    }

    /// `run --connect` to this server.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.finish(&[&["run", "--connect", &self.url], args].concat())
    }

    /// Detaches a shell there and returns its id.
    pub(crate) fn detach(&self, args: &[&str], script: &str) -> String {
        let output = self.run(&[&["--detach", "--quiet"], args, &["--", "sh", "-c", script]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("an id is ASCII").trim_end().to_owned()
    }

    /// What `ps --json` says of the only process there is.
    pub(crate) fn only_process(&self) -> serde_json::Value {
        let output = self.finish(&["ps", "--json"]);
        let lines: Vec<&[u8]> = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 1, "{output:?}");
        serde_json::from_slice(lines[0]).expect("a line is JSON")
    }

    pub(crate) fn detached_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.path().join("detached")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child and not waited for");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let is_durable = self.home.path().join("state").exists();
        if is_durable && matches!(self.child.try_wait(), Ok(Some(_))) {
            self.come_back();
        }
        // What the test has left running would outlive it with the keeper.
        for note in self.detached_files() {
            let id = note.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let _ = self
                .command(&["kill", "--forget", "--grace", "0", &id])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The home directory whose records and environments a command uses.
pub(crate) fn at_home(command: &mut Command, home: &tempfile::TempDir) {
    command.env("EXEC_SERVER_HOME", home.path());
}

fn serve(home: &tempfile::TempDir, args: &[&str]) -> (Child, BufReader<ChildStdout>, String) {
    let mut command = exec_server(&[&["serve"], args].concat());
    at_home(&mut command, home);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary can be started");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut url = String::new();
    stdout.read_line(&mut url).expect("a server says where it listens");
    (child, stdout, url.trim_end().to_owned())
}
