//! Questions to a person: in every version of the protocol nothing is done before the answer, and only if it is yes.

use std::path::Path;

use serde_json::{Value, json};

use super::environments::refusal;
use super::sandbox::{command, outside};
use super::server::{ALL, Account, McpProcess, Protocol};
use crate::durability::support::run;

const ASK: [&str; 4] = ["--sandbox", "workspace-write", "--ask", "outside-sandbox"];

fn asks() -> Value {
    json!({"elicitation": {}})
}

/// A command that must leave the sandbox.
fn touch(file: &Path) -> Value {
    let mut arguments = command(format!("touch {}", file.display()));
    arguments["outside_sandbox"] = json!(true);
    arguments["justification"] = json!("because of a test");
    arguments
}

/// Calls a tool; when a person is asked, looks whether all is as before, and answers. Returns the question and the result.
async fn call_and_answer(
    server: &mut McpProcess,
    protocol: Protocol,
    call: Value,
    action: &str,
    while_asked: impl FnOnce(),
) -> (String, Value) {
    let answer = json!({"action": action, "content": {"approve": true}});
    if protocol == Protocol::Stateless {
        let (question, state) = sent_away(server, call.clone()).await;
        while_asked();
        let again = with_answer(call, &state, answer);
        return (question, server.request("tools/call", again).await["result"].clone());
    }
    let id = server.send("tools/call", call).await;
    let request = server.server_request().await;
    assert_eq!(request["method"], "elicitation/create");
    while_asked();
    server.reply(&request, answer).await;
    (message(&request["params"]), server.answer(id).await["result"].clone())
}

/// The question with which a call is answered, and the state to come back with.
async fn sent_away(server: &mut McpProcess, call: Value) -> (String, Value) {
    let answer = server.request("tools/call", call).await;
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    let request = &result["inputRequests"]["approval"];
    assert_eq!(request["method"], "elicitation/create");
    (message(&request["params"]), result["requestState"].clone())
}

fn with_answer(mut call: Value, state: &Value, answer: Value) -> Value {
    call["requestState"] = state.clone();
    call["inputResponses"] = json!({"approval": answer});
    call
}

/// What the person reads: a form with one field, which has no default.
fn message(params: &Value) -> String {
    let schema = &params["requestedSchema"];
    assert_eq!((&params["mode"], &schema["type"]), (&json!("form"), &json!("object")), "{params}");
    let field = &schema["properties"]["approve"];
    let shape = (&field["type"], &field["default"], &schema["required"]);
    assert_eq!(shape, (&json!("boolean"), &Value::Null, &json!(["approve"])), "{params}");
    params["message"].as_str().expect("there is a question").to_owned()
}

fn exec(arguments: Value) -> Value {
    json!({"name": "exec_command", "arguments": arguments})
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("it is told")
}

#[test]
fn in_every_version_a_command_leaves_the_sandbox_only_after_a_yes() {
    run(async {
        let (account, outside) = (Account::new(), outside());
        for (number, protocol) in ALL.into_iter().enumerate() {
            let mut server = account.start_as(&ASK, protocol, asks()).await;
            let file = outside.path().join(number.to_string());
            for (action, told) in [("decline", "declined"), ("cancel", "has not decided")] {
                let (_, result) = call_and_answer(&mut server, protocol, exec(touch(&file)), action, || ()).await;
                assert_eq!((&result["isError"], file.exists()), (&json!(true), false), "{result}");
                assert!(text(&result).contains(told) && text(&result).contains("nothing was done"), "{result}");
            }
            let mut arguments = touch(&file);
            arguments["env"] = json!({"LD_PRELOAD": "x.so"});
            arguments["shell"] = json!("/bin/sh");
            let untouched = || assert!(!file.exists(), "nothing runs before the answer");
            let (question, result) = call_and_answer(&mut server, protocol, exec(arguments), "accept", untouched).await;
            assert_eq!((&result["structuredContent"]["exit_code"], file.exists()), (&json!(0), true), "{result}");
            let cwd = std::fs::canonicalize(account.path()).expect("it exists");
            let shown = [
                format!("Run this command outside the sandbox?\n\n    touch {}\n\n", file.display()),
                format!("Directory:\n    {}\nEnvironment: local\n", cwd.display()),
                "Shell:\n    /bin/sh\nVariable:\n    LD_PRELOAD=x.so\nWhy, says the agent:\n    because of a test"
                    .to_owned(),
            ];
            assert!(shown.iter().all(|part| question.contains(part)), "{question}");
            // What stays inside is not asked for.
            let done = server.call("exec_command", command("true")).await;
            assert_eq!(done["exit_code"], 0);
            server.leave().await;
        }
    });
}

#[test]
fn a_client_that_cannot_ask_is_refused_and_told_what_to_do() {
    run(async {
        let (account, outside) = (Account::new(), outside());
        let file = outside.path().join("file");
        for protocol in ALL {
            for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
                let mut server = account.start_as(&ASK, protocol, capabilities).await;
                let refused = refusal(&mut server, "exec_command", touch(&file)).await;
                assert!(
                    refused.contains("does not support elicitation") && refused.contains("let the user do it"),
                    "{refused}"
                );
                assert!(!file.exists());
                server.leave().await;
            }
        }
    });
}

#[test]
fn an_answer_counts_once_and_for_the_call_that_was_asked_about() {
    run(async {
        let (account, outside) = (Account::new(), outside());
        let (asked, other) = (outside.path().join("asked"), outside.path().join("other"));
        let mut server = account.start_as(&ASK, Protocol::Stateless, asks()).await;
        let yes = json!({"action": "accept", "content": {"approve": true}});
        let (_, state) = sent_away(&mut server, exec(touch(&asked))).await;
        // For another call, with a state that nobody has given, and without one.
        sent_away(&mut server, with_answer(exec(touch(&other)), &state, yes.clone())).await;
        sent_away(&mut server, with_answer(exec(touch(&other)), &json!("made up"), yes.clone())).await;
        sent_away(&mut server, with_answer(exec(touch(&other)), &Value::Null, yes.clone())).await;
        assert!(!asked.exists() && !other.exists());
        let (_, state) = sent_away(&mut server, exec(touch(&asked))).await;
        let again = with_answer(exec(touch(&asked)), &state, yes);
        let done = server.request("tools/call", again.clone()).await;
        assert_eq!((&done["result"]["structuredContent"]["exit_code"], asked.exists()), (&json!(0), true), "{done}");
        std::fs::remove_file(&asked).expect("it is ours");
        sent_away(&mut server, again).await;
        assert!(!asked.exists(), "the yes was used up");
        server.leave().await;
    });
}

/// Some clients accept for their user what has no fields to fill in, or answer without looking.
#[test]
fn an_accepted_form_without_a_yes_in_it_is_none() {
    run(async {
        let (account, outside) = (Account::new(), outside());
        let file = outside.path().join("file");
        let contents = [(json!({}), "without its answer"), (Value::Null, "without its answer")];
        let contents = contents
            .into_iter()
            .chain([(json!({"approve": "true"}), "without its answer"), (json!({"approve": false}), "declined")]);
        let mut server = account.start_as(&ASK, Protocol::Handshake("2025-06-18"), asks()).await;
        for (content, told) in contents {
            let id = server.send("tools/call", exec(touch(&file))).await;
            let request = server.server_request().await;
            server.reply(&request, json!({"action": "accept", "content": content})).await;
            let result = server.answer(id).await["result"].clone();
            assert_eq!((&result["isError"], file.exists()), (&json!(true), false), "{content}: {result}");
            assert!(text(&result).contains(told) && text(&result).contains("--ask"), "{content}: {result}");
        }
        server.leave().await;
    });
}

#[test]
fn with_always_tasks_are_typed_into_and_ended_by_tools_that_ask() {
    run(async {
        let account = Account::new();
        let protocol = Protocol::Stateless;
        let capabilities = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
        let mut server = account.start_as(&["--ask", "always"], protocol, capabilities).await;
        let mut cat = command("cat");
        (cat["stdin"], cat["yield_time_ms"]) = (json!(true), json!(250));
        let (_, started) = call_and_answer(&mut server, protocol, exec(cat), "accept", || ()).await;
        let id = started["taskId"].as_str().unwrap_or_else(|| panic!("it is a task: {started}")).to_owned();
        let update = json!({"taskId": id, "inputResponses": {"stdin": "x"}});
        for (method, params, tool) in
            [("tasks/update", update, "write_stdin"), ("tasks/cancel", json!({"taskId": id}), "kill_session")]
        {
            let refused = server.request(method, params).await;
            assert!(refused["error"]["message"].as_str().is_some_and(|why| why.contains(tool)), "{method}: {refused}");
        }
        let seen = server.request("tasks/get", json!({"taskId": id})).await;
        assert_eq!(seen["result"]["status"], "working", "{seen}");
        server.leave().await;
    });
}

#[test]
fn a_call_that_is_cancelled_while_a_person_thinks_does_nothing() {
    run(async {
        let (account, outside) = (Account::new(), outside());
        let file = outside.path().join("file");
        let mut server = account.start_as(&ASK, Protocol::Handshake("2025-11-25"), asks()).await;
        let id = server.send("tools/call", exec(touch(&file))).await;
        let request = server.server_request().await;
        server.notify("notifications/cancelled", json!({"requestId": id, "reason": "enough"})).await;
        server.reply(&request, json!({"action": "accept", "content": {"approve": true}})).await;
        let listed = server.call("list_sessions", json!({})).await;
        assert_eq!((&listed["sessions"], file.exists()), (&json!([]), false));
        server.leave().await;
    });
}

#[test]
fn what_is_typed_outside_the_sandbox_is_asked_for_each_time() {
    run(async {
        let (account, outside) = (Account::new(), outside());
        let (protocol, file) = (Protocol::Handshake("2025-06-18"), outside.path().join("file"));
        let mut server = account.start_as(&ASK, protocol, asks()).await;
        let mut shell = command("sh");
        shell["stdin"] = json!(true);
        shell["outside_sandbox"] = json!(true);
        shell["yield_time_ms"] = json!(250);
        let (_, started) = call_and_answer(&mut server, protocol, exec(shell), "accept", || ()).await;
        let session = &started["structuredContent"]["session_id"];
        let chars = format!("touch {}\n", file.display());
        let typed = json!({"session_id": session, "chars": chars, "close_stdin": true, "yield_time_ms": 30_000});
        let typed = json!({"name": "write_stdin", "arguments": typed});
        let (question, refused) = call_and_answer(&mut server, protocol, typed.clone(), "decline", || ()).await;
        assert_eq!((&refused["isError"], file.exists()), (&json!(true), false));
        assert!(question.contains("outside the sandbox?") && question.contains(&chars), "{question}");
        // A look is free.
        server.call("write_stdin", json!({"session_id": session, "yield_time_ms": 250})).await;
        let (_, done) = call_and_answer(&mut server, protocol, typed, "accept", || ()).await;
        assert_eq!((&done["structuredContent"]["exit_code"], file.exists()), (&json!(0), true), "{done}");
        server.leave().await;
    });
}

#[test]
fn with_always_everything_that_acts_is_asked_for_and_looks_are_free() {
    run(async {
        let account = Account::new();
        for protocol in [ALL[1], ALL[2]] {
            let mut server = account.start_as(&["--ask", "always"], protocol, asks()).await;
            let (_, ran) = call_and_answer(&mut server, protocol, exec(command("echo hi")), "accept", || ()).await;
            assert_eq!(ran["structuredContent"]["output"], "hi\n", "{ran}");
            let session = ran["structuredContent"]["session_id"].clone();
            let calls = [
                ("exec_command", command("touch file"), "touch file"),
                ("kill_session", json!({"session_id": session}), "echo hi"),
                ("write_stdin", json!({"session_id": session, "chars": "typed"}), "typed"),
                ("write_file", json!({"path": "file", "contents": "one\ntwo\n"}), "    one\n    two\n"),
                ("edit_file", json!({"path": "file", "old": "a", "new": "b"}), "edit_file"),
                ("edit_files", json!({"changes": []}), "edit_files"),
                ("apply_patch", json!({"patch": "*** Begin Patch\n*** Add File: file\n+x\n*** End Patch"}), "+x"),
            ];
            for (tool, arguments, shown) in calls {
                let call = json!({"name": tool, "arguments": arguments});
                let (question, result) = call_and_answer(&mut server, protocol, call, "decline", || ()).await;
                assert!(question.contains(shown), "{tool}: {question}");
                assert!(
                    text(&result).contains("declined") && !account.path().join("file").exists(),
                    "{tool}: {result}"
                );
            }
            server.call("read_output", json!({"session_id": session})).await;
            server.call("list_sessions", json!({})).await;
            server.call("list_directory", json!({"path": "."})).await;
            server.leave().await;
        }
    });
}

#[test]
fn a_question_needs_a_sandbox_to_be_about() {
    run(async {
        let account = Account::new();
        let mut command = account.command(exec_testkit::binaries::exec_server());
        let output = command.args(["mcp", "--ask", "outside-sandbox"]).output().await.expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("goes with --sandbox or --policy"), "{told}");
    });
}
