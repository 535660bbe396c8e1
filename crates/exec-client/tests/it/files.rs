//! Files on servers that have some of what ours has.

use std::path::Path;

use bytes::Bytes;
use exec_client::files::stream::fingerprint;
use exec_env::Environment;
use exec_env::files::{ContentHash, LinkPolicy, OpenMode};
use serde_json::json;

use super::peer::{connect, options};

#[tokio::test]
async fn a_server_that_can_hash_a_file_is_asked_to() {
    let (environment, _server, mut peer) = connect(&["fs/hash", "fs/writeFile.ifMatch"], options()).await;
    let hash = ContentHash(blake3::hash(b"contents"));
    let serve = async {
        let (id, params) = peer.expect("fs/hash").await;
        let expected =
            json!({ "path": "file:///w/x", "algorithm": "blake3", "followSymlinks": false, "sandbox": null });
        assert_eq!(params, expected);
        peer.reply(&id, json!({ "algorithm": "blake3", "hash": hash.to_string(), "sizeBytes": 8 })).await;
    };
    let (found, ()) = tokio::join!(fingerprint(environment.files(), Path::new("/w/x"), LinkPolicy::Refuse), serve);
    assert_eq!(found, Ok(hash));
}

#[tokio::test]
async fn an_older_server_names_the_hash_when_it_refuses_a_write() {
    let extensions = ["fs/writeFile.append", "fs/writeFile.ifMatch", "error.data"];
    let (environment, _server, mut peer) = connect(&extensions, options()).await;
    let hash = ContentHash(blake3::hash(b"contents"));
    let serve = async {
        let (id, params) = peer.expect("fs/writeFile").await;
        assert_eq!((&params["append"], &params["dataBase64"]), (&json!(true), &json!("")));
        let data = json!({ "kind": "changed", "detail": hash.to_string() });
        peer.refuse(&id, json!({ "code": -32600, "message": "it has changed", "data": data })).await;
    };
    let (found, ()) = tokio::join!(fingerprint(environment.files(), Path::new("/w/x"), LinkPolicy::Refuse), serve);
    assert_eq!(found, Ok(hash));
}

#[tokio::test]
async fn an_answer_that_is_no_hash_is_an_error() {
    let (environment, _server, mut peer) = connect(&["fs/hash"], options()).await;
    let answer = json!({ "algorithm": "blake3", "hash": "abc", "sizeBytes": 8 });
    let (found, ()) = tokio::join!(
        fingerprint(environment.files(), Path::new("/w/x"), LinkPolicy::Follow),
        peer.answer("fs/hash", answer)
    );
    let error = found.expect_err("it is too short");
    assert_eq!(error.reason.to_string(), "the environment cannot be reached: the server sent no hash but \"abc\"");
}

#[tokio::test]
async fn after_a_break_a_file_is_opened_again_before_any_of_its_blocks_is_sent_again() {
    let extensions = ["fs/open.append"];
    let (environment, mut server, mut peer) = connect(&extensions, options()).await;
    let no_metadata = json!({ "code": -32601, "message": "no such method" });
    let opening = environment.files().open(Path::new("/w/x"), OpenMode::Replace, LinkPolicy::Follow);
    let serve = async {
        peer.answer("fs/open", json!({ "handleId": "h", "sizeBytes": 0 })).await;
        peer.reject("fs/getMetadata", no_metadata).await;
    };
    let (file, ()) = tokio::join!(opening, serve);
    let file = file.expect("it was opened");
    let serve = async {
        let (_, first) = peer.expect("fs/writeBlock").await;
        peer.expect("fs/writeBlock").await;
        peer.cut();
        let mut peer = server.accept(&extensions).await;
        let (id, opened) = peer.expect("fs/open").await;
        assert_eq!(opened["mode"], "append", "it is not truncated again");
        peer.reply(&id, json!({ "handleId": opened["handleId"], "sizeBytes": 0 })).await;
        for _ in 0..2 {
            let (id, block) = peer.expect("fs/writeBlock").await;
            assert_eq!(block["handleId"], opened["handleId"]);
            assert_ne!(block["handleId"], first["handleId"]);
            peer.reply(&id, json!({})).await;
        }
        peer
    };
    let blocks = async {
        tokio::join!(file.write_block(0, Bytes::from_static(b"a")), file.write_block(1, Bytes::from_static(b"b")))
    };
    let (written, _peer) = tokio::join!(blocks, serve);
    assert_eq!(written, (Ok(()), Ok(())));
}
