//! What waits holds nothing that work needs, and a peer that does not read is not read from.

use std::sync::atomic::Ordering;

use exec_rpc::limits::{ACCEPTED_REQUESTS, WAITING_REQUESTS};
use serde_json::json;

use crate::{PAIR_MESSAGES, TestServer, error_of};

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_nonsense_and_does_not_read_the_answers_is_not_read_from() {
    let server = TestServer::start().await;
    for nonsense in ["nonsense", r#"{"id":1,"method":"no/such"}"#, r#"{"id":1,"method":"initialize","params":7}"#] {
        let mut client = server.connect();
        let most = ACCEPTED_REQUESTS + 3 * PAIR_MESSAGES;
        let mut sent = 0;
        while sent < 2 * most && client.try_send(nonsense).await.is_ok() {
            sent += 1;
        }
        assert!(sent <= most, "the server took {sent} messages and held an answer to each: {nonsense}");
        drop(client.connection);
        client.serving.await.expect("the server gives the connection up");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_stop_neither_work_nor_control_and_too_many_are_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start_process("p").await;
    for _ in 0..WAITING_REQUESTS {
        client.request("process/wait", json!({"processId": "p", "until": {"kind": "exited"}})).await;
    }
    let started = client.start_process("q").await;
    assert_eq!(started["result"]["processId"], "q", "{started}");
    let terminated = client.call("process/terminate", json!({"processId": "q"})).await;
    assert_eq!(terminated["result"]["running"], true, "{terminated}");
    for _ in 0..2 * ACCEPTED_REQUESTS {
        let refused = client.call("process/wait", json!({"processId": "p", "until": {"kind": "exited"}})).await;
        let (code, kind, text) = error_of(&refused);
        assert_eq!((code, kind.as_str()), (-32600, "busy"));
        assert!(text.contains("1024 requests"), "{text}");
    }
    let status = client.call("environment/status", json!(null)).await;
    assert_eq!(status["result"]["status"], "ready");
}

#[tokio::test(start_paused = true)]
async fn megabytes_for_a_child_that_does_not_read_stop_neither_terminate_nor_other_work() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start_process("p").await;
    let chunk = "AAAA".repeat((1 << 20) / 3);
    for number in 0..144 {
        let params = json!({"processId": "p", "chunk": chunk, "writeId": format!("w{number}")});
        client.request("process/write", params).await;
    }
    let terminated = client.call("process/terminate", json!({"processId": "p"})).await;
    assert_eq!(terminated["result"]["running"], true, "{terminated}");
    let started = client.start_process("q").await;
    assert_eq!(started["result"]["processId"], "q", "{started}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_gone_ends_though_its_stdin_write_is_stuck() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start_process("p").await;
    client.request("process/write", json!({"processId": "p", "chunk": "AAAA", "writeId": "w"})).await;
    // The answer shows that the write before it was read.
    client.call("environment/status", json!(null)).await;
    drop(client.connection);
    client.serving.await.expect("serving ends, and nobody panics");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_slowly_does_not_stop_large_answers() {
    let server = TestServer::start().await;
    server.environment.claimed_bytes.store(32 << 20, Ordering::Relaxed);
    let mut client = server.client().await;
    client.start_process("p").await;
    client.request("http/request", json!({"method": "GET", "url": "http://a/", "requestId": "r"})).await;
    // The answer shows that the request before it is under way.
    client.call("environment/status", json!(null)).await;
    let page = client.call("process/read", json!({"processId": "p"})).await;
    assert!(page["result"]["chunks"].is_array(), "{page}");
}
