//! The server and its connections over a pair in memory, with an environment whose processes do what a test says.
//!
//! What needs real processes is judged in `exec-testkit`.

mod admission;
mod bounds;
mod fake_environment;
mod grants;
mod observers;
mod sessions;

use std::sync::Arc;

use bytes::Bytes;
use exec_rpc::{Server, ServerOptions};
use exec_transport::{Connection, Grant, Identity, Message, Received, memory_pair};
use fake_environment::FakeEnvironment;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Messages that each direction of a pair holds.
const PAIR_MESSAGES: usize = 16;

/// A server over a fake environment.
struct TestServer {
    server: Arc<Server>,
    environment: Arc<FakeEnvironment>,
}

impl TestServer {
    async fn start() -> Self {
        Self::start_with(ServerOptions::default(), Arc::default()).await
    }

    async fn start_with(options: ServerOptions, environment: Arc<FakeEnvironment>) -> Self {
        let server = Server::start(environment.clone(), options).await.expect("what there is can be recovered");
        Self { server, environment }
    }

    fn connect(&self) -> TestClient {
        self.connect_with(Grant::Everything)
    }

    /// A connection whose token permits so much.
    fn connect_with(&self, grant: Grant) -> TestClient {
        let (client, served) = memory_pair(PAIR_MESSAGES);
        let served = Connection { identity: Identity { grant, ..Identity::default() }, ..served };
        let server = self.server.clone();
        let serving = tokio::spawn(async move { server.serve(served).await });
        TestClient { connection: client, serving, next_id: 1, session: String::new() }
    }

    /// A connection with a session of its own.
    async fn client(&self) -> TestClient {
        let mut client = self.connect();
        let answer = client.initialize(json!({"clientName": "test"})).await;
        assert!(answer["result"].is_object(), "{answer}");
        client
    }
}

struct TestClient {
    connection: Connection,
    /// What the server does for this connection.
    serving: JoinHandle<()>,
    next_id: i64,
    session: String,
}

impl TestClient {
    async fn initialize(&mut self, params: Value) -> Value {
        let answer = self.call("initialize", params).await;
        if let Some(session) = answer["result"]["sessionId"].as_str() {
            self.session = session.to_owned();
            self.send(r#"{"method":"initialized"}"#).await;
        }
        answer
    }

    async fn send(&mut self, text: &str) {
        self.try_send(text).await.expect("the server reads");
    }

    async fn try_send(&mut self, text: &str) -> Result<(), exec_transport::SendError> {
        let message = Message::Text(Bytes::copy_from_slice(text.as_bytes()));
        self.connection.sender.feed(message).await?;
        self.connection.sender.flush().await
    }

    /// Sends a request and does not wait for the answer.
    async fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// The answer to a request. Notifications and answers to others are dropped.
    async fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
        }
    }

    async fn next(&mut self) -> Value {
        match self.connection.receiver.next().await {
            Received::Message(message) => serde_json::from_slice(message.bytes()).expect("the server writes JSON"),
            other => panic!("{other:?} instead of a message"),
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.answer(id).await
    }

    async fn start_process(&mut self, process_id: &str) -> Value {
        self.call("process/start", start_params(process_id)).await
    }
}

fn start_params(process_id: &str) -> Value {
    json!({"processId": process_id, "argv": ["/bin/true"], "cwd": "file:///", "env": {}, "tty": false, "pipeStdin": true})
}

/// What went wrong, for programs and for people.
fn error_of(answer: &Value) -> (i64, String, String) {
    let error = &answer["error"];
    let text = |member: &Value| member.as_str().unwrap_or_default().to_owned();
    (error["code"].as_i64().unwrap_or(0), text(&error["data"]["kind"]), text(&error["message"]))
}
