//! The HTTP server that both servers under comparison send requests to: it shows a request as it came, and answers in
//! every odd way.
//!
//! Deliberately without a library, because a library would not send the broken answers that are needed here.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub(crate) struct HttpFixture {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    task: JoinHandle<()>,
}

impl HttpFixture {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let task = tokio::spawn(async move {
            // Aborted with the task; there are only as many as the cases open.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        Self { address, task }
    }
}

impl Drop for HttpFixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request, one answer, which says so: a client that believed in another could send it into a connection that ends.
async fn serve(mut stream: TcpStream) {
    let Some(request) = read_request(&mut stream).await else { return };
    let mut words = request.split(|byte| *byte == b' ');
    let method = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
    let target = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
    let path = target.split('?').next().unwrap_or_default();
    let mut parts = path.trim_start_matches('/').split('/');
    let (what, argument) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Some(answer) = answer(what, argument, &request) {
        let _ = stream.write_all(&answer).await;
    }
    let _ = stream.flush().await;
    if matches!(what, "silent" | "stall" | "stallchunked") && method != "HEAD" {
        // Until the client has had enough.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let _ = stream.shutdown().await;
}

fn answer(what: &str, argument: &str, request: &[u8]) -> Option<Vec<u8>> {
    let number = || argument.parse::<usize>().unwrap_or_default();
    Some(match what {
        "" | "echo" => whole("200 OK", "", request),
        "head" => whole("200 OK", "", &request[..head_bytes(request).unwrap_or_default()]),
        "status" => whole(&format!("{argument} Some Words"), "", b"body"),
        "bare" => format!("HTTP/1.1 {argument}\r\nconnection: close\r\n\r\n").into_bytes(),
        "nowords" => format!("HTTP/1.1 {argument}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes(),
        "redirect" => whole(&format!("{argument} Elsewhere"), "location: /echo\r\n", b"there"),
        "hops" if number() > 0 => whole("302 Found", &format!("location: /hops/{}\r\n", number() - 1), b""),
        "hops" => whole("200 OK", "", b"arrived"),
        "loop" => whole("302 Found", "location: /loop\r\n", b""),
        "ftp" => whole("302 Found", "location: ftp://example.invalid/x\r\n", b"there"),
        "nowhere" => whole("302 Found", "", b"no location"),
        "badplace" => whole("302 Found", "location: http://[bad\r\n", b"bad location"),
        "otherhost" => {
            let port = port_of(request);
            whole("307 Other", &format!("location: http://localhost:{port}/echo\r\n"), b"")
        }
        "fragment" => whole("302 Found", "location: /echo#part\r\n", b""),
        "odd" => whole("200 OK", ODD_HEADERS, b"x"),
        "latin1" => {
            [&b"HTTP/1.1 200 OK\r\nx-a: caf\xe9\r\nx-b: plain\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"[..]]
                .concat()
        }
        "gzip" => whole("200 OK", "content-encoding: gzip\r\n", b"\x1f\x8b not really"),
        "big" => whole("200 OK", "", &vec![b'x'; number()]),
        "chunked" => chunked("3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\ntrailer: t\r\n\r\n"),
        "cutchunked" => chunked("3\r\nabc\r\n5\r\nde"),
        "badchunk" => chunked("3\r\nabc\r\nzz\r\n"),
        "stallchunked" => chunked("3\r\nabc\r\n"),
        "cut" | "stall" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec(),
        "http10" => b"HTTP/1.0 200 OK\r\nx-a: 1\r\n\r\nuntil the end".to_vec(),
        "early" => {
            let early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".to_vec();
            [early, whole("200 OK", "", b"late")].concat()
        }
        "garbage" => b"this is not HTTP\r\n\r\n".to_vec(),
        "badheader" => b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n".to_vec(),
        _ => return None,
    })
}

const ODD_HEADERS: &str = "X-MiXeD: Case\r\nSet-Cookie: a=1\r\nx-empty:\r\nSet-Cookie: b=2\r\nx-spaces:   in  between   \r\n\
                           x-first: 1\r\nX-First: 2\r\ncontent-type: text/plain; charset=utf-8\r\n";

fn whole(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn chunked(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

fn port_of(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    host.rsplit(':').next().unwrap_or_default().to_owned()
}

fn head_bytes(request: &[u8]) -> Option<usize> {
    request.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// The request, byte for byte, body included unless it is sent to `/head`.
async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let head = loop {
        if let Some(head) = head_bytes(&request) {
            break head;
        }
        // A handshake of TLS has no such end.
        if stream.read_buf(&mut request).await.ok()? == 0 || request[0] == 22 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")).map_or("0", str::trim);
    let length: usize = length.parse().ok().filter(|_| !text.contains(" /head ")).unwrap_or_default();
    while request.len() < head + length {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            break;
        }
    }
    Some(request)
}
