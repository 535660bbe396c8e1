//! What a hostile process says to its proxy: requests that two readers would read differently, heads without end, garbage.
//! Expected is what Codex's proxy 0.166.0 answered to the same bytes, with the ends of connections made the same.

use exec_testkit::origin::Origin;
use exec_testkit::proxied::{heard, proxy_that_allows};

use crate::environments;

const MALFORMED: &str = r"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const DISAGREES: &str = "Host header does not match request target";

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_not_passed_on() {
    let env = environments::keeper_as_thread().await;
    let origin = Origin::start().await;
    let port = origin.port();
    let here = format!("127.0.0.1:{port}");
    let get =
        |target: &str, headers: &str| format!("GET {target} HTTP/1.1\\r\\n{headers}Connection: close\\r\\n\\r\\n");
    let post = |headers: &str, body: &str| {
        format!("POST http://{here}/ HTTP/1.1\\r\\nHost: {here}\\r\\n{headers}Connection: close\\r\\n\\r\\n{body}")
    };
    let absolute = format!("http://{here}/");
    let cases: Vec<(String, &str)> = vec![
        (get(&absolute, "Host: other.test\\r\\n"), DISAGREES),
        (get(&format!("http://other.test:{port}/"), &format!("Host: {here}\\r\\n")), DISAGREES),
        (get(&absolute, &format!("Host: {here}\\r\\nHost: other.test\\r\\n")), "multiple Host headers"),
        (get(&format!("http://127.0.0.1:80@other.test:{port}/"), &format!("Host: {here}\\r\\n")), DISAGREES),
        (get("/x", ""), "missing host"),
        (get("http://a..test/", "Host: a..test\\r\\n"), "missing host"),
        (get("http://*/", "Host: *\\r\\n"), "missing host"),
        (get(&absolute, &format!("Host : {here}\\r\\n")), MALFORMED),
        (get(&absolute, &format!("Host: {here}\\r\\n folded\\r\\n")), MALFORMED),
        (post("Content-Length: 3\\r\\nContent-Length: 5\\r\\n", "hello"), MALFORMED),
        (post("Transfer-Encoding: chunked, identity\\r\\n", "0\\r\\n\\r\\n"), MALFORMED),
        (post("Transfer-Encoding: xchunked\\r\\n", "0\\r\\n\\r\\n"), MALFORMED),
        (get("http://other.test/", "Host: other.test\\r\\n"), "blocked-by-allowlist"),
        ("CONNECT /x HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n".to_owned(), "missing authority"),
        (get("http://localhost/", "Host: localhost\\r\\nx-unix-socket: /tmp/s\\r\\n"), "unix sockets unsupported"),
    ];
    let said: Vec<_> = cases.iter().map(|(text, _)| ("HTTP_PROXY", text.clone())).collect();
    let heard = heard(&env, "p", proxy_that_allows(&["127.0.0.1"]), &said).await;
    for (line, (said, expected)) in heard.lines().zip(&cases) {
        assert!(line.contains(expected), "{said}: {line}");
    }
    assert_eq!((heard.lines().count(), origin.requests()), (said.len(), 0));
}

#[tokio::test]
async fn a_length_and_chunks_together_are_passed_on_as_chunks_alone() {
    let env = environments::keeper_as_thread().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let here = listener.local_addr().expect("it is bound");
    let head = format!("POST http://{here}/ HTTP/1.1\\r\\nHost: {here}\\r\\nConnection: close\\r\\n");
    let smuggled = "5\\r\\nhello\\r\\n0\\r\\n\\r\\nGET /second HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n";
    let said = format!("{head}Transfer-Encoding: chunked\\r\\nContent-Length: 3\\r\\n\\r\\n{smuggled}");
    let proxy = proxy_that_allows(&["127.0.0.1"]);
    let command = exec_testkit::proxied::asking(&env, proxy, &[("HTTP_PROXY", said)]);
    let process = env.start_command("p", command).await;
    let (mut stream, _) = listener.accept().await.expect("the proxy dials");
    let mut request = Vec::new();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    while !request.ends_with(b"0\r\n\r\n") {
        assert!(
            stream.read_buf(&mut request).await.expect("it goes on") > 0,
            "{:?}",
            request.escape_ascii().to_string()
        );
    }
    let expected =
        format!("POST / HTTP/1.1\r\nHost: {here}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(request.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("the proxy reads");
    drop(stream);
    let printed = process.read_to_end().await.printed();
    assert!(printed.starts_with("HTTP/1.1 204") && !printed.contains("second"), "{printed}");
}

#[tokio::test]
async fn a_head_without_end_is_refused_and_garbage_is_not_answered() {
    let env = environments::keeper_as_thread().await;
    let endless =
        format!("GET http://a.test/ HTTP/1.1\\r\\nHost: a.test\\r\\n{}", "x: yyyyyyyyyyyyyyyy\\r\\n".repeat(5000));
    let said = [
        ("HTTP_PROXY", endless),
        ("ALL_PROXY", "GET http://a.test/ HTTP/1.1\\r\\n\\r\\n".to_owned()),
        ("ALL_PROXY", "\\x04\\x01\\x00\\x50\\x7f\\x00\\x00\\x01\\x00".to_owned()),
        ("ALL_PROXY", "\\x05\\x01\\x02".to_owned()),
        ("ALL_PROXY", "\\x05\\x01\\x00\\x05\\x02\\x00\\x01\\x7f\\x00\\x00\\x01\\x00\\x50".to_owned()),
        ("ALL_PROXY", "\\x05\\x01\\x00\\x05\\x03\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00".to_owned()),
    ];
    let heard = heard(&env, "p", proxy_that_allows(&["*"]), &said).await;
    let heard: Vec<&str> = heard.lines().collect();
    assert!(heard[0].is_empty() || heard[0].starts_with("HTTP/1.1 431"), "{heard:?}");
    let not_supported = r"\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00";
    assert_eq!(heard[1..], ["", "", r"\x05\xff", not_supported, not_supported]);
}
