//! Unix sockets: the file, who may connect, and the two protocols on one socket.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use exec_transport::{
    BindError, CloseReason, ConnectOptions, ConnectionEnd, ListenOptions, ListenUrl, Listener, Message, PeerKind,
    Received, SendError, Target, connect,
};
use futures_util::FutureExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::support::{accept, closed, long_text, message, read_head, send, text, within};

async fn listen(path: &Path) -> Result<Listener, BindError> {
    within(Listener::bind(&ListenUrl::Unix(path.to_owned()), ListenOptions::default())).await
}

#[tokio::test]
async fn the_socket_is_ours_alone_and_removed_at_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let listener = listen(&path).await.expect("a free path");
    assert_eq!(listener.url(), format!("unix://{}", path.display()));
    let metadata = std::fs::symlink_metadata(&path).expect("it was made");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    within(listener.close()).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn our_client_speaks_websocket_over_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let mut listener = listen(&path).await.expect("a free path");
    let target: Target = format!("unix://{}", path.display()).parse().expect("a URL");
    let options = ConnectOptions::default();
    let (mut server, client) = tokio::join!(accept(&mut listener), within(connect(&target, &options)));
    let mut client = client.expect("it upgrades");
    let name = format!("unix:{} (pid {})", path.display(), std::process::id());
    assert_eq!((server.peer.to_string(), client.peer.to_string()), (name.clone(), name));
    assert_eq!((server.peer.kind(), client.peer.kind()), (PeerKind::Unix, PeerKind::Unix));

    let binary = Message::Binary(vec![0, 10, 255].into());
    send(&mut client, binary.clone()).await;
    assert_eq!(message(&mut server.receiver).await, binary);
    send(&mut server, text("over unix")).await;
    assert_eq!(message(&mut client.receiver).await, text("over unix"));
    within(server.sender.close(CloseReason::new(1001, "stop"))).await;
    assert!(
        matches!(closed(&mut client.receiver).await, ConnectionEnd::ByPeer(reason) if reason == CloseReason::new(1001, "stop"))
    );
}

/// So a message that is made only then is never held for a peer that does not read.
#[tokio::test]
async fn while_there_is_room_the_kernel_takes_the_message_of_a_whole_entry() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let mut listener = listen(&path).await.expect("a free path");
    let target: Target = format!("unix://{}", path.display()).parse().expect("a URL");
    let options = ConnectOptions::default();
    let (mut server, client) = tokio::join!(accept(&mut listener), within(connect(&target, &options)));
    let mut client = client.expect("it upgrades");
    // 64 KiB as base64, and some more.
    let entry = text(long_text(88 << 10));
    let mut sent = 0;
    while let Some(room) = server.sender.wait_for_room().now_or_never() {
        room.expect("the client lives");
        let taken = server.sender.feed(entry.clone()).now_or_never();
        taken.expect("it need not wait").expect("the client lives");
        sent += 1;
    }
    assert!(sent > 0);
    let reading = async {
        for _ in 0..sent {
            assert!(message(&mut client.receiver).await == entry, "a message was changed");
        }
    };
    let (room, ()) = tokio::join!(within(server.sender.wait_for_room()), within(reading));
    room.expect("the client has read");
}

#[tokio::test]
async fn anybody_else_speaks_lines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let mut listener = listen(&path).await.expect("a free path");
    let client = async {
        let mut stream = UnixStream::connect(&path).await.expect("it listens");
        stream.write_all(b"{\"id\":1}\r\n\n{\"id\":2}").await.expect("it reads");
        stream
    };
    let (mut server, client) = tokio::join!(accept(&mut listener), client);
    assert!(!server.sender.carries_binary());
    assert_eq!(message(&mut server.receiver).await, text("{\"id\":1}"));
    send(&mut server, text("{\"ok\":1}")).await;
    let refused = server.sender.feed(Message::Binary(vec![1].into())).await;
    assert!(matches!(refused, Err(SendError::BinaryUnsupported)));
    send(&mut server, text("{\"ok\":2}")).await;

    let mut client = BufReader::new(client);
    let mut lines = String::new();
    within(client.read_line(&mut lines)).await.expect("a line");
    within(client.read_line(&mut lines)).await.expect("a line");
    assert_eq!(lines, "{\"ok\":1}\n{\"ok\":2}\n");

    // A half-closed client gets its answers; the last line needs no end.
    client.get_mut().shutdown().await.expect("open");
    assert_eq!(message(&mut server.receiver).await, text("{\"id\":2}"));
    assert!(matches!(closed(&mut server.receiver).await, ConnectionEnd::EndOfStream));
    within(server.sender.close(CloseReason::normal())).await;
    assert_eq!(within(client.read_line(&mut lines)).await.expect("the end"), 0);
}

#[tokio::test]
async fn a_line_that_is_not_text_ends_the_connection() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let mut listener = listen(&path).await.expect("a free path");
    let client = async {
        let mut stream = UnixStream::connect(&path).await.expect("it listens");
        stream.write_all(b"\xff\n{}\n").await.expect("it reads");
        stream
    };
    let (mut server, _client) = tokio::join!(accept(&mut listener), client);
    let found = within(server.receiver.next()).await;
    assert!(matches!(found, Received::Malformed { reason } if reason == "a line is not valid UTF-8 (code 1007)"));
    assert!(matches!(closed(&mut server.receiver).await, ConnectionEnd::Violation(_)));
}

#[tokio::test]
async fn http_is_answered_there_too_without_a_word_about_hosts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let mut listener = listen(&path).await.expect("a free path");
    let asking = async {
        for (request, status) in [
            ("GET /readyz HTTP/1.1\r\nhost: anything\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /readyz HTTP/1.1\r\nhost: x\r\norigin: x\r\n\r\n", "HTTP/1.1 403 Forbidden"),
        ] {
            let mut stream = UnixStream::connect(&path).await.expect("it listens");
            stream.write_all(request.as_bytes()).await.expect("it reads");
            assert!(read_head(&mut stream).await.starts_with(status));
        }
    };
    tokio::select! {
        accepted = listener.accept() => panic!("nothing was to be accepted: {accepted:?}"),
        () = within(asking) => {}
    }
}

#[tokio::test]
async fn a_stale_file_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a free path"));
    assert!(path.exists(), "std leaves its file behind: a stale one");

    let first = listen(&path).await.expect("a stale file is replaced");
    let error = listen(&path).await.expect_err("a live one is not");
    let text = format!(
        "cannot listen on {}: another server is listening there; stop it or choose another path",
        path.display()
    );
    assert_eq!(error.to_string(), text);
    UnixStream::connect(&path).await.expect("the first still listens");
    drop(first);
    assert!(!path.exists(), "dropping removes it, too");
}

#[tokio::test]
async fn two_servers_that_start_at_once_over_a_stale_file_leave_exactly_one() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a free path"));
        let (first, second) = tokio::join!(listen(&path), listen(&path));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        UnixStream::connect(&path).await.expect("the winner listens");
    }
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").expect("a folder of our own");
    let error = listen(&path).await.expect_err("it is taken");
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
}

#[tokio::test]
async fn a_file_that_somebody_else_put_there_is_not_removed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let listener = listen(&path).await.expect("a free path");
    std::fs::remove_file(&path).expect("ours");
    std::fs::write(&path, "successor").expect("a folder of our own");
    within(listener.close()).await;
    assert!(path.exists());
}

#[tokio::test]
async fn over_the_limit_lines_are_closed_and_http_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("s");
    let options = ListenOptions { max_connections: 1, ..ListenOptions::default() };
    let mut listener = Listener::bind(&ListenUrl::Unix(path.clone()), options).await.expect("a free path");
    let client = async {
        let mut stream = UnixStream::connect(&path).await.expect("it listens");
        stream.write_all(b"{}\n").await.expect("it reads");
        stream
    };
    let (_server, _client) = tokio::join!(accept(&mut listener), client);
    let asking = async {
        let mut lines = UnixStream::connect(&path).await.expect("it listens");
        lines.write_all(b"{}\n").await.expect("it reads");
        // Closed over what it sent: an end or a reset.
        let _ = lines.read(&mut [0]).await;
        let mut http = UnixStream::connect(&path).await.expect("it listens");
        http.write_all(b"GET /readyz HTTP/1.1\r\n\r\n").await.expect("it reads");
        read_head(&mut http).await
    };
    let head = tokio::select! {
        accepted = listener.accept() => panic!("there was no place: {accepted:?}"),
        head = within(asking) => head,
    };
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}
