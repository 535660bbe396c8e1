//! What is there after `kill -9` of `exec-server e2b`: all of it.

use exec_testkit::os_process::OsProcess;
use serde_json::json;

use crate::raw_client::{envelope, request, shell};
use crate::support::Account;

#[tokio::test]
async fn a_killed_server_loses_no_sandbox_no_process_and_no_byte() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let created =
        server.api("POST /v2/sandboxes", json!({ "templateID": "base", "metadata": { "k": "v" } })).await.json();
    let (id, token) =
        (created["sandboxID"].as_str().expect("an id"), created["envdAccessToken"].as_str().expect("a token"));
    let headers = [("E2b-Sandbox-Id", id), ("X-Access-Token", token)];
    let mut stream = server.open_stream("process.Process/Start", &headers, shell("echo before; cat; exit 6")).await;
    let pid = stream.next().await["event"]["start"]["pid"].as_u64().expect("a pid");
    stream.next().await;
    let written = request(&server.envd, "POST /files?path=kept", &headers, b"content").await;
    assert_eq!(written.status, 200);
    let (old_key, debug) = (server.key.clone(), server.call("process.Process/List", json!({})).await);
    assert_eq!(debug.status, 200);
    server.kill().await;

    let server = account.start(&[]).await;
    assert_eq!(server.key, old_key, "clients keep their key");
    let listed = server.api("GET /v2/sandboxes", json!(null)).await.json();
    let found = listed.as_array().expect("a list").iter().find(|sandbox| sandbox["sandboxID"] == id);
    assert_eq!(found.expect("it is there")["metadata"], json!({ "k": "v" }));
    let unary = [headers[0], headers[1], ("Content-Type", "application/json")];
    let input =
        json!({ "process": { "pid": pid }, "input": { "stdin": base64_simd::STANDARD.encode_to_string("after\n") } });
    let sent = request(&server.envd, "POST /process.Process/SendInput", &unary, input.to_string().as_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let selector = json!({ "process": { "pid": pid } }).to_string();
    assert_eq!(
        request(&server.envd, "POST /process.Process/CloseStdin", &unary, selector.as_bytes()).await.status,
        200
    );
    let streamed = [headers[0], headers[1], ("Content-Type", "application/connect+json")];
    let body = envelope(selector.as_bytes());
    let messages = request(&server.envd, "POST /process.Process/Connect", &streamed, &body).await.messages();
    let output = |text| json!({ "event": { "data": { "stdout": base64_simd::STANDARD.encode_to_string(text) } } });
    assert_eq!(messages[1..3], [output("before\n"), output("after\n")]);
    assert_eq!(messages[3]["event"]["end"]["exitCode"], 6);
    assert_eq!(request(&server.envd, "GET /files?path=kept", &headers, b"").await.text(), "content");
}

#[tokio::test]
async fn a_sandbox_whose_time_is_over_while_nobody_serves_it_is_ended_by_the_next_server() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let created = server.api("POST /v2/sandboxes", json!({ "templateID": "base", "timeout": 600 })).await.json();
    let (id, token) =
        (created["sandboxID"].as_str().expect("an id"), created["envdAccessToken"].as_str().expect("a token"));
    let headers = [("E2b-Sandbox-Id", id), ("X-Access-Token", token)];
    let mut stream = server.open_stream("process.Process/Start", &headers, shell("sleep 100000")).await;
    let pid = stream.next().await["event"]["start"]["pid"].as_u64().expect("a pid");
    let process = OsProcess::of(u32::try_from(pid).expect("a pid")).expect("it runs");
    let home = account.path().join("state/e2b/homes").join(id);
    assert!(home.is_dir());
    server.kill().await;
    assert!(process.is_alive(), "it outlives the server");
    // As if that time had passed.
    let record = account.path().join("state/e2b/sandboxes").join(format!("{id}.json"));
    let mut written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&record).expect("it is written down")).expect("it is JSON");
    written["endMs"] = json!(1);
    std::fs::write(&record, written.to_string()).expect("it is ours");

    let server = account.start(&[]).await;
    process.wait_until_gone().await;
    exec_testkit::os_process::eventually("its home and its record are gone", || !home.exists() && !record.exists())
        .await;
    assert_eq!(request(&server.envd, "GET /health", &headers, b"").await.status, 502);
    assert_eq!(server.api("GET /v2/sandboxes", json!(null)).await.json(), json!([]));
}

#[tokio::test]
async fn two_servers_do_not_share_their_sandboxes() {
    let account = Account::new();
    let _server = account.start(&[]).await;
    let mut second = std::process::Command::new(exec_testkit::binaries::exec_server());
    second.args(["e2b", "--listen-envd", "127.0.0.1:0", "--listen-api", "127.0.0.1:0"]);
    second.env("EXEC_SERVER_HOME", account.path().join("state"));
    let refused = second.output().expect("it runs");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("another exec-server e2b") && said.contains("--state-dir"), "{said}");
}
