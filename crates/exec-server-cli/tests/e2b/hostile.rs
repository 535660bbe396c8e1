//! Clients that mean harm, or do not know better: each gets a clear error, and the next one is served.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw_client::{envelope, parse, request, send, shell};
use crate::support::{Account, E2bProcess};

const STREAM: (&str, &str) = ("Content-Type", "application/connect+json");

async fn is_served(server: &E2bProcess) {
    assert_eq!(request(&server.envd, "GET /health", &[], b"").await.status, 204);
}

#[tokio::test]
async fn messages_that_are_none_are_refused_in_words() {
    let account = Account::new();
    let server = account.start(&[]).await;
    for bad in [&b"{"[..], b"[]", b"\"x\"", b"\xff\xfe", br#"{"path":1}"#, br#"{"path":"a\u0000b"}"#] {
        let answer = server.call_bytes("filesystem.Filesystem/Stat", bad).await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (400, Some("invalid_argument")),
            "{}",
            answer.text()
        );
    }
    let input = json!({ "process": { "pid": 1 }, "input": { "stdin": "***" } });
    assert_eq!(server.call("process.Process/SendInput", input).await.json()["code"], "not_found");
    let mut stream = server.open_stream("process.Process/Start", &[], shell("cat")).await;
    let pid = stream.next().await["event"]["start"]["pid"].clone();
    let input = json!({ "process": { "pid": pid }, "input": { "stdin": "***" } });
    assert_eq!(server.call("process.Process/SendInput", input).await.json()["message"], "the input is not base64");
    let size = json!({ "process": { "pid": pid }, "pty": { "size": { "rows": 70000, "cols": 1 } } });
    assert_eq!(server.call("process.Process/Update", size).await.json()["code"], "invalid_argument");
    for empty in [json!({}), json!({ "process": {} }), json!({ "process": { "cmd": "" } })] {
        let answer = server.stream("process.Process/Start", &[], empty).await;
        assert_eq!(answer.messages()[0]["error"]["code"], "invalid_argument");
    }
    let killed = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGHUP" });
    assert_eq!(server.call("process.Process/SendSignal", killed).await.json()["code"], "invalid_argument");
    let killed = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(server.call("process.Process/SendSignal", killed).await.status, 200);
    is_served(&server).await;
}

/// A connection that closes while its client still sends hides the answer behind a broken pipe.
#[tokio::test]
async fn whoever_sends_what_is_refused_is_told_why() {
    const BYTES: usize = 24 << 20;
    let account = Account::new();
    let server = account.start(&[]).await;
    let kind = ("Content-Type", "application/octet-stream");
    for (line, headers, status) in [
        ("POST /files?path=/tmp", vec![kind], 400),
        ("POST /files?path=/tmp&signature=x", vec![kind], 401),
        ("POST /nothing", vec![kind], 501),
        ("POST /files?path=/tmp", vec![kind, ("Origin", "http://page.example")], 403),
        ("POST /filesystem.Filesystem/Stat", vec![("Content-Type", "application/json")], 429),
    ] {
        let mut stream = send(&server.envd, line, &headers, Some(BYTES), b"").await;
        let sent = stream.write_all(&vec![b' '; BYTES]).await;
        assert!(sent.is_ok(), "{line}: {sent:?}");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("an answer");
        let answer = parse(&bytes);
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
    }
    is_served(&server).await;
}

/// The end of a body in chunks is often a packet of its own. If the connection ended because the response began before it, the
/// client's next request would be lost.
#[tokio::test]
async fn a_stream_whose_request_ends_late_leaves_its_connection_to_the_next_one() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let mut started = server.open_stream("process.Process/Start", &[], shell("cat")).await;
    let pid = started.next().await["event"]["start"]["pid"].clone();
    let mut stream = tokio::net::TcpStream::connect(&server.envd).await.expect("it listens");
    for (pid, first, last) in
        [(&pid, "\"start\"", "\"end\""), (&json!(99_999_999), "", "not_found"), (&json!(99_999_999), "", "not_found")]
    {
        let message = envelope(json!({ "process": { "pid": pid } }).to_string().as_bytes());
        let head = format!(
            "POST /process.Process/Connect HTTP/1.1\r\nHost: {}\r\nContent-Type: application/connect+json\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
            server.envd,
            message.len()
        );
        stream.write_all(&[head.as_bytes(), &message, b"\r\n"].concat()).await.expect("it is open");
        let mut answer = Vec::new();
        read_until(&mut stream, &mut answer, first).await;
        stream.write_all(b"0\r\n\r\n").await.expect("it is open");
        if !first.is_empty() {
            let killed = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
            assert_eq!(server.call("process.Process/SendSignal", killed).await.status, 200);
        }
        read_until(&mut stream, &mut answer, last).await;
    }
}

async fn read_until(stream: &mut tokio::net::TcpStream, answer: &mut Vec<u8>, text: &str) {
    while !String::from_utf8_lossy(answer).contains(text) {
        let read = stream.read_buf(answer).await.expect("it is open");
        assert!(read > 0, "the connection ended: {}", String::from_utf8_lossy(answer));
    }
}

#[tokio::test]
async fn envelopes_that_lie_about_their_length_cost_nothing() {
    let account = Account::new();
    let server = account.start(&[]).await;
    is_served(&server).await;
    let before = server.peak_memory_kib();
    let line = "POST /process.Process/Start";
    for (body, code) in [
        (b"\0\xff\xff\xff\xffx".to_vec(), "resource_exhausted"),
        (b"\0\0\0\0\x09{}".to_vec(), "invalid_argument"),
        (b"\0\0".to_vec(), "invalid_argument"),
        (Vec::new(), "invalid_argument"),
        (b"\x01\0\0\0\x02{}".to_vec(), "unimplemented"),
        (b"\x40\0\0\0\x02{}".to_vec(), "invalid_argument"),
    ] {
        let answer = request(&server.envd, line, &[STREAM], &body).await;
        assert_eq!(answer.messages()[0]["error"]["code"], code, "{body:?}: {}", answer.text());
    }
    // Announced by many at once, and never sent.
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let announced = b"\0\x00\x7f\xff\xff";
        waiting.push(send(&server.envd, line, &[STREAM], Some(9 << 20), announced).await);
    }
    let mut refused = 0;
    for mut stream in waiting {
        let mut bytes = Vec::new();
        // Those that were let in wait for their client; the others are told at once.
        let read = tokio::time::timeout(std::time::Duration::from_millis(50), stream.read_to_end(&mut bytes)).await;
        refused += usize::from(read.is_ok() && parse(&bytes).text().contains("too many large requests"));
    }
    assert!(refused > 40, "{refused} were refused");
    let more = server.peak_memory_kib() - before;
    assert!(more < 48 << 10, "{more} KiB");
    is_served(&server).await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_and_a_body_that_is_cut_changes_nothing_else() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let large = vec![b' '; (8 << 20) + 1];
    let answer = server.call_bytes("filesystem.Filesystem/Stat", &large).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (429, Some("resource_exhausted")));
    let at_the_bound = vec![b' '; 8 << 20];
    assert_eq!(server.call_bytes("filesystem.Filesystem/Stat", &at_the_bound).await.json()["code"], "invalid_argument");
    let mut stream = send(&server.envd, "POST /files?path=cut", &[], Some(1000), b"half").await;
    stream.shutdown().await.expect("it is open");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    is_served(&server).await;
}

#[tokio::test]
async fn unknown_calls_and_other_encodings_answer_501_in_words() {
    let account = Account::new();
    let server = account.start(&[]).await;
    for method in ["process.Process/Fly", "filesystem.Filesystem/Chmod", "other.Service/Do"] {
        let answer = server.call(method, json!({})).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (501, Some("unimplemented")), "{method}");
        assert!(answer.text().contains("docs/e2b.md"), "{}", answer.text());
    }
    for line in ["GET /nothing", "PUT /files", "POST /init", "POST /a/b/c", "DELETE /"] {
        assert_eq!(request(&server.envd, line, &[], b"").await.status, 501, "{line}");
    }
    let proto = [("Content-Type", "application/proto")];
    assert_eq!(request(&server.envd, "POST /process.Process/List", &proto, b"").await.status, 501);
    let zstd = [("Content-Type", "application/octet-stream"), ("Content-Encoding", "zstd")];
    assert_eq!(request(&server.envd, "POST /files?path=x", &zstd, b"x").await.status, 501);
    for line in ["GET /templates", "POST /v2/templates", "GET /volumes", "POST /secrets", "GET /teams"] {
        let answer = server.api(line, json!({})).await;
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (501, Some(501)), "{line}");
    }
}

#[tokio::test]
async fn pages_of_browsers_and_strangers_are_refused() {
    let account = Account::new();
    let server = account.start(&["--no-debug", "--allow-host", "friendly"]).await;
    let key = server.key.clone();
    for address in [&server.envd, &server.api] {
        let evil = [("Host", "evil.example:49983"), ("X-API-KEY", key.as_str())];
        assert_eq!(request(address, "GET /health", &evil, b"").await.status, 403);
        let page = [("Origin", "http://localhost:8080"), ("X-API-KEY", key.as_str())];
        assert_eq!(request(address, "GET /health", &page, b"").await.status, 403);
    }
    assert_eq!(request(&server.api, "GET /health", &[("Host", "friendly")], b"").await.status, 204);
    assert_eq!(request(&server.api, "GET /v2/sandboxes", &[], b"").await.status, 401);
    assert_eq!(request(&server.api, "GET /v2/sandboxes", &[("X-API-KEY", "e2b_00")], b"").await.status, 401);
    // Without debug mode, who names no sandbox has none.
    assert_eq!(request(&server.envd, "GET /health", &[], b"").await.status, 401);
    let created = server.api("POST /v2/sandboxes", json!({ "templateID": "base" })).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let created = created.json();
    let id = created["sandboxID"].as_str().expect("an id");
    let named = [("E2b-Sandbox-Id", id), ("Content-Type", "application/json")];
    assert_eq!(request(&server.envd, "POST /process.Process/List", &named, b"{}").await.status, 401);
    assert_eq!(request(&server.envd, "GET /files?path=x", &named, b"").await.status, 401);
    let token = created["envdAccessToken"].as_str().expect("a token");
    let own = [named[0], named[1], ("X-Access-Token", token)];
    assert_eq!(
        request(&server.envd, "POST /process.Process/List", &own, b"{}").await.json(),
        json!({ "processes": [] })
    );
    let by_host = [("Host", &*format!("49983-{id}.localhost")), named[1], ("X-Access-Token", token)];
    assert_eq!(request(&server.envd, "POST /process.Process/List", &by_host, b"{}").await.status, 200);
    let other = [("E2b-Sandbox-Id", "i0000000000000000000"), named[1], ("X-Access-Token", token)];
    let gone = request(&server.envd, "POST /process.Process/List", &other, b"{}").await;
    assert_eq!(gone.status, 502);
    assert!(gone.text().contains("was not found"));
}

#[tokio::test]
async fn forms_and_queries_that_are_none_are_refused() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let form = ("Content-Type", "multipart/form-data; boundary=b");
    let part = |name: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\nx\r\n--b--")
    };
    let refused: [(&str, (&str, &str), Vec<u8>); 7] = [
        ("POST /files?path=x", ("Content-Type", "multipart/form-data"), b"x".to_vec()),
        ("POST /files?path=x", form, b"no boundary".to_vec()),
        ("POST /files?path=x", form, b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ncut".to_vec()),
        ("POST /files?path=x", form, part("other").into_bytes()),
        ("POST /files", form, part("file").replace("filename=\"f\"", "x=y").into_bytes()),
        ("POST /files", ("Content-Type", "application/octet-stream"), b"x".to_vec()),
        ("POST /files?path=a%00b", ("Content-Type", "application/octet-stream"), b"x".to_vec()),
    ];
    for (line, content_type, body) in refused {
        let answer = request(&server.envd, line, &[content_type], &body).await;
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (400, Some(400)), "{line}: {}", answer.text());
    }
    let gzip = [("Content-Type", "application/octet-stream"), ("Content-Encoding", "gzip")];
    let broken = request(&server.envd, "POST /files?path=x", &gzip, b"not gzip at all").await;
    assert_eq!(broken.status, 400, "{}", broken.text());
    assert_eq!(request(&server.envd, "GET /files", &[], b"").await.status, 400);
    assert_eq!(request(&server.envd, "GET /files?path=/&signature=v1_x", &[], b"").await.status, 401);
    assert_eq!(request(&server.envd, "POST /files", &[form], part("file").as_bytes()).await.status, 200);
    assert_eq!(request(&server.envd, "GET /files?path=f", &[], b"").await.text(), "x");
    for (line, body) in [
        ("POST /v2/sandboxes", json!({ "templateID": "base", "timeout": -1 })),
        ("POST /v2/sandboxes", json!({ "templateID": "base", "timeout": 1_000_000 })),
        ("POST /v2/sandboxes", json!({ "templateID": "base", "envVars": { "A=B": "c" } })),
        ("POST /v2/sandboxes", json!({ "templateID": "base", "metadata": { "a": "x".repeat(300 << 10) } })),
        ("POST /v2/sandboxes", json!([])),
    ] {
        assert_eq!(server.api(line, body).await.status, 400);
    }
    assert_eq!(server.api("GET /v2/sandboxes?limit=x", Value::Null).await.status, 400);
}

/// A small body may become a large file, but never much memory.
#[tokio::test]
async fn large_files_and_bombs_pass_through_in_little_memory() {
    let account = Account::new();
    let server = account.start(&[]).await;
    is_served(&server).await;
    let before = server.peak_memory_kib();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..48 {
        std::io::Write::write_all(&mut encoder, &[0; 1 << 20]).expect("memory takes it");
    }
    let bomb = encoder.finish().expect("memory takes it");
    let gzip = [("Content-Type", "application/octet-stream"), ("Content-Encoding", "gzip")];
    assert_eq!(request(&server.envd, "POST /files?path=zeros", &gzip, &bomb).await.status, 200);
    let stat = server.call("filesystem.Filesystem/Stat", json!({ "path": "zeros" })).await.json();
    assert_eq!(stat["entry"]["size"], (48u64 << 20).to_string());
    let read = request(&server.envd, "GET /files?path=zeros", &[], b"").await;
    assert_eq!((read.status, read.body.len()), (200, 48 << 20));
    let more = server.peak_memory_kib() - before;
    assert!(more < 32 << 10, "{more} KiB");
}
