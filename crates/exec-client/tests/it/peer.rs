//! A scripted server at the other end of a memory pair: it sends what the test tells it to send, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exec_client::{ConnectFailure, Options, RemoteEnvironment};
use exec_core::{Command, ProcessId};
use exec_env::BoxFuture;
use exec_transport::{CloseReason, ConnectError, Connection, Message, Received, memory_pair};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The extensions our server has, as far as processes are concerned.
pub(crate) const OURS: &[&str] = &[
    "initialize.resumeFrom",
    "process/start.size",
    "process/start.timeoutMs",
    "process/start.overflow",
    "process/read.head",
    "process/terminate.graceMs",
    "process/signal.all",
    "process/resize",
    "process/closeStdin",
    "process/list",
    "process/wait",
    "process/forget",
    "osText",
];

/// A server whose answers the test writes: it accepts the connections of one client.
pub(crate) struct ScriptedServer {
    dials: mpsc::Receiver<Connection>,
    shut: Arc<AtomicBool>,
}

/// The server's end of one connection.
pub(crate) struct Peer {
    connection: Connection,
}

/// A server, and how to dial it.
pub(crate) fn server() -> (ScriptedServer, Arc<dyn exec_client::Dial>) {
    let (dialed, dials) = mpsc::channel(16);
    let shut = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&shut);
    let dial = move || -> BoxFuture<'static, Result<Connection, ConnectError>> {
        let (dialed, closed) = (dialed.clone(), Arc::clone(&closed));
        Box::pin(async move {
            let refused =
                |kind: std::io::ErrorKind| ConnectError::Unreachable { target: "memory".into(), source: kind.into() };
            if closed.load(Ordering::Acquire) {
                return Err(refused(std::io::ErrorKind::ConnectionRefused));
            }
            let (near, far) = memory_pair(4096);
            dialed.send(far).await.map_err(|_| refused(std::io::ErrorKind::ConnectionReset))?;
            Ok(near)
        })
    };
    (ScriptedServer { dials, shut }, Arc::new(dial))
}

/// Options without randomness, and without raw frames unless a test wants them.
pub(crate) fn options() -> Options {
    Options { seed: Some(1), binary_frames: false, ..Options::default() }
}

impl ScriptedServer {
    /// The next connection.
    pub(crate) async fn next(&mut self) -> Peer {
        Peer { connection: self.dials.recv().await.expect("the client keeps the other end") }
    }

    /// Refuses all connections from now on.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::Release);
    }

    /// The next connection, whose `initialize` is accepted as session `s`.
    pub(crate) async fn accept(&mut self, extensions: &[&str]) -> Peer {
        let mut peer = self.next().await;
        let (id, params) = peer.expect("initialize").await;
        let granted = params.get("resumeFrom").filter(|_| extensions.contains(&"initialize.resumeFrom")).cloned();
        let mut result = json!({ "sessionId": "s", "environmentInfo": info(extensions) });
        if let Some(granted) = granted {
            result["resumeFrom"] = granted;
        }
        result["binaryFrames"] = json!(params["binaryFrames"] == true);
        peer.reply(&id, result).await;
        peer.initialized().await;
        peer
    }
}

/// A client, and the server it is connected to.
pub(crate) async fn connect(extensions: &[&str], options: Options) -> (RemoteEnvironment, ScriptedServer, Peer) {
    let (mut server, dial) = server();
    let (environment, peer) = tokio::join!(RemoteEnvironment::open(dial, options), server.accept(extensions));
    (environment.expect("it was accepted"), server, peer)
}

/// What a client says whose `initialize` is refused.
pub(crate) async fn rejected(options: Options, error: Value) -> ConnectFailure {
    let (mut server, dial) = server();
    let refuse = async {
        let mut peer = server.next().await;
        peer.reject("initialize", error).await;
        peer
    };
    let (environment, _peer) = tokio::join!(RemoteEnvironment::open(dial, options), refuse);
    environment.expect_err("it was refused")
}

pub(crate) fn info(extensions: &[&str]) -> Value {
    json!({
        "shell": { "name": "bash", "path": "/bin/bash" },
        "executorVersion": "1.2.3",
        "cwd": "file:///srv",
        "platformOs": "linux",
        "extensions": extensions,
    })
}

impl Peer {
    /// The next message, whatever it is.
    pub(crate) async fn message(&mut self) -> Value {
        match self.connection.receiver.next().await {
            Received::Message(message) => serde_json::from_slice(message.bytes()).expect("the client writes JSON"),
            other => panic!("a message was expected, not {other:?}"),
        }
    }

    /// The next message, which must be raw bytes.
    pub(crate) async fn frame(&mut self) -> Bytes {
        match self.connection.receiver.next().await {
            Received::Message(Message::Binary(frame)) => frame,
            other => panic!("raw bytes were expected, not {other:?}"),
        }
    }

    /// The next message, which must be this request: its id and params.
    pub(crate) async fn expect(&mut self, method: &str) -> (Value, Value) {
        let mut message = self.message().await;
        assert_eq!(message["method"], method, "{message}");
        (message["id"].take(), message["params"].take())
    }

    pub(crate) async fn initialized(&mut self) {
        assert_eq!(self.message().await, json!({ "method": "initialized", "params": {} }));
    }

    pub(crate) async fn send(&mut self, message: Value) {
        let text = Message::Text(message.to_string().into());
        self.connection.sender.feed(text).await.expect("the client reads");
    }

    pub(crate) async fn send_raw(&mut self, message: Message) {
        self.connection.sender.feed(message).await.expect("the client reads");
    }

    pub(crate) async fn reply(&mut self, id: &Value, result: Value) {
        self.send(json!({ "id": id, "result": result })).await;
    }

    pub(crate) async fn refuse(&mut self, id: &Value, error: Value) {
        self.send(json!({ "error": error, "id": id })).await;
    }

    /// Replies to the next message, which must be this request.
    pub(crate) async fn answer(&mut self, method: &str, result: Value) {
        let (id, _) = self.expect(method).await;
        self.reply(&id, result).await;
    }

    /// Refuses the next message, which must be this request.
    pub(crate) async fn reject(&mut self, method: &str, error: Value) {
        let (id, _) = self.expect(method).await;
        self.refuse(&id, error).await;
    }

    pub(crate) async fn push(&mut self, seq: u64, text: &str) {
        let chunk = exec_wire::base64::encode(text.as_bytes());
        let params = json!({ "processId": "p", "seq": seq, "stream": "stdout", "chunk": chunk });
        self.send(json!({ "method": "process/output", "params": params })).await;
    }

    pub(crate) async fn push_end(&mut self, exit_seq: u64, code: i32) {
        let params = json!({ "processId": "p", "seq": exit_seq, "exitCode": code, "sandboxDenied": false });
        self.send(json!({ "method": "process/exited", "params": params })).await;
        let params = json!({ "processId": "p", "seq": exit_seq + 1 });
        self.send(json!({ "method": "process/closed", "params": params })).await;
    }

    /// Answers one `process/start` of `p`.
    pub(crate) async fn start(&mut self) {
        let (id, params) = self.expect("process/start").await;
        assert_eq!(params["processId"], "p");
        self.reply(&id, json!({ "processId": "p", "pid": 42 })).await;
    }

    /// Waits until the client has closed the connection; returns its reason.
    pub(crate) async fn left(mut self) -> Option<CloseReason> {
        loop {
            match self.connection.receiver.next().await {
                Received::Closed(exec_transport::ConnectionEnd::ByPeer(reason)) => return Some(reason),
                Received::Closed(_) => return None,
                _ => {}
            }
        }
    }

    /// Breaks the connection.
    pub(crate) fn cut(self) {
        drop(self);
    }
}

pub(crate) fn process_id() -> ProcessId {
    ProcessId::new("p").expect("short")
}

pub(crate) fn command() -> Command {
    Command::new(["/bin/true"], "/w")
}

/// Waits for something for which the client has no event. It never waits for time to pass.
pub(crate) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it happens within half a minute")
}
