//! The real Codex CLI with our server in its `mcp_servers`, and a model that does what the test says.

use std::path::Path;
use std::process::Stdio;

use exec_testkit::binaries;
use exec_testkit::codex::codex_binary;
use exec_testkit::fake_model::{FakeModelServer, ModelRequest, OutputItem};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::protocol::{semaphore, waiting_command};
use super::server::Account;
use crate::codex::agent::{KEY_VARIABLE, config};
use crate::durability::support::run;

/// Codex begins to work, in the account's folder.
fn start(account: &Account, codex: &Path, model: &FakeModelServer) -> Child {
    start_with(account, codex, model, &["exec", "--json", "--sandbox", "danger-full-access"], &["mcp"])
}

/// The same with other arguments of Codex and of our server.
fn start_with(account: &Account, codex: &Path, model: &FakeModelServer, arguments: &[&str], server: &[&str]) -> Child {
    let mut command = command(account, codex, model, server);
    command.args(arguments).arg("--skip-git-repo-check").arg("--cd").arg(account.path()).arg("do as the model says");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("codex starts")
}

fn command(account: &Account, codex: &Path, model: &FakeModelServer, server: &[&str]) -> Command {
    let home = account.path().join("codex");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let model_url = format!("http://{}", model.address());
    let (program, state) = (binaries::exec_server(), account.path().join("state"));
    let server = format!(
        "\n[mcp_servers.exec]\ncommand = {program:?}\nargs = {server:?}\nenv = {{ EXEC_SERVER_HOME = {state:?} }}\n\
         default_tools_approval_mode = \"approve\"\n"
    );
    std::fs::write(home.join("config.toml"), config(&model_url) + &server).expect("the folder is ours");
    let mut command = account.command(codex);
    command.env_clear().envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), (KEY_VARIABLE, "none")]);
    command.env("HOME", &home).env("CODEX_HOME", &home);
    command.envs([("http_proxy", model_url.as_str()), ("https_proxy", model_url.as_str()), ("no_proxy", "127.0.0.1")]);
    command.stderr(Stdio::null());
    command
}

/// Lets the model call a tool of ours; returns Codex's next request and what the model is shown of the result.
async fn call(
    model: &mut FakeModelServer,
    request: ModelRequest,
    tool: &str,
    arguments: Value,
) -> (ModelRequest, Value) {
    let id = call_without_waiting(request, tool, arguments);
    let next = model.next_request().await;
    let output = next.tool_output(&id).and_then(Value::as_str).expect("the tool answers with a text").to_owned();
    let (_, shown) = output.split_once("Output:\n").unwrap_or_else(|| panic!("codex shows the result: {output}"));
    let shown = serde_json::from_str(shown).unwrap_or_else(|_| panic!("codex shows the structure: {shown}"));
    (next, shown)
}

/// The same without waiting for the result; returns the id of the call.
fn call_without_waiting(request: ModelRequest, tool: &str, arguments: Value) -> String {
    let (id, namespace) = (format!("call-{tool}"), "mcp__exec".to_owned());
    request.respond(&[OutputItem::NamespacedCall { id: id.clone(), namespace, tool: tool.to_owned(), arguments }]);
    id
}

async fn end(request: ModelRequest, mut codex: Child) {
    request.respond(&[OutputItem::Message("done".to_owned())]);
    let status = codex.wait().await.expect("it is our child");
    assert!(status.success(), "codex ended with {status}");
}

#[test]
fn codex_runs_a_command_and_finds_it_again_in_its_next_life() {
    let Some(codex) = codex_binary() else { return };
    run(async {
        let account = Account::new();
        let semaphore = semaphore(&account);
        let mut model = FakeModelServer::start().await;
        let first = start(&account, &codex, &model);
        let request = model.next_request().await;
        let arguments = json!({"cmd": waiting_command(&semaphore), "login": false, "yield_time_ms": 250});
        let (request, started) = call(&mut model, request, "exec_command", arguments).await;
        assert_eq!(started["status"], "running", "{started}");
        end(request, first).await;

        semaphore.release();
        let second = start(&account, &codex, &model);
        let request = model.next_request().await;
        let arguments = json!({"session_id": started["session_id"], "timeout_ms": 100_000});
        let (request, ended) = call(&mut model, request, "wait_for", arguments).await;
        assert_eq!((&ended["output"], &ended["exit_code"]), (&json!("begin\nend\n"), &json!(7)));
        end(request, second).await;
        assert_eq!(model.unexpected_requests(), Vec::<String>::new(), "codex contacted nobody but the model");
    });
}

/// `codex exec` has nobody to ask, whatever its approval policy is: it declines or cancels. A form without fields it would
/// accept by itself where it has no sandbox.
#[test]
fn codex_without_a_user_runs_nothing_that_needs_a_yes_and_its_model_is_told() {
    let Some(codex) = codex_binary() else { return };
    run(async {
        for sandbox in ["danger-full-access", "workspace-write"] {
            for policy in ["approval_policy=\"never\"", "approval_policy=\"on-request\""] {
                let account = Account::new();
                let mut model = FakeModelServer::start().await;
                let arguments = ["exec", "--json", "--sandbox", sandbox, "-c", policy];
                let process = start_with(&account, &codex, &model, &arguments, &["mcp", "--ask", "always"]);
                let call = json!({"cmd": "touch ran", "login": false});
                let id = call_without_waiting(model.next_request().await, "exec_command", call);
                let next = model.next_request().await;
                let shown = next.tool_output(&id).expect("the call has a result").to_string();
                assert!(shown.contains("nothing was done") && shown.contains("--ask"), "{sandbox} {policy}: {shown}");
                assert!(!account.path().join("ran").exists(), "{sandbox} {policy}: {shown}");
                end(next, process).await;
            }
        }
    });
}

/// `codex app-server`, which hands the questions of MCP servers on to its client: here, the test.
struct CodexApp {
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl CodexApp {
    /// A thread that works in the account's folder, with its first turn begun.
    async fn start(account: &Account, codex: &Path, model: &FakeModelServer) -> Self {
        let mut command = command(account, codex, model, &["mcp", "--ask", "always"]);
        command.arg("app-server").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("codex starts");
        let stdin = process.stdin.take().expect("it is piped");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut app = Self { process, stdin, lines };
        let client = json!({"clientInfo": {"name": "test", "version": "1"}, "capabilities": {"experimentalApi": true}});
        app.send(json!({"id": 1, "method": "initialize", "params": client})).await;
        app.message(|message| message["id"] == 1).await;
        app.send(json!({"method": "initialized"})).await;
        let thread = json!({"cwd": account.path(), "approvalPolicy": "on-request", "sandbox": "workspace-write"});
        app.send(json!({"id": 2, "method": "thread/start", "params": thread})).await;
        let started = app.message(|message| message["id"] == 2).await;
        let input = json!([{"type": "text", "text": "do as the model says"}]);
        let turn = json!({"threadId": started["result"]["thread"]["id"], "input": input});
        app.send(json!({"id": 3, "method": "turn/start", "params": turn})).await;
        app
    }

    async fn send(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.expect("it reads");
    }

    /// The next message that is wanted; others are left out.
    async fn message(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.next_line().await.expect("it writes UTF-8").expect("it goes on");
            let message = serde_json::from_str(&line).expect("it writes JSON");
            if is_wanted(&message) {
                return message;
            }
        }
    }
}

#[test]
fn codex_app_server_asks_its_client_and_only_a_yes_runs_the_command_once() {
    let Some(codex) = codex_binary() else { return };
    run(async {
        for (answer, runs, told) in [
            (json!({"action": "accept", "content": {"approve": true}}), "ran\n", "exit_code"),
            (json!({"action": "accept", "content": {}}), "", "nothing was done"),
            (json!({"action": "decline"}), "", "declined, and nothing was done"),
            (json!({"action": "cancel"}), "", "has not decided, and nothing was done"),
        ] {
            let account = Account::new();
            let mut model = FakeModelServer::start().await;
            let mut app = CodexApp::start(&account, &codex, &model).await;
            let call = json!({"cmd": "echo ran >> ran", "login": false, "yield_time_ms": 30_000});
            let id = call_without_waiting(model.next_request().await, "exec_command", call);
            let asked = app.message(|message| message["method"] == "mcpServer/elicitation/request").await;
            let question = asked["params"]["message"].as_str().unwrap_or_default();
            assert!(question.contains("Run this command?") && question.contains("echo ran >> ran"), "{asked}");
            let ran = account.path().join("ran");
            assert!(!ran.exists(), "nothing runs before the answer");
            app.send(json!({"id": asked["id"], "result": answer})).await;
            let next = model.next_request().await;
            let shown = next.tool_output(&id).expect("the call has a result").to_string();
            assert!(shown.contains(told), "{answer}: {shown}");
            assert_eq!(std::fs::read_to_string(&ran).unwrap_or_default(), runs, "{answer}: {shown}");
            next.respond(&[OutputItem::Message("done".to_owned())]);
            app.message(|message| message["method"] == "turn/completed").await;
            drop(app.stdin);
            app.process.wait().await.expect("it is our child");
        }
    });
}
