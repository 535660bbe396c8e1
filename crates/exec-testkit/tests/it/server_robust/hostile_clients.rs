//! Clients that send nonsense, stop halfway or disconnect: the others do not notice, and memory stays bounded.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use super::MEMORY_BYTES;
use super::client::{Client, ServerFixture, with_deadline};
use crate::compat::raw_connection::Received;

/// Connections of each test that holds many.
const CROWD: usize = 500;

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The server still serves, and uses little memory.
async fn assert_server_is_fine(server: &ServerFixture) {
    let mut client = server.client().await;
    let status = client.call("environment/status", json!({})).await;
    assert_eq!(status["result"]["status"], "ready");
    client.sh("p", "echo served").await;
    let used = server.used_bytes();
    assert!(used < MEMORY_BYTES / 2, "{used} bytes");
}

async fn raw(server: &ServerFixture, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(&server.process.address).await.expect("the server accepts");
    stream.write_all(bytes).await.expect("the server reads");
    stream
}

/// A connection after the upgrade, below any framing.
async fn upgraded(server: &ServerFixture) -> TcpStream {
    let mut stream = raw(server, UPGRADE.as_bytes()).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the server answers"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    stream
}

/// Everything that the server still sends.
async fn read_to_close(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = with_deadline(stream.read_to_end(&mut said)).await;
    said
}

/// Whoever started the server may never read its stderr. What there is no room for there is left out, and the rest is there.
#[tokio::test]
async fn a_server_whose_log_nobody_reads_serves_all_the_same() {
    const REFUSED: usize = 30;
    let directory = tempfile::tempdir().expect("a temporary folder");
    let log = directory.path().join("log");
    // The shell holds both ends of the pipe open, and fills it.
    let script = format!(
        "mkfifo {0} && exec 3<>{0} && head -c 65536 /dev/zero >&3 && exec {1} \"$@\" 2>&3",
        log.display(),
        exec_testkit::binaries::exec_server().display()
    );
    let server = ServerFixture::start_by_script(directory, &script, &["--workers", "1"]).await;
    for _ in 0..REFUSED {
        let refused = raw(&server, UPGRADE.replace("127.0.0.1", "stranger.example").as_bytes()).await;
        let answer = read_to_close(refused).await;
        assert!(answer.starts_with(b"HTTP/1.1 403"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_server_is_fine(&server).await;
    let mut pipe = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&log).expect("the shell made it");
    let mut read = Vec::new();
    let told = |read: &[u8]| read.windows(16).filter(|part| *part == b"stranger.example").count();
    with_deadline(async {
        while told(&read) < REFUSED {
            pipe.read_buf(&mut read).await.expect("the server holds it open");
        }
    })
    .await;
}

/// A pipe whose reader has gone, or a full disk.
#[tokio::test]
async fn a_server_whose_log_cannot_be_written_serves_all_the_same() {
    let program = exec_testkit::binaries::exec_server();
    for stderr in ["2> /dev/full", "2> >(exec true)"] {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let script = format!("exec bash -c 'exec {} \"$@\" {stderr}' bash \"$@\"", program.display());
        let server = ServerFixture::start_by_script(directory, &script, &["--workers", "1"]).await;
        for _ in 0..3 {
            let refused = raw(&server, UPGRADE.replace("127.0.0.1", "stranger.example").as_bytes()).await;
            let answer = read_to_close(refused).await;
            assert!(answer.starts_with(b"HTTP/1.1 403"), "{stderr}: {}", String::from_utf8_lossy(&answer));
        }
        assert_server_is_fine(&server).await;
    }
}

#[tokio::test]
async fn a_crowd_that_never_finishes_its_request_alone() {
    let server = ServerFixture::start().await;
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        let cut = number % UPGRADE.len();
        crowd.push(raw(&server, &UPGRADE.as_bytes()[..cut]).await);
    }
    assert_server_is_fine(&server).await;
}

#[tokio::test]
async fn a_crowd_that_never_finishes_its_frame_alone() {
    let server = ServerFixture::start().await;
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        let mut stream = upgraded(&server).await;
        // The header announces 16 MiB; only a few bytes follow.
        let head = [0x81, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4];
        stream.write_all(&head[..2 + number % 13]).await.expect("the server reads");
        crowd.push(stream);
    }
    assert_server_is_fine(&server).await;
}

#[tokio::test]
async fn a_crowd_that_shakes_hands_and_is_silent_alone() {
    let server = ServerFixture::start().await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(server.client().await);
    }
    assert_server_is_fine(&server).await;
    let mut last = crowd.pop().expect("there is a crowd");
    assert_eq!(last.call("environment/status", json!({})).await["result"]["status"], "ready");
}

#[tokio::test]
async fn frames_against_the_rules_are_answered_with_a_close() {
    let server = ServerFixture::start().await;
    let violations: [(&str, &[u8], [u8; 2]); 6] = [
        ("an unmasked frame", b"\x81\x02{}", 1002_u16.to_be_bytes()),
        ("bytes that are not UTF-8", b"\x81\x82\0\0\0\0\xff\xfe", 1007_u16.to_be_bytes()),
        ("a frame beyond every limit", b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009_u16.to_be_bytes()),
        ("a frame of 17 MiB", b"\x81\xff\0\0\0\0\x01\x10\0\0\0\0\0\0", 1009_u16.to_be_bytes()),
        ("a reserved bit", b"\xf1\x80\0\0\0\0", 1002_u16.to_be_bytes()),
        ("a control frame that is too long", b"\x89\xfe\0\x80\0\0\0\0", 1002_u16.to_be_bytes()),
    ];
    for (name, bytes, code) in violations {
        let mut stream = upgraded(&server).await;
        stream.write_all(bytes).await.expect("the server reads");
        let said = read_to_close(stream).await;
        assert_eq!((said.first(), said.get(2..4)), (Some(&0x88), Some(&code[..])), "{name}");
    }
    assert_server_is_fine(&server).await;
}

#[tokio::test]
async fn malformed_messages_are_refused_and_the_connection_goes_on() {
    let server = ServerFixture::start().await;
    let mut client = server.client().await;
    let deep = format!(r#"{{"id":1,"method":"x","params":{}"#, "[".repeat(1 << 20));
    let wide = format!("[{}]", vec!["0"; 1 << 20].join(","));
    let long = format!(r#"{{"id":1,"method":"{}"#, "x".repeat(8 << 20));
    let key = format!(r#"{{"{}":1}}"#, "k".repeat(1 << 20));
    let texts = ["", "{", "[]", "nonsense", r#"{"id":{}}"#, &deep, &wide, &long, &key];
    for round in 0..texts.len() * 2 {
        client.connection.send(texts[round % texts.len()]).await;
        let refusal = client.next().await;
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!(-1), &json!(-32600)), "round {round}");
    }
    assert_eq!(client.call("environment/status", json!({})).await["result"]["status"], "ready");
    assert_server_is_fine(&server).await;
}

#[tokio::test]
async fn raw_blocks_are_written_and_frames_that_make_no_sense_are_refused() {
    let server = ServerFixture::start().await;
    let file = server.directory.path().join("file");
    let mut client = server.raw_client().await;
    let path = format!("file://{}", file.display());
    client.call("fs/open", json!({"handleId": "h", "path": path, "mode": "replace"})).await;
    // As in PROTOCOL.md: kind, version, stream, flags, length of the id, offset, id, and what follows.
    let frame = |kind: u8, request_id: &str, rest: &[u8]| {
        let head = [kind, 1, 0, 0, 0, request_id.len() as u8, 0, 0, 0, 0, 0, 0, 0, 2];
        [&head[..], request_id.as_bytes(), rest].concat()
    };
    let block = frame(3, "7", b"\x01hraw");
    let cases = [
        (block.clone(), json!(7), json!(null)),
        (frame(3, "\"seven\"", b"\x01hraw"), json!("seven"), json!(null)),
        (frame(3, "8", b"\x06nobodyraw"), json!(8), json!(-32004)),
        (frame(3, "9", b"\x01h"), json!(9), json!(-32600)),
        (frame(3, "10", b"\x09h"), json!(-1), json!(-32600)),
        (frame(3, "[]", b"\x01hraw"), json!(-1), json!(-32600)),
        (frame(2, "11", b"\x01hraw"), json!(-1), json!(-32600)),
        (block[..10].to_vec(), json!(-1), json!(-32600)),
    ];
    for (frame, id, code) in cases {
        client.connection.send_message(Message::Binary(frame.clone().into())).await;
        let answer = client.next().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &code), "{frame:?}: {answer}");
    }
    assert_eq!(std::fs::read(&file).expect("it was written"), b"\0\0raw");
    // On a connection that did not ask for binary frames, such bytes are no message.
    let mut plain = server.client().await;
    plain.connection.send_message(Message::Binary(block.into())).await;
    assert_eq!(plain.next().await["error"]["code"], -32600);
    assert_server_is_fine(&server).await;
}

#[tokio::test]
async fn a_client_that_asks_for_everything_and_reads_nothing_alone() {
    let server = ServerFixture::start().await;
    let mut greedy = server.client().await;
    let done = server.semaphore("done");
    greedy.sh("p", &super::flood(40 << 20, 3, &done)).await;
    with_deadline(done.acquire_many(1)).await;
    // Each answer is a page of 32 MiB.
    for _ in 0..200 {
        greedy.request("process/read", json!({"processId": "p", "afterSeq": 0})).await;
    }
    let mut other = server.client().await;
    assert_eq!(other.call("environment/status", json!({})).await["result"]["status"], "ready");
    let used = server.used_bytes();
    // One page, its encoding, and what the connection may buffer beside it.
    assert!(used < 6 * MEMORY_BYTES, "{used} bytes");
}

#[tokio::test]
async fn connections_that_break_off_leave_nothing_behind_alone() {
    let server = ServerFixture::start().await;
    let before = descriptors(&server);
    for _ in 0..CROWD {
        let mut client = Client::connect(&server.process.address).await;
        client.request("initialize", json!({"clientName": "brief"})).await;
        drop(client);
    }
    let mut last = server.client().await;
    last.connection.finish().await;
    while let Some(came) = last.connection.next().await {
        if matches!(came, Received::End(_)) {
            break;
        }
    }
    assert_server_is_fine(&server).await;
    // No event tells us when the server has noticed the end of each connection, so this polls.
    with_deadline(async {
        while descriptors(&server) > before + 16 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn descriptors(server: &ServerFixture) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count()
}
