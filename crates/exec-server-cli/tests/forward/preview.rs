//! The preview: whatever serves HTTP there, below one address here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::server::{Server, Transport};
use crate::{Forwarding, Killed, curl, free_port};

/// A preview of a server of its own.
struct Preview {
    _server: Server,
    _forwarding: Forwarding,
    /// `http://127.0.0.1:8000/preview/`
    url: String,
}

impl Preview {
    fn start() -> Self {
        let server = Server::start(Transport::WebSocket);
        let mut forwarding = Forwarding::to(&server, &["--preview", "127.0.0.1:0"]);
        let event = forwarding.event();
        let url = event["url"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned();
        Self { _server: server, _forwarding: forwarding, url }
    }

    fn authority(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/preview/")
    }
}

#[test]
fn pages_files_and_errors_of_a_web_server_are_shown() {
    let preview = Preview::start();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let content: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::create_dir(folder.path().join("sub")).expect("the folder is ours");
    std::fs::write(folder.path().join("sub/large"), &content).expect("the folder is ours");
    let port = free_port();
    let web = Command::new("python3")
        .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _web = Killed(web.expect("python3 is installed"));
    let page = format!("{}{port}", preview.url);
    // Until it listens, the answer says why there is none. A path without its slash leads to the one with it.
    let listing = loop {
        let output = curl(&["--location", &page]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.contains("cannot connect to localhost") {
            break text;
        }
        std::thread::yield_now();
    };
    assert!(listing.contains("sub/"), "{listing}");
    // A redirection of the web server stays within the preview.
    let fetched = curl(&["--location", "--write-out", "%{url_effective}", &format!("{page}/sub")]);
    let text = String::from_utf8_lossy(&fetched.stdout);
    assert!(text.contains("large") && text.ends_with(&format!("{page}/sub/")), "{text}");
    let fetched = curl(&[&format!("{page}/sub/large")]);
    assert!(fetched.stdout == content, "{:?}", fetched.stderr);
    let missing = curl(&["--output", "/dev/null", "--write-out", "%{http_code}", &format!("{page}/nothing")]);
    assert_eq!(missing.stdout, b"404");
}

#[test]
fn bodies_are_streamed_and_headers_of_the_connection_stay_behind() {
    let preview = Preview::start();
    let far = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = far.local_addr().expect("it is bound").port();
    let mut near = TcpStream::connect(preview.authority()).expect("it listens");
    let head = format!(
        "POST /preview/{port}/a%20b?c=d HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nConnection: x-own\r\nX-Own: 1\r\n\
         Origin: http://{}\r\n\r\n5\r\nfirst\r\n",
        preview.authority(),
        preview.authority()
    );
    near.write_all(head.as_bytes()).expect("it is connected");
    let (mut far, _) = far.accept().expect("it was carried there");
    // The first piece is there before the second is sent.
    let arrived = read_until(&mut far, "first");
    let lower = arrived.to_lowercase();
    assert!(arrived.starts_with("POST /a%20b?c=d HTTP/1.1\r\n"), "{arrived}");
    assert!(
        lower.contains(&format!("host: localhost:{port}\r\n"))
            && lower.contains(&format!("origin: http://localhost:{port}\r\n")),
        "{arrived}"
    );
    assert!(
        lower.contains(&format!("x-forwarded-prefix: /preview/{port}\r\n")) && !lower.contains("x-own"),
        "{arrived}"
    );
    near.write_all(b"6\r\nsecond\r\n0\r\n\r\n").expect("it is connected");
    read_until(&mut far, "second");
    let answer = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://localhost:{port}/next\r\nSet-Cookie: a=b; Path=/\r\nKeep-Alive: 5\r\nContent-Length: 10\r\n\r\nfirst"
    );
    far.write_all(answer.as_bytes()).expect("it is connected");
    let answered = read_until(&mut near, "first");
    let lower = answered.to_lowercase();
    assert!(lower.contains(&format!("location: /preview/{port}/next\r\n")), "{answered}");
    assert!(
        lower.contains(&format!("set-cookie: a=b; path=/preview/{port}/\r\n")) && !lower.contains("keep-alive:"),
        "{answered}"
    );
    far.write_all(b"there").expect("it is connected");
    read_until(&mut near, "there");
}

fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut heard = Vec::new();
    while !heard.ends_with(end.as_bytes()) && !String::from_utf8_lossy(&heard).contains(end) {
        let mut block = [0; 4096];
        let bytes = stream.read(&mut block).expect("it is connected");
        assert_ne!(bytes, 0, "it ended after {:?}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&block[..bytes]);
    }
    String::from_utf8(heard).expect("these are texts")
}

#[test]
fn a_websocket_passes_through() {
    let preview = Preview::start();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a test can make a runtime");
    runtime.block_on(async {
        let far = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let port = far.local_addr().expect("it is bound").port();
        let echo = tokio::spawn(async move {
            let (stream, _) = far.accept().await.expect("it was carried there");
            let mut socket = tokio_tungstenite::accept_async(stream).await.expect("it is a WebSocket");
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() || message.is_binary() {
                    socket.send(message).await.expect("it is connected");
                }
            }
        });
        let near = tokio::net::TcpStream::connect(preview.authority()).await.expect("it listens");
        let url = format!("ws://{}/preview/{port}/socket", preview.authority());
        let (mut socket, _) = tokio_tungstenite::client_async(url, near).await.expect("it was upgraded");
        for size in [0, 1, 125, 70_000, 1 << 20] {
            let sent = Message::binary(vec![7; size]);
            socket.send(sent.clone()).await.expect("it is connected");
            assert_eq!(socket.next().await.expect("it is open").expect("it is connected"), sent);
        }
        socket.close(None).await.expect("it is connected");
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
        echo.await.expect("it does not panic");
    });
}

#[test]
fn pages_of_the_web_are_not_served() {
    let preview = Preview::start();
    let page = format!("{}80/", preview.url);
    for (header, code) in [
        ("Host: rebound.example", "421"),
        ("Origin: https://evil.example", "403"),
        ("Origin: null", "403"),
        ("Sec-Fetch-Site: cross-site", "403"),
    ] {
        let output = curl(&["--header", header, "--output", "/dev/null", "--write-out", "%{http_code}", &page]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), code, "{header}");
    }
    for path in ["", "x/", "0/", "70000/", "80%2F/", "../etc/passwd"] {
        let output = curl(&[
            "--path-as-is",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            &format!("{}{path}", preview.url),
        ]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "404", "{path}");
    }
}
