//! A server that means harm, for tests of clients: it speaks the protocol well enough to be listened to, and answers
//! every request as the test says.
//!
//! It listens on a real unix socket, so that the real binary can be its client. What the test leaves undecided is
//! answered as a harmless server would: `initialize` with every extension of ours, the end of a session, and an error
//! for the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use exec_transport::{CloseReason, Connection, ListenOptions, ListenUrl, Listener, Message, Received};
use exec_wire::Extension;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// What the server does about one request, in order.
#[derive(Debug, Clone)]
pub enum Action {
    /// Answers with this result.
    Result(Value),
    /// Refuses with this message.
    Refuse(String),
    /// Sends this message, whatever it is.
    Send(Value),
    /// Sends this text, which need not be JSON.
    SendText(Bytes),
    /// Sends this message again and again, with a counter in the place of `"SEQ"`, until the client is gone.
    Flood(Value),
    /// Closes the connection with this reason.
    Close(String),
}

type Script = dyn Fn(&str, &Value) -> Option<Vec<Action>> + Send + Sync;

/// It stops when this is dropped.
#[derive(Debug)]
pub struct HostileServer {
    url: String,
    connections: Arc<AtomicUsize>,
    _directory: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl HostileServer {
    /// `script` is told the method and the params of each request. `None` leaves the answer to us.
    pub async fn start(script: impl Fn(&str, &Value) -> Option<Vec<Action>> + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let listen = ListenUrl::Unix(directory.path().join("s"));
        let mut listener = Listener::bind(&listen, ListenOptions::default()).await.expect("the directory is new");
        let url = listener.url().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, script) = (Arc::clone(&connections), Arc::new(script) as Arc<Script>);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut served = JoinSet::new();
            while let Ok(connection) = listener.accept().await {
                count.fetch_add(1, Ordering::AcqRel);
                served.spawn(serve(connection, Arc::clone(&script)));
            }
        });
        Self { url, connections, _directory: directory, _tasks: tasks }
    }

    /// For `--connect`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

/// The answer to `initialize` of a server with every extension of ours but these.
pub fn welcome(without: &[&str]) -> Value {
    let extensions = Extension::all().map(|extension| extension.name()).filter(|name| !without.contains(name));
    json!({
        "sessionId": "00000000-0000-4000-8000-000000000000",
        "requestMemory": "m",
        "environmentInfo": {
            "shell": { "name": "sh", "path": "/bin/sh" },
            "cwd": "file:///evil",
            "platformOs": "linux",
            "executorVersion": "1.0",
            "extensions": extensions.collect::<Vec<_>>(),
        },
    })
}

async fn serve(connection: Connection, script: Arc<Script>) {
    let Connection { mut sender, mut receiver, .. } = connection;
    loop {
        let Received::Message(message) = receiver.next().await else { return };
        let Ok(message) = serde_json::from_slice::<Value>(message.bytes()) else { continue };
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else { continue };
        let actions = script(method, &message["params"]).unwrap_or_else(|| vec![harmless(method)]);
        for action in actions {
            let sent = match action {
                Action::Result(result) => sender.feed(text(&json!({ "id": id, "result": result }))).await,
                Action::Refuse(why) => {
                    let error = json!({ "code": -32603, "message": why });
                    sender.feed(text(&json!({ "error": error, "id": id }))).await
                }
                Action::Send(message) => sender.feed(text(&message)).await,
                Action::SendText(text) => sender.feed(Message::Text(text)).await,
                Action::Flood(message) => {
                    let pattern = message.to_string();
                    let mut seq = 0_u64;
                    loop {
                        seq += 1;
                        let numbered = pattern.replace("\"SEQ\"", &seq.to_string());
                        let sent = sender.feed(Message::Text(numbered.into())).await;
                        let sent = if sent.is_ok() { sender.flush().await } else { sent };
                        if sent.is_err() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                }
                Action::Close(reason) => return sender.close(CloseReason::new(CloseReason::POLICY, reason)).await,
            };
            if sent.is_err() {
                return;
            }
        }
        if sender.flush().await.is_err() {
            return;
        }
    }
}

fn harmless(method: &str) -> Action {
    match method {
        "initialize" => Action::Result(welcome(&[])),
        "session/close" => Action::Result(json!({})),
        "environment/info" => Action::Result(welcome(&[])["environmentInfo"].clone()),
        _ => Action::Refuse(format!("{method} is not known here")),
    }
}

fn text(message: &Value) -> Message {
    Message::Text(message.to_string().into())
}
