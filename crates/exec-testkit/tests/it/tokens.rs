//! What a token decides about its connection and its session, whoever checked it; and what every client may send.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_local::{LocalEnvironment, LocalOptions};
use exec_rpc::{Server, ServerOptions};
use exec_transport::{CloseReason, Connection, ConnectionEnd, Identity, Message, Received, memory_pair};
use serde_json::{Value, json};
use tokio::task::JoinSet;

struct TokenServer {
    server: Arc<Server>,
    tasks: JoinSet<()>,
}

impl TokenServer {
    async fn start() -> Self {
        let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
        let server = Server::start(Arc::new(environment), ServerOptions::default()).await.expect("a server can begin");
        Self { server, tasks: JoinSet::new() }
    }

    /// A connection whose token says this of it.
    fn connect(&mut self, subject: Option<&str>, expires: Option<SystemTime>) -> Connection {
        let (client, server_end) = memory_pair(64);
        let identity = Identity { subject: subject.map(str::to_owned), expires, ..Identity::default() };
        let (server, connection) = (self.server.clone(), Connection { identity, ..server_end });
        self.tasks.spawn(async move { server.serve(connection).await });
        client
    }

    /// The answer to `initialize` of a client with a token of this subject.
    async fn initialize(&mut self, subject: Option<&str>, resume: Option<&str>) -> Value {
        let mut client = self.connect(subject, None);
        call(&mut client, "initialize", json!({"clientName": "test", "resumeSessionId": resume})).await
    }
}

async fn send(client: &mut Connection, message: Message) {
    client.sender.feed(message).await.expect("the server reads");
    client.sender.flush().await.expect("the server reads");
}

/// The next message that is an answer.
async fn answer(client: &mut Connection) -> Value {
    loop {
        let Received::Message(message) = client.receiver.next().await else { panic!("the connection is over") };
        let message: Value = serde_json::from_slice(message.bytes()).expect("JSON");
        if message.get("id").is_some() {
            return message;
        }
    }
}

async fn call(client: &mut Connection, method: &str, params: Value) -> Value {
    let request = json!({"id": 1, "method": method, "params": params}).to_string();
    send(client, Message::Text(Bytes::from(request))).await;
    answer(client).await
}

#[tokio::test]
async fn a_session_belongs_to_the_subject_of_the_token_that_opened_it() {
    let mut server = TokenServer::start().await;
    let opened = server.initialize(Some("alice"), None).await;
    let session = opened["result"]["sessionId"].as_str().expect("a session").to_owned();
    for stranger in ["bob", ""] {
        let refused = server.initialize(Some(stranger), Some(&session)).await;
        assert_eq!(refused["error"]["message"], format!("unknown session id {session}"), "{stranger}");
    }
    for friend in [Some("alice"), None] {
        let resumed = server.initialize(friend, Some(&session)).await;
        assert_eq!(resumed["result"]["sessionId"], session.as_str(), "{friend:?}");
    }
}

#[tokio::test]
async fn a_connection_ends_with_its_token() {
    let mut server = TokenServer::start().await;
    let mut client = server.connect(Some("alice"), Some(SystemTime::now() + Duration::from_millis(300)));
    let end = loop {
        match client.receiver.next().await {
            Received::Closed(end) => break end,
            Received::Message(_) | Received::Malformed { .. } => {}
        }
    };
    let ConnectionEnd::ByPeer(reason) = end else { panic!("the server says why: {end}") };
    assert_eq!(reason.code, CloseReason::POLICY);
    assert!(reason.reason.contains("the token has expired"), "{reason}");
}

#[tokio::test]
async fn a_binary_message_that_is_nothing_is_answered_as_malformed_and_the_connection_lives() {
    let mut server = TokenServer::start().await;
    let mut client = server.connect(None, None);
    for binary_frames in [false, true] {
        if binary_frames {
            call(&mut client, "initialize", json!({"clientName": "test", "binaryFrames": true})).await;
        }
        for bytes in [&b"\xff\xfe\x00junk"[..], b"\x00", b"{not json"] {
            send(&mut client, Message::Binary(Bytes::from_static(bytes))).await;
            let told = answer(&mut client).await;
            assert_eq!((&told["id"], &told["error"]["code"]), (&json!(-1), &json!(-32600)), "{bytes:?}");
        }
    }
    send(&mut client, Message::Text(Bytes::from_static(b"{\"method\":\"initialized\"}"))).await;
    assert_eq!(call(&mut client, "environment/status", json!({})).await["result"]["status"], "ready");
}

#[tokio::test]
async fn a_process_id_of_a_thousand_characters_works() {
    let mut server = TokenServer::start().await;
    let mut client = server.connect(None, None);
    call(&mut client, "initialize", json!({"clientName": "test"})).await;
    send(&mut client, Message::Text(Bytes::from_static(b"{\"method\":\"initialized\"}"))).await;
    for id in ["x".repeat(1000), "\u{1f600}".repeat(1000)] {
        let start = json!({"processId": id, "argv": ["true"], "cwd": "file:///", "env": {}, "tty": false});
        assert_eq!(call(&mut client, "process/start", start).await["result"]["processId"], id.as_str());
        let read = call(&mut client, "process/read", json!({"processId": id, "waitMs": 60_000})).await;
        assert_eq!(read["result"]["exitCode"], 0, "{read}");
    }
}

#[tokio::test]
async fn a_network_that_was_to_be_managed_is_never_left_open() {
    let mut server = TokenServer::start().await;
    let mut client = server.connect(None, None);
    call(&mut client, "initialize", json!({"clientName": "test"})).await;
    send(&mut client, Message::Text(Bytes::from_static(b"{\"method\":\"initialized\"}"))).await;
    let sandbox = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled",
        "windowsSandboxPrivateDesktop": false, "useLegacyLandlock": false});
    let start = |id: &str, enforce: bool| {
        json!({"processId": id, "argv": ["true"], "cwd": "file:///", "env": {}, "tty": false,
            "sandbox": sandbox, "enforceManagedNetwork": enforce})
    };
    let open = call(&mut client, "process/start", start("open", false)).await;
    assert_eq!(open["result"]["processId"], "open", "{open}");
    let refused = call(&mut client, "process/start", start("managed", true)).await;
    assert_eq!(refused["error"]["message"], "sandbox intent cannot be enforced on this executor", "{refused}");
}
