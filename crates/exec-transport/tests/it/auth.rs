//! Who may upgrade, and what the others and the operator are told.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use exec_transport::{
    Auth, AuthMode, AuthSettings, BindError, ConnectError, ConnectOptions, HttpPaths, ListenOptions, ListenUrl,
    Listener, Target, connect,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{read_head, websocket_listener, within};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn write(folder: &Path, content: &str) -> PathBuf {
    let path = folder.join("secret");
    std::fs::write(&path, content).expect("a folder of our own");
    path
}

fn auth(settings: &AuthSettings) -> ListenOptions {
    let auth = Auth::from_settings(settings).expect("valid settings");
    assert!(auth.is_some());
    ListenOptions { auth, ..ListenOptions::default() }
}

/// What each `Authorization` header is answered: a status, and the text of a refusal.
async fn answers(options: ListenOptions, headers: &[Option<String>]) -> Vec<(u16, String)> {
    answers_at("/", options, headers).await
}

async fn answers_at(path: &str, options: ListenOptions, headers: &[Option<String>]) -> Vec<(u16, String)> {
    let (mut listener, address) = websocket_listener(options).await;
    let asking = async {
        let mut answers = Vec::new();
        for header in headers {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            let authorization = header.as_ref().map_or(String::new(), |value| format!("authorization: {value}\r\n"));
            let request = format!(
                "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{authorization}\r\n"
            );
            stream.write_all(request.as_bytes()).await.expect("it reads");
            let head = read_head(&mut stream).await;
            let status: u16 = head[9..12].parse().expect("a status");
            let mut body = String::new();
            if status != 101 {
                tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut body).await.expect("a text and the end");
            }
            answers.push((status, body));
        }
        answers
    };
    let serving = async {
        loop {
            drop(listener.accept().await);
        }
    };
    tokio::select! {
        answers = within(asking) => answers,
        () = serving => unreachable!("it serves for ever"),
    }
}

fn refused(text: &str) -> (u16, String) {
    (401, text.to_owned())
}

const WELCOME: (u16, String) = (101, String::new());

#[tokio::test]
async fn a_capability_token_lets_a_client_in() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let from_file = AuthSettings {
        mode: Some(AuthMode::CapabilityToken),
        token_file: Some(write(folder.path(), " open sesame\n")),
        ..AuthSettings::default()
    };
    // echo -n 'open sesame' | sha256sum
    let digest = "41EF4BB0B23661E66301AAC36066912DAC037827B4AE63A7B1165A5AA93ED4EB";
    let from_digest = AuthSettings {
        mode: Some(AuthMode::CapabilityToken),
        token_sha256: Some(format!(" {digest}\n")),
        ..AuthSettings::default()
    };
    for settings in [from_file, from_digest] {
        let headers = ["Bearer open sesame", "bEARER   open sesame  ", "Bearer open", "Basic open sesame", "Bearer"];
        let mut headers: Vec<_> = headers.into_iter().map(|header| Some(header.to_owned())).collect();
        headers.push(None);
        let expected = [
            WELCOME,
            WELCOME,
            refused("invalid websocket bearer token"),
            refused("invalid authorization header"),
            refused("invalid authorization header"),
            refused("missing websocket bearer token"),
        ];
        assert_eq!(answers(auth(&settings), &headers).await, expected);
    }
}

fn signed(algorithm: Algorithm, secret: &str, claims: &Value) -> Option<String> {
    let token = jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret.as_bytes()));
    Some(format!("Bearer {}", token.expect("claims can be signed")))
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("before the end of time")
}

#[tokio::test]
async fn a_signed_token_is_judged_by_signature_time_issuer_and_audience() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = AuthSettings {
        mode: Some(AuthMode::SignedBearerToken),
        shared_secret_file: Some(write(folder.path(), &format!("{SECRET}\n"))),
        // White space around a flag's value is not meant.
        issuer: Some(" us\n".to_owned()),
        audience: Some("exec".to_owned()),
        ..AuthSettings::default()
    };
    let soon = now() + 600;
    let good = json!({"exp": soon, "iss": "us", "aud": "exec"});
    let cases = [
        (signed(Algorithm::HS256, SECRET, &good), WELCOME),
        (
            signed(Algorithm::HS256, SECRET, &json!({"exp": soon, "iss": "us", "aud": ["a", "exec"], "iat": soon})),
            WELCOME,
        ),
        (signed(Algorithm::HS256, SECRET, &json!({"exp": now() - 20, "iss": "us", "aud": "exec"})), WELCOME),
        (signed(Algorithm::HS256, &SECRET.replace('0', "1"), &good), refused("invalid websocket jwt")),
        (signed(Algorithm::HS512, SECRET, &good), refused("invalid websocket jwt")),
        (signed(Algorithm::HS256, SECRET, &json!({"iss": "us", "aud": "exec"})), refused("invalid websocket jwt")),
        (signed(Algorithm::HS256, SECRET, &json!({"exp": "1", "iss": "us"})), refused("invalid websocket jwt")),
        (
            signed(Algorithm::HS256, SECRET, &json!({"exp": 1.5e12, "iss": "us", "aud": "exec"})),
            refused("invalid websocket jwt"),
        ),
        (Some("Bearer not.a.token".to_owned()), refused("invalid websocket jwt")),
        (
            signed(Algorithm::HS256, SECRET, &json!({"exp": now() - 40, "iss": "us", "aud": "exec"})),
            refused("expired websocket jwt"),
        ),
        (
            signed(Algorithm::HS256, SECRET, &json!({"exp": soon, "nbf": now() + 60, "iss": "us", "aud": "exec"})),
            refused("websocket jwt is not valid yet"),
        ),
        (
            signed(Algorithm::HS256, SECRET, &json!({"exp": soon, "aud": "exec"})),
            refused("websocket jwt issuer mismatch"),
        ),
        (
            signed(Algorithm::HS256, SECRET, &json!({"exp": soon, "iss": "us"})),
            refused("websocket jwt audience mismatch"),
        ),
        (
            signed(Algorithm::HS256, SECRET, &json!({"exp": soon, "iss": "us", "aud": ["a"]})),
            refused("websocket jwt audience mismatch"),
        ),
    ];
    let (headers, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(answers(auth(&settings), &headers).await, expected);
}

#[tokio::test]
async fn our_client_brings_its_token_and_understands_the_refusal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = AuthSettings {
        mode: Some(AuthMode::CapabilityToken),
        token_file: Some(write(folder.path(), "sesame")),
        ..AuthSettings::default()
    };
    let (mut listener, address) = websocket_listener(auth(&settings)).await;
    let target: Target = format!("ws://{address}").parse().expect("a URL");
    let with = |token: &str| ConnectOptions { bearer_token: Some(token.to_owned()), ..ConnectOptions::default() };
    let asking = async {
        let wrong = connect(&target, &with("barley")).await.expect_err("the wrong token");
        assert!(
            matches!(wrong, ConnectError::Refused { status: 401, body, .. } if body == "invalid websocket bearer token")
        );
        connect(&target, &with("sesame")).await.expect("the right token")
    };
    let (accepted, _client) = within(async { tokio::join!(listener.accept(), asking) }).await;
    accepted.expect("one of the two");
}

#[test]
fn settings_that_cannot_work_stop_the_start_with_the_texts_of_the_wire() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let short = write(folder.path(), "  short  ");
    let blank = folder.path().join("blank");
    std::fs::write(&blank, " \n").expect("a folder of our own");
    let missing = folder.path().join("missing");
    let no_text = folder.path().join("no-text");
    std::fs::write(&no_text, [0xff; 40]).expect("a folder of our own");
    let capability = AuthSettings { mode: Some(AuthMode::CapabilityToken), ..AuthSettings::default() };
    let signed = AuthSettings { mode: Some(AuthMode::SignedBearerToken), ..AuthSettings::default() };
    let digest = "0".repeat(64);
    let cases = [
        (
            capability.clone(),
            "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set".to_owned(),
        ),
        (
            AuthSettings { token_file: Some(short.clone()), token_sha256: Some(digest), ..capability.clone() },
            "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive".to_owned(),
        ),
        (
            AuthSettings { token_sha256: Some("abc".to_owned()), ..capability.clone() },
            "--ws-token-sha256 must be a 64-character hex SHA-256 digest".to_owned(),
        ),
        (
            AuthSettings { token_file: Some(blank.clone()), ..capability.clone() },
            format!("websocket auth secret {} must not be empty", blank.display()),
        ),
        (
            AuthSettings { token_file: Some(no_text.clone()), ..capability.clone() },
            format!("failed to read websocket auth secret {}: stream did not contain valid UTF-8", no_text.display()),
        ),
        (
            AuthSettings { token_file: Some(missing.clone()), ..capability },
            format!(
                "failed to read websocket auth secret {}: No such file or directory (os error 2)",
                missing.display()
            ),
        ),
        (
            signed.clone(),
            "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set".to_owned(),
        ),
        (
            AuthSettings { shared_secret_file: Some(short.clone()), ..signed },
            format!("signed websocket bearer secret {} must be at least 32 bytes", short.display()),
        ),
        (
            AuthSettings { issuer: Some("us".to_owned()), ..AuthSettings::default() },
            "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`".to_owned(),
        ),
    ];
    for (settings, text) in cases {
        assert_eq!(Auth::from_settings(&settings).expect_err("refused").to_string(), text);
    }
    assert!(Auth::from_settings(&AuthSettings::default()).expect("no auth is fine").is_none());
}

#[tokio::test]
async fn auth_without_a_websocket_listener_is_refused() {
    let settings = AuthSettings {
        mode: Some(AuthMode::CapabilityToken),
        token_sha256: Some("0".repeat(64)),
        ..AuthSettings::default()
    };
    let error = Listener::bind(&ListenUrl::Stdio, auth(&settings)).await.expect_err("refused");
    assert_eq!(error.to_string(), "WebSocket auth requires a WebSocket listener, not stdio");
    let error = Listener::bind(&ListenUrl::Unix("/x".into()), auth(&settings)).await.expect_err("refused");
    assert!(matches!(error, BindError::AuthNeedsWebSocket { .. }));
}

/// A listener that asks for signed tokens.
fn signed_tokens_only() -> (tempfile::TempDir, ListenOptions) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = AuthSettings {
        mode: Some(AuthMode::SignedBearerToken),
        shared_secret_file: Some(write(folder.path(), SECRET)),
        ..AuthSettings::default()
    };
    let options = auth(&settings);
    (folder, options)
}

fn token(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &key).expect("claims can be signed")
}

fn in_an_hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 3600
}

#[tokio::test]
async fn a_connection_knows_whom_its_token_names_and_when_it_ends() {
    let (_folder, options) = signed_tokens_only();
    let (mut listener, address) = websocket_listener(options).await;
    let target: Target = format!("ws://{address}").parse().expect("a URL");
    let exp = in_an_hour();
    for (claims, subject) in [(json!({"exp": exp, "sub": "alice"}), "alice"), (json!({"exp": exp}), "")] {
        let options = ConnectOptions { bearer_token: Some(token(&claims)), ..ConnectOptions::default() };
        let (client, server) = tokio::join!(within(connect(&target, &options)), within(listener.accept()));
        let (_client, server) = (client.expect("the token is good"), server.expect("a client"));
        // The clocks may differ by half a minute, and the last second counts.
        let expires = UNIX_EPOCH + std::time::Duration::from_secs(exp + 31);
        assert_eq!((server.identity.subject.as_deref(), server.identity.expires), (Some(subject), Some(expires)));
    }
}

#[tokio::test]
async fn with_a_token_any_host_is_served() {
    let (_folder, options) = signed_tokens_only();
    let (mut listener, address) = websocket_listener(options).await;
    let asking = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!(
            "GET / HTTP/1.1\r\nhost: devbox.example:7000\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nauthorization: Bearer {}\r\n\r\n",
            token(&json!({"exp": in_an_hour()}))
        );
        stream.write_all(request.as_bytes()).await.expect("it reads");
        (read_head(&mut stream).await, stream)
    };
    let ((head, _stream), accepted) = tokio::join!(within(asking), within(listener.accept()));
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    accepted.expect("a client");
}

#[tokio::test]
async fn wrong_tokens_are_slowed_down_and_the_right_one_gets_in() {
    let (_folder, options) = signed_tokens_only();
    slow_down_at("/", options).await;
}

#[tokio::test]
async fn wrong_tokens_are_slowed_down_at_every_path_of_an_app_server() {
    let (_folder, options) = signed_tokens_only();
    slow_down_at("/rpc", ListenOptions { paths: HttpPaths::AppServer, ..options }).await;
}

async fn slow_down_at(path: &str, options: ListenOptions) {
    let wrong = Some("Bearer wrong".to_owned());
    let right = Some(format!("Bearer {}", token(&json!({"exp": in_an_hour()}))));
    let headers: Vec<Option<String>> = (0..7).map(|_| wrong.clone()).chain([right]).collect();
    let begun = tokio::time::Instant::now();
    let answers = answers_at(path, options, &headers).await;
    let mut expected = vec![refused("invalid websocket jwt"); 7];
    expected.push(WELCOME);
    assert_eq!(answers, expected);
    // Two wrong ones and the right one had to wait their turn.
    assert!(begun.elapsed() >= 2 * exec_transport::limits::AUTH_PAUSE);
}
