//! The server over HTTP: who is answered, and who is refused.

use std::process::Stdio;

use exec_testkit::binaries;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use super::server::Account;
use crate::durability::support::run;

/// A server on a free port, and its `IP:PORT`.
pub(super) async fn listen(account: &Account, arguments: &[&str]) -> (Child, String) {
    let mut command = account.command(binaries::exec_server());
    command.args(["mcp", "--http", "127.0.0.1:0"]).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let url = lines.next_line().await.expect("it prints UTF-8").expect("it prints its URL first");
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).expect("it is at /mcp");
    (child, address.to_owned())
}

/// Posts a request that needs no session; returns the whole response.
async fn post(address: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).to_string();
    let mut request = format!("POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    let usual = [
        ("Host", address),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/list"),
    ];
    let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
    for (name, value) in usual.iter().filter(|(name, _)| !is_given(name)).chain(headers) {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.expect("it reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("it answers");
    String::from_utf8(response).expect("it is text")
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or("nothing")
}

#[test]
fn http_answers_those_who_know_the_token_and_no_browser() {
    run(async {
        let account = Account::new();
        std::fs::write(account.path().join("token"), "secret\n").expect("the folder is ours");
        let (mut server, address) = listen(&account, &["--http-token-file", "token"]).await;
        let token = ("Authorization", "Bearer secret");
        let own_origin = format!("http://{address}");
        let answered = post(&address, "/mcp", &[token]).await;
        assert_eq!(status(&answered), "200", "{answered}");
        assert!(answered.contains("exec_command"));
        assert_eq!(status(&post(&address, "/mcp", &[token, ("Origin", &own_origin)]).await), "200");
        for (headers, expected) in [
            (&[][..], "401"),
            (&[("Authorization", "Bearer secre")], "401"),
            (&[("Authorization", "Bearer secret2")], "401"),
            (&[token, ("Origin", "http://evil.example")], "403"),
            (&[token, ("Origin", "null")], "403"),
            (&[token, ("Host", "evil.example")], "403"),
        ] {
            let refused = post(&address, "/mcp", headers).await;
            assert_eq!(status(&refused), expected, "{headers:?}: {refused}");
        }
        assert_eq!(status(&post(&address, "/", &[token]).await), "404");
        server.kill().await.expect("it is our child");
    });
}

/// Begins as a client with a handshake does; returns its session.
async fn initialize(address: &str) -> String {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    });
    let answer =
        post_body(address, &[], json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
    let header = answer
        .lines()
        .find_map(|line| line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id")));
    header.expect("it has got a session").1.trim().to_owned()
}

async fn post_body(address: &str, headers: &[(&str, &str)], body: Value) -> String {
    let body = body.to_string();
    let mut request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.expect("it reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("it answers");
    String::from_utf8(response).expect("it is text")
}

/// They live for a day without a word of their client's, so there must be a most of them.
#[test]
fn of_too_many_http_sessions_the_one_that_was_used_least_recently_makes_room() {
    run(async {
        let account = Account::new();
        let (mut server, address) = listen(&account, &[]).await;
        let ping = async |session: &str| {
            let headers = [("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")];
            let answer = post_body(&address, &headers, json!({"jsonrpc": "2.0", "id": 2, "method": "ping"})).await;
            status(&answer).to_owned()
        };
        let (first, second) = (initialize(&address).await, initialize(&address).await);
        for _ in 2..256 {
            initialize(&address).await;
        }
        assert_eq!(ping(&first).await, "200");
        let last = initialize(&address).await;
        assert_eq!([ping(&first).await, ping(&second).await, ping(&last).await], ["200", "404", "200"]);
        server.kill().await.expect("it is our child");
    });
}

/// A connection that closes while its client still sends hides the answer behind a broken pipe.
#[test]
fn whoever_sends_much_that_is_refused_is_told_why() {
    const BYTES: usize = 24 << 20;
    run(async {
        let account = Account::new();
        std::fs::write(account.path().join("token"), "secret\n").expect("the folder is ours");
        let (mut server, address) = listen(&account, &["--http-token-file", "token"]).await;
        let token = "Authorization: Bearer secret\r\n";
        for (path, host, headers, expected) in [
            ("/nothing", address.as_str(), token.to_owned(), "404"),
            ("/mcp", &address, String::new(), "401"),
            ("/mcp", &address, format!("{token}Origin: http://evil.example\r\n"), "403"),
            ("/mcp", "evil.example", token.to_owned(), "403"),
            // More than a request may have.
            ("/mcp", &address, token.to_owned(), "413"),
        ] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\nContent-Type: application/json\r\n\
                 Accept: application/json, text/event-stream\r\nContent-Length: {BYTES}\r\n\r\n"
            );
            let mut stream = TcpStream::connect(&address).await.expect("it listens");
            stream.write_all(head.as_bytes()).await.expect("it reads");
            let sent = stream.write_all(&vec![b' '; BYTES]).await;
            assert!(sent.is_ok(), "{path} {headers:?}: {sent:?}");
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await.expect("it answers");
            let response = String::from_utf8(response).expect("it is text");
            assert_eq!(status(&response), expected, "{path} {headers:?}: {response}");
        }
        server.kill().await.expect("it is our child");
    });
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    run(async {
        let account = Account::new();
        let mut command = account.command(binaries::exec_server());
        let done = command.args(["mcp", "--http", "0.0.0.0:0"]).output().await.expect("it runs");
        assert!(!done.status.success());
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(told.contains("--http-token-file"), "{told}");
    });
}
