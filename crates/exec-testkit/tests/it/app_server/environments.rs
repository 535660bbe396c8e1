//! `environment/*`.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;

use super::case::{Case, calls};

/// Nobody listens there.
const NOBODY: &str = "ws://127.0.0.1:1";

/// The URL of a server that answers every upgrade with this status and text.
fn refusing(status: &'static str, text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The whole request: what is left unread would reset the connection, and with it the answer.
            let (mut request, mut piece) = (Vec::new(), [0; 1024]);
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(length) if length > 0 => request.extend_from_slice(&piece[..length]),
                    _ => break,
                }
            }
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", text.len());
            // A client that has gone needs no answer.
            let _ = stream.write_all((head + text).as_bytes());
        }
    });
    format!("ws://{address}")
}

pub(super) fn cases() -> Vec<Case> {
    let id = |id: &str| json!({ "environmentId": id });
    let add = |id: &str, url: &str| json!({ "environmentId": id, "execServerUrl": url });
    let mut cases = Vec::new();
    for method in ["environment/add", "environment/status", "environment/info"] {
        cases.extend(calls(method, [json!({}), json!({ "environmentId": 1 }), json!({ "environmentId": null })]));
    }
    for method in ["environment/status", "environment/info"] {
        cases.extend(calls(method, [id("local"), id("unknown"), id(""), id("LOCAL")]));
    }
    cases.extend(calls(
        "environment/add",
        [
            add("", NOBODY),
            add("local", NOBODY),
            add("u", ""),
            add("u", "  "),
            add("u", "none"),
            json!({ "environmentId": "u" }),
            json!({ "execServerUrl": "ws://x" }),
            json!({ "environmentId": "u", "execServerUrl": 5 }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "connectTimeoutMs": -1 }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "connectTimeoutMs": "x" }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "skills": 5 }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "skills": { "required": 5 } }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "authBearerToken": 5 }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "authBearerToken": "a\nb" }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "websocketRequestId": "a\nb" }),
            add("local", ""),
            add("", ""),
        ],
    ));
    // What a token may not be sent to is refused before anybody connects.
    for url in [
        "ws://0.0.0.0:1",
        "ws://localhost.:1",
        "ws://[::]:1",
        "ws://[::ffff:127.0.0.1]:1",
        "ws://nobody.invalid:1",
        "x",
        "ws://",
        "ws://127.0.0.1:99999",
        "127.0.0.1:1",
        "unix:///nonexistent",
    ] {
        cases.extend(calls(
            "environment/add",
            [
                json!({ "environmentId": "u", "execServerUrl": url, "authBearerToken": "token" }),
                json!({ "environmentId": "u", "execServerUrl": url, "websocketRequestId": "a\nb" }),
            ],
        ));
    }
    cases.extend(calls(
        "environment/add",
        [
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "authBearerToken": "a\u{7f}" }),
            json!({ "environmentId": "u", "execServerUrl": "NONE", "authBearerToken": "a\nb" }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "connectTimeoutMs": 1.5 }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "skills": [] }),
            json!({ "environmentId": "u", "execServerUrl": NOBODY, "skills": { "required": [5] } }),
            json!(["u"]),
            json!(["u", "none", null, null, null, null, null]),
        ],
    ));
    cases.push(Case::new("an id that was refused is unknown").call("environment/status", id("u")));
    for (name, url) in [
        ("plain", NOBODY),
        ("none", NOBODY),
        ("a b", NOBODY),
        ("a/b", NOBODY),
        ("..", NOBODY),
        ("ü", NOBODY),
        ("A", NOBODY),
        ("spaces", " ws://127.0.0.1:1 "),
        ("path", "ws://127.0.0.1:1/path?query=1"),
        ("\n", "\tws://127.0.0.1:1\n"),
        ("name", "ws://localhost:1"),
        ("secure", "wss://127.0.0.1:1"),
        ("local ", NOBODY),
    ] {
        cases.push(Case::new("an environment that is not there").call("environment/add", add(name, url)).settled(name));
    }
    cases.push(
        Case::new("options, and another try")
            .call("environment/add", json!({
                "environmentId": "options", "execServerUrl": NOBODY, "connectTimeoutMs": 5000, "authBearerToken": "token",
                "websocketRequestId": "id", "skills": { "required": ["skill"] },
            }))
            .call("environment/info", id("options"))
            .settled("options"),
    );
    cases.push(
        Case::new("an environment stays as it was when another of its id is refused")
            .call("environment/add", add("twice", NOBODY))
            .call("environment/add", add("twice", NOBODY))
            .settled("twice")
            .call("environment/add", add("twice", ""))
            .call("environment/status", id("twice"))
            .call("environment/info", id("twice")),
    );
    for (name, status, text) in [
        ("refusing 401", "401 Unauthorized", "invalid websocket jwt"),
        ("refusing 404", "404 Not Found", ""),
        ("refusing 302", "302 Found", ""),
        ("refusing 503", "503 Service Unavailable", "later"),
        ("refusing 299", "299 Nobody Knows", ""),
    ] {
        let url = refusing(status, text);
        cases.push(
            Case::new("a server that refuses the connection")
                .call("environment/add", add(name, &url))
                .settled(name)
                .call("environment/info", id(name)),
        );
    }
    for (name, url, why) in [
        ("word", "x", "unsupported server URL `x`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix://PATH`"),
        (
            "http",
            "http://127.0.0.1:1",
            "unsupported server URL `http://127.0.0.1:1`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix://PATH`",
        ),
        (
            "port",
            "ws://127.0.0.1:99999",
            "invalid server URL `ws://127.0.0.1:99999`: the port is not a number below 65536",
        ),
    ] {
        let error =
            format!("exec-server connection attempt failed: failed to connect to exec-server websocket `{url}`: {why}");
        cases.push(
            Case::new("what is no URL")
                .call("environment/add", add(name, url))
                .settled(name)
                .differs("url-errors", json!({ "result": { "status": "disconnected", "error": error } })),
        );
    }
    cases
}
