//! Observers of a session: what they see, that they change nothing, and how the drive changes hands.

use std::sync::atomic::Ordering;

use exec_rpc::limits::OBSERVERS;
use exec_transport::{Connection, Grant, Identity, Received, memory_pair};
use exec_wire::method::Method;
use serde_json::{Value, json};

use crate::{PAIR_MESSAGES, TestClient, TestServer, error_of, start_params};

impl TestServer {
    /// A client that names its role, with a session of its own.
    async fn driver(&self, name: &str) -> TestClient {
        let mut client = self.connect();
        let answer = client.initialize(json!({"clientName": name, "role": "driver"})).await;
        assert_eq!(answer["result"]["role"], "driver", "{answer}");
        client
    }

    async fn observer(&self, name: &str, session: &str) -> TestClient {
        let mut client = self.connect();
        let params = json!({"clientName": name, "role": "observer", "resumeSessionId": session});
        let answer = client.initialize(params).await;
        assert_eq!(answer["result"]["role"], "observer", "{answer}");
        client
    }

    /// A connection with the token of this subject.
    pub(crate) fn connect_as(&self, subject: &str) -> TestClient {
        let (client, served) = memory_pair(PAIR_MESSAGES);
        let identity = Identity { grant: Grant::Everything, subject: Some(subject.to_owned()), ..Identity::default() };
        let served = Connection { identity, ..served };
        let server = self.server.clone();
        let serving = tokio::spawn(async move { server.serve(served).await });
        TestClient { connection: client, serving, next_id: 1, session: String::new() }
    }
}

impl TestClient {
    /// The next notification of this method. Everything else is dropped.
    async fn notified(&mut self, method: &str) -> Value {
        loop {
            let mut message = self.next().await;
            if message["method"] == method {
                return message["params"].take();
            }
        }
    }

    /// Who is attached, once that is so.
    async fn attended(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let attendance = self.notified("session/attached").await;
            if is_so(&attendance) {
                return attendance;
            }
        }
    }

    /// Waits for the end of the connection; whether it was told that another has the session.
    async fn ended(&mut self) -> bool {
        let mut taken_over = false;
        loop {
            match self.connection.receiver.next().await {
                Received::Message(message) => {
                    taken_over |= message.bytes().windows(17).any(|part| part == b"session/takenOver");
                }
                Received::Closed(_) => return taken_over,
                Received::Malformed { reason } => panic!("{reason}"),
            }
        }
    }

    async fn drive(&mut self, params: Value) -> Value {
        let mut answer = self.call("session/drive", params).await;
        if answer["error"].is_object() { answer } else { answer["result"]["status"].take() }
    }

    /// Whether it may change something.
    async fn may_change(&mut self) -> bool {
        error_of(&self.call("process/terminate", json!({"processId": "nobody"})).await).1 != "observer"
    }
}

fn names(attendance: &Value) -> (String, Vec<String>) {
    let name = |client: &Value| client["clientName"].as_str().unwrap_or("nobody").to_owned();
    let observers = attendance["observers"].as_array().expect("a list").iter().map(name).collect();
    (name(&attendance["driver"]), observers)
}

/// By the rule, not by the table's own column: what changes something is refused, but for what a connection does to itself.
#[tokio::test]
async fn an_observer_may_call_what_changes_nothing_and_no_other_method() {
    let of_its_own = ["fs/close", "fs/unwatch", "fs/cancelSearch", "session/drive"];
    let server = TestServer::start().await;
    let driver = server.driver("driver").await;
    let mut observer = server.observer("observer", &driver.session).await;
    for method in Method::ALL.iter().filter(|method| method.is_served() && **method != Method::Initialize) {
        let name = method.name();
        let expected = match name {
            "http/request" => true,
            // What is read of a stream is taken from whoever has it.
            "net/read" | "net/awaitRoom" | "net/accept" => true,
            // It depends on whether it is to read or to write.
            "fs/open" => false,
            _ => method.behaviour().changes && !of_its_own.contains(&name),
        };
        // The params are wrong for most methods. That is told to those who may call them, and to nobody else.
        let params = if name == "session/drive" { json!({"refuse": 0}) } else { json!({"wrong": true}) };
        let (code, kind, text) = error_of(&observer.call(name, params).await);
        assert_eq!(kind == "observer", expected, "{name}: {kind} {text}");
        if expected {
            let session = &driver.session;
            let said = format!("this connection only observes session {session}: ask for the drive with session/drive");
            assert_eq!((code, text), (-32600, said), "{name}");
        }
    }
    for (mode, refused) in [("replace", true), ("append", true)] {
        let params = json!({"handleId": "h", "path": "file:///tmp/x", "mode": mode});
        assert_eq!(error_of(&observer.call("fs/open", params).await).1 == "observer", refused, "{mode}");
    }
    assert_eq!(server.environment.started.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_observer_hears_of_processes_that_are_started_later_from_their_first_entry() {
    let server = TestServer::start().await;
    let mut driver = server.driver("driver").await;
    let mut observer = server.observer("observer", &driver.session).await;
    server.environment.floods.store(true, Ordering::Relaxed);
    driver.start_process("p").await;
    for seq in 1..=50 {
        let output = observer.notified("process/output").await;
        assert_eq!((&output["processId"], &output["seq"]), (&json!("p"), &json!(seq)));
    }
}

#[tokio::test]
async fn everybody_who_named_a_role_is_told_who_is_attached_and_nobody_else() {
    let server = TestServer::start().await;
    let mut driver = server.client().await;
    let mut one = server.observer("one", &driver.session).await;
    let mut two = server.observer("two", &driver.session).await;
    let attended = one.attended(|attendance| names(attendance).1.len() == 2).await;
    assert_eq!(names(&attended), ("test".to_owned(), vec!["one".to_owned(), "two".to_owned()]));
    assert_eq!((&attended["role"], &attended["driver"]["isTold"]), (&json!("observer"), &Value::Null));
    assert_eq!(attended["ownId"], attended["observers"][0]["id"]);
    drop(one);
    let attended = two.attended(|attendance| names(attendance).1.len() == 1).await;
    assert_eq!(names(&attended).1, ["two"]);
    // A plain client gets the answers to its requests, and nothing else.
    let id = driver.request("environment/status", json!(null)).await;
    assert_eq!(driver.next().await["id"], id, "nothing came before it");
    drop(driver);
    let left = two.attended(|attendance| attendance["driver"].is_null()).await;
    let expires = left["expiresInMs"].as_u64().expect("nobody drives, so its time runs");
    assert!((1..=600_000).contains(&expires), "{left}");
}

#[tokio::test]
async fn a_driver_hands_over_to_one_of_two_that_ask_at_once() {
    let server = TestServer::start().await;
    let mut driver = server.driver("driver").await;
    let mut one = server.observer("one", &driver.session).await;
    let mut two = server.observer("two", &driver.session).await;
    let (asked_one, asked_two) =
        (one.request("session/drive", json!({})).await, two.request("session/drive", json!({})).await);
    let asking = |attendance: &Value| {
        attendance["observers"].as_array().is_some_and(|all| all.iter().all(|client| client["asksForDrive"] == true))
    };
    let attended = driver.attended(|attendance| names(attendance).1.len() == 2 && asking(attendance)).await;
    let ids: Vec<u64> = (0..2).filter_map(|at| attended["observers"][at]["id"].as_u64()).collect();
    assert_eq!(driver.drive(json!({"to": ids[1]})).await, "handedOver");
    assert_eq!(two.answer(asked_two).await["result"]["status"], "granted");
    let told = one.attended(|attendance| names(attendance).0 == "two").await;
    assert_eq!(names(&told).1, ["one", "driver"], "who drove observes now");
    assert!(two.may_change().await && !driver.may_change().await && !one.may_change().await);
    let (_, kind, _) = error_of(&driver.drive(json!({"refuse": ids[0]})).await);
    assert_eq!(kind, "drive", "it has nothing to refuse any more");
    assert_eq!(two.drive(json!({"refuse": ids[0]})).await, "refused");
    assert_eq!(one.answer(asked_one).await["result"]["status"], "refused");
    // And back again.
    let back = driver.request("session/drive", json!({})).await;
    let former = two.attended(|attendance| attendance["observers"][1]["asksForDrive"] == true).await;
    assert_eq!(two.drive(json!({"to": former["observers"][1]["id"]})).await, "handedOver");
    assert_eq!(driver.answer(back).await["result"]["status"], "granted");
    assert!(driver.may_change().await && !two.may_change().await);
}

#[tokio::test]
async fn when_the_driver_vanishes_whoever_waits_for_the_drive_has_it_and_the_session_lives_on() {
    let server = TestServer::start().await;
    let mut driver = server.driver("driver").await;
    driver.start_process("p").await;
    let mut one = server.observer("one", &driver.session).await;
    let asked = one.request("session/drive", json!({})).await;
    driver.attended(|attendance| attendance["observers"][0]["asksForDrive"] == true).await;
    driver.serving.abort();
    assert_eq!(one.answer(asked).await["result"]["status"], "granted");
    let signal = json!({"processId": "p", "signal": "terminate"});
    assert_eq!(one.call("process/signal", signal).await["result"]["status"], "sent");
    let listed = one.call("session/list", json!(null)).await;
    let session = &listed["result"]["sessions"][0];
    assert_eq!(
        (&session["attachment"]["state"], &session["driver"]["clientName"]),
        (&json!("attached"), &json!("one"))
    );
    // Without a driver it is to be had at once.
    let mut two = server.observer("two", &one.session).await;
    one.serving.abort();
    two.attended(|attendance| attendance["driver"].is_null()).await;
    assert_eq!(two.drive(json!({})).await, "granted");
    assert_eq!(two.drive(json!({})).await, "granted", "it has it already");
}

#[tokio::test]
async fn the_drive_of_a_client_that_cannot_be_asked_is_taken_or_left_to_it() {
    let server = TestServer::start().await;
    let mut driver = server.client().await;
    driver.start_process("p").await;
    let mut observer = server.observer("observer", &driver.session).await;
    let (_, kind, text) = error_of(&observer.drive(json!({})).await);
    assert_eq!(kind, "drive");
    assert_eq!(text, "the driver is a client that cannot be asked: take the drive with `force`");
    assert!(driver.may_change().await && !observer.may_change().await);
    assert_eq!(observer.drive(json!({"force": true})).await, "granted");
    assert!(driver.ended().await, "it is told, as by any other that takes its session");
    assert!(observer.may_change().await);
    let (code, _, _) = error_of(&observer.drive(json!({"force": true, "to": 7})).await);
    assert_eq!(code, -32602);
}

#[tokio::test]
async fn a_client_that_takes_the_session_back_by_itself_is_refused_after_the_drive_was_taken() {
    let server = TestServer::start().await;
    let mut driver = server.connect();
    driver.initialize(json!({"clientName": "driver", "requestScope": "mine"})).await;
    let mut observer = server.observer("observer", &driver.session).await;
    assert_eq!(observer.drive(json!({"force": true})).await, "granted");
    let back = json!({
        "clientName": "driver", "requestScope": "mine", "resumeSessionId": driver.session, "onlyIfHeld": true
    });
    assert_eq!(error_of(&server.connect().initialize(back).await).1, "takenOver");
    assert!(observer.may_change().await);
}

#[tokio::test]
async fn a_plain_resume_takes_the_session_as_ever_and_leaves_the_observers_where_they_are() {
    let server = TestServer::start().await;
    let mut driver = server.client().await;
    let mut observer = server.observer("observer", &driver.session).await;
    let mut second = server.connect();
    second.initialize(json!({"clientName": "second", "resumeSessionId": driver.session})).await;
    assert!(driver.ended().await);
    observer.attended(|attendance| names(attendance).0 == "second").await;
    assert!(second.may_change().await && !observer.may_change().await);
}

#[tokio::test]
async fn an_observer_needs_the_right_to_resume_the_session() {
    let server = TestServer::start().await;
    let mut ann = server.connect_as("ann");
    ann.initialize(json!({"clientName": "ann"})).await;
    let observe = json!({"clientName": "x", "role": "observer", "resumeSessionId": ann.session});
    let (_, kind, text) = error_of(&server.connect_as("bob").initialize(observe.clone()).await);
    assert_eq!((kind, text), ("unknownSession".to_owned(), format!("unknown session id {}", ann.session)));
    let answer = server.connect_as("ann").initialize(observe).await;
    assert_eq!(answer["result"]["role"], "observer");
    let unknown = json!({"clientName": "x", "role": "observer", "resumeSessionId": "no such session"});
    assert_eq!(error_of(&server.connect().initialize(unknown).await).1, "unknownSession");
    let nothing = json!({"clientName": "x", "role": "observer"});
    let (code, _, text) = error_of(&server.connect().initialize(nothing).await);
    assert_eq!(code, -32602);
    assert_eq!(text, "an observer names the session that it observes: resumeSessionId is missing");
    let odd = json!({"clientName": "x", "role": "passenger", "resumeSessionId": ann.session});
    assert_eq!(error_of(&server.connect().initialize(odd).await).0, -32602);
}

#[tokio::test]
async fn a_session_has_so_many_observers_and_each_that_leaves_makes_room() {
    let server = TestServer::start().await;
    let driver = server.client().await;
    let mut observers = Vec::new();
    for _ in 0..OBSERVERS {
        observers.push(server.observer("observer", &driver.session).await);
    }
    let one_more = json!({"clientName": "x", "role": "observer", "resumeSessionId": driver.session});
    assert_eq!(error_of(&server.connect().initialize(one_more.clone()).await).1, "busy");
    let left = observers.pop().expect("there are many");
    drop(left.connection);
    left.serving.await.expect("the connection ends");
    assert_eq!(server.connect().initialize(one_more).await["result"]["role"], "observer");
}

#[tokio::test]
async fn observers_are_let_go_of_when_the_session_is_closed() {
    let server = TestServer::start().await;
    let mut driver = server.client().await;
    let mut observer = server.observer("observer", &driver.session).await;
    let waiting = server.observer("waiting", &driver.session).await;
    driver.request("session/close", json!({"sessionId": driver.session})).await;
    observer.ended().await;
    drop(waiting.connection.sender);
    waiting.serving.await.expect("it ends");
}

#[tokio::test]
async fn an_observer_that_does_not_read_keeps_nobody_waiting() {
    let server = TestServer::start().await;
    let mut driver = server.driver("driver").await;
    let _deaf = server.observer("deaf", &driver.session).await;
    server.environment.floods.store(true, Ordering::Relaxed);
    for number in 0..100 {
        let id = driver.request("process/start", start_params(&format!("p{number}"))).await;
        assert!(driver.answer(id).await["result"].is_object());
    }
}
