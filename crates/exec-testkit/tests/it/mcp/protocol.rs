//! What the server says, in each version of the protocol.

use exec_testkit::semaphore::FifoSemaphore;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::server::{ALL, Account, McpProcess, Protocol};
use crate::durability::support::run;

const LATEST: Protocol = Protocol::Stateless;
const TOOLS: [&str; 6] = ["exec_command", "write_stdin", "wait_for", "read_output", "list_sessions", "kill_session"];

/// A command that prints `begin`, waits for the semaphore, prints `end`, and exits with 7.
pub(super) fn waiting_command(semaphore: &FifoSemaphore) -> String {
    format!("echo begin; head -c 1 {} > /dev/null; echo end; exit 7", semaphore.path().display())
}

pub(super) fn semaphore(account: &Account) -> FifoSemaphore {
    FifoSemaphore::new(account.path().join("semaphore"))
}

#[test]
fn every_version_lists_the_tools_with_hints_and_schemas_and_runs_them() {
    run(async {
        let account = Account::new();
        for protocol in ALL {
            let mut server = account.start(protocol, false).await;
            let listed = server.request("tools/list", json!({})).await;
            let tools = listed["result"]["tools"].as_array().expect("they are listed").clone();
            let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
            assert!(TOOLS.iter().all(|tool| names.contains(tool)), "{names:?}");
            for tool in &tools {
                for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
                    assert!(tool["annotations"][hint].is_boolean(), "{hint} of {tool}");
                }
                assert_eq!(tool["inputSchema"]["type"], "object");
                // An image is shown without a structure; see the test of it.
                let is_image = tool["name"] == "view_image";
                assert_eq!(tool["outputSchema"]["type"], if is_image { Value::Null } else { json!("object") });
            }
            let arguments = json!({"cmd": "echo hello; pwd; exit 3", "login": false, "yield_time_ms": 30_000});
            let answer = server.request("tools/call", json!({"name": "exec_command", "arguments": arguments})).await;
            let result = &answer["result"];
            let output = format!("hello\n{}\n", std::fs::canonicalize(account.path()).expect("it exists").display());
            assert_eq!(result["structuredContent"]["output"], output, "{protocol:?}: {answer}");
            assert_eq!(result["structuredContent"]["exit_code"], 3);
            let text = result["content"][0]["text"].as_str().expect("there is a text, too");
            assert!(text.contains("Process exited with code 3") && text.ends_with(&output), "{text}");
            assert_eq!(result["isError"], false, "a command that fails is no failure of the tool");
            assert_eq!(result["resultType"].is_string(), protocol == Protocol::Stateless);
            server.leave().await;
        }
    });
}

#[test]
fn discovery_tells_the_versions_and_what_the_server_is_for() {
    run(async {
        let account = Account::new();
        let mut server = account.start(LATEST, false).await;
        let answer = server.request("server/discover", json!({})).await;
        assert_eq!(answer["result"]["supportedVersions"], json!(["2025-06-18", "2025-11-25", "2026-07-28"]));
        let instructions = answer["result"]["instructions"].as_str().expect("there are some");
        assert!(TOOLS.iter().all(|tool| instructions.contains(tool)) && instructions.len() < 1000, "{instructions}");
        server.leave().await;
    });
}

#[test]
fn what_goes_wrong_is_a_result_that_says_what_to_do() {
    run(async {
        let account = Account::new();
        let mut server = account.start(LATEST, false).await;
        let cases = [
            ("write_stdin", json!({"session_id": 1, "chars": "x"}), "unknown session id 1"),
            ("write_stdin", json!({"chars": "x"}), "missing field `session_id`"),
            ("exec_command", json!({"cmd": "true", "workdir": "/no/such"}), "\"/no/such\" does not exist"),
            ("exec_command", json!({"cmd": "true", "environment_id": "mars"}), "use one of local"),
            ("wait_for", json!({"session_id": "x"}), "list_sessions"),
        ];
        for (tool, arguments, expected) in cases {
            let answer = server.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            let text = answer["result"]["content"][0]["text"].as_str().expect("it is told");
            assert!(text.contains(expected), "{text}");
        }
        let answer = server.request("tools/call", json!({"name": "no_such_tool", "arguments": {}})).await;
        assert_eq!(answer["error"]["code"], -32602);
        server.leave().await;
    });
}

async fn progress(server: &mut McpProcess, token: &str) {
    let notified = server.notification().await;
    assert_eq!(notified["method"], "notifications/progress");
    assert_eq!(notified["params"]["progressToken"], token);
}

#[test]
fn a_call_reports_progress_to_whoever_asks_and_when_cancelled_leaves_its_process_running() {
    run(async {
        let account = Account::new();
        let semaphore = semaphore(&account);
        let mut server = account.start(Protocol::Handshake("2025-11-25"), false).await;
        let arguments = json!({"cmd": waiting_command(&semaphore), "login": false, "yield_time_ms": 30_000});
        let meta = json!({"progressToken": "token"});
        let call = json!({"name": "exec_command", "arguments": arguments, "_meta": meta});
        let id = server.send("tools/call", call).await;
        progress(&mut server, "token").await;
        progress(&mut server, "token").await;
        server.notify("notifications/cancelled", json!({"requestId": id, "reason": "enough"})).await;
        let listed = server.call("list_sessions", json!({})).await;
        let [session] = &listed["sessions"].as_array().expect("a list")[..] else { panic!("one: {listed}") };
        assert_eq!(session["status"], "running");
        semaphore.release();
        let until = json!({"session_id": session["session_id"], "timeout_ms": 100_000});
        let waited = server.call("wait_for", until).await;
        assert_eq!((&waited["output"], &waited["exit_code"]), (&json!("begin\nend\n"), &json!(7)));
        server.leave().await;
    });
}

#[test]
fn two_servers_at_once_have_one_daemon_and_do_not_disturb_each_other() {
    run(async {
        let account = Account::new();
        let (mut one, mut two) = tokio::join!(account.start(LATEST, false), account.start(ALL[0], false));
        let start = |name: &str| json!({"cmd": format!("echo {name}; cat"), "stdin": true, "login": false, "yield_time_ms": 250});
        let (first, second) = (start("one"), start("two"));
        let (first, second) = tokio::join!(one.call("exec_command", first), two.call("exec_command", second));
        assert_eq!(account.daemons().len(), 1);
        let end = |started: &Value| json!({"session_id": started["session_id"], "close_stdin": true, "chars": "x\n", "yield_time_ms": 30_000});
        let (first_end, second_end) = (end(&first), end(&second));
        let (first, second) = tokio::join!(one.call("write_stdin", first_end), two.call("write_stdin", second_end));
        assert_eq!((&first["exit_code"], &second["exit_code"]), (&json!(0), &json!(0)));
        // What the other has started is found as soon as the other is gone.
        two.leave().await;
        let log = json!({"session_id": second["session_id"]});
        assert_eq!(one.call("read_output", log).await["output"], "two\nx\n");
        let uri = format!("exec://session/{}/log", second["session_id"]);
        let log = one.request("resources/read", json!({"uri": uri})).await;
        assert_eq!(log["result"]["contents"][0]["text"], "two\nx\n");
        one.leave().await;
    });
}

#[test]
fn lines_that_are_no_messages_do_not_end_it() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Handshake("2025-06-18"), false).await;
        let long = vec![b'x'; 1 << 20];
        for line in
            [&b"nonsense"[..], b"", b"{}", b"[]", b"null", b"{\"jsonrpc\":\"2.0\",\"id\":500}", b"\xff\xfe", &long]
        {
            server.send_line(line).await;
        }
        assert_eq!(server.request("ping", json!({})).await["result"], json!({}));
        let unknown = server.request("no/such", json!({})).await;
        assert_eq!(unknown["error"]["code"], -32601);
        server.leave().await;
    });
}

#[test]
fn the_hands_may_be_on_another_machine() {
    run(async {
        let account = Account::new();
        let url = format!("unix://{}", account.path().join("far").display());
        let mut far = account.command(exec_testkit::binaries::exec_server());
        far.args(["serve", "--listen", &url]).stdout(std::process::Stdio::piped());
        let mut far = far.spawn().expect("it starts");
        let mut lines = BufReader::new(far.stdout.take().expect("it is piped")).lines();
        assert_eq!(lines.next_line().await.expect("it prints UTF-8"), Some(url.clone()));
        let connect = ["--connect", url.as_str()];
        let mut server = account.start_with(&connect, LATEST, false).await;
        let arguments = json!({"cmd": "echo there; cat", "stdin": true, "login": false, "yield_time_ms": 250});
        let started = server.call("exec_command", arguments).await;
        assert_eq!((&started["status"], &started["environment_id"]), (&json!("running"), &json!(url)));
        assert_eq!(account.daemons(), [], "nothing is started here");
        server.kill().await;
        let mut server = account.start_with(&connect, LATEST, false).await;
        let end = json!({"session_id": started["session_id"], "close_stdin": true, "yield_time_ms": 30_000});
        let ended = server.call("write_stdin", end).await;
        assert_eq!((&ended["output"], &ended["exit_code"]), (&json!("there\n"), &json!(0)));
        server.leave().await;
        far.kill().await.expect("it is our child");
    });
}
