//! Sessions: who has one, when it ends, and what is carried out once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use exec_rpc::ServerOptions;
use exec_rpc::limits::PAUSE_AFTER_FIRST_READ;
use serde_json::json;
use tokio::time::Instant;

use crate::{TestServer, error_of, start_params};

#[tokio::test]
async fn a_session_that_is_closed_while_a_start_is_under_way_leaves_no_process() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut operator = server.client().await;
    server.environment.hold_starts.store(true, Ordering::Relaxed);
    client.request("process/start", start_params("p")).await;
    server.environment.start_waits.notified().await;
    let closed = operator.call("session/close", json!({"sessionId": client.session})).await;
    assert_eq!(closed["result"]["closed"], true, "{closed}");
    server.environment.release_starts.notify_one();
    client.serving.await.expect("the connection of a closed session ends");
    assert_eq!((server.environment.started.load(Ordering::Relaxed), server.environment.running()), (1, 0));
}

#[tokio::test]
async fn a_connection_whose_future_is_dropped_leaves_its_session_detached() {
    let server = TestServer::start().await;
    let client = server.client().await;
    client.serving.abort();
    assert!(client.serving.await.expect_err("it was aborted").is_cancelled());
    let mut operator = server.client().await;
    let listed = operator.call("session/list", json!(null)).await;
    let sessions = listed["result"]["sessions"].as_array().expect("a list");
    let left = sessions.iter().find(|session| session["sessionId"] == client.session.as_str()).expect("it is kept");
    assert_eq!(left["attachment"]["state"], "detached", "{left}");
}

#[tokio::test]
async fn a_start_that_is_asked_for_again_is_not_carried_out_again_even_when_its_process_was_forgotten() {
    let server = TestServer::start().await;
    let mut client = server.connect();
    client.initialize(json!({"clientName": "test", "requestScope": "mine"})).await;
    let (session, id) = (client.session.clone(), client.next_id);
    assert_eq!(client.start_process("p").await["result"]["processId"], "p");
    client.call("process/forget", json!({"processId": "p"})).await;
    drop(client);
    let mut resumed = server.connect();
    resumed.initialize(json!({"clientName": "test", "requestScope": "mine", "resumeSessionId": session})).await;
    resumed.next_id = id;
    let (_, kind, text) = error_of(&resumed.start_process("p").await);
    assert_eq!((kind.as_str(), text.as_str()), ("processExists", "process p already exists"));
    assert_eq!(server.environment.started.load(Ordering::Relaxed), 1);
    assert_eq!(resumed.start_process("p").await["result"]["processId"], "p", "another request may use the id");
}

#[tokio::test]
async fn a_signal_that_failed_is_not_remembered_as_sent() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start_process("p").await;
    let signal = json!({"processId": "p", "signal": "terminate", "signalId": "s"});
    server.environment.refuse_signals.store(true, Ordering::Relaxed);
    assert_eq!(error_of(&client.call("process/signal", signal.clone()).await).1, "signalRefused");
    server.environment.refuse_signals.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(client.call("process/signal", signal.clone()).await["result"]["status"], "sent");
    }
    assert_eq!(server.environment.signalled.load(Ordering::Relaxed), 1, "the same key is sent once");
}

#[tokio::test]
async fn a_client_that_missed_that_its_session_was_taken_over_learns_it_when_it_comes_back() {
    let server = TestServer::start().await;
    let mut first = server.connect();
    first.initialize(json!({"clientName": "first", "requestScope": "first"})).await;
    let session = first.session.clone();
    let back = json!({
        "clientName": "first", "requestScope": "first", "resumeSessionId": session, "onlyIfHeld": true
    });
    let mut again = server.connect();
    let answer = again.initialize(back.clone()).await;
    assert_eq!(answer["result"]["sessionId"], session.as_str(), "nobody else has it: {answer}");
    let mut second = server.connect();
    second.initialize(json!({"clientName": "second", "resumeSessionId": session})).await;
    let mut late = server.connect();
    assert_eq!(error_of(&late.initialize(back).await).1, "takenOver");
    let status = second.call("environment/status", json!(null)).await;
    assert_eq!(status["result"]["status"], "ready", "the second client still has the session");
}

#[tokio::test]
async fn a_resumed_connection_whose_processes_are_gone_does_not_look_for_them_for_ever() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start_process("p").await;
    server.environment.follow_tried.notified().await;
    let session = client.session.clone();
    drop(client);
    server.environment.lose_processes();
    let mut resumed = server.connect();
    resumed.initialize(json!({"clientName": "test", "resumeSessionId": session})).await;
    let before = server.environment.followed.load(Ordering::Relaxed);
    // The push begins by itself when the client reads nothing for a while.
    server.environment.follow_tried.notified().await;
    for _ in 0..100 {
        resumed.call("environment/status", json!(null)).await;
    }
    assert_eq!(server.environment.followed.load(Ordering::Relaxed), before + 1);
}

/// Codex's client gives a process up whose output comes faster than it handles the answer to its first read.
#[tokio::test(start_paused = true)]
async fn a_plain_client_that_resumes_has_time_to_handle_its_first_read_before_output_comes() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start_process("p").await;
    let session = client.session.clone();
    drop(client);
    server.environment.floods.store(true, Ordering::Relaxed);
    server.environment.page_entries.store(3, Ordering::Relaxed);
    let mut resumed = server.connect();
    resumed.initialize(json!({"clientName": "test", "resumeSessionId": session})).await;
    let read = resumed.call("process/read", json!({"processId": "p", "afterSeq": 0})).await;
    assert_eq!(read["result"]["nextSeq"], 4, "{read}");
    let read_at = Instant::now();
    let pushed = resumed.next().await;
    assert_eq!((&pushed["method"], &pushed["params"]["seq"]), (&json!("process/output"), &json!(4)));
    assert!(read_at.elapsed() >= PAUSE_AFTER_FIRST_READ);
}

/// A disk that was full when it was opened must not cost a session its life, nor whom it belongs to.
#[tokio::test]
async fn a_session_that_could_not_be_stored_is_stored_before_its_first_process_starts() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let options = ServerOptions { state_dir: Some(state.path().to_owned()), ..ServerOptions::default() };
    let server = TestServer::start_with(options.clone(), Arc::default()).await;
    let sessions = state.path().join("sessions");
    // What is no directory takes no files, as a full disk does not.
    std::fs::remove_dir(&sessions).expect("it is empty");
    std::fs::write(&sessions, "").expect("the folder is ours");
    let mut client = server.connect_as("alice");
    client.initialize(json!({"clientName": "test", "detachedTtlMs": 7_200_000})).await;
    std::fs::remove_file(&sessions).expect("the folder is ours");
    client.start_process("p").await;
    assert!(sessions.join(&client.session).exists());
    let next = TestServer::start_with(options, server.environment.clone()).await;
    let resume = json!({"clientName": "test", "resumeSessionId": client.session});
    assert_eq!(error_of(&next.connect_as("bob").initialize(resume.clone()).await).1, "unknownSession");
    let mut alice = next.connect_as("alice");
    let resumed = alice.initialize(resume).await;
    assert_eq!(resumed["result"]["sessionId"], client.session, "{resumed}");
    assert_eq!(alice.call("process/list", json!({})).await["result"]["processes"][0]["processId"], "p");
}

#[tokio::test]
async fn a_session_of_which_only_the_processes_were_found_is_given_to_no_subject_of_a_token() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let options = ServerOptions { state_dir: Some(state.path().to_owned()), ..ServerOptions::default() };
    let server = TestServer::start_with(options.clone(), Arc::default()).await;
    let mut client = server.connect_as("alice");
    client.initialize(json!({"clientName": "test"})).await;
    client.start_process("p").await;
    std::fs::remove_file(state.path().join("sessions").join(&client.session)).expect("it was stored");
    let resume = json!({"clientName": "test", "resumeSessionId": client.session});
    // The server after the next knows it from the file that the next one writes.
    for _ in 0..2 {
        let next = TestServer::start_with(options.clone(), server.environment.clone()).await;
        assert_eq!(error_of(&next.connect_as("bob").initialize(resume.clone()).await).1, "unknownSession");
        let resumed = next.connect().initialize(resume.clone()).await;
        assert_eq!(resumed["result"]["sessionId"], client.session, "{resumed}");
    }
}
