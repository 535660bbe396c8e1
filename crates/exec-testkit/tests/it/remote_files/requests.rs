//! HTTP from the far end, and the discovery of skills and plugins.

use std::path::Path;

use exec_env::http::{HttpError, HttpRequest, Redirects, RequestHeader};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

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
