//! Our client's frames and upgrade with tungstenite as the server, and what it says when there is
//! no server, or the wrong one.

use std::time::Duration;

use exec_transport::{CloseReason, ConnectError, ConnectOptions, Connection, ConnectionEnd, Received, Target, connect};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message as TheirMessage;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as TheirFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use crate::support::{Tungstenite, closed, long_text, message, read_head, send, text, within};

/// A listener, and the URL of `path` on it.
async fn their_listener(path: &str) -> (TcpListener, Target) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let address = listener.local_addr().expect("bound");
    (listener, format!("ws://{address}{path}").parse().expect("a URL"))
}

#[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
async fn with_their_server(path: &str, options: &ConnectOptions) -> (Connection, Tungstenite, Request) {
    let (listener, target) = their_listener(path).await;
    let server = async {
        let (stream, _) = listener.accept().await.expect("a listener");
        let mut seen = None;
        let keep = |request: &Request, response: Response| {
            seen = Some(request.clone());
            Ok(response)
        };
        let server = tokio_tungstenite::accept_hdr_async(stream, keep).await.expect("we upgrade");
        (server, seen.expect("the request came first"))
    };
    let (ours, (theirs, request)) = within(async { tokio::join!(connect(&target, options), server) }).await;
    (ours.expect("they upgrade"), theirs, request)
}

#[tokio::test]
async fn the_request_carries_path_query_and_token_and_nothing_else() {
    let options = ConnectOptions { bearer_token: Some("s3cret".to_owned()), ..ConnectOptions::default() };
    let (ours, _theirs, request) = with_their_server("/a/b?c=d&e", &options).await;
    assert_eq!(request.uri().to_string(), "/a/b?c=d&e");
    assert_eq!(request.headers()["authorization"], "Bearer s3cret");
    assert_eq!(request.headers()["host"], ours.peer.to_string());
    let mut names: Vec<_> = request.headers().keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["authorization", "connection", "host", "sec-websocket-key", "sec-websocket-version", "upgrade"]);
}

#[tokio::test]
async fn text_and_binary_go_both_ways() {
    let (mut ours, mut theirs, _) = with_their_server("", &ConnectOptions::default()).await;
    for size in [0, 1, 125, 126, 4096, 16_385, 65_536, 300_000, 2_500_000] {
        let content = long_text(size);
        let (received, ()) = tokio::join!(within(theirs.next()), send(&mut ours, text(content.clone())));
        let received = received.expect("open").expect("well formed and masked");
        assert!(received == TheirMessage::text(content.clone()), "changed at {size} bytes");
        let (sent, echoed) =
            tokio::join!(theirs.send(TheirMessage::binary(content.clone())), message(&mut ours.receiver));
        sent.expect("we read");
        assert!(echoed == exec_transport::Message::Binary(content.into()), "changed at {size} bytes");
    }
}

#[tokio::test]
async fn fragments_pings_and_the_close_of_a_server() {
    let (mut ours, mut theirs, _) = with_their_server("", &ConnectOptions::default()).await;
    let part = |content: &'static str, opcode, fin| {
        TheirMessage::Frame(TheirFrame::message(content, OpCode::Data(opcode), fin))
    };
    theirs.send(part("one ", Data::Text, false)).await.expect("we read");
    theirs.send(TheirMessage::Ping("p".into())).await.expect("we read");
    theirs.send(part("two", Data::Continue, true)).await.expect("we read");
    assert_eq!(message(&mut ours.receiver).await, text("one two"));
    assert_eq!(within(theirs.next()).await.expect("open").expect("well formed"), TheirMessage::Pong("p".into()));
    theirs.close(Some(CloseFrame { code: CloseCode::Library(4001), reason: "enough".into() })).await.expect("we read");
    let ConnectionEnd::ByPeer(reason) = closed(&mut ours.receiver).await else { panic!("not by the peer") };
    assert_eq!(reason, CloseReason::new(4001, "enough"));
    let answer = within(theirs.next()).await.expect("an answer").expect("well formed");
    assert!(matches!(answer, TheirMessage::Close(Some(frame)) if frame.code == CloseCode::Library(4001)));
}

#[tokio::test]
async fn our_close_reaches_the_server() {
    let (ours, mut theirs, _) = with_their_server("", &ConnectOptions::default()).await;
    let mut receiver = ours.receiver;
    let leaving = ours.sender.close(CloseReason::normal());
    let (end, ()) = within(async { tokio::join!(theirs.next(), leaving) }).await;
    assert!(matches!(end, Some(Ok(TheirMessage::Close(Some(frame)))) if frame.code == CloseCode::Normal));
    assert!(within(theirs.next()).await.is_none());
    assert!(matches!(closed(&mut receiver).await, ConnectionEnd::ByPeer(_)));
}

#[tokio::test]
async fn a_masked_frame_from_a_server_is_a_violation() {
    let (mut ours, mut theirs, _) = with_their_server("", &ConnectOptions::default()).await;
    theirs.get_mut().write_all(b"\x81\x81\0\0\0\0x").await.expect("we read");
    let told = async {
        let told = within(theirs.next()).await.expect("a close frame").expect("well formed");
        assert!(matches!(told, TheirMessage::Close(Some(frame)) if frame.code == CloseCode::Protocol));
        drop(theirs);
    };
    let (found, ()) = tokio::join!(within(ours.receiver.next()), told);
    assert!(matches!(found, Received::Malformed { reason } if reason.contains("a masked frame from a server")));
}

#[tokio::test]
async fn frames_sent_together_with_the_upgrade_are_not_lost() {
    let (listener, target) = their_listener("").await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a listener");
        let head = read_head(&mut stream).await;
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).expect("a key");
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {accept}\r\n\r\n\x01\x02he"
        );
        let mut bytes = answer.into_bytes();
        bytes.extend_from_slice(b"\x80\x03llo");
        stream.write_all(&bytes).await.expect("we read");
        stream
    };
    let options = ConnectOptions::default();
    let (ours, _stream) = within(async { tokio::join!(connect(&target, &options), server) }).await;
    assert_eq!(message(&mut ours.expect("upgraded").receiver).await, text("hello"));
}

/// What connecting to a server says that answers with `answer`, whatever it is asked.
async fn error_after(answer: &'static str) -> ConnectError {
    let (listener, target) = their_listener("/x").await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a listener");
        read_head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.expect("we read");
        stream.shutdown().await.expect("open");
        let _ = stream.read(&mut [0]).await;
    };
    let options = ConnectOptions::default();
    let (failed, ()) = within(async { tokio::join!(connect(&target, &options), server) }).await;
    failed.expect_err("no upgrade")
}

#[tokio::test]
async fn a_refusal_tells_status_and_text() {
    let error = error_after("HTTP/1.1 401 Unauthorized\r\ncontent-length: 5\r\n\r\nnope\n").await;
    assert!(matches!(&error, ConnectError::Refused { status: 401, body, .. } if body == "nope"));
    assert!(error.to_string().ends_with("/x refused the connection: HTTP 401: nope"), "{error}");
    let error = error_after("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert!(error.to_string().ends_with("refused the connection: HTTP 200"), "{error}");
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_named_so() {
    let error = error_after("SSH-2.0-OpenSSH_9.9\r\n").await;
    assert!(matches!(error, ConnectError::Handshake { .. }), "{error}");
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n";
    let error = error_after(wrong).await;
    assert!(error.to_string().contains("this is no WebSocket server"), "{error}");
}

#[tokio::test]
async fn nobody_there_and_nobody_answering_are_two_errors() {
    let (listener, target) = their_listener("").await;
    let options = ConnectOptions { timeout: Duration::from_millis(50), ..ConnectOptions::default() };
    let silent = within(connect(&target, &options)).await.expect_err("it never answers");
    assert!(matches!(silent, ConnectError::Timeout { .. }), "{silent}");
    drop(listener);
    let refused = within(connect(&target, &options)).await.expect_err("nobody is there");
    assert!(matches!(refused, ConnectError::Unreachable { .. }), "{refused}");
}

#[test]
fn options_do_not_show_the_token() {
    let options = ConnectOptions { bearer_token: Some("s3cret".to_owned()), ..ConnectOptions::default() };
    assert!(!format!("{options:?}").contains("s3cret"));
}
