//! Tasks: each is a process, and outlives everybody who asks for it.

use std::time::Duration;

use exec_testkit::semaphore::FifoSemaphore;
use serde_json::{Value, json};

use super::protocol::{semaphore, waiting_command};
use super::server::{Account, McpProcess, Protocol};
use crate::durability::support::{DEADLINE, number_from_env, run, run_for};

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

/// What a session has printed, page by page, as a model reads it.
async fn whole_output(server: &mut McpProcess, id: &str) -> String {
    const PAGE_TOKENS: usize = 200_000;
    let session: u64 = id.split('-').nth(1).and_then(|number| number.parse().ok()).expect("the id has the number");
    let mut next = json!({"session_id": session, "from_seq": 1, "max_output_tokens": PAGE_TOKENS});
    let mut whole = String::new();
    loop {
        let page = server.call("read_output", next.clone()).await;
        let text = page["output"].as_str().expect("it is a text");
        let left_out = &page["left_out"];
        if left_out.is_null() {
            return whole + text;
        }
        // A token counts as four bytes. What follows them is the line that says what is left out.
        whole += &text[..PAGE_TOKENS * 4];
        (next["from_seq"], next["skip_bytes"]) = (left_out["from_seq"].clone(), left_out["skip_bytes"].clone());
    }
}

/// `cargo xtask soak` sets `EXEC_LONG_TASK_SECONDS`, so that the task goes on for eleven minutes without anybody.
#[test]
fn a_task_of_minutes_is_found_whole_when_everybody_who_asked_for_it_is_gone() {
    let seconds = number_from_env("EXEC_LONG_TASK_SECONDS").unwrap_or(2);
    run_for(DEADLINE + Duration::from_secs(2 * seconds), async move {
        let account = Account::new();
        let end = account.path().join("end");
        let made = std::process::Command::new("mkfifo").arg(&end).status().expect("every machine has it");
        assert!(made.success());
        let command = format!(
            "seq 1 1000000 | head -c 5242880; for i in $(seq 1 {seconds}); do echo tick $i; sleep 1; done; \
             echo ended > {}; exit 7",
            end.display()
        );
        let mut expected: String = (1..=1_000_000).map(|number| format!("{number}\n")).collect();
        expected.truncate(5_242_880);
        expected.extend((1..=seconds).map(|number| format!("tick {number}\n")));

        let mut server = account.start(Protocol::Stateless, true).await;
        let id = start_task(&mut server, json!({"cmd": command})).await;
        server.leave().await;
        let mut server = account.start(Protocol::Stateless, true).await;
        assert_eq!(task(&mut server, &id).await["status"], "working");
        server.kill().await;
        account.kill_daemon().await;
        let ended = tokio::task::spawn_blocking(move || std::fs::read_to_string(end)).await.expect("it does not panic");
        assert_eq!(ended.expect("it can be read"), "ended\n");

        // Then also after the death of those who have seen it.
        for _ in 0..2 {
            let mut server = account.start(Protocol::Handshake("2025-11-25"), true).await;
            let found = ended_task(&mut server, &id).await;
            let exit_code = &found["result"]["structuredContent"]["exit_code"];
            assert_eq!((&found["status"], exit_code), (&json!("completed"), &json!(7)), "{:.500}", found.to_string());
            let whole = whole_output(&mut server, &id).await;
            assert!(whole == expected, "{} bytes of {}", whole.len(), expected.len());
            server.kill().await;
            account.kill_daemon().await;
        }
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
fn a_task_tells_of_input_that_failed_when_it_was_taken() {
    run(async {
        let account = Account::new();
        let (close, end) = (semaphore(&account), FifoSemaphore::new(account.path().join("end")));
        let wait = |semaphore: &FifoSemaphore| format!("head -c 1 {} > /dev/null", semaphore.path().display());
        let cmd = format!("{}; exec <&-; {}; exit 5", wait(&close), wait(&end));
        let mut server = account.start(Protocol::Stateless, true).await;
        let id = start_task(&mut server, json!({"cmd": cmd, "stdin": true})).await;
        let much = json!({"taskId": id, "inputResponses": {"stdin": "x".repeat(1 << 20)}});
        let taken = server.request("tasks/update", much).await;
        assert_eq!(taken["result"]["resultType"], "complete", "it waits for the program: {taken}");
        let failed = |task: &Value| {
            let told = task["statusMessage"].as_str().expect("there is a message");
            told.contains("what was typed before failed") && told.contains("stdin is closed")
        };
        assert!(!failed(&task(&mut server, &id).await), "it may still be read");
        close.release();
        while !failed(&task(&mut server, &id).await) {}
        assert!(failed(&task(&mut server, &id).await), "whoever asks is told");
        end.release();
        loop {
            let asked = task(&mut server, &id).await;
            assert!(failed(&asked), "{asked}");
            if asked["status"] == "completed" {
                let note = asked["result"]["structuredContent"]["note"].as_str().expect("there is a note");
                assert!(note.contains("what was typed before failed"), "{asked}");
                break;
            }
        }
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
