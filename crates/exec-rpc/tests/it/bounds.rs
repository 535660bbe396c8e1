//! Every string that is kept has a bound, tested from both sides; and what we send, our own client accepts.

use std::sync::atomic::Ordering;

use exec_rpc::limits::{CLIENT_NAME_BYTES, LABEL_BYTES, REQUEST_ID_BYTES, REQUEST_SCOPE_BYTES, SIGNAL_ID_BYTES};
use exec_transport::Received;
use exec_wire::RawJson;
use serde_json::{Value, json};

use crate::{TestServer, error_of, start_params};

fn letters(count: usize) -> String {
    "x".repeat(count)
}

/// Refused as invalid params, by a text that names the limit.
fn assert_refused(answer: &Value, limit: usize) {
    let (code, kind, text) = error_of(answer);
    assert_eq!((code, kind.as_str()), (-32602, "tooLarge"), "{answer}");
    assert!(text.contains(&limit.to_string()), "{text}");
}

#[tokio::test]
async fn names_and_scopes_of_clients_are_bounded() {
    let server = TestServer::start().await;
    for (member, limit) in [("clientName", CLIENT_NAME_BYTES), ("requestScope", REQUEST_SCOPE_BYTES)] {
        let mut client = server.connect();
        let mut params = json!({"clientName": "test"});
        params[member] = letters(limit + 1).into();
        assert_refused(&client.initialize(params.clone()).await, limit);
        params[member] = letters(limit).into();
        let answer = client.initialize(params).await;
        assert!(answer["result"].is_object(), "the connection can still be used: {answer}");
    }
}

#[tokio::test]
async fn keys_and_labels_of_requests_are_bounded() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start_process("p").await;
    let signal = |count| json!({"processId": "p", "signal": "terminate", "signalId": letters(count)});
    assert_eq!(client.call("process/signal", signal(SIGNAL_ID_BYTES)).await["result"]["status"], "sent");
    assert_refused(&client.call("process/signal", signal(SIGNAL_ID_BYTES + 1)).await, SIGNAL_ID_BYTES);
    let mut start = start_params("labelled");
    start["label"] = "AAAA".repeat(LABEL_BYTES / 3 + 1).into();
    assert_refused(&client.call("process/start", start.clone()).await, LABEL_BYTES);
    start["label"] = "AAAA".repeat(LABEL_BYTES / 3).into();
    assert_eq!(client.call("process/start", start).await["result"]["processId"], "labelled");
    let long = json!({"id": letters(REQUEST_ID_BYTES), "method": "environment/status"});
    client.send(&long.to_string()).await;
    assert_eq!(client.next().await["id"], long["id"]);
    let longer = json!({"id": letters(REQUEST_ID_BYTES + 1), "method": "environment/status"});
    client.send(&longer.to_string()).await;
    let refused = client.answer(-1).await;
    assert_refused(&refused, REQUEST_ID_BYTES);
}

#[tokio::test]
async fn a_process_id_of_a_thousand_characters_works() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let id = "ü".repeat(1000);
    assert_eq!(client.start_process(&id).await["result"]["processId"], id.as_str());
    assert_eq!(client.call("process/terminate", json!({"processId": id})).await["result"]["running"], true);
    assert_refused(&client.start_process(&letters(10_000)).await, exec_core::limits::PROCESS_ID_BYTES);
}

#[tokio::test]
async fn a_page_of_very_many_small_entries_is_one_that_our_own_client_can_read() {
    const ENTRIES: usize = 90_000;
    let server = TestServer::start().await;
    server.environment.page_entries.store(ENTRIES, Ordering::Relaxed);
    let mut client = server.client().await;
    client.start_process("p").await;
    let mut after = 0;
    while after < ENTRIES as u64 {
        client.request("process/read", json!({"processId": "p", "afterSeq": after})).await;
        let Received::Message(message) = client.connection.receiver.next().await else { panic!("a page is missing") };
        let text = std::str::from_utf8(message.bytes()).expect("a server writes text");
        RawJson::parse(text).expect("the page is within the bounds of a message");
        let answer: Value = serde_json::from_str(text).expect("it is JSON");
        let next = answer["result"]["nextSeq"].as_u64().expect("every page says where to go on");
        assert!(next > after + 1, "each page brings the reader on");
        after = next - 1;
    }
}
