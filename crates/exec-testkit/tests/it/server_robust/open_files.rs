//! A server that may open few files: what exceeds the share of its kind is refused with words, and everything else works.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Client, ServerFixture, with_deadline};

/// The limit of open files, soft and hard. 64 of them are a reserve.
const OPEN_FILES: usize = 256;

/// What handles of files, watches and connections have of the rest: 20, 5 and 15 percent.
const HANDLES: usize = 38;
const WATCHES: usize = 9;
const CONNECTIONS: usize = 28;

#[tokio::test]
async fn on_a_server_with_few_descriptors_what_exceeds_a_share_is_refused_and_all_else_works() {
    let server = ServerFixture::start_with_open_files(OPEN_FILES).await;
    let file = server.directory.path().join("file");
    std::fs::write(&file, "read").expect("the folder is ours");
    let (file, folder) =
        (format!("file://{}", file.display()), format!("file://{}", server.directory.path().display()));
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(server.client().await);
    }
    let open = |id: String| ("fs/open", json!({"handleId": id, "path": file}));
    let watch = |id: String| ("fs/watch", json!({"watchId": id, "path": folder, "recursive": false}));
    assert_eq!(ask_until_refused(&mut clients, open).await, HANDLES);
    assert_eq!(ask_until_refused(&mut clients, watch).await, WATCHES);

    assert_all_works(&mut clients[0], &file).await;
    while clients.len() < CONNECTIONS {
        let mut newcomer = server.client().await;
        assert_all_works(&mut newcomer, &file).await;
        clients.push(newcomer);
    }
    for _ in 0..3 {
        let answer = upgrade_answer(&server).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let words = "too many open files: 28 descriptors are set aside for this: close some, or raise the limit";
        assert!(answer.contains(words), "{answer}");
    }
    assert_all_works(&mut clients[0], &file).await;
    // What a connection held, others may have when it is gone. No event tells that the server has noticed it.
    clients.truncate(1);
    with_deadline(async {
        while !upgrade_answer(&server).await.starts_with("HTTP/1.1 101 ") {}
        let mut last = server.client().await;
        let open = json!({"handleId": "last", "path": file});
        while last.call("fs/open", open.clone()).await["result"]["handleId"] != "last" {}
    })
    .await;
}

/// Makes the request for one client after the other until the first refusal, which each of them gets then. Returns how
/// many were granted.
async fn ask_until_refused(clients: &mut [Client], request: impl Fn(String) -> (&'static str, Value)) -> usize {
    let mut granted = 0;
    loop {
        let turn = granted % clients.len();
        let (method, params) = request(granted.to_string());
        if clients[turn].call(method, params).await["result"].is_object() {
            granted += 1;
            continue;
        }
        for client in clients.iter_mut() {
            let (method, params) = request("one too many".to_owned());
            let error = client.call(method, params).await["error"].clone();
            let text = format!(
                "too many open files: {granted} descriptors are set aside for this: close some, or raise the limit of \
                 open files"
            );
            assert_eq!((&error["code"], &error["message"]), (&json!(-32603), &json!(text)));
            assert_eq!((&error["data"]["kind"], &error["data"]["errno"]), (&json!("tooManyOpenFiles"), &json!(24)));
        }
        return granted;
    }
}

async fn assert_all_works(client: &mut Client, file: &str) {
    client.sh("works", "exit 0").await;
    let read = client.call("fs/readFile", json!({"path": file})).await;
    assert_eq!(read["result"]["dataBase64"], "cmVhZA==", "{read}");
    let forgotten = client.call("process/forget", json!({"processId": "works"})).await;
    assert!(forgotten["result"].is_object(), "{forgotten}");
}

/// The head of the answer to an upgrade and, if it is a refusal, its body.
async fn upgrade_answer(server: &ServerFixture) -> String {
    let mut stream = TcpStream::connect(&server.process.address).await.expect("the server listens");
    let request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).await.expect("the server answers");
    String::from_utf8_lossy(&answer[..read]).into_owned()
}
