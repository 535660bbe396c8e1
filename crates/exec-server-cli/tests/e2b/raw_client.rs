//! HTTP/1.1 and Connect by hand, so that a test can also say what no SDK says.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::E2bProcess;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The messages of a stream, the last of which is its end.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let mut messages = Vec::new();
        let mut rest = &self.body[..];
        while !rest.is_empty() {
            let (message, after) = split_message(rest).expect("whole messages");
            messages.push(message);
            rest = after;
        }
        messages
    }
}

/// The first message and what comes behind it; `None` if it is not whole.
fn split_message(bytes: &[u8]) -> Option<(Value, &[u8])> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
    let message = serde_json::from_slice(bytes.get(5..5 + length)?).expect("messages are JSON");
    Some((message, &bytes[5 + length..]))
}

pub(crate) fn envelope(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&u32::try_from(message.len()).expect("small").to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// Sends a request with these headers and reads the answer to its end. `Host` is ours unless the headers have one.
pub(crate) async fn request(address: &str, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut stream = send(address, line, headers, Some(body.len()), body).await;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("an answer");
    parse(&bytes)
}

/// Sends a request, of whose body more may follow.
pub(crate) async fn send(
    address: &str,
    line: &str,
    headers: &[(&str, &str)],
    length: Option<usize>,
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let mut head = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = length {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    // It may have refused the request by now.
    let _ = stream.write_all(body).await;
    stream
}

pub(crate) fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let body = &bytes[end + 4..];
    let chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    Answer { status, headers, body: if chunked { dechunk(body) } else { body.to_vec() } }
}

fn dechunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.iter().take(20).position(|byte| *byte == b'\r') {
        let size = usize::from_str_radix(&String::from_utf8_lossy(&bytes[..end]), 16).expect("the size of a chunk");
        let Some(rest) = bytes.get(end + 2..) else { break };
        if size == 0 || rest.len() < size + 2 {
            break;
        }
        out.extend_from_slice(&rest[..size]);
        bytes = &rest[size + 2..];
    }
    out
}

impl E2bProcess {
    /// A unary call of Connect to the sandbox of debug mode.
    pub(crate) async fn call(&self, method: &str, message: Value) -> Answer {
        self.call_bytes(method, message.to_string().as_bytes()).await
    }

    pub(crate) async fn call_bytes(&self, method: &str, message: &[u8]) -> Answer {
        request(&self.envd, &format!("POST /{method}"), &[("Content-Type", "application/json")], message).await
    }

    /// A call whose answer is a stream, read to its end.
    pub(crate) async fn stream(&self, method: &str, headers: &[(&str, &str)], message: Value) -> Answer {
        let headers = [&[("Content-Type", "application/connect+json")], headers].concat();
        request(&self.envd, &format!("POST /{method}"), &headers, &envelope(message.to_string().as_bytes())).await
    }

    /// The same, read as it comes.
    pub(crate) async fn open_stream(&self, method: &str, headers: &[(&str, &str)], message: Value) -> OpenStream {
        let headers = [&[("Content-Type", "application/connect+json")], headers].concat();
        let body = envelope(message.to_string().as_bytes());
        let line = format!("POST /{method}");
        OpenStream {
            stream: send(&self.envd, &line, &headers, Some(body.len()), &body).await,
            bytes: Vec::new(),
            read: 0,
        }
    }

    pub(crate) async fn api(&self, line: &str, body: Value) -> Answer {
        let headers = [("Content-Type", "application/json"), ("X-API-KEY", self.key.as_str())];
        request(&self.api, line, &headers, body.to_string().as_bytes()).await
    }
}

/// A stream of which the messages are awaited one by one.
pub(crate) struct OpenStream {
    stream: TcpStream,
    bytes: Vec<u8>,
    read: usize,
}

impl OpenStream {
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if self.bytes.windows(4).any(|window| window == b"\r\n\r\n") {
                let body = parse(&self.bytes).body;
                if let Some((message, rest)) = split_message(&body[self.read..]) {
                    self.read = body.len() - rest.len();
                    return message;
                }
            }
            let mut piece = [0; 4096];
            let count = self.stream.read(&mut piece).await.expect("it answers");
            assert_ne!(count, 0, "the stream ended: {}", String::from_utf8_lossy(&self.bytes));
            self.bytes.extend_from_slice(&piece[..count]);
        }
    }
}

/// The message that starts a shell command.
pub(crate) fn shell(script: &str) -> Value {
    json!({ "process": { "cmd": "/bin/sh", "args": ["-c", script] }, "stdin": true })
}
