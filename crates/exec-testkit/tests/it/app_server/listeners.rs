//! The path at which Codex's own clients look for a WebSocket on a unix socket.

use std::process::Stdio;

use exec_testkit::binaries;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::peer::DEADLINE;

const REQUEST: &str = "GET /rpc HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test]
async fn the_path_of_codex_clients_is_a_websocket_on_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let mut command = Command::new(binaries::exec_server());
    command.arg("app-server").arg("--listen").arg(format!("unix://{}", socket.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().expect("the server starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let url = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("it prints its URL");
    assert!(url.expect("a pipe").is_some());
    let mut stream = UnixStream::connect(&socket).await.expect("it listens");
    stream.write_all(REQUEST.as_bytes()).await.expect("it reads");
    let mut answer = BufReader::new(stream).lines();
    let status = tokio::time::timeout(DEADLINE, answer.next_line()).await.expect("it answers");
    assert_eq!(status.expect("a socket").as_deref(), Some("HTTP/1.1 101 Switching Protocols"));
}
