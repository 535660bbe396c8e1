//! HTTP from the far end, and the discovery of skills and plugins.

use std::path::Path;
use std::time::Duration;

use exec_env::http::{HttpError, HttpRequest, Redirects, RequestHeader};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::plain_client::{PlainClient, uri};
use crate::durability::support::run;
use crate::remote;

fn get(url: String) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        url,
        headers: Vec::new(),
        body: None,
        timeout: None,
        redirects: Redirects::Follow,
    }
}

/// Answers one connection after another with `answer`, whatever is asked; what it listens on.
async fn answering(answer: Vec<u8>) -> (String, tokio::task::JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") && stream.read_buf(&mut asked).await.is_ok_and(|got| got > 0) {}
            // A client that goes away early is one of the cases.
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
        }
    });
    (format!("http://{address}/"), tasks)
}

#[test]
fn a_large_body_arrives_whole_and_in_order() {
    run(async {
        let body: Vec<u8> = (0..8_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut answer = format!("HTTP/1.1 404 Not Found\r\nX-Case: Kept\r\nContent-Length: {}\r\n\r\n", body.len());
        answer.push_str("");
        let answer = [answer.into_bytes(), body.clone()].concat();
        let (url, _server) = answering(answer).await;
        for env in [remote::over_memory().await, remote::over_websocket().await] {
            let response = env.environment.http().request(get(url.clone())).await.expect("it answers");
            assert_eq!(response.status, 404);
            assert!(response.headers.contains(&("x-case".to_owned(), "Kept".to_owned())), "{:?}", response.headers);
            let (mut arriving, mut arrived) = (response.body, Vec::new());
            while let Some(bytes) = arriving.next().await.expect("the server is there") {
                arrived.extend_from_slice(&bytes);
            }
            assert!(arrived == body);
            assert_eq!(arriving.next().await, Ok(None));
        }
    });
}

#[test]
fn a_request_fails_in_the_same_words_as_on_the_spot() {
    run(async {
        let near = crate::environments::keeper_as_thread().await;
        let far = remote::over_memory().await;
        let header = |variable: &str| RequestHeader {
            name: "authorization".to_owned(),
            value: "Bearer ".to_owned(),
            value_env_var: Some(variable.to_owned()),
        };
        let with = |header| HttpRequest { headers: vec![header], ..get("http://127.0.0.1:1/".to_owned()) };
        for request in [
            get("ftp://host/".to_owned()),
            get("no url".to_owned()),
            HttpRequest { method: "no token".to_owned(), ..get("http://127.0.0.1:1/".to_owned()) },
            with(header("OPENAI_API_KEY")),
            with(header("EXEC_TEST_NOT_SET")),
            get("http://127.0.0.1:1/".to_owned()),
        ] {
            let here = near.environment.http().request(request.clone()).await.expect_err("it cannot work");
            let there = far.environment.http().request(request).await.expect_err("it cannot work");
            assert_eq!(here, there);
        }
    });
}

#[test]
fn a_body_that_breaks_off_is_told() {
    run(async {
        let (url, _server) = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec()).await;
        let env = remote::over_memory().await;
        let response = env.environment.http().request(get(url)).await.expect("the head is there");
        let mut body = response.body;
        let broken = loop {
            match body.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("half of it is missing"),
                Err(error) => break error,
            }
        };
        assert!(matches!(broken, HttpError::Body { .. }), "{broken}");
    });
}

/// A web server that sends a body without end, `piece` after `piece`, to the one client that it has.
struct EndlessOrigin {
    url: String,
    /// Bytes of the body that its socket has taken.
    written: watch::Receiver<u64>,
    /// Ends when the client has gone away.
    client_gone: tokio::task::JoinHandle<()>,
}

impl EndlessOrigin {
    async fn start(piece: Vec<u8>, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let (counted, written) = watch::channel(0);
        let client_gone = tokio::spawn(async move {
            let mut stream = asked(&listener).await;
            stream.set_nodelay(true).expect("it is connected");
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("the client is there");
            while stream.write_all(&piece).await.is_ok() {
                counted.send_modify(|bytes| *bytes += piece.len() as u64);
                // not a wait: pieces that come one by one are the subject.
                tokio::time::sleep(pause).await;
            }
        });
        Self { url, written, client_gone }
    }

    async fn wait_until_written(&mut self, bytes: u64) {
        self.written.wait_for(|written| *written >= bytes).await.expect("its client is there");
    }

    /// Waits until nothing has been taken from it for a while.
    async fn wait_until_stalled(&mut self) -> u64 {
        self.wait_until_written(1).await;
        while tokio::time::timeout(Duration::from_millis(500), self.written.changed()).await.is_ok() {}
        *self.written.borrow()
    }
}

/// The next connection, when its request was read.
async fn asked(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.expect("it listens");
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut asked).await.expect("the client is there"), 0, "it goes too early");
    }
    stream
}

#[test]
fn a_body_waits_for_its_reader_and_nothing_of_it_is_lost() {
    run(async {
        // Large pieces fill the window by their bytes, small ones by their number.
        for (piece_bytes, pause) in [(1_usize << 20, Duration::ZERO), (7, Duration::from_micros(100))] {
            let piece: Vec<u8> = (0..piece_bytes).map(|at| (at % 251) as u8).collect();
            for env in [remote::over_memory().await, remote::over_websocket().await] {
                let mut origin = EndlessOrigin::start(piece.clone(), pause).await;
                let response = env.environment.http().request(get(origin.url.clone())).await.expect("it answers");
                let mut body = response.body;
                // Small pieces are put together by the sockets in between, which takes megabytes of them to fill: so many
                // pieces that no queue of ours would have taken them are enough.
                let enough = match piece_bytes {
                    7 => {
                        origin.wait_until_written(7 * 4096).await;
                        7 * 4096
                    }
                    _ => origin.wait_until_stalled().await + (8 << 20),
                };
                let mut at = 0;
                while at < enough {
                    let bytes = body.next().await.expect("the reader may be slow").expect("it has no end");
                    for byte in bytes {
                        assert_eq!(byte, piece[(at % piece_bytes as u64) as usize], "byte {at}");
                        at += 1;
                    }
                }
            }
        }
    });
}

#[test]
fn a_window_of_64_mib_is_taken_and_a_larger_one_is_refused_before_anything_is_asked() {
    run(async {
        let (url, _server) = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()).await;
        let mut client = PlainClient::connected().await;
        let request = |url: &str, bytes: u64| json!({"method": "GET", "url": url, "requestId": "r", "streamResponse": true, "bodyWindowBytes": bytes});
        // Nobody listens at this address: an error about the window shows that it was judged first.
        let refused = client.call("http/request", request("http://127.0.0.1:9/", (64 << 20) + 1)).await;
        let text = "bodyWindowBytes is 67108865: at most 67108864 are allowed";
        assert_eq!(refused, json!([-32602, text]));
        let taken = client.call("http/request", request(&url, 64 << 20)).await;
        assert_eq!(taken["status"], 200, "{taken}");
    });
}

#[test]
fn a_request_ends_with_the_last_who_wants_its_body() {
    run(async {
        for env in [remote::over_memory().await, remote::over_websocket().await] {
            let origin = EndlessOrigin::start(vec![b'x'; 1000], Duration::from_millis(1)).await;
            let mut response = env.environment.http().request(get(origin.url.clone())).await.expect("it answers");
            response.body.next().await.expect("it has begun");
            drop(response);
            origin.client_gone.await.expect("the request has ended there");
        }
    });
}

#[test]
fn a_request_ends_with_the_last_who_waits_for_its_response() {
    run(async {
        for env in [remote::over_memory().await, remote::over_websocket().await] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
            let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
            let mut stream = tokio::select! {
                _ = env.environment.http().request(get(url)) => panic!("nobody answers"),
                stream = asked(&listener) => stream,
            };
            let rest = stream.read_to_end(&mut Vec::new()).await;
            assert!(matches!(rest, Ok(0) | Err(_)), "the client has gone away");
        }
    });
}

fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().expect("it is below the root")).expect("the folder is ours");
    std::fs::write(path, text).expect("the folder is ours");
}

#[test]
fn skills_and_plugins_are_found_as_the_original_finds_them() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = std::fs::canonicalize(folder.path()).expect("it is there");
        let manifest = r#"{"mcpServers":"./m.json","apps":"a.json"}"#;
        put(&root, "plug/.codex-plugin/plugin.json", manifest);
        put(&root, "plug/.claude-plugin/plugin.json", "{}");
        put(&root, "plug/m.json", "{}");
        put(&root, "plug/.app.json", "[]");
        put(&root, "plug/skills/s/SKILL.md", "# s");
        put(&root, "plug/skills/s/agents/openai.yaml", "y: 1");
        put(&root, "plug/SKILL.md", "root");
        let mut client = PlainClient::connected().await;
        let file = |name: &str, text: &str| json!({"path": uri(&root.join(name)), "contents": text});
        let own = file("plug/.codex-plugin/plugin.json", manifest);
        let skill = json!({
            "instructions": file("plug/skills/s/SKILL.md", "# s"),
            "metadata": file("plug/skills/s/agents/openai.yaml", "y: 1"),
        });
        let (plug, skills, missing) = (root.join("plug"), root.join("plug/skills"), root.join("missing"));
        let asked = json!({"roots": [
            {"id": "1", "path": uri(&plug)}, {"id": "2", "path": uri(&skills)}, {"id": "3", "path": uri(&missing)},
        ]});
        let warning = format!("ignoring apps in {}: path must start with `./`", own["path"].as_str().expect("a URI"));
        let gone = format!(
            "failed to inspect capability root file://{}: No such file or directory (os error 2)",
            missing.display()
        );
        let expected = json!({"roots": [
            {"id": "1", "path": uri(&plug),
             "plugin": {"manifest": own, "mcpConfig": file("plug/m.json", "{}"), "appsConfig": file("plug/.app.json", "[]")},
             "skills": [{"instructions": file("plug/SKILL.md", "root"), "metadata": null}, skill],
             "namespaceManifests": [own], "warnings": [warning], "error": null},
            {"id": "2", "path": uri(&skills), "plugin": null, "skills": [skill],
             "namespaceManifests": [own], "warnings": [], "error": null},
            {"id": "3", "path": uri(&missing), "plugin": null, "skills": [], "namespaceManifests": [],
             "warnings": [], "error": gone},
        ]});
        assert_eq!(client.call("capabilityRoots/discoverV1", asked).await, expected);
    });
}
