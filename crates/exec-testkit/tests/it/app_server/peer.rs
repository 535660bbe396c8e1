//! One app-server over stdio, with the answers and notifications that came from it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use exec_testkit::binaries;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a test waits for something that must come.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

pub(super) struct Peer {
    pub(super) child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    last_id: i64,
    answers: HashMap<i64, Value>,
    /// Those that nobody has looked at, in their order.
    pub(super) notes: Vec<Value>,
    /// Where it was started.
    pub(super) root: PathBuf,
}

impl Peer {
    /// Ours, in a folder of the test's, after the handshake.
    pub(super) async fn ours(root: &Path) -> Self {
        let mut peer = Self::start(&binaries::exec_server(), root, root);
        peer.initialize().await;
        peer
    }

    /// `program app-server`, without the handshake.
    pub(super) fn start(program: &Path, root: &Path, home: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg("app-server").current_dir(root).env_clear();
        command.envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("TERM", "xterm")]);
        command.envs([("PLAIN", "plain"), ("MY_API_KEY", "secret"), ("lower", "case"), ("SHELL", "/bin/sh")]);
        command.env("HOME", home).env("CODEX_HOME", home).env("TMPDIR", root.join("tmpdir"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("the server starts");
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        Self { child, stdin, lines, last_id: 0, answers: HashMap::new(), notes: Vec::new(), root: root.to_owned() }
    }

    pub(super) async fn initialize(&mut self) {
        let params = json!({
            "clientInfo": { "name": "test", "version": "1" },
            "capabilities": { "experimentalApi": true },
        });
        let answer = self.call("initialize", params).await;
        assert!(answer.get("result").is_some(), "{answer}");
        self.send_line(br#"{"method":"initialized"}"#).await;
    }

    pub(super) async fn send_line(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(line).await.expect("the server reads");
        stdin.write_all(b"\n").await.expect("the server reads");
    }

    /// Sends a request and returns its id.
    pub(super) async fn send(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let request = json!({ "id": self.last_id, "method": method, "params": params });
        self.send_line(request.to_string().as_bytes()).await;
        self.last_id
    }

    pub(super) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// The answer to a request, without its id.
    pub(super) async fn answer(&mut self, id: i64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let message = self.next_message().await.expect("the server is there");
            self.keep(message);
        }
    }

    /// The next message of any kind, unless it was kept; `None` at the end.
    pub(super) async fn next_message(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await.expect("the server says something");
        line.ok().flatten().map(|line| serde_json::from_str(&line).expect("a line is JSON"))
    }

    /// Reads until a notification for which `is_wanted` holds has come; it stays among the notes.
    pub(super) async fn note(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(found) = self.notes.iter().find(|note| is_wanted(note)) {
                return found.clone();
            }
            let message = self.next_message().await.expect("the server is there");
            self.keep(message);
        }
    }

    /// Reads until a process has printed `text`.
    pub(super) async fn printed(&mut self, id: &str, text: &str) {
        loop {
            let output = collect_output(&self.notes);
            let mut streams = output.iter().filter(|((of, _), _)| of == id);
            if streams.any(|(_, (bytes, _))| String::from_utf8_lossy(bytes).contains(text)) {
                return;
            }
            let message = self.next_message().await.expect("the server is there");
            self.keep(message);
        }
    }

    pub(super) fn keep(&mut self, mut message: Value) {
        match message.get("id").and_then(Value::as_i64).filter(|_| message.get("method").is_none()) {
            Some(id) => {
                message.as_object_mut().expect("a message is an object").remove("id");
                self.answers.insert(id, message);
            }
            None => self.notes.push(message),
        }
    }

    /// For a test that writes while it reads.
    pub(super) fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("stdin is open")
    }

    /// Ends the connection.
    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }
}

/// Output that was sent, by id and stream; and whether a cap was told.
pub(super) fn collect_output(notes: &[Value]) -> HashMap<(String, String), (Vec<u8>, bool)> {
    let mut output: HashMap<_, (Vec<u8>, bool)> = HashMap::new();
    for note in notes {
        let params = &note["params"];
        let Some(delta) = params["deltaBase64"].as_str() else { continue };
        let id = params["processId"].as_str().or(params["processHandle"].as_str()).expect("it has an id");
        let stream = params["stream"].as_str().expect("it has a stream");
        let (bytes, cap_reached) = output.entry((id.to_owned(), stream.to_owned())).or_default();
        assert!(!*cap_reached, "nothing follows the cap");
        bytes.extend(exec_wire::base64::decode(delta.as_bytes()).expect("it is base64"));
        *cap_reached = params["capReached"].as_bool().expect("it is told");
    }
    output
}
