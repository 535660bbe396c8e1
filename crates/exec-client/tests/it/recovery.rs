//! Breaks of the connection: what is sent again, what is not, and what happens when the session is lost.

use std::time::Duration;

use bytes::Bytes;
use exec_client::{CallError, LinkState, RemoteEnvironment};
use exec_core::{Signal, WriteId};
use exec_env::Environment;
use exec_env::process::{ProcessError, ProcessReason, ProcessVerb, Signalled, Started, Unreachable, Written};
use exec_wire::Method;
use exec_wire::environment::StatusParams;
use exec_wire::fs::RemoveParams;
use serde_json::{Value, json};

use crate::peer::{OURS, command, connect, info, options, process_id, server, within};

fn write_id() -> WriteId {
    WriteId::new("w1").expect("short")
}

#[tokio::test]
async fn what_may_be_asked_twice_is_asked_again_in_the_same_session() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let processes = environment.processes();
    let id = process_id();
    let serve = async {
        let (_, first) = peer.expect("process/write").await;
        peer.cut();
        let mut peer = server.next().await;
        let (hello, params) = peer.expect("initialize").await;
        assert_eq!(params["resumeSessionId"], "s");
        peer.reply(&hello, json!({ "sessionId": "s" })).await;
        peer.initialized().await;
        let (id, second) = peer.expect("process/write").await;
        assert_eq!(first, second);
        assert_eq!(second["writeId"], "w1");
        peer.reply(&id, json!({ "status": "accepted" })).await;
        peer
    };
    let (written, _peer) = tokio::join!(processes.write(&id, write_id(), Bytes::from_static(b"x")), serve);
    assert_eq!(written, Ok(Written::Accepted));
    assert_eq!(environment.metrics().reconnects, 1);
}

#[tokio::test]
async fn a_start_that_was_carried_out_before_the_break_is_a_start() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let processes = environment.processes();
    let id = process_id();
    let serve = async {
        peer.expect("process/start").await;
        peer.cut();
        let mut peer = server.accept(OURS).await;
        peer.reject("process/start", json!({ "code": -32600, "message": "process p already exists" })).await;
        // It is not in the list yet, because the first start is still under way.
        peer.answer("process/list", json!({ "processes": [] })).await;
        peer.reject("process/start", json!({ "code": -32600, "message": "process p already exists" })).await;
        peer.answer("process/list", json!({ "processes": [listed("/bin/true")] })).await;
        peer
    };
    let (started, _peer) = tokio::join!(processes.start(&id, command()), serve);
    assert_eq!(started, Ok(Started { pid: 77, sandbox: None, limits: None }));
}

#[tokio::test]
async fn a_name_that_somebody_else_took_is_not_ours_because_of_a_break() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let processes = environment.processes();
    let id = process_id();
    let serve = async {
        peer.expect("process/start").await;
        peer.cut();
        let mut peer = server.accept(OURS).await;
        peer.reject("process/start", json!({ "code": -32600, "message": "process p already exists" })).await;
        peer.answer("process/list", json!({ "processes": [listed("/bin/other")] })).await;
        peer
    };
    let (started, _peer) = tokio::join!(processes.start(&id, command()), serve);
    assert_eq!(started, Err(ProcessError::new(ProcessVerb::Start, &id, ProcessReason::IdInUse)));
}

#[tokio::test]
async fn a_name_in_use_without_a_break_is_in_use() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let processes = environment.processes();
    let id = process_id();
    let serve = async {
        let (start, _) = peer.expect("process/start").await;
        let error = json!({ "code": -32600, "message": "x", "data": { "kind": "processExists" } });
        peer.refuse(&start, error).await;
    };
    let (started, ()) = tokio::join!(processes.start(&id, command()), serve);
    assert_eq!(started, Err(ProcessError::new(ProcessVerb::Start, &id, ProcessReason::IdInUse)));
    // Of two starts at once, the second is not even sent.
    let (first, second, ()) =
        tokio::join!(processes.start(&id, command()), processes.start(&id, command()), peer.start());
    assert_eq!(
        (first, second),
        (
            Ok(Started { pid: 42, sandbox: None, limits: None }),
            Err(ProcessError::new(ProcessVerb::Start, &id, ProcessReason::IdInUse))
        )
    );
}

#[tokio::test]
async fn a_signal_without_a_key_is_sent_once_and_says_when_nobody_knows() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let processes = environment.processes();
    let id = process_id();
    let serve = async {
        let (_, params) = peer.expect("process/signal").await;
        assert_eq!(params, json!({ "processId": "p", "signal": "terminate" }));
        peer.cut();
        server.accept(OURS).await
    };
    let (signalled, _peer) = tokio::join!(processes.signal(&id, Signal::Terminate), serve);
    let why = "the connection broke while process/signal was on its way: it may have been carried out, or not";
    let reason = Unreachable { why: why.into() }.into();
    assert_eq!(signalled, Err(ProcessError::new(ProcessVerb::Signal, &id, reason)));
}

#[tokio::test]
async fn a_signal_with_a_key_is_asked_again() {
    let extensions: Vec<&str> = OURS.iter().copied().chain(["process/signal.signalId"]).collect();
    let (environment, mut server, mut peer) = connect(&extensions, options()).await;
    let processes = environment.processes();
    let id = process_id();
    let serve = async {
        let (_, first) = peer.expect("process/signal").await;
        assert!(first["signalId"].is_string());
        peer.cut();
        let mut peer = server.accept(&extensions).await;
        let (again, second) = peer.expect("process/signal").await;
        assert_eq!(first, second);
        peer.reply(&again, json!({ "status": "alreadyExited" })).await;
        peer
    };
    let (signalled, _peer) = tokio::join!(processes.signal(&id, Signal::Terminate), serve);
    assert_eq!(signalled, Ok(Signalled::AlreadyExited));
}

#[tokio::test]
async fn what_was_not_sent_yet_waits_for_the_next_connection_whatever_it_is() {
    let (environment, mut server, peer) = connect(OURS, options()).await;
    let link = environment.link();
    let mut states = link.states();
    peer.cut();
    within(states.wait_for(|state| matches!(state, LinkState::Reconnecting { .. }))).await.expect("the link lives");
    let path = exec_wire::PathUri::from_path("/w/x".as_ref()).expect("absolute");
    let params = RemoveParams { path, recursive: None, force: None, follow_symlinks: None, sandbox: None };
    let serve = async {
        let mut peer = server.accept(OURS).await;
        peer.answer("fs/remove", json!({})).await;
        peer
    };
    let (removed, _peer) = tokio::join!(link.call(params), serve);
    assert!(removed.is_ok(), "{removed:?}");
}

/// A removal whose connection breaks. The server names its memory of requests with each answer to `initialize`. Returns
/// what came of the removal, and checks whether it was sent again.
async fn removal(memories: [Option<&str>; 2]) -> Result<(), CallError> {
    let (mut server, dial) = server();
    let serve = async {
        let mut asked = Vec::new();
        for memory in memories {
            let mut peer = server.next().await;
            let (id, _) = peer.expect("initialize").await;
            let mut result = json!({ "sessionId": "s", "environmentInfo": info(OURS) });
            if let Some(memory) = memory {
                result["requestMemory"] = json!(memory);
            }
            peer.reply(&id, result).await;
            peer.initialized().await;
            if asked.is_empty() {
                asked.push(peer.expect("fs/remove").await);
                peer.cut();
            } else if memories[0].is_some() && memories[0] == memories[1] {
                let (id, params) = peer.expect("fs/remove").await;
                assert_eq!((&id, &params), (&asked[0].0, &asked[0].1), "the same request under the same name");
                peer.reply(&id, json!({})).await;
                return peer;
            } else {
                return peer;
            }
        }
        unreachable!("the second welcome is the last");
    };
    let ask = async {
        let environment = RemoteEnvironment::open(dial, options()).await.expect("it is accepted");
        let path = exec_wire::PathUri::from_path("/w/x".as_ref()).expect("absolute");
        let params = RemoveParams { path, recursive: None, force: None, follow_symlinks: None, sandbox: None };
        let removed = environment.link().call(params).await.map(drop);
        (removed, environment)
    };
    let ((removed, _environment), _peer) = tokio::join!(ask, serve);
    removed
}

#[tokio::test]
async fn what_changes_files_is_asked_again_only_of_the_server_that_knows_it() {
    let interrupted = Err(CallError::Interrupted { method: Method::FsRemove });
    assert_eq!(removal([Some("a"), Some("a")]).await, Ok(()));
    assert_eq!(removal([Some("a"), Some("b")]).await, interrupted);
    assert_eq!(removal([Some("a"), None]).await, interrupted);
    assert_eq!(removal([None, Some("a")]).await, interrupted);
}

#[tokio::test]
async fn nonsense_from_the_server_ends_the_connection_and_not_the_session() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let serve = async {
        peer.expect("environment/status").await;
        peer.send(json!("nonsense")).await;
        let mut peer = server.accept(OURS).await;
        peer.answer("environment/status", json!({ "status": "ready" })).await;
        peer
    };
    let (status, _peer) = tokio::join!(environment.link().call(StatusParams {}), serve);
    assert_eq!(status.expect("answered").status, "ready");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_attached_elsewhere_is_tried_until_it_is_free() {
    let (environment, mut server, peer) = connect(OURS, options()).await;
    peer.cut();
    let serve = async {
        for _ in 0..5 {
            let mut peer = server.next().await;
            let (id, _) = peer.expect("initialize").await;
            let message = "session s is already attached to another connection";
            peer.refuse(&id, json!({ "code": -32010, "message": message })).await;
            peer.left().await;
        }
        let mut peer = server.accept(OURS).await;
        peer.answer("environment/status", json!({ "status": "ready" })).await;
        peer
    };
    let (status, _peer) = tokio::join!(environment.link().call(StatusParams {}), serve);
    assert_eq!(status.expect("answered").status, "ready");
}

#[tokio::test]
async fn a_session_that_is_gone_fails_its_processes_and_the_next_call_opens_another() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let processes = environment.processes();
    let id = process_id();
    let (started, ()) = tokio::join!(processes.start(&id, command()), peer.start());
    started.expect("it was started");
    let mut follower = processes.follow(&id, 0).await.expect("it is known");
    peer.cut();
    let serve = async {
        let mut peer = server.next().await;
        peer.reject("initialize", json!({ "code": -32600, "message": "unknown session id s" })).await;
        peer.left().await;
    };
    let gone = |verb| ProcessError::new(verb, &id, Unreachable { why: "unknown session id s".into() }.into());
    let (page, ()) = tokio::join!(follower.next(1000), serve);
    assert_eq!(page, Err(gone(ProcessVerb::Follow)));
    let written = processes.write(&id, write_id(), Bytes::new()).await;
    assert_eq!(written, Err(gone(ProcessVerb::Write)));

    let serve = async {
        let mut peer = server.next().await;
        let (hello, params) = peer.expect("initialize").await;
        assert_eq!(params["resumeSessionId"], Value::Null);
        peer.reply(&hello, json!({ "sessionId": "s2" })).await;
        peer.initialized().await;
        peer.start().await;
        peer
    };
    let (started, _peer) = tokio::join!(processes.start(&id, command()), serve);
    assert_eq!(started, Ok(Started { pid: 42, sandbox: None, limits: None }));
    assert_eq!(environment.session_id().as_deref(), Some("s2"));
}

#[tokio::test(start_paused = true)]
async fn the_search_for_a_session_is_given_up_in_time() {
    let mut client_options = options();
    client_options.give_up = Some(Duration::from_secs(3));
    let (environment, server, mut peer) = connect(OURS, client_options).await;
    server.shut();
    let asking = async {
        let status = environment.link().call(StatusParams {});
        let cutting = async {
            peer.expect("environment/status").await;
            peer.cut();
        };
        tokio::join!(status, cutting).0
    };
    let before = tokio::time::Instant::now();
    let Err(CallError::Lost { why }) = asking.await else { panic!("nobody answers") };
    assert!(why.starts_with("gave up after 3s and "), "{why}");
    assert_eq!(before.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn a_session_that_was_taken_over_is_not_fought_for() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let mut states = environment.link().states();
    peer.send(json!({ "method": "session/takenOver", "params": { "sessionId": "s" } })).await;
    let lost =
        within(states.wait_for(|state| matches!(state, LinkState::Lost(_)))).await.expect("the link lives").clone();
    let LinkState::Lost(loss) = lost else { panic!("{lost:?}") };
    assert_eq!(loss.why, "the session was taken over by another connection");
    // The next call does not take the session back: it opens another.
    let serve = async {
        let mut peer = server.next().await;
        let (_, params) = peer.expect("initialize").await;
        assert_eq!(params["resumeSessionId"], Value::Null);
    };
    tokio::select! {
        _ = environment.link().call(StatusParams {}) => panic!("it was not accepted"),
        () = serve => {}
    }
}

fn listed(program: &str) -> Value {
    json!({
        "processId": "p", "pid": 77, "argv": [program], "cwd": "file:///w", "tty": false, "stdinOpen": false,
        "startedAtMs": 1, "state": "running", "firstSeq": 1, "nextSeq": 1, "heldBytes": 0, "droppedBytes": 0,
    })
}
