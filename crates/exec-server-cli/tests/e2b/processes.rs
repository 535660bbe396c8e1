//! Processes on the wire: what no SDK shows.

use exec_testkit::os_process::OsProcess;
use serde_json::{Value, json};

use crate::raw_client::shell;
use crate::support::Account;

fn pid_of(start: &Value) -> u32 {
    let pid = start["event"]["start"]["pid"].as_u64().unwrap_or_else(|| panic!("no start: {start}"));
    u32::try_from(pid).expect("a pid")
}

fn output(bytes: &str) -> Value {
    json!({ "event": { "data": { "stdout": base64_simd::STANDARD.encode_to_string(bytes) } } })
}

#[tokio::test]
async fn a_stream_begins_with_the_pid_and_ends_with_the_exit() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let answer = server.stream("process.Process/Start", &[], shell("echo a; exit 3")).await;
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (200, "application/connect+json"));
    let messages = answer.messages();
    pid_of(&messages[0]);
    let end = json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" });
    assert_eq!(messages[1..], [output("a\n"), json!({ "event": { "end": end } }), json!({})]);
}

#[tokio::test]
async fn a_process_outlives_its_broken_stream_and_is_replayed_from_its_first_byte() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let mut stream = server.open_stream("process.Process/Start", &[], shell("echo first; cat; exit 4")).await;
    let pid = pid_of(&stream.next().await);
    assert_eq!(stream.next().await, output("first\n"));
    drop(stream);
    let input = json!({ "process": { "pid": pid }, "input": { "stdin": "c2Vjb25kCg" } });
    assert_eq!(server.call("process.Process/SendInput", input).await.status, 200);
    let closed = server.call("process.Process/CloseStdin", json!({ "process": { "pid": pid } })).await;
    assert_eq!(closed.status, 200, "{}", closed.text());
    let replayed = server.stream("process.Process/Connect", &[], json!({ "process": { "pid": pid } })).await.messages();
    assert_eq!(replayed[0], json!({ "event": { "start": { "pid": pid } } }));
    assert_eq!(replayed[1..3], [output("first\n"), output("second\n")]);
    assert_eq!(replayed[3]["event"]["end"]["exitCode"], 4);
}

#[tokio::test]
async fn the_deadline_of_a_start_ends_the_tree_and_that_of_a_connect_only_the_stream() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let limit = [("Connect-Timeout-Ms", "300")];
    let start = server.stream("process.Process/Start", &limit, shell("sleep 1000 & sleep 1000")).await.messages();
    let process = OsProcess::of(pid_of(&start[0]));
    assert_eq!(start.last().expect("it ends")["error"]["code"], "deadline_exceeded");
    assert!(process.is_none_or(|process| !process.is_alive()), "it was ended");

    let mut other = server.open_stream("process.Process/Start", &[], shell("sleep 1000")).await;
    let pid = pid_of(&other.next().await);
    let connected = server.stream("process.Process/Connect", &limit, json!({ "process": { "pid": pid } })).await;
    assert_eq!(connected.messages().last().expect("it ends")["error"]["code"], "deadline_exceeded");
    let process = OsProcess::of(pid).expect("it goes on");
    let killed = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(server.call("process.Process/SendSignal", killed.clone()).await.status, 200);
    process.wait_until_gone().await;
    let again = server.call("process.Process/SendSignal", killed).await;
    assert_eq!((again.status, again.json()["code"].as_str()), (404, Some("not_found")));
}

#[tokio::test]
async fn a_silent_stream_says_that_it_lives() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let every_second = [("Keepalive-Ping-Interval", "1")];
    let mut stream = server.open_stream("process.Process/Start", &every_second, shell("sleep 1000")).await;
    let pid = pid_of(&stream.next().await);
    assert_eq!(stream.next().await, json!({ "event": { "keepalive": {} } }));
    let term = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGTERM" });
    assert_eq!(server.call("process.Process/SendSignal", term).await.status, 200);
    let end = loop {
        match stream.next().await {
            keepalive if keepalive["event"]["keepalive"].is_object() => {}
            other => break other,
        }
    };
    assert_eq!(
        end["event"]["end"],
        json!({ "exitCode": -1, "status": "signal: terminated", "error": "signal: terminated" })
    );
}

#[tokio::test]
async fn a_tag_finds_the_process_that_runs() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let mut start = shell("cat");
    start["tag"] = json!("mine");
    let mut stream = server.open_stream("process.Process/Start", &[], start).await;
    let pid = pid_of(&stream.next().await);
    let listed = server.call("process.Process/List", json!({})).await.json();
    assert_eq!(listed["processes"][0]["tag"], "mine");
    assert_eq!(listed["processes"][0]["pid"], pid);
    let closed = server.call("process.Process/CloseStdin", json!({ "process": { "tag": "mine" } })).await;
    assert_eq!(closed.status, 200);
    assert_eq!(stream.next().await["event"]["end"]["exited"], true);
    let unknown = server.call("process.Process/CloseStdin", json!({ "process": { "tag": "other" } })).await;
    assert_eq!(unknown.json()["code"], "not_found");
}

#[tokio::test]
async fn a_confined_sandbox_writes_its_home_and_sees_nothing_of_the_others() {
    let account = Account::new();
    let server = account.start(&["--sandbox", "workspace-write", "--network"]).await;
    let tokens = account.path().join("state/e2b");
    let outside = account.path().join("outside");
    let script = format!(
        "echo x > mine && echo wrote; echo x > {} 2>/dev/null || echo kept; cat {}/api-key 2>/dev/null || echo hidden",
        outside.display(),
        tokens.display()
    );
    let messages = server.stream("process.Process/Start", &[], shell(&script)).await.messages();
    let text: String = messages
        .iter()
        .filter_map(|message| message["event"]["data"]["stdout"].as_str())
        .map(|encoded| String::from_utf8(base64_simd::STANDARD.decode_to_vec(encoded).expect("base64")).expect("text"))
        .collect();
    // The temporary folder of the test is below /tmp, which may be written; the account's own state may not be read.
    assert!(text.starts_with("wrote\n") && text.ends_with("hidden\n"), "{text}: {messages:?}");
    let path = tokens.join("api-key");
    let read = crate::raw_client::request(&server.envd, &format!("GET /files?path={}", path.display()), &[], b"").await;
    assert!(matches!(read.status, 403 | 404), "{}: {}", read.status, read.text());
}

#[tokio::test]
async fn sandboxes_are_made_at_another_server() {
    let account = Account::new();
    let socket = account.path().join("far.sock");
    let url = format!("unix://{}", socket.display());
    let mut far = tokio::process::Command::new(exec_testkit::binaries::exec_server());
    far.args(["serve", "--listen", &url]).current_dir(account.path()).kill_on_drop(true);
    let mut far = far.stdout(std::process::Stdio::null()).spawn().expect("it starts");
    exec_testkit::os_process::eventually("it listens", || socket.exists()).await;
    let homes = account.path().join("homes");
    let server = account.start(&["--connect", &url, "--homes", homes.to_str().expect("plain")]).await;
    let messages = server.stream("process.Process/Start", &[], shell("pwd")).await.messages();
    let home = homes.join("debug_sandbox_id");
    assert_eq!(messages[1], output(&format!("{}\n", home.display())));
    assert!(!account.path().join("state/daemon").exists(), "no server of the account was started");
    drop(server);
    far.kill().await.expect("it is ours");
}
