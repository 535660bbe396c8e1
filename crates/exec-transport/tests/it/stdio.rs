//! Our own stdin and stdout as a listener, seen from outside: a child of ours serves there.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use exec_transport::{
    AcceptError, CloseReason, ConnectOptions, ListenOptions, ListenUrl, Listener, Program, Target, connect,
};

use crate::support::{long_text, message, send, text, within};

const ECHO: &str = env!("CARGO_BIN_EXE_transport-echo");

#[tokio::test]
async fn over_pipes_each_line_is_a_message() {
    let program = Program { program: ECHO.into(), args: vec!["stdio".into()], ..Program::default() };
    let target = Target::Program(program);
    let mut connection = connect(&target, &ConnectOptions::default()).await.expect("it starts");
    for content in ["{}".to_owned(), long_text(100_000), long_text(3_000_000)] {
        let sent = text(content);
        let (echoed, ()) = {
            let (sender, message_out) = (&mut connection.sender, sent.clone());
            let sending = async move {
                sender.feed(message_out).await.expect("it reads");
                sender.flush().await.expect("it reads");
            };
            tokio::join!(message(&mut connection.receiver), within(sending))
        };
        assert!(echoed == sent, "the message was changed");
    }
    send(&mut connection, text("last")).await;
    assert_eq!(message(&mut connection.receiver).await, text("last"));
    within(connection.sender.close(CloseReason::normal())).await;
}

/// What the echo server says to `input`, whatever its stdin and stdout are.
fn said(stdin: impl Into<Stdio>, stdout: impl Into<Stdio>) -> (bool, String) {
    let child = Command::new(ECHO).arg("stdio://").stdin(stdin).stdout(stdout).stderr(Stdio::piped()).spawn();
    let output = child.expect("it starts").wait_with_output().expect("it ends");
    (output.status.success(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn over_a_socket_it_works_and_the_sockets_flags_stay_as_they_were() {
    let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
    let kept = theirs.try_clone().expect("a descriptor");
    ours.write_all(b"one\r\n\r\ntwo").expect("it reads");
    ours.shutdown(std::net::Shutdown::Write).expect("open");
    let stdout = OwnedFd::from(theirs.try_clone().expect("a descriptor"));
    let (success, log) = said(OwnedFd::from(theirs), stdout);
    assert!(success, "{log}");
    let flags = rustix::fs::fcntl_getfl(&kept).expect("a descriptor");
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    drop(kept);
    let mut answer = String::new();
    ours.read_to_string(&mut answer).expect("answers and the end");
    assert_eq!(answer, "one\ntwo\n");
}

#[test]
fn over_files_it_works_and_ends_at_the_end() {
    let mut input = tempfile::tempfile().expect("a temporary file");
    input.write_all(b"\n{\"a\":1}\n{\"b\":2}").expect("a file of our own");
    input.rewind().expect("a file of our own");
    let mut output: File = tempfile::tempfile().expect("a temporary file");
    let (success, log) = said(input, output.try_clone().expect("a descriptor"));
    assert!(success, "{log}");
    let mut answer = String::new();
    output.rewind().expect("a file of our own");
    output.read_to_string(&mut answer).expect("a file of our own");
    assert_eq!(answer, "{\"a\":1}\n{\"b\":2}\n");
}

#[test]
fn invalid_utf8_ends_the_server_in_good_order() {
    let mut input = tempfile::tempfile().expect("a temporary file");
    input.write_all(b"ok\n\xff\nnever\n").expect("a file of our own");
    input.rewind().expect("a file of our own");
    let (success, log) = said(input, Stdio::null());
    assert!(success, "{log}");
    assert!(log.contains("malformed: a line is not valid UTF-8"), "{log}");
}

#[tokio::test]
async fn it_is_one_connection() {
    let mut listener = Listener::bind(&ListenUrl::Stdio, ListenOptions::default()).await.expect("always there");
    assert_eq!(listener.url(), "stdio");
    let connection = listener.accept().await.expect("the one");
    assert_eq!(connection.peer.to_string(), "stdio");
    assert!(matches!(listener.accept().await, Err(AcceptError::StdioTaken)));
}
