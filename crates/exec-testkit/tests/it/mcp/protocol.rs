//! What the server says, in each version of the protocol.

use std::process::Stdio;

use exec_testkit::binaries;
use exec_testkit::semaphore::FifoSemaphore;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

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

#[test]
fn arguments_are_read_as_they_are_meant_and_unknown_ones_are_told() {
    run(async {
        let account = Account::new();
        let mut server = account.start(LATEST, false).await;
        let odd =
            json!({"cmd": "echo fine", "login": "false", "tty": null, "yield_time_ms": 30_000.0, "workdir": null});
        assert_eq!(server.call("exec_command", odd).await["output"], "fine\n");
        let unknown = json!({"cmd": "echo fine", "login": false, "timeout": 5});
        let answer = server.request("tools/call", json!({"name": "exec_command", "arguments": unknown})).await;
        let told = answer["result"]["structuredContent"]["ignored_arguments"].as_str().expect("it is told");
        assert!(told.contains("\"timeout\"") && told.contains("yield_time_ms"), "{told}");
        assert!(answer["result"]["content"][1]["text"].as_str().is_some_and(|text| text.contains(told)), "{answer}");
        let wrong = json!({"command": "echo fine"});
        let answer = server.request("tools/call", json!({"name": "exec_command", "arguments": wrong})).await;
        let told = answer["result"]["content"].to_string();
        assert!(told.contains("missing field `cmd`") && told.contains("does not know"), "{answer}");
        let known = json!({"path": ".", "environment": "local"});
        assert_eq!(server.call("list_directory", known).await["ignored_arguments"], Value::Null);
        server.leave().await;
    });
}

/// A model that writes `"true"` does so anywhere.
#[test]
fn arguments_within_a_list_are_read_as_they_are_meant() {
    run(async {
        let account = Account::new();
        let mut server = account.start(LATEST, false).await;
        let file = |name: &str| account.path().join(name);
        std::fs::write(file("a"), "x y x\n").expect("the folder is ours");
        std::fs::write(file("b"), "b\n").expect("the folder is ours");
        let changes = json!([
            {"change": "replace", "path": "a", "old": "x", "new": "z", "replace_all": "true", "if_hash": null},
            {"change": "replace", "path": "a", "old": "y", "new": "w", "replace_all": null},
            {"change": "write", "path": "c", "contents": "true", "if_absent": "true", "if_hash": null},
            {"change": "remove", "path": "b", "if_hash": null},
        ]);
        let arguments = json!({"changes": changes, "make_directories": "false", "environment_id": null});
        let changed = server.call("edit_files", arguments).await;
        assert_eq!(changed["ignored_arguments"], Value::Null, "{changed}");
        let contents = |name: &str| std::fs::read_to_string(file(name)).expect("it is there");
        assert_eq!((contents("a").as_str(), contents("c").as_str()), ("z w z\n", "true"));
        assert!(!file("b").exists());
        // What can mean nothing is refused, and told where it is.
        let change = json!({"change": "replace", "path": "a", "old": "z", "new": "x", "replace_all": "perhaps"});
        let call = json!({"name": "edit_files", "arguments": {"changes": [change]}});
        let refused = server.request("tools/call", call).await;
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert!(refused["result"]["content"].to_string().contains("perhaps"), "{refused}");
        assert_eq!(contents("a"), "z w z\n");
        server.leave().await;
    });
}

#[test]
fn params_of_another_shape_are_told_from_methods_that_there_are_not() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Handshake("2025-11-25"), true).await;
        for (method, params, expected) in [
            ("tools/call", json!({"name": "exec_command", "arguments": [1]}), "tools/call"),
            ("tools/call", json!({}), "name"),
            ("resources/read", json!({}), "uri"),
            ("tools/list", json!({"cursor": "page-2"}), "page-2"),
            ("resources/list", json!({"cursor": "page-2"}), "page-2"),
            ("tasks/get", json!({}), "taskId"),
            ("tasks/update", json!({"taskId": "x"}), "inputResponses"),
        ] {
            let answer = server.request(method, params).await;
            assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
            assert!(answer["error"]["message"].as_str().is_some_and(|why| why.contains(expected)), "{answer}");
        }
        let answer = server.request("no/such", json!({})).await;
        assert_eq!(answer["error"]["code"], -32601);
        assert!(answer["error"]["message"].as_str().is_some_and(|why| why.contains("there is no method")), "{answer}");
        server.leave().await;
    });
}

/// A file as large as `write_file` takes fits a message; what does not is refused by its id, and nobody waits for ever.
#[test]
fn a_message_that_is_too_long_is_answered() {
    const FILE_BYTES: usize = 16 << 20;
    run(async {
        let account = Account::new();
        let mut server = account.start(LATEST, false).await;
        let largest = json!({"path": "large", "contents": "line\n".repeat(FILE_BYTES / 5)});
        let written = server.call("write_file", largest).await;
        assert_eq!(written["size_bytes"], FILE_BYTES / 5 * 5);
        server.leave().await;
        for protocol in [LATEST, Protocol::Handshake("2025-11-25")] {
            let mut server = account.start(protocol, false).await;
            let arguments = json!({"path": "larger", "contents": "\n".repeat(FILE_BYTES + 1)});
            let answer = server.request("tools/call", json!({"name": "write_file", "arguments": arguments})).await;
            assert_eq!(answer["error"]["code"], -32600, "{answer}");
            assert!(answer["error"]["message"].as_str().is_some_and(|why| why.contains("33554432 bytes")), "{answer}");
            assert_eq!(server.call("list_sessions", json!({})).await["sessions"], json!([]));
            server.leave().await;
        }
        assert!(!account.path().join("larger").exists());
    });
}

/// rmcp would drop it or answer it without an id, and whoever sent it would wait for ever.
#[test]
fn a_request_that_cannot_be_read_is_answered() {
    let requests: [(&str, &[u8], i64); 7] = [
        (
            "half a character",
            br#"{"jsonrpc":"2.0","id":700,"method":"tools/list","params":{"cursor":"\ud83d"}}"#,
            -32700,
        ),
        (
            "no UTF-8",
            b"{\"jsonrpc\":\"2.0\",\"id\":700,\"method\":\"tools/list\",\"params\":{\"cursor\":\"\xff\"}}",
            -32700,
        ),
        ("no end", br#"{"jsonrpc":"2.0","id":700,"method":"tools/list","params":{}"#, -32700),
        (
            "the id last",
            b"{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"params\":{\"id\":1,\"t\":\"\xff\"},\"id\":700}",
            -32700,
        ),
        ("no jsonrpc", br#"{"id":700,"method":"tools/list","params":{}}"#, -32600),
        ("params that are a text", br#"{"jsonrpc":"2.0","id":700,"method":"tools/list","params":"{}"}"#, -32600),
        ("no method", br#"{"jsonrpc":"2.0","id":700,"method":{},"params":{}}"#, -32600),
    ];
    run(async {
        let account = Account::new();
        for protocol in ALL {
            let mut server = account.start(protocol, false).await;
            for (what, line, code) in requests {
                server.send_line(line).await;
                let answer = server.answer(700).await;
                assert_eq!(answer["error"]["code"], code, "{protocol:?}, {what}: {answer}");
                let why = answer["error"]["message"].as_str().expect("it is told");
                assert!(why.contains(if code == -32700 { "is no JSON" } else { "is no request of JSON-RPC" }), "{why}");
            }
            assert_eq!(server.call("list_sessions", json!({})).await["sessions"], json!([]), "{protocol:?}");
            server.leave().await;
        }
    });
}

/// Also the first one, before which there is nothing that could say who asks, and which does not say whether a handshake follows.
#[test]
fn a_first_request_that_cannot_be_read_is_answered_and_the_next_ones_are_as_if_it_had_not_been() {
    run(async {
        let account = Account::new();
        for protocol in ALL {
            let mut server = account.start_silent(&[], protocol, json!({}));
            server.send_line(br#"{"jsonrpc":"2.0","id":700,"method":"tools/list","params":{"cursor":"\ud83d"}}"#).await;
            assert_eq!(server.answer(700).await["error"]["code"], -32700);
            server.send_line(br#"{"id":701,"method":"ping"}"#).await;
            assert_eq!(server.answer(701).await["error"]["code"], -32600);
            server.begin().await;
            assert!(server.request("tools/list", json!({})).await["result"]["tools"].is_array(), "{protocol:?}");
            assert_eq!(server.call("list_sessions", json!({})).await["sessions"], json!([]), "{protocol:?}");
            server.leave().await;
        }
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
fn a_client_that_does_not_begin_with_a_request_is_told_so_in_one_line() {
    run(async {
        let account = Account::new();
        for first in [json!({"method": "notifications/initialized"}), json!({"id": 1, "result": {}})] {
            let mut message = first;
            message["jsonrpc"] = json!("2.0");
            let mut command = account.command(binaries::exec_server());
            command.arg("mcp").stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut server = command.spawn().expect("it starts");
            let mut stdin = server.stdin.take().expect("it is piped");
            stdin.write_all(format!("{message}\n").as_bytes()).await.expect("it reads");
            let ended = server.wait_with_output().await.expect("it ends by itself");
            let told = String::from_utf8_lossy(&ended.stderr);
            let words = "the client's first message was no request; it begins with `initialize`";
            assert!(told.contains(words) && told.lines().count() == 1, "{told}");
            assert_eq!(ended.status.code(), Some(1));
        }
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
        assert_eq!(server.answer(500).await["error"]["code"], -32600, "what has an id is answered");
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
