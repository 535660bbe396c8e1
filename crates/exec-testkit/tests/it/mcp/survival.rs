//! Tasks: each is a process, and outlives everybody who asks for it.

use serde_json::{Value, json};

use super::protocol::{semaphore, waiting_command};
use super::server::{Account, McpProcess, Protocol};
use crate::durability::support::run;

async fn start_task(server: &mut McpProcess, mut arguments: Value) -> String {
    arguments["yield_time_ms"] = json!(250);
    arguments["login"] = json!(false);
    let answer = server.request("tools/call", json!({"name": "exec_command", "arguments": arguments})).await;
    let result = &answer["result"];
    assert_eq!((&result["resultType"], &result["status"]), (&json!("task"), &json!("working")), "{answer}");
    result["taskId"].as_str().expect("it has an id").to_owned()
}

async fn task(server: &mut McpProcess, id: &str) -> Value {
    server.request("tasks/get", json!({"taskId": id})).await["result"].clone()
}

/// The task at its end. Waiting is done by the tool, not by asking again and again.
async fn ended_task(server: &mut McpProcess, id: &str) -> Value {
    let session: u64 = id.split('-').nth(1).and_then(|number| number.parse().ok()).expect("the id has the number");
    server.call("wait_for", json!({"session_id": session, "until": "closed", "timeout_ms": 100_000})).await;
    task(server, id).await
}

fn assert_whole(ended: &Value) {
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["result"]["structuredContent"]["output"], "begin\nend\n");
    assert_eq!(ended["result"]["structuredContent"]["exit_code"], 7);
}

#[test]
fn a_task_outlives_its_client_its_server_and_the_daemon() {
    run(async {
        let account = Account::new();
        let semaphore = semaphore(&account);
        let mut server = account.start(Protocol::Stateless, true).await;
        let id = start_task(&mut server, json!({"cmd": waiting_command(&semaphore)})).await;
        server.leave().await;

        let mut server = account.start(Protocol::Handshake("2025-11-25"), true).await;
        assert_eq!(task(&mut server, &id).await["status"], "working", "after the client's exit");
        server.kill().await;

        let mut server = account.start(Protocol::Stateless, true).await;
        assert_eq!(task(&mut server, &id).await["status"], "working", "after the server was killed");
        account.kill_daemon().await;
        assert_eq!(task(&mut server, &id).await["status"], "working", "after the daemon was killed");

        account.kill_daemon().await;
        server.kill().await;
        semaphore.release();
        let mut server = account.start(Protocol::Stateless, true).await;
        assert_whole(&ended_task(&mut server, &id).await);
        server.leave().await;
        let mut server = account.start(Protocol::Stateless, true).await;
        assert_whole(&task(&mut server, &id).await);
        server.leave().await;
    });
}

#[test]
fn a_task_takes_input_and_can_be_cancelled() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, true).await;
        let id = start_task(&mut server, json!({"cmd": "read line; echo \"<$line>\"; exit 5", "stdin": true})).await;
        let refused = server.request("tasks/update", json!({"taskId": id, "inputResponses": {"other": "x"}})).await;
        assert_eq!(refused["error"]["code"], -32602);
        let taken = server.request("tasks/update", json!({"taskId": id, "inputResponses": {"stdin": "hello\n"}})).await;
        assert_eq!(taken["result"]["resultType"], "complete", "{taken}");
        let ended = ended_task(&mut server, &id).await;
        assert_eq!(ended["result"]["structuredContent"]["output"], "<hello>\n");
        assert_eq!(ended["result"]["structuredContent"]["exit_code"], 5);

        let id = start_task(&mut server, json!({"cmd": "exec cat", "stdin": true})).await;
        let cancelled = server.request("tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(cancelled["result"]["resultType"], "complete", "{cancelled}");
        assert_eq!(task(&mut server, &id).await["status"], "cancelled");
        let unknown = server.request("tasks/get", json!({"taskId": "exec-1234-nobody"})).await;
        assert_eq!(unknown["error"]["code"], -32602);
        server.leave().await;
    });
}

#[test]
fn without_the_extension_or_on_a_terminal_there_are_sessions_and_no_tasks() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let started = server.call("exec_command", json!({"cmd": "cat", "stdin": true, "yield_time_ms": 250})).await;
        assert_eq!(started["status"], "running");
        let refused = server.request("tasks/get", json!({"taskId": "x"})).await;
        assert_eq!(refused["error"]["code"], -32021, "the client has not said that it knows tasks: {refused}");
        server.leave().await;
        let mut server = account.start(Protocol::Stateless, true).await;
        let started = server.call("exec_command", json!({"cmd": "cat", "tty": true, "yield_time_ms": 250})).await;
        assert_eq!(started["status"], "running");
        server.leave().await;
    });
}
