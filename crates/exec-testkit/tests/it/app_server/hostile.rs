//! Clients that send too much, or nonsense: memory stays bounded, and the next request is answered.

use exec_testkit::proc_status::peak_resident_bytes;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::peer::{DEADLINE, Peer};

/// What a server may use at most while it is pestered.
const MEMORY_BYTES: u64 = 300 << 20;

#[tokio::test]
async fn nonsense_is_not_answered_and_costs_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut peer = Peer::ours(folder.path()).await;
    let deep = format!("{{\"id\":1,\"method\":\"fs/unwatch\",\"params\":{}", "[".repeat(100_000));
    let many = format!("{{\"id\":1,\"method\":\"fs/unwatch\",\"params\":[{}0]}}", "0,".repeat(5_000_000));
    let long = format!("{{\"id\":1,\"method\":\"{}\"}}", "x".repeat(10_000_000));
    let odd = "\u{0}\u{1}{{{\"\"\"".to_owned();
    for line in [deep, many, odd] {
        peer.send_line(line.as_bytes()).await;
    }
    peer.send_line(long.replace("\"id\":1", "\"id\":77").as_bytes()).await;
    let refused = peer.answer(77).await;
    let message = refused["error"]["message"].as_str().expect("words");
    assert!(message.len() < 10_000, "{} bytes of the client's own words come back", message.len());
    assert_eq!(peer.call("fs/unwatch", json!({ "watchId": "a" })).await, json!({ "result": {} }));
    let peak = peak_resident_bytes(peer.pid());
    assert!(peak < MEMORY_BYTES, "{peak} bytes");
}

#[tokio::test]
async fn a_line_without_end_ends_the_connection() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut peer = Peer::ours(folder.path()).await;
    let mut stdin = peer.take_stdin();
    let block = vec![b'x'; 1 << 20];
    // The largest message that is allowed has 64 MiB.
    for _ in 0..63 {
        stdin.write_all(&block).await.expect("the server reads");
    }
    let peak = peak_resident_bytes(peer.pid());
    assert!(peak < MEMORY_BYTES, "{peak} bytes");
    // Beyond that the server goes, and takes nothing more.
    while stdin.write_all(&block).await.is_ok() {}
    let ended = tokio::time::timeout(DEADLINE, peer.child.wait()).await;
    assert!(ended.expect("it ends").is_ok_and(|status| status.success()));
}

/// Nobody reads the answers until all requests are on their way; what the server does not take waits in the pipe.
#[tokio::test]
async fn ten_thousand_requests_in_a_row_are_answered_in_bounded_memory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0; 20_000]).expect("it is ours");
    let mut peer = Peer::ours(folder.path()).await;
    let mut stdin = peer.take_stdin();
    let sending = tokio::spawn(async move {
        for id in 0..10_000 {
            let request = json!({ "id": 1_000 + id, "method": "fs/readFile", "params": { "path": path } });
            stdin.write_all(format!("{request}\n").as_bytes()).await.expect("the server reads");
        }
        stdin
    });
    for _ in 0..10_000 {
        let message = peer.next_message().await.expect("the server is there");
        assert!(message["result"]["dataBase64"].is_string(), "{message}");
    }
    let peak = peak_resident_bytes(peer.pid());
    assert!(peak < MEMORY_BYTES, "{peak} bytes");
    drop(sending.await.expect("everything was sent"));
}
