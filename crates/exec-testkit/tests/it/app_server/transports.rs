//! `app-server --listen`: WebSockets, with TLS and without, and unix sockets; tokens; several clients at a time.

use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use exec_testkit::binaries;
use exec_testkit::os_process::OsProcess;
use exec_transport::{
    ClientTls, CloseReason, ConnectError, ConnectOptions, Connection, ConnectionEnd, Fingerprint, Message, Received,
    Target, TlsOptions, TrustedServers, connect,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::peer::DEADLINE;

/// A server that has printed its URL.
struct Listening {
    child: Child,
    url: String,
    notes: Lines<BufReader<ChildStderr>>,
}

impl Listening {
    async fn start(listen: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(binaries::exec_server());
        command.args(["app-server", "--listen", listen]).args(arguments).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let notes = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let url = within(lines.next_line()).await.expect("a pipe").expect("it prints its URL");
        Self { child, url, notes }
    }

    /// With a certificate that it has made itself; the fingerprint is what it printed.
    async fn start_with_tls() -> (Self, Fingerprint) {
        let mut server = Self::start("wss://127.0.0.1:0", &["--tls-self-signed"]).await;
        loop {
            let note = within(server.notes.next_line()).await.expect("a pipe").expect("it prints its fingerprint");
            if let Some(at) = note.find("sha256:") {
                return (server, note[at..].trim().parse().expect("a fingerprint"));
            }
        }
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Client, ConnectError> {
        let target = Target::Url(self.url.parse().expect("it printed a URL"));
        let connection = connect(&target, options).await?;
        Ok(Client { connection, last_id: 0, notes: Vec::new() })
    }

    async fn terminate(mut self) {
        let pid = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32)).expect("it runs");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
        let status = within(self.child.wait()).await.expect("it was ours");
        assert!(status.success(), "{status}");
    }
}

struct Client {
    connection: Connection,
    last_id: i64,
    notes: Vec<Value>,
}

impl Client {
    async fn initialize(&mut self) {
        let params = json!({
            "clientInfo": { "name": "test", "version": "1" }, "capabilities": { "experimentalApi": true },
        });
        let answer = self.call("initialize", params).await;
        assert!(answer["result"]["userAgent"].is_string(), "{answer}");
    }

    async fn send(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let request = json!({ "id": self.last_id, "method": method, "params": params }).to_string();
        self.connection.sender.feed(Message::Text(Bytes::from(request))).await.expect("the server reads");
        self.connection.sender.flush().await.expect("the server reads");
        self.last_id
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    async fn answer(&mut self, id: i64) -> Value {
        loop {
            let mut message = self.next().await;
            match message["id"] == id {
                true => {
                    message.as_object_mut().expect("a message is an object").remove("id");
                    return message;
                }
                false => self.notes.push(message),
            }
        }
    }

    async fn note(&mut self, method: &str) -> Value {
        loop {
            if let Some(at) = self.notes.iter().position(|note| note["method"] == method) {
                return self.notes.remove(at);
            }
            let message = self.next().await;
            self.notes.push(message);
        }
    }

    async fn next(&mut self) -> Value {
        match within(self.connection.receiver.next()).await {
            Received::Message(message) => serde_json::from_slice(message.bytes()).expect("JSON"),
            other => panic!("a message was due: {other:?}"),
        }
    }

    async fn end(mut self) -> ConnectionEnd {
        loop {
            if let Received::Closed(end) = within(self.connection.receiver.next()).await {
                return end;
            }
        }
    }

    /// Spawns a process that waits until it is ended, under a handle that every client uses.
    async fn spawn_waiting(&mut self) -> OsProcess {
        let params = json!({
            "command": ["/bin/sh", "-c", "echo $$; exec sleep 1000"], "processHandle": "h", "cwd": "/",
            "streamStdoutStderr": true, "timeoutMs": null,
        });
        assert_eq!(self.call("process/spawn", params).await, json!({ "result": {} }));
        let note = self.note("process/outputDelta").await;
        let line = exec_wire::base64::decode(note["params"]["deltaBase64"].as_str().expect("text").as_bytes());
        let line = String::from_utf8(line.expect("it is base64")).expect("a number");
        OsProcess::of(line.trim().parse().expect("a pid")).expect("it runs")
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("it comes in time")
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn trusting(fingerprint: Fingerprint) -> ConnectOptions {
    let options = TlsOptions { trust: TrustedServers::Fingerprint(fingerprint), certificate: None };
    ConnectOptions { tls: Some(ClientTls::load(&options).expect("it needs no file")), ..ConnectOptions::default() }
}

fn with_token(token: &str) -> ConnectOptions {
    ConnectOptions { bearer_token: Some(token.to_owned()), ..ConnectOptions::default() }
}

/// Two clients at a time: each has handles, watches and processes of its own, and those end with it and with nobody else.
async fn serves_two_clients(server: Listening, options: &ConnectOptions) {
    let folder = folder();
    let mut first = server.connect(options).await.expect("it lets us in");
    let mut second = server.connect(options).await.expect("it lets us in");
    let refused = json!({ "error": { "code": -32600, "message": "Not initialized" } });
    first.initialize().await;
    assert_eq!(second.call("fs/unwatch", json!({ "watchId": "w" })).await, refused);
    second.initialize().await;

    let (of_first, of_second) = (first.spawn_waiting().await, second.spawn_waiting().await);
    let watch = json!({ "watchId": "w", "path": folder.path() });
    assert_eq!(first.call("fs/watch", watch).await, json!({ "result": { "path": folder.path() } }));
    let file = folder.path().join("file");
    let write = json!({ "path": file, "dataBase64": "aGVsbG8=" });
    assert_eq!(second.call("fs/writeFile", write).await, json!({ "result": {} }));
    let changed = first.note("fs/changed").await;
    assert_eq!(changed["params"], json!({ "watchId": "w", "changedPaths": [file] }));

    let command = json!({ "command": ["cat", file], "sandboxPolicy": { "type": "dangerFullAccess" } });
    let printed = json!({ "result": { "exitCode": 0, "stdout": "hello", "stderr": "" } });
    let (one, other) = (first.send("command/exec", command.clone()).await, second.send("command/exec", command).await);
    assert_eq!((first.answer(one).await, second.answer(other).await), (printed.clone(), printed));

    drop(second);
    of_second.wait_until_gone().await;
    assert!(of_first.is_alive());
    assert_eq!(first.call("process/kill", json!({ "processHandle": "h" })).await, json!({ "result": {} }));
    assert_eq!(first.note("process/exited").await["params"]["exitCode"], 137);
    assert!(first.notes.iter().all(|note| note["method"] != "fs/changed"), "{:?}", first.notes);

    let left = first.spawn_waiting().await;
    server.terminate().await;
    left.wait_until_gone().await;
    first.end().await;
}

#[tokio::test]
async fn two_clients_are_served_over_websocket() {
    serves_two_clients(Listening::start("ws://127.0.0.1:0", &[]).await, &ConnectOptions::default()).await;
}

#[tokio::test]
async fn two_clients_are_served_over_websocket_with_tls() {
    let (server, fingerprint) = Listening::start_with_tls().await;
    serves_two_clients(server, &trusting(fingerprint)).await;
}

#[tokio::test]
async fn two_clients_are_served_over_a_unix_socket() {
    let folder = folder();
    let url = format!("unix://{}", folder.path().join("socket").display());
    serves_two_clients(Listening::start(&url, &[]).await, &ConnectOptions::default()).await;
}

#[tokio::test]
async fn a_server_with_another_certificate_is_not_trusted() {
    let (server, _) = Listening::start_with_tls().await;
    let other: Fingerprint = format!("sha256:{}", "0".repeat(64)).parse().expect("a fingerprint");
    for options in [ConnectOptions::default(), trusting(other)] {
        let refused = server.connect(&options).await.err().expect("it is refused");
        assert!(matches!(refused, ConnectError::Certificate { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn who_has_no_token_or_a_wrong_one_does_not_get_in() {
    let folder = folder();
    let path = folder.path().join("token");
    exec_server(&["token", "new", "--file", text(&path)]).await;
    let token = std::fs::read_to_string(&path).expect("it was made");
    let token = token.trim();
    let flags = ["--ws-auth", "capability-token", "--ws-token-file", text(&path)];
    let server = Listening::start("ws://127.0.0.1:0", &flags).await;
    for options in [ConnectOptions::default(), with_token("wrong"), with_token(&format!("{token}x"))] {
        match server.connect(&options).await.err().expect("it is refused") {
            ConnectError::Refused { status, .. } => assert_eq!(status, 401),
            other => panic!("{other:?}"),
        }
    }
    serves_two_clients(server, &with_token(token)).await;
}

/// Its scope is in the words of another protocol.
#[tokio::test]
async fn a_token_with_a_scope_ends_its_connection_at_once() {
    let folder = folder();
    let (key, token) = (folder.path().join("key"), folder.path().join("token"));
    exec_server(&["token", "keygen", "--file", text(&key)]).await;
    let scope = ["--subject", "alice", "--expires", "1h", "--methods", "process/*"];
    let new = ["token", "new", "--scoped", "--key", text(&key), "--file", text(&token)];
    exec_server(&[&new[..], &scope].concat()).await;
    let public = folder.path().join("key.pub");
    let flags = ["--ws-auth", "scoped-token", "--ws-public-key", text(&public)];
    let server = Listening::start("ws://127.0.0.1:0", &flags).await;
    let token = std::fs::read_to_string(&token).expect("it was made");
    let client = server.connect(&with_token(token.trim())).await.expect("the token is good");
    match client.end().await {
        ConnectionEnd::ByPeer(reason) => {
            assert_eq!(reason.code, CloseReason::POLICY, "{reason}");
            assert!(reason.reason.contains("a token with a scope does not count here"), "{reason}");
        }
        other => panic!("the server says why: {other}"),
    }
}

/// Runs a command of ours to its end.
async fn exec_server(arguments: &[&str]) {
    let done = Command::new(binaries::exec_server()).args(arguments).output().await.expect("it starts");
    assert!(done.status.success(), "{done:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}
