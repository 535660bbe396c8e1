//! Every string that is kept has a bound, tested from both sides; and what we send, our own client accepts.

use std::sync::atomic::Ordering;

use exec_rpc::limits::{
    CLIENT_NAME_BYTES, CLIENT_PROCESS_ID_BYTES, LABEL_BYTES, LISTED_ARGV, LISTED_ARGV_BYTES, REQUEST_ID_BYTES,
    REQUEST_SCOPE_BYTES, SIGNAL_ID_BYTES,
};
use exec_transport::Received;
use exec_wire::RawJson;
use serde_json::{Value, json};

use crate::{TestClient, TestServer, error_of, start_params};

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
    assert_refused(&client.start_process(&letters(CLIENT_PROCESS_ID_BYTES + 1)).await, CLIENT_PROCESS_ID_BYTES);
    assert!(client.start_process(&letters(CLIENT_PROCESS_ID_BYTES)).await["result"].is_object());
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
    assert_refused(&client.start_process(&letters(10_000)).await, CLIENT_PROCESS_ID_BYTES);
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

/// A page of the list of processes, which our own client can read.
async fn list(client: &mut TestClient, params: Value) -> Value {
    client.request("process/list", params).await;
    let Received::Message(message) = client.connection.receiver.next().await else { panic!("an answer is missing") };
    let text = std::str::from_utf8(message.bytes()).expect("a server writes text");
    RawJson::parse(text).expect("the answer is within the bounds of a message");
    serde_json::from_str(text).expect("it is JSON")
}

async fn start_with_words(client: &mut TestClient, id: &str, words: Value) {
    let mut start = start_params(id);
    start["argv"] = words;
    assert_eq!(client.call("process/start", start).await["result"]["processId"], id);
}

#[tokio::test]
async fn a_list_of_processes_comes_in_pages_that_fit_and_each_process_is_in_one() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut expected = Vec::new();
    for number in 0..60 {
        let id = format!("p{number:03}");
        let mut start = start_params(&id);
        start["label"] = "AAAA".repeat(LABEL_BYTES / 3).into();
        assert_eq!(client.call("process/start", start).await["result"]["processId"], id.as_str());
        expected.push(id);
    }
    let (mut listed, mut cursor, mut pages) = (Vec::new(), json!(""), 0);
    while !cursor.is_null() {
        let page = list(&mut client, json!({"cursor": cursor})).await;
        let processes = page["result"]["processes"].as_array().expect("a list");
        listed.extend(processes.iter().map(|info| info["processId"].as_str().expect("an id").to_owned()));
        cursor = page["result"]["nextCursor"].clone();
        pages += 1;
        // It was in the first page; where the next one begins does not depend on it.
        client.call("process/forget", json!({"processId": listed[listed.len() - 1]})).await;
    }
    listed.sort();
    assert_eq!((listed, pages), (expected, 2));
    let refused = client.call("process/list", json!({"cursor": "nonsense"})).await;
    assert_eq!(error_of(&refused).0, -32602);
}

#[tokio::test]
async fn of_a_command_line_the_first_words_are_listed_and_a_flag_says_that_there_are_more() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let words = |count| json!(vec!["w"; count]);
    start_with_words(&mut client, "as many", words(LISTED_ARGV)).await;
    start_with_words(&mut client, "more", words(LISTED_ARGV + 1)).await;
    start_with_words(&mut client, "as long", json!(["w", letters(LISTED_ARGV_BYTES - 1)])).await;
    start_with_words(&mut client, "longer", json!(["w", letters(LISTED_ARGV_BYTES)])).await;
    let listed = list(&mut client, json!({"cursor": ""})).await;
    let listed = |id: &str| {
        let mut processes = listed["result"]["processes"].as_array().expect("a list").iter();
        let info = processes.find(|info| info["processId"] == id).expect("it is there");
        (info["argv"].as_array().expect("words").len(), info["argvCut"] == true)
    };
    assert_eq!((listed("as many"), listed("more")), ((LISTED_ARGV, false), (LISTED_ARGV, true)));
    assert_eq!((listed("as long"), listed("longer")), ((2, false), (1, true)));
}

#[tokio::test]
async fn an_answer_with_more_values_than_a_message_may_have_is_an_error_that_says_what_to_do() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // Words that are no text; each is two values.
    let words = json!(vec![json!({"base64": "/w=="}); LISTED_ARGV]);
    for number in 0..125 {
        start_with_words(&mut client, &number.to_string(), words.clone()).await;
    }
    let listed = list(&mut client, json!(null)).await;
    assert_eq!(listed["result"]["processes"].as_array().expect("a list").len(), 125);
    for number in 125..128 {
        start_with_words(&mut client, &number.to_string(), words.clone()).await;
    }
    let (code, kind, text) = error_of(&list(&mut client, json!(null)).await);
    assert_eq!((code, kind.as_str()), (-32600, "tooLarge"));
    assert!(text.contains("list in pages (cursor)"), "{text}");
    let page = list(&mut client, json!({"cursor": ""})).await;
    assert!(page["result"]["nextCursor"].is_string(), "{}", page["error"]);
}
