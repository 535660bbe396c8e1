//! The link against a scripted server: handshake, calls, deadlines, notifications, closing.

use std::time::Duration;

use exec_client::{CallError, CallOptions, ConnectFailure, LinkState, Options, RemoteEnvironment, RetryPolicy};
use exec_env::Environment;
use exec_transport::Message;
use exec_wire::base64::Base64;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::environment::{InfoParams, StatusParams};
use exec_wire::fs::{ReadBlockParams, WriteBlockParams, WriteBlockResult};
use exec_wire::net::WriteParams;
use exec_wire::process::ListParams;
use exec_wire::{Method, NotificationMethod};
use serde_json::json;

use crate::peer::{OURS, Peer, ScriptedServer, connect, options, rejected, server, within};

#[tokio::test]
async fn the_handshake_says_who_we_are_and_learns_where_we_are() {
    let (mut server, dial) = server();
    let mut client_options = options();
    client_options.client_name = "tester".into();
    client_options.detached_ttl = Some(Duration::from_secs(60));
    client_options.binary_frames = true;
    let serve = async {
        let mut peer = server.next().await;
        let (id, mut params) = peer.expect("initialize").await;
        let scope =
            params.as_object_mut().and_then(|params| params.remove("requestScope")).expect("it has its own word");
        assert_eq!(scope.as_str().map(str::len), Some(32), "{scope}");
        let expected = json!({
            "clientName": "tester", "resumeSessionId": null, "detachedTtlMs": 60_000, "binaryFrames": true,
            "outputWindowBytes": 4 << 20,
        });
        assert_eq!(params, expected);
        // An older server does not send its information with the answer.
        peer.reply(&id, json!({ "sessionId": "s" })).await;
        peer.initialized().await;
        peer.answer(
            "environment/info",
            json!({ "shell": { "name": "zsh", "path": "/bin/zsh" }, "extensions": ["process/list"] }),
        )
        .await;
        peer
    };
    let (environment, _peer) = tokio::join!(exec_client::RemoteEnvironment::open(dial, client_options), serve);
    let environment = environment.expect("it was accepted");
    assert_eq!(environment.info().shell.path, std::path::Path::new("/bin/zsh"));
    assert_eq!(environment.session_id().as_deref(), Some("s"));
    assert!(environment.link().has(Method::ProcessList) && !environment.link().has(Method::ProcessWait));
}

#[tokio::test]
async fn a_server_that_says_no_is_quoted() {
    let failure = rejected(options(), json!({ "code": -32600, "message": "not today" })).await;
    assert_eq!(failure, ConnectFailure::Refused { why: "not today".into() });
    let client_options = Options { resume_session: Some("old".into()), ..options() };
    let failure = rejected(client_options, json!({ "code": -32600, "message": "unknown session id old" })).await;
    assert_eq!(failure, ConnectFailure::UnknownSession { why: "unknown session id old".into() });
}

#[tokio::test]
async fn a_first_connection_is_tried_once() {
    let (server, dial) = server();
    server.shut();
    let failure = exec_client::RemoteEnvironment::open(dial, options()).await.expect_err("nobody is there");
    let ConnectFailure::Unreachable { why } = failure else { panic!("{failure:?}") };
    assert!(why.starts_with("cannot connect to memory: "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_hello_is_given_up() {
    let (mut server, dial) = server();
    let (environment, _silent) = tokio::join!(exec_client::RemoteEnvironment::open(dial, options()), server.next());
    let failure = environment.expect_err("nobody answers");
    assert_eq!(failure, ConnectFailure::Unreachable { why: "initialize was not answered within 10s".into() });
}

#[tokio::test]
async fn answers_find_their_callers_in_any_order() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let link = environment.link();
    let calls =
        async { tokio::join!(link.call(StatusParams {}), link.call(ListParams::default()), link.call(InfoParams {})) };
    let serve = async {
        let (status, _) = peer.expect("environment/status").await;
        let (list, _) = peer.expect("process/list").await;
        peer.reject("environment/info", json!({ "code": -32603, "message": "no" })).await;
        peer.reply(&json!(999_999), json!({})).await;
        peer.reply(&list, json!({ "processes": [] })).await;
        peer.reply(&status, json!({ "status": "ready" })).await;
    };
    let ((status, list, info), ()) = tokio::join!(calls, serve);
    assert_eq!(status.expect("answered").status, "ready");
    assert_eq!(list.expect("answered").processes, []);
    let refusal = info.expect_err("refused");
    assert_eq!(refusal.to_string(), "the server refused environment/info: no (-32603)");
}

#[tokio::test(start_paused = true)]
async fn a_call_has_a_deadline_and_its_late_answer_is_no_harm() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let link = environment.link();
    let (answer, (id, _)) = tokio::join!(link.call(StatusParams {}), peer.expect("environment/status"));
    let after = Duration::from_secs(30);
    assert_eq!(answer, Err(CallError::Deadline { method: Method::EnvironmentStatus, after }));
    assert_eq!(link.metrics().calls, 0);
    peer.reply(&id, json!({ "status": "late" })).await;
    let serve = async {
        peer.answer("environment/status", json!({ "status": "ready" })).await;
    };
    let (answer, ()) = tokio::join!(link.call(StatusParams {}), serve);
    assert_eq!(answer.expect("answered").status, "ready");
}

#[tokio::test]
async fn a_thousand_and_twenty_four_calls_wait_and_one_more_waits_for_a_place() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let link = environment.link().clone();
    let calls: Vec<_> = (0..1100)
        .map(|_| {
            let link = link.clone();
            tokio::spawn(async move { link.call(StatusParams {}).await })
        })
        .collect();
    let mut ids = Vec::new();
    for _ in 0..1024 {
        ids.push(peer.expect("environment/status").await.0);
    }
    assert_eq!(link.metrics().calls, 1024);
    for _ in 0..76 {
        let id = ids.pop().expect("there are more");
        peer.reply(&id, json!({ "status": "ready" })).await;
        ids.push(peer.expect("environment/status").await.0);
    }
    for id in ids {
        peer.reply(&id, json!({ "status": "ready" })).await;
    }
    for call in calls {
        within(call).await.expect("it does not panic").expect("it is answered");
    }
}

#[tokio::test]
async fn a_dropped_call_gives_its_place_back() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let link = environment.link();
    tokio::select! {
        _ = link.call(StatusParams {}) => panic!("nobody answers"),
        _ = peer.expect("environment/status") => {}
    }
    assert_eq!(link.metrics().calls, 0);
}

#[tokio::test]
async fn questions_of_the_server_are_answered() {
    let (_environment, _stage, mut peer) = connect(OURS, options()).await;
    let request = json!({ "protocol": "http", "host": "h", "port": 80 });
    let params = json!({ "processId": "p", "request": request });
    peer.send(json!({ "id": 1, "method": "network/policyRequest", "params": params })).await;
    let answer = peer.message().await;
    assert_eq!((&answer["id"], &answer["result"]["decision"]["type"]), (&json!(1), &json!("deny")));
    peer.send(json!({ "id": "x", "method": "what/isThis" })).await;
    let error = json!({ "code": -32601, "message": "exec-server client does not implement `what/isThis` yet" });
    assert_eq!(peer.message().await, json!({ "error": error, "id": "x" }));
}

#[tokio::test]
async fn listeners_hear_what_they_asked_for_until_they_fall_behind() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let link = environment.link();
    let mut notifications = link.subscribe(&[NotificationMethod::FsChanged], None, 2);
    peer.send(json!({ "method": "nobody/knows", "params": {} })).await;
    for watch in 0..3 {
        peer.send(json!({ "method": "fs/missingChanged", "params": { "watchId": watch } })).await;
        peer.send(json!({ "method": "fs/changed", "params": { "watchId": "w", "n": watch } })).await;
    }
    // The third does not fit, so the subscription ends; what it had received before is still there.
    assert_eq!(within(notifications.recv()).await.expect("received").method, NotificationMethod::FsChanged);
    assert!(within(notifications.recv()).await.is_some());
    assert!(within(notifications.recv()).await.is_none());
}

#[tokio::test]
async fn a_block_as_raw_bytes_is_the_answer_to_its_request() {
    let (environment, _stage, mut peer) = connect(OURS, Options { binary_frames: true, ..options() }).await;
    let link = environment.link();
    let params = ReadBlockParams { handle_id: "h".into(), offset: 4, len: 10 };
    let serve = async {
        let (id, _) = peer.expect("fs/readBlock").await;
        let header = FrameHeader::Block { request_id: &id.to_string(), offset: 4, eof: true };
        let mut frame = Vec::new();
        binary::encode(&mut frame, &header, b"raw").expect("a short id");
        peer.send_raw(Message::Binary(frame.into())).await;
    };
    let (block, ()) = tokio::join!(link.call(params), serve);
    let block = block.expect("answered");
    assert_eq!((&block.chunk.0[..], block.eof), (&b"raw"[..], true));
}

fn raw_block() -> WriteBlockParams {
    WriteBlockParams { handle_id: "h".into(), offset: 4, chunk: Base64(b"raw"[..].into()) }
}

/// A client and a server that both accept blocks as raw bytes.
async fn connect_raw() -> (RemoteEnvironment, ScriptedServer, Peer) {
    let extensions = [OURS, &["fs/writeBlock.binary"]].concat();
    connect(&extensions, Options { binary_frames: true, ..options() }).await
}

#[tokio::test]
async fn a_block_is_written_as_raw_bytes_where_the_server_takes_them() {
    let (environment, _stage, mut peer) = connect_raw().await;
    let serve = async {
        let frame = peer.frame().await;
        let Ok((FrameHeader::Write { request_id, handle_id, offset }, payload)) = binary::decode(&frame) else {
            panic!("a block to write was expected, not {frame:?}");
        };
        assert_eq!((handle_id, offset, payload), ("h", 4, &b"raw"[..]));
        peer.reply(&serde_json::from_str(request_id).expect("JSON"), json!({})).await;
    };
    let (written, ()) = tokio::join!(environment.link().call(raw_block()), serve);
    assert_eq!(written, Ok(WriteBlockResult {}));
}

#[tokio::test]
async fn a_raw_block_is_not_sent_on_to_a_server_that_takes_none() {
    let (environment, mut server, mut peer) = connect_raw().await;
    let serve = async {
        peer.frame().await;
        peer.cut();
        server.accept(OURS).await
    };
    // Other than a block of a handle, what is written to a stream may be asked again on any connection.
    let chunk = WriteParams { stream_id: "s".into(), offset: 4, chunk: Base64(b"raw"[..].into()), eof: false };
    let (written, mut peer) = tokio::join!(environment.link().call(chunk), serve);
    assert_eq!(written, Err(CallError::Interrupted { method: Method::NetWrite }));
    // From now on blocks are sent as JSON.
    let serve = async {
        let (id, params) = peer.expect("fs/writeBlock").await;
        assert_eq!(params["chunk"], "cmF3");
        peer.reply(&id, json!({})).await;
    };
    let (written, ()) = tokio::join!(environment.link().call(raw_block()), serve);
    assert_eq!(written, Ok(WriteBlockResult {}));
}

#[tokio::test]
async fn what_is_small_overtakes_blocks_that_wait_to_be_written() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let link = environment.link();
    let serve = async {
        let mut seen = Vec::new();
        for _ in 0..9 {
            let message = peer.message().await;
            seen.push((message["method"].clone(), message["params"]["offset"].clone()));
            peer.reply(&message["id"], json!({})).await;
        }
        seen
    };
    let block = |offset| WriteBlockParams { offset, ..raw_block() };
    let blocks = futures_util::future::join_all((0..8).map(|offset| link.call(block(offset))));
    let (blocks, status, seen) = tokio::join!(blocks, link.call(StatusParams {}), serve);
    assert!(blocks.iter().all(Result::is_ok), "{blocks:?}");
    drop(status);
    let mut expected = vec![(json!("environment/status"), json!(null))];
    expected.extend((0..8).map(|offset| (json!("fs/writeBlock"), json!(offset))));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn leaving_says_goodbye_and_leaves_the_session_alone() {
    let (environment, _stage, peer) = connect(OURS, options()).await;
    let link = environment.link().clone();
    let ((), reason) = tokio::join!(environment.close(), peer.left());
    assert_eq!(reason.map(|reason| reason.code), Some(1000));
    assert_eq!(*link.states().borrow(), LinkState::Ended);
    let after = link.call(StatusParams {}).await;
    assert_eq!(after, Err(CallError::Lost { why: "the connection was closed by us".into() }));
}

#[tokio::test]
async fn dropping_the_environment_closes_the_connection_too() {
    let (environment, _stage, peer) = connect(OURS, options()).await;
    drop(environment);
    assert!(within(peer.left()).await.is_some());
}

#[tokio::test]
async fn ending_closes_the_session_first() {
    let (environment, _stage, mut peer) = connect(&["session/close"], options()).await;
    let serve = async {
        let (id, params) = peer.expect("session/close").await;
        assert_eq!(params, json!({ "sessionId": "s" }));
        peer.reply(&id, json!({ "closed": true })).await;
        peer.left().await
    };
    let (ended, _) = tokio::join!(environment.end(), serve);
    assert_eq!(ended, Ok(()));
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_call_only() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let link = environment.link();
    let serve = async {
        peer.answer("environment/status", json!({ "status": 7 })).await;
        peer.answer("environment/status", json!({ "status": "ready" })).await;
    };
    let calls = async {
        let options = CallOptions { deadline: Duration::from_secs(5), retry: RetryPolicy::IfUnsent };
        (link.call_with(&StatusParams {}, options).await.result, link.call(StatusParams {}).await)
    };
    let ((first, second), ()) = tokio::join!(calls, serve);
    assert!(matches!(first, Err(CallError::Undecodable { method: Method::EnvironmentStatus, .. })), "{first:?}");
    assert_eq!(second.expect("answered").status, "ready");
}

#[tokio::test]
async fn a_list_of_processes_without_an_end_is_given_up() {
    let (environment, _stage, mut peer) = connect(&["process/list", "process/list.cursor"], options()).await;
    // A label of 16 MiB; four of them are more than a list may take with what else there is.
    let label = "AAAA".repeat((16 << 20) / 3);
    let process = |label: &str| {
        json!({
            "processId": "p", "pid": 1, "argv": ["x"], "cwd": "file:///", "tty": false, "stdinOpen": false,
            "startedAtMs": 0, "state": "running", "firstSeq": 1, "nextSeq": 1, "heldBytes": 0, "droppedBytes": 0,
            "label": label,
        })
    };
    let (small, large) = (json!([process("")]), json!([process(&label)]));
    let serve = async {
        let mut cursors = Vec::new();
        for (processes, next) in [(&small, Some("a")), (&large, Some("b")), (&small, None)] {
            let (id, params) = peer.expect("process/list").await;
            cursors.push(params["cursor"].clone());
            peer.reply(&id, json!({"processes": processes, "nextCursor": next})).await;
        }
        for _ in 0..4 {
            peer.answer("process/list", json!({"processes": &large, "nextCursor": "more"})).await;
        }
        cursors
    };
    let lists = async {
        let listed = environment.processes().list().await.expect("it has an end");
        (listed.len(), environment.processes().list().await)
    };
    let ((listed, beyond), cursors) = within(async { tokio::join!(lists, serve) }).await;
    assert_eq!((listed, cursors), (3, vec![json!(""), json!("a"), json!("b")]));
    let why = beyond.expect_err("it has no end").why;
    assert!(why.contains("67108864 bytes"), "{why}");
}
