//! `network/policyRequest` and `network/policyDecision` on the wire: to whom, with which ids, and what counts as no.

use bytes::Bytes;
use exec_local::{LocalEnvironment, LocalOptions};
use exec_rpc::{Server, ServerOptions};
use exec_transport::{Connection, Message, Received, memory_pair};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

use crate::environments::ACTOR;

struct Wire {
    server: Arc<Server>,
    tasks: JoinSet<()>,
}

impl Wire {
    async fn start() -> Self {
        let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
        let server = Server::start(Arc::new(environment), ServerOptions::default()).await.expect("a server can begin");
        Self { server, tasks: JoinSet::new() }
    }

    /// A connection that has done the handshake, and its session.
    async fn connect(&mut self, resume: Option<&str>) -> (Connection, String) {
        let (mut client, server_end) = memory_pair(64);
        let server = self.server.clone();
        self.tasks.spawn(async move { server.serve(server_end).await });
        send(
            &mut client,
            &json!({"id": 1, "method": "initialize", "params": {"clientName": "t", "resumeSessionId": resume}}),
        )
        .await;
        let answer = receive(&mut client, |message| message["id"] == 1).await;
        send(&mut client, &json!({"method": "initialized"})).await;
        let session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
        (client, session)
    }
}

async fn send(client: &mut Connection, message: &Value) {
    client.sender.feed(Message::Text(Bytes::from(message.to_string()))).await.expect("the server reads");
    client.sender.flush().await.expect("the server reads");
}

async fn receive(client: &mut Connection, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let Received::Message(message) = client.receiver.next().await else { panic!("the connection is over") };
        let message: Value = serde_json::from_slice(message.bytes()).expect("JSON");
        if wanted(&message) {
            return message;
        }
    }
}

/// Starts an actor that asks for a host without a rule.
async fn start(client: &mut Connection, id: &str, words: &[&str]) {
    let argv: Vec<&str> = [ACTOR].iter().chain(words).copied().collect();
    let proxy = json!({"enabled": true, "enableSocks5": false, "enableSocks5Udp": false, "allowUpstreamProxy": false,
        "dangerouslyAllowAllUnixSockets": false, "mode": "full", "allowLocalBinding": true});
    let params = json!({"processId": id, "argv": argv, "cwd": "file:///", "env": {}, "tty": false, "pipeStdin": true,
        "networkProxy": {"proxy": proxy, "policyDecisionTimeoutMs": 60_000}});
    send(client, &json!({"id": 2, "method": "process/start", "params": params})).await;
    let started = receive(client, |message| message["id"] == 2).await;
    assert_eq!(started["result"]["processId"], id, "{started}");
}

const GET: &str = "GET http://a.test/ HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n";

fn is_question(message: &Value) -> bool {
    message["method"] == "network/policyRequest"
}

fn is_decision(message: &Value) -> bool {
    message["method"] == "network/policyDecision"
}

#[tokio::test]
async fn questions_are_counted_from_one_and_what_is_no_answer_is_no() {
    let mut wire = Wire::start().await;
    let (mut client, _) = wire.connect(None).await;
    let answers = [
        json!({"result": {"decision": {"type": "deny", "reason": "nope"}}}),
        json!({"result": {"decision": {"type": "ask", "reason": "later"}}}),
        json!({"error": {"code": -32601, "message": "unknown"}}),
        json!({"result": {}}),
        json!({"result": {"decision": {"type": "perhaps"}}}),
    ];
    let reasons = ["nope", "later", "not_allowed", "not_allowed", "not_allowed"];
    for (id, (mut answer, reason)) in (1..).zip(answers.into_iter().zip(reasons)) {
        start(&mut client, &format!("p{id}"), &["say-to", "HTTP_PROXY", GET]).await;
        let question = receive(&mut client, is_question).await;
        let request = json!({"protocol": "http", "host": "a.test", "port": 80});
        let params = json!({"processId": format!("p{id}"), "request": request});
        assert_eq!(question, json!({"id": id, "method": "network/policyRequest", "params": params}));
        answer["id"] = json!(id);
        send(&mut client, &answer).await;
        let mut told = receive(&mut client, is_decision).await["params"].clone();
        for varying in ["timestamp", "client"] {
            assert!(told[varying].is_string(), "{told}");
            told.as_object_mut().expect("an object").remove(varying);
        }
        let decision = if reason == "later" { "ask" } else { "deny" };
        assert_eq!(
            told,
            json!({"processId": format!("p{id}"), "scope": "domain", "decision": decision, "source": "decider",
            "reason": reason, "protocol": "http", "host": "a.test", "port": 80, "method": "GET", "policyOverride": false})
        );
    }
}

#[tokio::test]
async fn a_resumed_session_is_asked_on_its_new_connection_and_a_lost_one_means_no() {
    let mut wire = Wire::start().await;
    let (mut first, session) = wire.connect(None).await;
    start(&mut first, "p", &["say-to", "HTTP_PROXY", GET, ";", "read-line", ";", "say-to", "HTTP_PROXY", GET]).await;
    assert_eq!(receive(&mut first, is_question).await["id"], 1);
    // Nobody answers, and the connection is gone: that is a no, at once.
    drop(first);
    let (mut second, _) = wire.connect(Some(&session)).await;
    let read = json!({"id": 3, "method": "process/read", "params": {"processId": "p", "waitMs": 60_000}});
    send(&mut second, &read).await;
    let page = receive(&mut second, |message| message["id"] == 3).await;
    assert!(!page["result"]["chunks"].as_array().expect("chunks").is_empty(), "{page}");
    let line = json!({"processId": "p", "writeId": "1", "chunk": "Cg=="});
    send(&mut second, &json!({"id": 4, "method": "process/write", "params": line})).await;
    let question = receive(&mut second, is_question).await;
    assert_eq!((&question["id"], &question["params"]["processId"]), (&json!(1), &json!("p")));
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    let mut wire = Wire::start().await;
    for unasked in [json!(1), json!(-1), json!("1")] {
        let (mut client, _) = wire.connect(None).await;
        send(&mut client, &json!({"id": unasked, "result": {"decision": {"type": "allow"}}})).await;
        while let Received::Message(_) = client.receiver.next().await {}
    }
}
