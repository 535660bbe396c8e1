//! The HTTP side of the WebSocket listener: routes, refusals, limits. Texts are part of the wire.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use exec_transport::{ConnectionBudget, HttpPaths, ListenOptions, ListenUrl, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{accept, raw_upgrade, websocket_listener, within};

const UPGRADE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Status and body of the answer to `request`, after which the server must close.
async fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer and its end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}

/// Asks while the listener is being served, as it would be.
async fn ask_all(options: ListenOptions, cases: &[(&str, u16, &str)]) {
    let (mut listener, address) = websocket_listener(options).await;
    let asking = async {
        for (request, status, body) in cases {
            let request = request.replace("HOST", &address.to_string());
            assert_eq!(ask(address, &request).await, (*status, (*body).to_owned()), "{request}");
        }
    };
    tokio::select! {
        accepted = listener.accept() => panic!("nothing was to be accepted: {accepted:?}"),
        () = within(asking) => {}
    }
}

#[tokio::test]
async fn routes_methods_and_headers_are_answered_with_the_texts_of_the_wire() {
    let no_version = UPGRADE.replace("13", "8");
    let no_key = UPGRADE.replace("sec-websocket-key", "x");
    let cases = [
        ("GET /readyz HTTP/1.1\r\nhost: HOST\r\n\r\n", 200, ""),
        ("HEAD /readyz?x HTTP/1.1\r\nhost: HOST\r\n\r\n", 200, ""),
        ("POST /readyz HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\n\r\n", 405, ""),
        ("GET /other HTTP/1.1\r\nhost: HOST\r\n\r\n", 404, ""),
        ("GET / HTTP/1.1\r\nhost: HOST\r\n\r\n", 400, "Connection header did not include 'upgrade'"),
        ("POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\n\r\n", 405, "Request method must be `GET`"),
        (
            "GET / HTTP/1.1\r\nhost: HOST\r\nconnection: upgrade\r\n\r\n",
            400,
            "`Upgrade` header did not include 'websocket'",
        ),
        (
            &format!("GET / HTTP/1.1\r\nhost: HOST\r\n{no_version}\r\n"),
            400,
            "`Sec-WebSocket-Version` header did not include '13'",
        ),
        (&format!("GET / HTTP/1.1\r\nhost: HOST\r\n{no_key}\r\n"), 400, "`Sec-WebSocket-Key` header missing"),
    ];
    ask_all(ListenOptions::default(), &cases).await;
}

#[tokio::test]
async fn an_app_server_has_two_probes_and_a_websocket_at_every_other_path() {
    let upgrade = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: HOST\r\n{UPGRADE}\r\n");
    let cases = [
        ("GET /readyz HTTP/1.1\r\nhost: HOST\r\n\r\n", 200, ""),
        ("GET /healthz HTTP/1.1\r\nhost: HOST\r\n\r\n", 200, ""),
        ("POST /healthz HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\n\r\n", 405, ""),
        (&upgrade("/healthz"), 200, ""),
        ("GET /other HTTP/1.1\r\nhost: HOST\r\n\r\n", 400, "Connection header did not include 'upgrade'"),
    ];
    let options = || ListenOptions { paths: HttpPaths::AppServer, ..ListenOptions::default() };
    ask_all(options(), &cases).await;
    for path in ["/", "/rpc", "/a/b?c=d"] {
        let (mut listener, address) = websocket_listener(options()).await;
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = upgrade(path).replace("HOST", &address.to_string());
        stream.write_all(request.as_bytes()).await.expect("it reads");
        accept(&mut listener).await;
    }
}

#[tokio::test]
async fn a_request_with_an_origin_is_refused_on_every_route() {
    let upgrade = format!("GET / HTTP/1.1\r\nhost: HOST\r\norigin: null\r\n{UPGRADE}\r\n");
    let cases = [
        ("GET /readyz HTTP/1.1\r\nhost: HOST\r\norigin: http://localhost\r\n\r\n", 403, ""),
        ("GET /other HTTP/1.1\r\nhost: HOST\r\norigin:\r\n\r\n", 403, ""),
        (upgrade.as_str(), 403, ""),
    ];
    ask_all(ListenOptions::default(), &cases).await;
}

#[tokio::test]
async fn the_machine_is_served_by_its_own_name() {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {}:7000\r\n\r\n", name.to_uppercase());
    ask_all(ListenOptions::default(), &[(&request, 200, "")]).await;
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_not_listened_on_without_auth() {
    let url: ListenUrl = "ws://0.0.0.0:0".parse().expect("a URL");
    let refused = Listener::bind(&url, ListenOptions::default()).await.expect_err("anybody could come");
    assert!(refused.to_string().contains("--insecure-no-auth"), "{refused}");
    let options = ListenOptions { insecure_no_auth: true, ..ListenOptions::default() };
    Listener::bind(&url, options).await.expect("it was asked for");
}

#[tokio::test]
async fn only_addresses_localhost_and_allowed_names_are_hosts() {
    let options = ListenOptions { allow_hosts: vec!["build.example".to_owned()], ..ListenOptions::default() };
    let refusal = |host: &str| {
        format!(
            "host `{host}` is not served here: connect by IP address or as `localhost`, or name the host in \
             allow_hosts (--allow-host) of the server"
        )
    };
    let (evil, tricky, none) = (refusal("evil.example:80"), refusal("localhost@evil.example"), refusal(""));
    let cases = [
        ("GET /readyz HTTP/1.1\r\nhost: LocalHost:1\r\n\r\n", 200, ""),
        ("GET /readyz HTTP/1.1\r\nhost: 192.0.2.1\r\n\r\n", 200, ""),
        ("GET /readyz HTTP/1.1\r\nhost: [::1]:99\r\n\r\n", 200, ""),
        ("GET /readyz HTTP/1.1\r\nhost: Build.Example:443\r\n\r\n", 200, ""),
        ("GET /readyz HTTP/1.1\r\nhost: evil.example:80\r\n\r\n", 403, evil.as_str()),
        ("GET /readyz HTTP/1.1\r\nhost: localhost@evil.example\r\n\r\n", 403, tricky.as_str()),
        ("GET /readyz HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\n\r\n", 403, none.as_str()),
        ("GET http://evil.example:80/readyz HTTP/1.1\r\nhost: localhost\r\n\r\n", 403, evil.as_str()),
        ("GET http://localhost:1/readyz HTTP/1.1\r\nhost: evil.example:80\r\n\r\n", 403, evil.as_str()),
        ("GET http://localhost:1/readyz HTTP/1.1\r\nhost: localhost:1\r\n\r\n", 200, ""),
        ("GET /readyz HTTP/1.1\r\n\r\n", 403, none.as_str()),
    ];
    ask_all(options, &cases).await;
}

#[tokio::test]
async fn a_head_over_sixteen_kibibytes_is_refused() {
    let long = format!("GET /readyz HTTP/1.1\r\nhost: HOST\r\nx-long: {}\r\n\r\n", "x".repeat(17 << 10));
    let fits = format!("GET /readyz HTTP/1.1\r\nhost: HOST\r\nx-long: {}\r\n\r\n", "x".repeat(15 << 10));
    ask_all(ListenOptions::default(), &[(&fits, 200, ""), (&long, 431, "")]).await;
}

#[tokio::test]
async fn a_query_does_not_hinder_the_upgrade_and_subprotocols_are_ignored() {
    let (mut listener, address) = websocket_listener(ListenOptions::default()).await;
    let asking = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET /?a=b HTTP/1.1\r\nhost: {address}\r\nsec-websocket-protocol: chat\r\n{UPGRADE}\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        crate::support::read_head(&mut stream).await
    };
    let (_connection, head) = tokio::join!(accept(&mut listener), within(asking));
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(!head.contains("protocol: chat") && !head.contains("extensions"), "{head}");
}

#[tokio::test]
async fn a_slow_head_takes_nobodys_place_and_is_cut_off() {
    let options =
        ListenOptions { max_connections: 1, header_timeout: Duration::from_millis(100), ..ListenOptions::default() };
    let (mut listener, address) = websocket_listener(options).await;
    let asking = async {
        let mut slow = TcpStream::connect(address).await.expect("it listens");
        slow.write_all(b"GET / HTTP/1.1\r\nhost:").await.expect("it reads");
        let client = raw_upgrade(address).await;
        let mut rest = Vec::new();
        // However it ends, it ends.
        let _ = slow.read_to_end(&mut rest).await;
        client
    };
    let serving = async {
        let connection = accept(&mut listener).await;
        // Nobody else comes.
        (listener.accept().await, connection)
    };
    tokio::select! {
        (next, _connection) = serving => panic!("only one was to come: {next:?}"),
        _client = within(asking) => {}
    }
}

#[tokio::test]
async fn over_the_limit_a_503_says_so_until_a_place_is_free() {
    let options = ListenOptions { max_connections: 2, ..ListenOptions::default() };
    let (mut listener, address) = websocket_listener(options).await;
    let (first, first_client) = tokio::join!(accept(&mut listener), raw_upgrade(address));
    let (_second, _second_client) = tokio::join!(accept(&mut listener), raw_upgrade(address));
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\n{UPGRADE}\r\n");
    let told = tokio::select! {
        accepted = listener.accept() => panic!("there was no place: {accepted:?}"),
        told = within(ask(address, &request)) => told,
    };
    assert_eq!(told, (503, "all 2 connections are in use; close one or try again later".to_owned()));
    drop((first, first_client));
    let (_third, _third_client) = tokio::join!(accept(&mut listener), raw_upgrade(address));
}

#[tokio::test]
async fn without_room_in_the_shared_budget_a_503_says_why_until_a_connection_gives_its_room_back() {
    let room = Arc::new(());
    let taken = room.clone();
    let budget = ConnectionBudget::new(move || match Arc::strong_count(&taken) {
        1 | 2 => Ok(Box::new(taken.clone())),
        _ => Err("no room: it is small here".to_owned()),
    });
    let (mut listener, address) =
        websocket_listener(ListenOptions { budget: Some(budget), ..ListenOptions::default() }).await;
    let (first, first_client) = tokio::join!(accept(&mut listener), raw_upgrade(address));
    assert_eq!(Arc::strong_count(&room), 3);
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\n{UPGRADE}\r\n");
    let told = tokio::select! {
        accepted = listener.accept() => panic!("there was no room: {accepted:?}"),
        told = within(ask(address, &request)) => told,
    };
    assert_eq!(told, (503, "no room: it is small here".to_owned()));
    drop((first, first_client));
    let (_second, _second_client) = tokio::join!(accept(&mut listener), raw_upgrade(address));
}

#[tokio::test]
async fn a_closed_listener_frees_its_port_and_leaves_its_connections() {
    let (mut listener, address) = websocket_listener(ListenOptions::default()).await;
    let (mut connection, mut client) = tokio::join!(accept(&mut listener), raw_upgrade(address));
    within(listener.close()).await;
    TcpStream::connect(address).await.expect_err("nobody listens");
    crate::support::send(&mut connection, crate::support::text("still here")).await;
    assert_eq!(crate::support::read_frame(&mut client).await.expect("well formed").payload, b"still here");
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_it() {
    let (_listener, address) = websocket_listener(ListenOptions::default()).await;
    let error = Listener::bind(&ListenUrl::WebSocket(address), ListenOptions::default()).await.expect_err("taken");
    assert!(error.to_string().starts_with(&format!("cannot listen on ws://{address}: ")), "{error}");
}

#[test]
fn listen_urls_are_parsed_with_the_texts_of_the_wire() {
    for (text, url) in [
        ("stdio", ListenUrl::Stdio),
        ("stdio://", ListenUrl::Stdio),
        ("ws://127.0.0.1:0", ListenUrl::WebSocket("127.0.0.1:0".parse().expect("an address"))),
        ("ws://[::]:80", ListenUrl::WebSocket("[::]:80".parse().expect("an address"))),
        ("wss://127.0.0.1:1", ListenUrl::SecureWebSocket("127.0.0.1:1".parse().expect("an address"))),
        ("unix:///run/x.sock", ListenUrl::Unix("/run/x.sock".into())),
    ] {
        assert_eq!(text.parse(), Ok(url));
    }
    for (text, message) in [
        ("ws://localhost:1", "invalid websocket --listen URL `ws://localhost:1`; expected `ws://IP:PORT`"),
        ("wss://localhost:1", "invalid websocket --listen URL `wss://localhost:1`; expected `wss://IP:PORT`"),
        ("", "unsupported --listen URL ``; expected `ws://IP:PORT`, `wss://IP:PORT`, `unix://PATH` or `stdio`"),
        ("unix://", "invalid unix --listen URL `unix://`; expected `unix://PATH`"),
    ] {
        assert_eq!(text.parse::<ListenUrl>().expect_err("refused").to_string(), message);
    }
}
