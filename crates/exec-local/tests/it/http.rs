//! HTTP from this machine, against a server of a few lines that says exactly what it was told to.

use std::ffi::OsString;
use std::time::Duration;

use bytes::Bytes;
use exec_env::http::{Http, HttpError, HttpRequest, HttpResponse, Redirects, RequestHeader};
use exec_local::http::LocalHttp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that is asked once per answer; it gives back the heads and bodies it was sent.
struct Server {
    url: String,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Server {
    /// Answers one connection after another, each with the next of `answers`, then closes it.
    async fn with(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let task = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("the test connects");
                asked.push(question(&mut stream).await);
                stream.write_all(answer.as_bytes()).await.expect("the test reads");
            }
            asked
        });
        Self { url, task }
    }

    async fn asked(self) -> Vec<String> {
        self.task.await.expect("the server does not panic")
    }
}

/// Reads one request: its head, and as much body as the head says.
async fn question(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        let got = stream.read_buf(&mut bytes).await.expect("the test writes");
        assert_ne!(got, 0, "the request ended early");
    }
}

fn get(url: impl Into<String>) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        url: url.into(),
        headers: Vec::new(),
        body: None,
        timeout: None,
        redirects: Redirects::Follow,
    }
}

fn header(name: &str, value: &str) -> RequestHeader {
    RequestHeader { name: name.to_owned(), value: value.to_owned(), value_env_var: None }
}

async fn whole(mut response: HttpResponse) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(bytes) = response.body.next().await.expect("the server tells all") {
        assert!(!bytes.is_empty());
        body.extend_from_slice(&bytes);
    }
    body
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

#[tokio::test]
async fn a_request_carries_its_headers_in_order_and_adds_only_what_it_must() {
    let server = Server::with(vec![OK.to_owned()]).await;
    let request = HttpRequest {
        method: "PROPFIND".to_owned(),
        headers: vec![header("X-One", "1"), header("x-two", "a"), header("x-two", "b"), header("x-last", "z")],
        body: Some(Bytes::from_static(b"body")),
        ..get(format!("{}/path?q=1", server.url))
    };
    let host = server.url.strip_prefix("http://").expect("it is plain HTTP").to_owned();
    let response = LocalHttp::new().request(request).await.expect("the server answers");
    assert_eq!(response.status, 200);
    assert_eq!(whole(response).await, b"ok");
    let asked = server.asked().await.remove(0);
    assert_eq!(
        asked,
        format!(
            "PROPFIND /path?q=1 HTTP/1.1\r\nx-one: 1\r\nx-two: a\r\nx-two: b\r\nx-last: z\r\naccept: */*\r\n\
             host: {host}\r\ncontent-length: 4\r\n\r\nbody"
        )
    );
}

#[tokio::test]
async fn an_error_status_is_an_answer_and_headers_that_are_not_text_are_left_out() {
    let answer =
        "HTTP/1.1 503 No\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-Bad: caf\u{e9}\r\ncontent-length: 0\r\n\r\n";
    let server = Server::with(vec![answer.to_owned()]).await;
    let response = LocalHttp::new().request(get(&server.url)).await.expect("the server answers");
    assert_eq!(response.status, 503);
    let expected = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("content-length", "0")];
    assert_eq!(response.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(whole(response).await, b"");
}

#[tokio::test]
async fn redirections_are_followed_or_told() {
    let moved = "HTTP/1.1 302 Found\r\nlocation: /there\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let http = LocalHttp::new();
    let server = Server::with(vec![moved.to_owned(), OK.to_owned()]).await;
    let followed = http.request(get(format!("{}/here", server.url))).await.expect("the server answers");
    assert_eq!((followed.status, whole(followed).await), (200, b"ok".to_vec()));
    assert!(server.asked().await[1].starts_with("GET /there "));

    let server = Server::with(vec![moved.to_owned()]).await;
    let stopped = HttpRequest { redirects: Redirects::Stop, ..get(&server.url) };
    let stopped = http.request(stopped).await.expect("the server answers");
    assert_eq!(stopped.status, 302);
    assert!(stopped.headers.contains(&("location".to_owned(), "/there".to_owned())));
}

#[tokio::test]
async fn a_compressed_body_comes_as_it_was_sent() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nraw";
    let server = Server::with(vec![answer.to_owned()]).await;
    let response = LocalHttp::new().request(get(&server.url)).await.expect("the server answers");
    assert!(response.headers.contains(&("content-encoding".to_owned(), "gzip".to_owned())));
    assert_eq!(whole(response).await, b"raw");
    assert!(!server.asked().await[0].contains("accept-encoding"));
}

#[tokio::test]
async fn a_body_streams_and_a_slow_reader_slows_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let total: usize = 256 << 20;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the test connects");
        question(&mut stream).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("the test reads");
        let block = vec![7; 1 << 20];
        let mut sent = 0;
        // Until it cannot get rid of more: the test has not read yet.
        while let Ok(wrote) = tokio::time::timeout(Duration::from_millis(500), stream.write(&block)).await {
            sent += wrote.expect("the test is connected");
            if sent >= total {
                break;
            }
        }
        sent
    });
    let mut response = LocalHttp::new().request(get(url)).await.expect("the server answers");
    let stalled_at = server.await.expect("the server does not panic");
    assert!(stalled_at < 64 << 20, "the client took {stalled_at} bytes that nobody asked for");
    let mut read = 0;
    let error = loop {
        match response.body.next().await {
            Ok(Some(bytes)) => read += bytes.len(),
            Ok(None) => panic!("the server broke off"),
            Err(error) => break error,
        }
    };
    assert_eq!(read, stalled_at);
    let expected = "the body of the response is not complete: error decoding response body";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn dropping_a_body_ends_the_transfer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the test connects");
        question(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("the test reads");
        while stream.write_all(&[0; 4096]).await.is_ok() {}
    });
    let http = LocalHttp::new();
    let mut response = http.request(get(url)).await.expect("the server answers");
    response.body.next().await.expect("it streams");
    drop(response);
    server.await.expect("its writing fails when we are gone");
}

#[tokio::test]
async fn time_limits_cover_head_and_body() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let url = format!("http://{}", silent.local_addr().expect("it is bound"));
    let http = LocalHttp::new();
    let hurried = HttpRequest { timeout: Some(Duration::from_millis(50)), ..get(&url) };
    let error = http.request(hurried).await.expect_err("nobody answers");
    let why = format!("error sending request for url ({url}/)");
    assert_eq!(error, HttpError::TimedOut { why });
    let at_once = HttpRequest { timeout: Some(Duration::ZERO), ..get(&url) };
    let error = http.request(at_once).await.expect_err("there is no time");
    assert_eq!(error, HttpError::NoTimeLeft);

    let slow_server = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let url = format!("http://{}", slow_server.local_addr().expect("it is bound"));
    let server = tokio::spawn(async move {
        let (mut stream, _) = slow_server.accept().await.expect("the test connects");
        question(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.expect("the test reads");
        // Held open until the other side gives up.
        stream.read_to_end(&mut Vec::new()).await.map(drop).ok();
    });
    let slow = HttpRequest { timeout: Some(Duration::from_secs(2)), ..get(&url) };
    let mut response = http.request(slow).await.expect("the head is there");
    assert_eq!(response.body.next().await, Ok(Some(Bytes::from_static(b"half"))));
    let error = response.body.next().await.expect_err("the rest never comes");
    assert!(matches!(error, HttpError::Body { .. }), "{error}");
    drop(response);
    server.await.expect("the server does not panic");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_before_anything_is_sent() {
    let http = LocalHttp::with_variables(|name| match name {
        "EMPTY" => Some(OsString::new()),
        _ => None,
    });
    let from_variable = |variable: &str| RequestHeader {
        value_env_var: Some(variable.to_owned()),
        ..header("authorization", "Bearer ")
    };
    let with = |header: RequestHeader| HttpRequest { headers: vec![header], ..get("http://127.0.0.1:1") };
    for (request, beginning) in [
        (HttpRequest { method: "A B".to_owned(), ..get("http://x") }, "the method is not valid: "),
        (get("no url"), "the URL is not valid: relative URL without a base"),
        (get("ftp://x/y"), "the URL must be http: or https:, not ftp:"),
        (with(header("a b", "")), "the name of a header is not valid: "),
        (with(header("a", "x\ny")), "the value of header a is not valid: "),
        (with(from_variable("MISSING")), "header authorization needs variable MISSING, which is not set there"),
        (with(from_variable("EMPTY")), "header authorization needs variable EMPTY, which is empty there"),
        (
            with(from_variable("Openai_Api_Key")),
            "header authorization may not have the value of variable Openai_Api_Key",
        ),
    ] {
        let error = http.request(request).await.expect_err("it is wrong").to_string();
        assert!(error.starts_with(beginning), "{error}");
    }
}

#[tokio::test]
async fn a_variable_of_this_machine_completes_a_header() {
    let http = LocalHttp::with_variables(|name| (name == "TOKEN").then(|| OsString::from("s3cret")));
    let server = Server::with(vec![OK.to_owned()]).await;
    let authorization = RequestHeader { value_env_var: Some("TOKEN".to_owned()), ..header("Authorization", "Bearer ") };
    let request = HttpRequest { headers: vec![authorization], ..get(&server.url) };
    http.request(request).await.expect("the server answers");
    assert!(server.asked().await[0].contains("\r\nauthorization: Bearer s3cret\r\n"));
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_told_by_its_url() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    drop(listener);
    let error = LocalHttp::new().request(get(&url)).await.expect_err("nobody listens").to_string();
    assert!(error.starts_with(&format!("the request failed: error sending request for url ({url})")), "{error}");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_trusted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let url = format!("https://{}/", listener.local_addr().expect("it is bound"));
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the test connects");
        // A ClientHello begins with a handshake record; that is all we want to see of TLS here.
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.expect("the test speaks first");
        first[0]
    });
    let error = LocalHttp::new().request(get(&url)).await.expect_err("that is no TLS server").to_string();
    assert!(error.starts_with("the request failed: error sending request for url ("), "{error}");
    assert_eq!(server.await.expect("the server does not panic"), 22);
}

#[test]
fn a_machine_that_trusts_nobody_still_speaks_plain_http() {
    let again = std::process::Command::new(std::env::current_exe().expect("a test knows its own program"))
        .args(["--exact", "http::redirections_are_followed_or_told"])
        .env("SSL_CERT_FILE", "/dev/null")
        .env("SSL_CERT_DIR", "/nonexistent")
        .output()
        .expect("our own program runs");
    let told = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && told.contains("1 passed"), "{told}");
}

/// The address of a server that answers one HTTPS request, and its certificate, which nobody knows.
async fn https_server(folder: &std::path::Path) -> (String, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("key and certificate fit");
    let file = folder.join("ca.pem");
    std::fs::write(&file, made.cert.pem()).expect("the folder is ours");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let url = format!("https://localhost:{}/", listener.local_addr().expect("it is bound").port());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a listener");
            let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config.clone()));
            // Who does not trust us ends it here.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(OK.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, file)
}

#[tokio::test]
async fn certificates_that_codex_ca_certificate_names_are_trusted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (url, file) = https_server(folder.path()).await;
    let asking = |value: Option<std::path::PathBuf>| {
        let lookup = move |name: &str| value.clone().filter(|_| name == "CODEX_CA_CERTIFICATE").map(Into::into);
        let (http, url) = (LocalHttp::with_variables(lookup), url.clone());
        async move { http.request(get(url)).await }
    };
    let trusted = asking(Some(file.clone())).await.expect("its certificate is named");
    assert_eq!(whole(trusted).await, b"ok");
    asking(None).await.expect_err("nobody knows its certificate");
    let missing = asking(Some(folder.path().join("absent"))).await.expect_err("there is no such file");
    assert!(missing.to_string().contains("CODEX_CA_CERTIFICATE"), "{missing}");
}
