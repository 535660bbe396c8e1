//! A page in a real browser (Chromium, headless) tries to reach a listener that asks for no token.
//!
//! The page is loaded from a name that leads to the loopback, as a name does that was re-bound. It opens WebSockets by
//! address and by name. One goes to a server of another kind, which lets everybody in: what is refused is refused by
//! us, and not by the browser.

use std::net::SocketAddr;
use std::process::Stdio;

use exec_transport::{ListenOptions, ListenUrl, Listener, ServerTls, ServerTlsOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::support::within;

/// Tries each URL and reports what came of it.
const PAGE: &str = "<script>
const attempt = url => new Promise(done => {
  const socket = new WebSocket(url);
  socket.onopen = () => done('open');
  socket.onerror = () => done('refused');
});
Promise.all(URLS.map(attempt)).then(told => fetch('/report', {method: 'POST', body: told.join(' ')}));
</script>";

/// A server that lets every browser in.
async fn open_door(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // A browser may open a connection ahead and not use it.
        tokio::spawn(async move { drop(tokio_tungstenite::accept_async(stream).await) });
    }
}

/// Serves the page until the browser reports.
async fn report(listener: TcpListener, page: String) -> String {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a listener");
        let Some(request) = read_request(&mut stream).await else { continue };
        let (head, body) = request.split_once("\r\n\r\n").expect("a whole head");
        if head.starts_with("POST /report ") {
            return body.to_owned();
        }
        let content = if head.starts_with("GET / ") { page.as_str() } else { "" };
        let length = content.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{content}"
        );
        stream.write_all(answer.as_bytes()).await.expect("the browser reads");
    }
}

/// A request with its body; `None` if the browser has opened a connection and not used it.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let mut more = [0; 4096];
        let count = stream.read(&mut more).await.ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&more[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
    }
}

async fn loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// One of our listeners, as `serve` has it without further flags.
async fn daemon(scheme: &str) -> (Listener, u16) {
    let certificate = exec_transport::CertificateSource::SelfSigned { addresses: Vec::new(), kept_in: None };
    let tls = ServerTls::load(&ServerTlsOptions { certificate, client_ca: None }).expect("nothing to read");
    let url: ListenUrl = format!("{scheme}://127.0.0.1:0").parse().expect("a URL");
    let options = ListenOptions { tls: (scheme == "wss").then_some(tls), ..ListenOptions::default() };
    let listener = Listener::bind(&url, options).await.expect("loopback has free ports");
    let port = listener.url().rsplit(':').next().expect("a port").parse().expect("a number");
    (listener, port)
}

#[tokio::test]
async fn a_page_in_a_browser_cannot_reach_us() {
    let ((mut plain, plain_port), (mut secure, secure_port)) = (daemon("ws").await, daemon("wss").await);
    let ((door, door_address), (site, site_address)) = (loopback().await, loopback().await);
    let urls = [
        format!("ws://evil.example:{}/", door_address.port()),
        format!("ws://127.0.0.1:{plain_port}/"),
        format!("ws://localhost:{plain_port}/"),
        format!("ws://evil.example:{plain_port}/"),
        format!("wss://127.0.0.1:{secure_port}/"),
        format!("wss://evil.example:{secure_port}/"),
    ];
    let page = PAGE.replace("URLS", &serde_json::to_string(&urls).expect("texts are JSON"));
    let profile = tempfile::tempdir().expect("a temporary folder");
    let mut browser = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        // The certificate is no hindrance, and neither are names.
        .args(["--ignore-certificate-errors", "--host-resolver-rules=MAP evil.example 127.0.0.1"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://evil.example:{}/", site_address.port()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .expect("this test needs chromium: `cargo xtask setup` installs it");
    let group = browser.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())).expect("it runs");
    let told = tokio::select! {
        accepted = plain.accept() => panic!("a page got in: {accepted:?}"),
        accepted = secure.accept() => panic!("a page got in over TLS: {accepted:?}"),
        () = open_door(door) => unreachable!("it stays open"),
        told = within(report(site, page)) => told,
    };
    // The browser has children of its own, which would go on writing into its folder.
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("it is our child");
    within(browser.wait()).await.expect("it is our child");
    assert_eq!(told, "open refused refused refused refused refused");
}
