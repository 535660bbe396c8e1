//! The binary on stdio, one JSON-RPC message a line, and the account whose commands it runs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use exec_testkit::binaries;
use exec_testkit::os_process::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A protocol version: how a client begins, and what each request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// With `initialize`.
    Handshake(&'static str),
    /// Every request says who asks.
    Stateless,
}

pub(crate) const ALL: [Protocol; 3] =
    [Protocol::Handshake("2025-06-18"), Protocol::Handshake("2025-11-25"), Protocol::Stateless];

/// An account with a state folder of its own. What its server runs ends with this.
pub(crate) struct Account {
    home: TempDir,
}

impl Account {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("EXEC_SERVER_HOME", self.path().join("state")).current_dir(self.path()).kill_on_drop(true);
        for variable in ["EXEC_SERVER_URL", "CODEX_EXEC_SERVER_URL"] {
            command.env_remove(variable);
        }
        command
    }

    /// Starts the server and begins as such a client does. `tasks`: the client knows the Tasks extension.
    pub(crate) async fn start(&self, protocol: Protocol, tasks: bool) -> McpProcess {
        self.start_with(&[], protocol, tasks).await
    }

    /// The same with further arguments.
    pub(crate) async fn start_with(&self, arguments: &[&str], protocol: Protocol, tasks: bool) -> McpProcess {
        let capabilities = match tasks {
            true => json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
            false => json!({}),
        };
        self.start_as(arguments, protocol, capabilities).await
    }

    /// The same for a client with these capabilities.
    pub(crate) async fn start_as(&self, arguments: &[&str], protocol: Protocol, capabilities: Value) -> McpProcess {
        let mut process = self.start_silent(arguments, protocol, capabilities);
        process.begin().await;
        process
    }

    /// The same for a client that has said nothing yet, no handshake either.
    pub(crate) fn start_silent(&self, arguments: &[&str], protocol: Protocol, capabilities: Value) -> McpProcess {
        let mut command = self.command(binaries::exec_server());
        command.arg("mcp").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdin = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        McpProcess { child, stdin, lines, protocol, capabilities, last_id: 0, notified: Vec::new() }
    }

    /// The server in the background, as often as it runs.
    pub(crate) fn daemons(&self) -> Vec<Pid> {
        self.processes_with("daemon/socket")
    }

    /// Kills it; returns when it is gone.
    pub(crate) async fn kill_daemon(&self) {
        let [daemon] = self.daemons()[..] else { panic!("one runs: {:?}", self.daemons()) };
        kill_process(daemon, Signal::KILL).expect("it is ours");
        let gone = || !self.daemons().contains(&daemon);
        eventually("the daemon is gone", gone).await;
    }

    /// Processes of exec-server whose command line names this file of the state folder.
    fn processes_with(&self, file: &str) -> Vec<Pid> {
        let path = self.path().join("state").join(file);
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

/// A running server and its one client, which is the test.
pub(crate) struct McpProcess {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    protocol: Protocol,
    capabilities: Value,
    last_id: u64,
    /// Notifications that came while an answer was waited for.
    notified: Vec<Value>,
}

impl McpProcess {
    /// The handshake, if there is one.
    pub(crate) async fn begin(&mut self) {
        let Protocol::Handshake(version) = self.protocol else { return };
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": self.capabilities, "clientInfo": client});
        let answer = self.request("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        self.notify("notifications/initialized", json!({})).await;
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// The result of a tool, as a structure.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let content = &answer["result"]["structuredContent"];
        assert!(content.is_object(), "{tool} failed: {answer}");
        content.clone()
    }

    /// Sends a request without waiting; returns its id.
    pub(crate) async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.last_id += 1;
        if self.protocol == Protocol::Stateless {
            let meta = params.as_object_mut().expect("params have names").entry("_meta").or_insert(json!({}));
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        let id = self.last_id;
        self.write(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.write(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Sends a line that may be anything.
    pub(crate) async fn send_line(&mut self, line: &[u8]) {
        self.stdin.write_all(line).await.expect("it reads");
        self.stdin.write_all(b"\n").await.expect("it reads");
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next_message().await;
            match message["id"].as_u64() {
                Some(answered) if answered == id => return message,
                Some(other) => panic!("nobody waits for {other}: {message}"),
                // What was no request gets an error without an id.
                None if message["error"].is_object() => {}
                None => self.notified.push(message),
            }
        }
    }

    /// Waits for a notification.
    pub(crate) async fn notification(&mut self) -> Value {
        if !self.notified.is_empty() {
            return self.notified.remove(0);
        }
        let message = self.next_message().await;
        assert!(message["method"].is_string(), "it is a notification: {message}");
        message
    }

    /// Waits for a request of the server's.
    pub(crate) async fn server_request(&mut self) -> Value {
        let message = self.next_message().await;
        assert!(message["method"].is_string() && !message["id"].is_null(), "it is a request: {message}");
        message
    }

    /// Answers a request of the server's.
    pub(crate) async fn reply(&mut self, request: &Value, result: Value) {
        self.write(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// Closes stdin, as a client does that ends; the server must end, too.
    pub(crate) async fn leave(mut self) {
        drop(self.stdin);
        let status = self.child.wait().await.expect("it is our child");
        assert!(status.success(), "it ended with {status}");
    }

    /// Kills it.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it is our child");
    }

    async fn write(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.expect("it reads");
    }

    async fn next_message(&mut self) -> Value {
        let line = self.lines.next_line().await.expect("it writes UTF-8").expect("it goes on");
        serde_json::from_str(&line).expect("it writes JSON")
    }
}
