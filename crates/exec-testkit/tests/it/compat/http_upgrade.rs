//! WIRE 1.5 and 1.7: requests that are answered before there is a connection: routes, headers, tokens.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server_program::ListeningServer;
use super::{DEADLINE, Programs, report};

/// A secret of 32 bytes.
const SECRET: &str = "0123456789abcdef0123456789abcdef";

struct HttpCase {
    name: &'static str,
    request: String,
}

fn http_case(name: &'static str, first_line: &str, headers: &[&str]) -> HttpCase {
    let mut request = format!("{first_line} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    HttpCase { name, request }
}

const UPGRADE: [&str; 4] = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];

fn upgrade(name: &'static str, more: &[&str]) -> HttpCase {
    http_case(name, "GET /", &[&UPGRADE[..], more].concat())
}

fn upgrade_without(name: &'static str, header: &str) -> HttpCase {
    let rest: Vec<&str> = UPGRADE.into_iter().filter(|line| !line.starts_with(header)).collect();
    http_case(name, "GET /", &rest)
}

fn without_auth() -> Vec<HttpCase> {
    let end = "Connection: close";
    vec![
        upgrade("an upgrade", &[]),
        http_case("an upgrade with a query", "GET /?x=1&y", &UPGRADE),
        http_case("an upgrade elsewhere", "GET /other", &[&UPGRADE[..], &[end]].concat()),
        upgrade("an upgrade with a subprotocol", &["Sec-WebSocket-Protocol: a, b"]),
        upgrade("an upgrade with an extension", &["Sec-WebSocket-Extensions: permessage-deflate"]),
        upgrade("an upgrade with an origin", &["Origin: http://localhost"]),
        upgrade("an upgrade with an empty origin", &["Origin:"]),
        upgrade("an upgrade with the origin null", &["Origin: null"]),
        upgrade_without("an upgrade without Connection", "Connection"),
        upgrade_without("an upgrade without Upgrade", "Upgrade"),
        upgrade_without("an upgrade without a version", "Sec-WebSocket-Version"),
        upgrade_without("an upgrade without a key", "Sec-WebSocket-Key"),
        http_case(
            "an upgrade with words in other cases",
            "GET /",
            &[
                "connection: keep-alive, UPGRADE",
                "UPGRADE: WebSocket",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            ],
        ),
        http_case(
            "an upgrade to version 8",
            "GET /",
            &[
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Version: 8",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            ],
        ),
        http_case("a post of an upgrade", "POST /", &UPGRADE),
        http_case("the root without an upgrade", "GET /", &[end]),
        http_case("a post to the root", "POST /", &[end, "Content-Length: 0"]),
        http_case("the head of the root", "HEAD /", &[end]),
        http_case("readyz", "GET /readyz", &[end]),
        http_case("readyz with a query", "GET /readyz?x", &[end]),
        http_case("the head of readyz", "HEAD /readyz", &[end]),
        http_case("a post to readyz", "POST /readyz", &[end, "Content-Length: 0"]),
        http_case("readyz with an origin", "GET /readyz", &[end, "Origin: http://evil.example"]),
        http_case("readyz with a slash", "GET /readyz/", &[end]),
        http_case("healthz", "GET /healthz", &[end]),
        http_case("another path", "GET /no/such", &[end]),
        http_case("another path with an origin", "GET /no/such", &[end, "Origin: x"]),
        http_case("a method of our own", "BREW /readyz", &[end]),
    ]
}

fn with_token() -> Vec<HttpCase> {
    let with = |name, header: &str| upgrade(name, &[header, "X-End: 1"]);
    vec![
        upgrade("no token", &[]),
        with("the token", "Authorization: Bearer the token"),
        with("the token, and another case of Bearer", "Authorization: bEARER the token"),
        with("the token, and spaces", "Authorization:   Bearer    the token  "),
        with("another token", "Authorization: Bearer other"),
        with("an empty token", "Authorization: Bearer "),
        with("no token after Bearer", "Authorization: Bearer"),
        with("another scheme", "Authorization: Basic dGhlIHRva2Vu"),
        with("no scheme", "Authorization: the"),
        with("an empty header", "Authorization:"),
        with("an origin and no token", "Origin: x"),
        http_case("readyz needs no token", "GET /readyz", &["Connection: close"]),
        http_case("a token in the query", "GET /?token=the%20token", &UPGRADE),
        http_case("another path and no token", "GET /other", &["Connection: close"]),
        http_case("the root without an upgrade and no token", "GET /", &["Connection: close"]),
    ]
}

fn with_signed_token() -> Vec<HttpCase> {
    let with = |name, token: &str| upgrade(name, &[&format!("Authorization: Bearer {token}")]);
    let far = 4_102_444_800_i64;
    let good = json!({"exp": far, "iss": "me", "aud": "you"});
    let but = |change: Value| super::case::with(good.clone(), change);
    vec![
        upgrade("signed: no token", &[]),
        with("signed: a good token", &jwt(&good)),
        with("signed: audiences in a list", &jwt(&but(json!({"aud": ["x", "you"]})))),
        with("signed: other audiences in a list", &jwt(&but(json!({"aud": ["x"]})))),
        with("signed: another audience", &jwt(&but(json!({"aud": "x"})))),
        with("signed: no audience", &jwt(&but(json!({"aud": "$ABSENT"})))),
        with("signed: another issuer", &jwt(&but(json!({"iss": "x"})))),
        with("signed: no issuer", &jwt(&but(json!({"iss": "$ABSENT"})))),
        with("signed: expired", &jwt(&but(json!({"exp": 1000})))),
        with("signed: no end", &jwt(&but(json!({"exp": "$ABSENT"})))),
        with("signed: an end that is a text", &jwt(&but(json!({"exp": "tomorrow"})))),
        with("signed: an end with a fraction", &jwt(&but(json!({"exp": 4_102_444_800.5})))),
        with("signed: not yet", &jwt(&but(json!({"nbf": far})))),
        with("signed: long since", &jwt(&but(json!({"nbf": 1000})))),
        with("signed: made in the future", &jwt(&but(json!({"iat": far})))),
        with("signed: not a token", "abc"),
        with("signed: two parts", "abc.def"),
        with("signed: another signature", &format!("{}x", jwt(&good))),
        with("signed: another algorithm", &signed(&json!({"alg": "HS512"}), &good)),
        with("signed: no algorithm", &signed(&json!({"alg": "none"}), &good)),
        with("signed: a kind of token", &signed(&json!({"alg": "HS256", "typ": "JWT"}), &good)),
        with("signed: another kind of token", &signed(&json!({"alg": "HS256", "typ": "X"}), &good)),
        with("signed: claims that are no object", &signed(&json!({"alg": "HS256"}), &json!([]))),
    ]
}

pub(super) async fn compare() {
    let Some(programs) = Programs::find() else { return };
    let home = programs.home.path().to_owned();
    let token = secret_file(&home, "token", " the token\n");
    let secret = secret_file(&home, "secret", &format!("{SECRET}\n"));
    let signed = ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", &secret];
    let signed = [&signed[..], &["--ws-issuer", "me", "--ws-audience", "you"]].concat();
    let servers: [(&[&str], Vec<HttpCase>); 4] = [
        (&[], without_auth()),
        (&["--ws-auth", "capability-token", "--ws-token-file", &token], with_token()),
        // sha256sum of `the token`
        (&["--ws-auth", "capability-token", "--ws-token-sha256", TOKEN_SHA256], with_token()),
        (&signed, with_signed_token()),
    ];
    let mut differences = Vec::new();
    for (arguments, cases) in servers {
        let (codex, ours) = tokio::join!(programs.codex.listen(arguments), programs.ours.listen(arguments));
        for case in cases {
            let (codex_answer, our_answer) = tokio::join!(answer(&codex, &case), answer(&ours, &case));
            if codex_answer != our_answer {
                differences.push(format!("{}\n    codex:  {codex_answer}\n    ours:   {our_answer}", case.name));
            }
        }
    }
    report(&differences);
}

const TOKEN_SHA256: &str = "d94772fd76a9e3a1c170673847ba8f96851fd423b1a7834871cd2c78633c7e97";

fn secret_file(home: &Path, name: &str, content: &str) -> String {
    let path = home.join(name);
    std::fs::write(&path, content).expect("a file in our own folder");
    path.to_str().expect("temporary folders have plain names").to_owned()
}

async fn answer(server: &ListeningServer, case: &HttpCase) -> Value {
    let mut stream = TcpStream::connect(&server.address).await.expect("the server accepts");
    stream.write_all(case.request.as_bytes()).await.expect("the server reads");
    let mut bytes = Vec::new();
    let whole = async {
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            }
            if is_whole(&case.request, &bytes) {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, whole).await.expect("the server answers");
    compared_parts(&String::from_utf8_lossy(&bytes))
}

/// The head, and as much body as it promises.
fn is_whole(request: &str, bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = header(head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.starts_with("HEAD") || body.len() >= length
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case(name)))
        .map(|(_, value)| value.trim())
}

/// What of a response a client may depend on.
fn compared_parts(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.lines().next().unwrap_or_default();
    let names = [
        "allow",
        "connection",
        "content-length",
        "content-type",
        "sec-websocket-accept",
        "sec-websocket-extensions",
        "sec-websocket-protocol",
        "sec-websocket-version",
        "upgrade",
        "www-authenticate",
    ];
    let headers: Vec<(&str, Option<&str>)> = names.into_iter().map(|name| (name, header(head, name))).collect();
    let upgraded = status.contains(" 101 ");
    // Ours keeps no connection open for whoever was refused; a client cannot mind.
    let compared = |name: &str| name != "connection" || upgraded;
    let headers: Vec<_> = headers.into_iter().filter(|(name, value)| value.is_some() && compared(name)).collect();
    json!({"status": status, "headers": headers, "body": body})
}

fn jwt(claims: &Value) -> String {
    signed(&json!({"alg": "HS256"}), claims)
}

/// A token of these two parts, signed with HMAC-SHA-256 whatever the header says.
fn signed(header: &Value, claims: &Value) -> String {
    let base64 = |bytes: &[u8]| base64_simd::URL_SAFE_NO_PAD.encode_to_string(bytes);
    let content = format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
    let signature = hmac_sha256(SECRET.as_bytes(), content.as_bytes());
    format!("{content}.{}", base64(&signature))
}

/// RFC 2104, for a key of at most one block.
fn hmac_sha256(key: &[u8], content: &[u8]) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(content).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}
