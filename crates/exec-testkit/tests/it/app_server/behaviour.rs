//! What ours promises beyond Codex: nothing printed is lost, whole trees end, names are free at once, watches go on.

use std::io::Read;
use std::process::Stdio;

use exec_testkit::binaries;
use exec_testkit::os_process::OsProcess;
use exec_testkit::proc_status::resident_bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_tungstenite::tungstenite::Message;

use super::peer::{DEADLINE, Peer, collect_output};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn unconfined(script: &str) -> Value {
    json!({ "command": ["/bin/sh", "-c", script], "sandboxPolicy": { "type": "dangerFullAccess" }, "disableTimeout": true })
}

fn streamed(script: &str) -> Value {
    super::exec_params::merge(
        unconfined(script),
        json!({ "processId": "p", "streamStdoutStderr": true, "disableOutputCap": true }),
    )
}

/// The process whose pid a streamed command has printed as its first line.
async fn printed_process(peer: &mut Peer) -> OsProcess {
    let is_output = |note: &Value| note["params"]["deltaBase64"].is_string();
    let note = peer.note(is_output).await;
    let line = exec_wire::base64::decode(note["params"]["deltaBase64"].as_str().expect("text").as_bytes());
    let line = String::from_utf8(line.expect("it is base64")).expect("a number");
    OsProcess::of(line.trim().parse().expect("a pid")).expect("it runs")
}

/// The client reads nothing until the command has printed everything: what waits is on disk and not in memory, and then
/// all of it comes.
#[tokio::test]
async fn a_hundred_megabytes_are_streamed_to_a_client_that_reads_late() {
    const BYTES: usize = 100_000_000;
    let folder = folder();
    let mut peer = Peer::ours(folder.path()).await;
    let done = folder.path().join("done");
    let made = std::process::Command::new("mkfifo").arg(&done).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo works");
    let id = peer.send("command/exec", streamed(&format!("seq 1 99999999 | head -c {BYTES}; echo > done"))).await;
    let told = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        std::fs::File::open(done).and_then(|mut fifo| fifo.read_to_string(&mut line)).expect("the command opens it");
    });
    told.await.expect("the command comes to its end");
    let held = resident_bytes(peer.pid());
    assert!(held < 64 << 20, "the server holds {held} bytes");
    let mut expected = (1..).flat_map(|number: u64| format!("{number}\n").into_bytes());
    let mut received = 0;
    loop {
        let message = peer.next_message().await.expect("the server is there");
        let Some(delta) = message["params"]["deltaBase64"].as_str() else {
            assert_eq!(message, json!({ "id": id, "result": { "exitCode": 0, "stdout": "", "stderr": "" } }));
            break;
        };
        let bytes = exec_wire::base64::decode(delta.as_bytes()).expect("it is base64");
        assert!(bytes.iter().all(|byte| expected.next() == Some(*byte)), "a difference after byte {received}");
        received += bytes.len();
    }
    assert_eq!(received, BYTES);
}

#[tokio::test]
async fn a_terminated_command_takes_its_descendants_with_it() {
    let folder = folder();
    let mut peer = Peer::ours(folder.path()).await;
    let id = peer.send("command/exec", streamed("setsid sleep 1000 & echo $!; wait")).await;
    let descendant = printed_process(&mut peer).await;
    let answer = peer.call("command/exec/terminate", json!({ "processId": "p" })).await;
    assert_eq!(answer, json!({ "result": {} }));
    descendant.wait_until_gone().await;
    assert_eq!(peer.answer(id).await["result"]["exitCode"], 137);
}

#[tokio::test]
async fn a_time_limit_ends_descendants_too() {
    let folder = folder();
    let mut peer = Peer::ours(folder.path()).await;
    let mut params = streamed("setsid sleep 1000 & echo $!; wait");
    params["disableTimeout"] = json!(false);
    params["timeoutMs"] = json!(500);
    let id = peer.send("command/exec", params).await;
    let descendant = printed_process(&mut peer).await;
    assert_eq!(peer.answer(id).await["result"]["exitCode"], 124);
    descendant.wait_until_gone().await;
}

#[tokio::test]
async fn the_end_of_stdin_ends_the_server_and_every_process() {
    let folder = folder();
    let mut peer = Peer::ours(folder.path()).await;
    peer.send("command/exec", streamed("setsid sleep 1000 & echo $!; wait")).await;
    let descendant = printed_process(&mut peer).await;
    let read = peer.send("fs/readFile", json!({ "path": "/etc/passwd" })).await;
    peer.close_stdin();
    let answer = peer.answer(read).await;
    assert!(answer["result"]["dataBase64"].is_string(), "{answer}");
    let status = tokio::time::timeout(DEADLINE, peer.child.wait()).await.expect("it ends").expect("it was ours");
    assert!(status.success(), "{status}");
    descendant.wait_until_gone().await;
}

#[tokio::test]
async fn a_name_can_be_used_again_as_soon_as_its_end_is_told() {
    let folder = folder();
    let mut peer = Peer::ours(folder.path()).await;
    for number in 0..30 {
        let params = json!({ "command": ["true"], "processHandle": "again", "cwd": "/" });
        assert_eq!(peer.call("process/spawn", params).await, json!({ "result": {} }), "after {number}");
        peer.note(|note| note["method"] == "process/exited").await;
        peer.notes.clear();
    }
}

#[tokio::test]
async fn a_watch_goes_on_when_its_file_is_replaced_or_removed() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, "old").expect("it is ours");
    let mut peer = Peer::ours(folder.path()).await;
    peer.call("fs/watch", json!({ "watchId": "w", "path": path })).await;
    let replace = || {
        let new = folder.path().join("new");
        std::fs::write(&new, "new").and_then(|()| std::fs::rename(&new, &path)).expect("it is ours");
    };
    let remove = || std::fs::remove_file(&path).expect("it is ours");
    let create = || std::fs::write(&path, "again").expect("it is ours");
    let changes: [&dyn Fn(); 5] = [&replace, &replace, &remove, &create, &create];
    for change in changes {
        change();
        let note = peer.note(|note| note["method"] == "fs/changed").await;
        assert_eq!(note["params"], json!({ "watchId": "w", "changedPaths": [path] }));
        peer.notes.clear();
    }
}

/// Codex loses some of them, and refuses others.
#[tokio::test]
async fn two_hundred_commands_and_a_thousand_requests_at_a_time_are_all_answered() {
    let folder = folder();
    let mut peer = Peer::ours(folder.path()).await;
    let mut ids = Vec::new();
    for number in 0..200 {
        let params = super::exec_params::merge(
            unconfined("read line; echo $line"),
            json!({ "processId": format!("{number}"), "streamStdin": true }),
        );
        ids.push(peer.send("command/exec", params).await);
    }
    for number in 0..200 {
        let line = exec_wire::base64::encode(format!("{number}\n").as_bytes());
        peer.send("command/exec/write", json!({ "processId": format!("{number}"), "deltaBase64": line })).await;
    }
    for (number, id) in ids.into_iter().enumerate() {
        let expected = json!({ "result": { "exitCode": 0, "stdout": format!("{number}\n"), "stderr": "" } });
        assert_eq!(peer.answer(id).await, expected);
    }
    let mut ids = Vec::new();
    for _ in 0..1000 {
        ids.push(peer.send("fs/getMetadata", json!({ "path": "/etc" })).await);
    }
    for id in ids {
        assert_eq!(peer.answer(id).await["result"]["isDirectory"], true);
    }
}

#[tokio::test]
async fn a_slow_program_slows_a_fast_writer_and_gets_every_byte() {
    let folder = folder();
    let mut peer = Peer::ours(folder.path()).await;
    let id = peer
        .send("command/exec", super::exec_params::merge(streamed("sleep 0.3; cksum"), json!({ "streamStdin": true })))
        .await;
    let block = exec_wire::base64::encode(&[b'x'; 100_000]);
    let mut writes = Vec::new();
    for _ in 0..100 {
        writes.push(peer.send("command/exec/write", json!({ "processId": "p", "deltaBase64": block })).await);
    }
    for write in writes {
        assert_eq!(peer.answer(write).await, json!({ "result": {} }));
    }
    peer.call("command/exec/write", json!({ "processId": "p", "closeStdin": true })).await;
    assert_eq!(peer.answer(id).await["result"]["exitCode"], 0);
    let output = collect_output(&peer.notes);
    let (text, _) = &output[&("p".to_owned(), "stdout".to_owned())];
    let text = String::from_utf8_lossy(text);
    assert!(text.trim().ends_with(" 10000000"), "{text}");
}

/// A server of ours that has printed its URL.
async fn listening(arguments: &[&str]) -> (tokio::process::Child, String) {
    let mut command = tokio::process::Command::new(binaries::exec_server());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().expect("the server starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    tokio::time::timeout(DEADLINE, stdout.read_line(&mut line)).await.expect("it prints its URL").expect("a pipe");
    (child, line.trim().to_owned())
}

#[tokio::test]
async fn over_websocket_the_end_of_a_connection_ends_its_processes_and_nobody_elses() {
    let (_server, url) = listening(&["app-server", "--listen", "ws://127.0.0.1:0"]).await;
    let mut started = Vec::new();
    for _ in 0..2 {
        let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.expect("it listens");
        let initialize =
            json!({ "id": 1, "method": "initialize", "params": { "clientInfo": { "name": "x", "version": "1" } } });
        let exec = json!({ "id": 2, "method": "command/exec", "params": streamed("echo $$; exec sleep 1000") });
        for message in [initialize, exec] {
            socket.send(Message::text(message.to_string())).await.expect("it reads");
        }
        let process = loop {
            let message = socket.next().await.expect("it is open").expect("a message");
            let message: Value = serde_json::from_str(message.to_text().expect("text")).expect("JSON");
            if let Some(delta) = message["params"]["deltaBase64"].as_str() {
                let pid = exec_wire::base64::decode(delta.as_bytes()).expect("it is base64");
                let pid = String::from_utf8_lossy(&pid).trim().parse().expect("a pid");
                break OsProcess::of(pid).expect("it runs");
            }
        };
        started.push((socket, process));
    }
    let (second, of_second) = started.pop().expect("there are two");
    let (_first, of_first) = started.pop().expect("there are two");
    drop(second);
    of_second.wait_until_gone().await;
    assert!(of_first.is_alive());
}

#[tokio::test]
async fn another_machine_can_stand_behind_it_and_others_can_be_added() {
    let state = folder();
    let (_far, url) = listening(&["serve", "--listen", "ws://127.0.0.1:0"]).await;
    let (_server, own_url) = listening(&["app-server", "--listen", "ws://127.0.0.1:0", "--connect", &url]).await;
    let (mut socket, _) = tokio_tungstenite::connect_async(&own_url).await.expect("it listens");
    let capabilities = json!({ "experimentalApi": true });
    let file = state.path().join("file");
    let requests = [
        ("initialize", json!({ "clientInfo": { "name": "x", "version": "1" }, "capabilities": capabilities })),
        (
            "command/exec",
            super::exec_params::merge(unconfined("echo $A $B; exit 3"), json!({ "env": { "A": "a", "B": null } })),
        ),
        ("fs/writeFile", json!({ "path": file, "dataBase64": "eA==" })),
        ("fs/readFile", json!({ "path": file })),
        ("environment/add", json!({ "environmentId": "far", "execServerUrl": url })),
        ("environment/info", json!({ "environmentId": "far" })),
        ("environment/status", json!({ "environmentId": "far" })),
    ];
    let mut results = Vec::new();
    for (id, (method, params)) in requests.into_iter().enumerate() {
        let request = json!({ "id": id, "method": method, "params": params });
        socket.send(Message::text(request.to_string())).await.expect("it reads");
        let answer = socket.next().await.expect("it is open").expect("a message");
        let answer: Value = serde_json::from_str(answer.to_text().expect("text")).expect("JSON");
        results.push(answer["result"].clone());
    }
    assert_eq!(results[1], json!({ "exitCode": 3, "stdout": "a\n", "stderr": "" }));
    assert_eq!(results[2..5], [json!({}), json!({ "dataBase64": "eA==" }), json!({})]);
    assert!(results[5]["shell"]["path"].is_string(), "{}", results[5]);
    assert_eq!(results[6], json!({ "status": "ready" }));
}

#[tokio::test]
async fn an_environment_whose_server_has_forgotten_us_says_so_and_is_connected_again_by_asking_for_it() {
    let home = folder();
    let (mut far, url) = listening(&["serve", "--listen", "ws://127.0.0.1:0"]).await;
    let mut peer = Peer::ours(home.path()).await;
    let id = json!({ "environmentId": "far" });
    peer.call("environment/add", json!({ "environmentId": "far", "execServerUrl": url })).await;
    let known = peer.call("environment/info", id.clone()).await;
    assert!(known["result"]["shell"]["path"].is_string(), "{known}");
    far.kill().await.expect("it is ours");
    let (_far, _) = listening(&["serve", "--listen", &url]).await;
    let lost = async {
        loop {
            let status = peer.call("environment/status", id.clone()).await;
            let error = status["result"]["error"].as_str().unwrap_or_default().to_owned();
            if error.starts_with("exec-server transport disconnected: ") {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    let status = tokio::time::timeout(DEADLINE, lost).await.expect("it is told");
    assert_eq!(status["result"]["status"], "disconnected");
    assert_eq!(peer.call("environment/info", id.clone()).await, known);
    assert_eq!(peer.call("environment/status", id).await["result"], json!({ "status": "ready" }));
}
