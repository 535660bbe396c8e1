//! What an audit is told: each thing that happens has one event, also if its request is repeated after a break.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use exec_local::{LocalEnvironment, LocalOptions};
use exec_rpc::audit::{AuditReceiver, audit_queue};
use exec_rpc::{Ceiling, Server, ServerOptions};
use exec_transport::{Connection, Message, Received, memory_pair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::environments::ACTOR;

struct AuditedServer {
    server: Arc<Server>,
    tasks: JoinSet<()>,
    events: Arc<Mutex<Vec<Value>>>,
}

impl AuditedServer {
    async fn start(ceiling: &str) -> Self {
        let (sink, receiver) = audit_queue(true);
        let ceiling = Arc::new(Ceiling::parse(ceiling, Path::new("ceiling.toml")).expect("the test's ceiling is good"));
        let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
        let options = ServerOptions { ceiling, audit: Some(sink), ..ServerOptions::default() };
        let server = Server::start(Arc::new(environment), options).await.expect("a server can begin");
        let (events, mut tasks) = (Arc::default(), JoinSet::new());
        tasks.spawn(collect(receiver, Arc::clone(&events)));
        Self { server, tasks, events }
    }

    fn connect(&mut self) -> Client {
        let (connection, server_end) = memory_pair(64);
        let server = self.server.clone();
        self.tasks.spawn(async move { server.serve(server_end).await });
        Client { connection, next_id: 0, session: String::new() }
    }

    /// The events of this kind so far.
    fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.events.lock().expect("no holder of this lock panics");
        events.iter().filter(|event| event["event"] == kind).cloned().collect()
    }

    /// The same, when there are so many.
    async fn some_events(&self, kind: &str, count: usize) -> Vec<Value> {
        loop {
            let events = self.events(kind);
            if events.len() >= count {
                return events;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// The audit is required, so what a request is answered was told before.
async fn collect(mut receiver: AuditReceiver, events: Arc<Mutex<Vec<Value>>>) {
    while let Some(record) = receiver.next().await {
        let event = serde_json::to_value(&record.event).expect("plain data");
        events.lock().expect("no holder of this lock panics").push(event);
        if let Some(written) = record.written {
            let _ = written.send(());
        }
    }
}

struct Client {
    connection: Connection,
    next_id: u64,
    session: String,
}

impl Client {
    async fn begin(&mut self, resume: Option<&str>) {
        let params = json!({"clientName": "test", "requestScope": "scope", "resumeSessionId": resume});
        let opened = self.call("initialize", params).await;
        self.session = opened["result"]["sessionId"].as_str().expect("a session").to_owned();
        self.send(json!({"method": "initialized"})).await;
    }

    async fn send(&mut self, message: Value) {
        let message = Message::Text(Bytes::from(message.to_string()));
        self.connection.sender.feed(message).await.expect("the server reads");
        self.connection.sender.flush().await.expect("the server reads");
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        self.send(json!({"id": self.next_id, "method": method, "params": params})).await;
        loop {
            let Received::Message(message) = self.connection.receiver.next().await else {
                panic!("the connection is over")
            };
            let message: Value = serde_json::from_slice(message.bytes()).expect("JSON");
            if message.get("id").is_some() {
                return message;
            }
        }
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn sandbox(write: &Path) -> Value {
    let entry = |path: &Path, access: &str| json!({"path": {"type": "path", "path": uri(path)}, "access": access});
    let files = json!({"type": "restricted", "entries": [entry(Path::new("/"), "read"), entry(write, "write")]});
    json!({"permissions": {"type": "managed", "file_system": files, "network": "restricted"},
        "windowsSandboxLevel": "disabled"})
}

/// Every call that changes files, in an order in which all can be done.
fn changes(folder: &Path) -> Vec<(&'static str, Value, Vec<String>)> {
    let path = |name: &str| uri(&folder.join(name));
    let (a, b, c) = (path("a"), path("b"), path("c"));
    vec![
        ("fs/writeFile", json!({"path": a, "dataBase64": "eA=="}), vec![a.clone()]),
        ("fs/open", json!({"handleId": "h", "path": a, "mode": "append"}), vec![a.clone()]),
        ("fs/setPermissions", json!({"path": a, "mode": 0o600}), vec![a.clone()]),
        ("fs/setTimes", json!({"path": a, "accessedNs": 1, "modifiedNs": 1}), vec![a.clone()]),
        ("fs/setAttributes", json!({"path": a, "attributes": [{"name": "n", "dataBase64": "eA=="}]}), vec![a.clone()]),
        ("fs/copy", json!({"sourcePath": a, "destinationPath": b, "recursive": false}), vec![a.clone(), b.clone()]),
        ("fs/rename", json!({"sourcePath": b, "destinationPath": c}), vec![b, c.clone()]),
        ("fs/createSymlink", json!({"path": path("l"), "target": "a"}), vec![path("l")]),
        ("fs/createDirectory", json!({"path": path("d")}), vec![path("d")]),
        (
            "fs/applyChanges",
            json!({"changes": [{"kind": "write", "path": path("n"), "dataBase64": ""}, {"kind": "remove", "path": path("l")}]}),
            vec![path("n"), path("l")],
        ),
        ("fs/remove", json!({"path": c}), vec![c]),
    ]
}

#[tokio::test]
async fn every_change_of_files_is_told_once_also_if_it_is_repeated_after_a_break() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut server = AuditedServer::start("").await;
    let mut client = server.connect();
    client.begin(None).await;
    let mut expected = Vec::new();
    for (method, params, paths) in changes(folder.path()) {
        let answer = client.call(method, params).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        expected.push(json!({"event": "fileChanged", "session": client.session, "method": method, "paths": paths,
            "outcome": "done"}));
    }
    let missing = uri(&folder.path().join("no/such/file"));
    client.call("fs/setPermissions", json!({"path": missing, "mode": 0o600})).await;
    expected.push(json!({"event": "fileChanged", "session": client.session, "method": "fs/setPermissions",
        "paths": [missing], "outcome": "failed", "error": "ENOENT"}));
    let reading = json!({"handleId": "r", "path": uri(&folder.path().join("a"))});
    client.call("fs/open", reading).await;
    assert_eq!(server.events("fileChanged"), expected);

    // The client comes back and asks for all of it again, as it must when it has not seen the answers.
    let mut again = server.connect();
    again.begin(Some(&client.session)).await;
    assert_eq!(again.next_id, 1);
    for (method, params, _) in changes(folder.path()) {
        again.call(method, params).await;
    }
    assert_eq!(server.events("fileChanged"), expected);
    let opened = json!([{"event": "sessionOpened", "session": again.session, "client": "test", "peer": "memory"}]);
    assert_eq!(json!(server.events("sessionOpened")), opened);
    assert_eq!(server.events("sessionResumed").len(), 1);
    again.call("session/close", json!({"sessionId": again.session})).await;
    let closed = server.some_events("sessionClosed", 1).await;
    assert_eq!(closed, [json!({"event": "sessionClosed", "session": again.session, "reason": "closed"})]);
}

#[tokio::test]
async fn starts_and_exits_are_told_once_with_their_arguments_and_no_values_of_variables() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut server = AuditedServer::start("").await;
    let mut client = server.connect();
    client.begin(None).await;
    let variables = json!({"PATH": "/usr/bin:/bin", "SECRET": "s3cret"});
    let start = |id: &str, script: &str, sandbox: Value| {
        json!({"processId": id, "argv": ["/bin/sh", "-c", script], "cwd": uri(folder.path()), "env": variables,
            "tty": false, "sandbox": sandbox})
    };
    let first_id = client.next_id;
    client.call("process/start", start("plain", "exit 3", Value::Null)).await;
    let bound = client.call("process/start", start("bound", "echo no > /etc/no", sandbox(folder.path()))).await;
    assert!(bound.get("result").is_some(), "{bound}");
    let mut missing = start("missing", "", Value::Null);
    missing["argv"] = json!(["/no/such/program"]);
    client.call("process/start", missing).await;
    let exited = server.some_events("processExited", 2).await;
    let denied = server.some_events("denied", 1).await;
    let started = server.events("processStarted");
    let told: Vec<(&str, &str)> = started
        .iter()
        .map(|event| (event["process"].as_str().expect("its id"), event["outcome"].as_str().expect("its outcome")))
        .collect();
    assert_eq!(told, [("plain", "done"), ("bound", "done"), ("missing", "failed")]);
    assert_eq!(started[0]["argv"], json!(["/bin/sh", "-c", "exit 3"]));
    assert_eq!((&started[0]["sandbox"], &started[0]["cwd"]), (&json!([]), &json!(folder.path())));
    assert!(started[1]["sandbox"].as_array().is_some_and(|means| !means.is_empty()), "{}", started[1]);
    let mut codes: Vec<(&str, i64)> = exited
        .iter()
        .map(|event| (event["process"].as_str().expect("its id"), event["code"].as_i64().expect("its code")))
        .collect();
    codes.sort_unstable();
    assert_eq!((codes[0].0, codes[1]), ("bound", ("plain", 3)));
    assert!(exited.iter().all(|event| event["cause"] == "exited"), "{exited:?}");
    assert_eq!((&denied[0]["rule"], &denied[0]["process"]), (&json!("sandbox"), &json!("bound")));

    let mut again = server.connect();
    again.begin(Some(&client.session)).await;
    again.next_id = first_id;
    again.call("process/start", start("plain", "exit 3", Value::Null)).await;
    assert_eq!(server.events("processStarted").len(), 3);
    let all =
        server.events.lock().expect("no holder of this lock panics").iter().map(Value::to_string).collect::<String>();
    assert!(!all.contains("s3cret"), "{all}");
}

#[tokio::test]
async fn what_is_refused_is_told_with_its_rule() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let allowed = folder.path().canonicalize().expect("it is there");
    let ceiling =
        format!("methods = ['fs/*', 'process/*']\nread = ['/']\nwrite = ['{}']\nprocesses = 1", allowed.display());
    let mut server = AuditedServer::start(&ceiling).await;
    let mut client = server.connect();
    client.begin(None).await;
    client.call("http/request", json!({"method": "GET", "url": "http://127.0.0.1:9/", "requestId": "r"})).await;
    client.call("fs/writeFile", json!({"path": "file:///etc/no", "dataBase64": "eA=="})).await;
    let inside =
        json!({"path": uri(&allowed.join("x")), "dataBase64": "eA==", "sandbox": sandbox(Path::new("/nowhere"))});
    client.call("fs/writeFile", inside).await;
    client
        .call("process/start", json!({"processId": "p", "argv": ["true"], "cwd": "file:///", "env": {}, "tty": false}))
        .await;
    let rules: Vec<Value> = server.events("denied").iter().map(|event| event["rule"].clone()).collect();
    assert_eq!(rules, ["server/methods", "server/roots", "sandbox", "server/roots"]);
    let failed = server.events("fileChanged");
    assert_eq!(failed.iter().map(|event| &event["outcome"]).collect::<Vec<_>>(), ["failed", "failed"]);
    assert!(server.events("processStarted").is_empty());
}

#[tokio::test]
async fn a_request_is_told_by_its_origin_and_status_and_nothing_else_of_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    let mut server = AuditedServer::start("").await;
    server.tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client comes");
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
        let _ = listener.accept().await;
        std::future::pending::<()>().await;
    });
    let mut client = server.connect();
    client.begin(None).await;
    let request = |id: &str| {
        json!({"method": "GET", "url": format!("http://me:s3cret@127.0.0.1:{port}/s3cret?token=s3cret"),
            "headers": [{"name": "x-secret", "value": "s3cret"}], "requestId": id})
    };
    let answer = client.call("http/request", request("1")).await;
    assert_eq!(answer["result"]["status"], 204, "{answer}");
    let origin = format!("http://127.0.0.1:{port}");
    let told = json!([{"event": "httpRequest", "session": client.session, "method": "GET", "origin": origin,
        "status": 204, "outcome": "done"}]);
    assert_eq!(json!(server.events("httpRequest")), told);
    // This one is never answered, and its connection breaks.
    client.send(json!({"id": 99, "method": "http/request", "params": request("2")})).await;
    client.call("environment/status", json!({})).await;
    drop(client);
    let events = server.some_events("httpRequest", 2).await;
    assert_eq!(events[1]["outcome"], "interrupted");
}

#[tokio::test]
async fn what_a_proxy_has_decided_is_told_with_what_its_client_gave_for_it() {
    let mut server = AuditedServer::start("").await;
    let mut client = server.connect();
    client.begin(None).await;
    let proxy = json!({"enabled": true, "enableSocks5": true, "enableSocks5Udp": false, "allowUpstreamProxy": false,
        "dangerouslyAllowAllUnixSockets": false, "mode": "full", "allowLocalBinding": false,
        "domains": {"denied.test": "deny"}});
    let none: Option<&str> = None;
    let metadata = json!({"conversationId": "c-7", "appVersion": none, "userAccountId": none, "authMode": none,
        "originator": none, "userEmail": none, "terminalType": none, "model": none, "slug": none});
    let request = "GET http://denied.test/s3cret HTTP/1.1\\r\\nHost: denied.test\\r\\nConnection: close\\r\\n\\r\\n";
    let started = json!({"processId": "p", "argv": [ACTOR, "say-to", "HTTP_PROXY", request], "cwd": "file:///",
        "env": {}, "tty": false, "networkProxy": {"proxy": proxy, "auditMetadata": metadata}});
    let answer = client.call("process/start", started).await;
    assert_eq!(answer["result"]["processId"], "p", "{answer}");
    let told = server.some_events("networkDecision", 1).await;
    let expected = json!([{"event": "networkDecision", "session": client.session, "process": "p", "decision": "deny",
        "source": "baseline_policy", "reason": "denied", "protocol": "http", "host": "denied.test", "port": 80,
        "metadata": {"conversationId": "c-7"}}]);
    assert_eq!(json!(told), expected);
}
