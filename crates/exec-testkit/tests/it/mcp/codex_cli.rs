//! The real Codex CLI with our server in its `mcp_servers`, and a model that does what the test says.

use std::path::Path;
use std::process::Stdio;

use exec_testkit::binaries;
use exec_testkit::codex::codex_binary;
use exec_testkit::fake_model::{FakeModelServer, ModelRequest, OutputItem};
use serde_json::{Value, json};
use tokio::process::Child;

use super::protocol::{semaphore, waiting_command};
use super::server::Account;
use crate::codex::agent::{KEY_VARIABLE, config};
use crate::durability::support::run;

/// Codex begins to work, in the account's folder.
fn start(account: &Account, codex: &Path, model: &FakeModelServer) -> Child {
    let home = account.path().join("codex");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let model_url = format!("http://{}", model.address());
    let (program, state) = (binaries::exec_server(), account.path().join("state"));
    let server = format!(
        "\n[mcp_servers.exec]\ncommand = {program:?}\nargs = [\"mcp\"]\nenv = {{ EXEC_SERVER_HOME = {state:?} }}\n"
    );
    std::fs::write(home.join("config.toml"), config(&model_url) + &server).expect("the folder is ours");
    let mut command = account.command(codex);
    command.args(["exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--cd"]);
    command.arg(account.path()).arg("do as the model says").env_clear();
    command.envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), (KEY_VARIABLE, "none")]);
    command.env("HOME", &home).env("CODEX_HOME", &home);
    command.envs([("http_proxy", model_url.as_str()), ("https_proxy", model_url.as_str()), ("no_proxy", "127.0.0.1")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("codex starts")
}

/// Lets the model call a tool of ours; returns Codex's next request and what the model is shown of the result.
async fn call(
    model: &mut FakeModelServer,
    request: ModelRequest,
    tool: &str,
    arguments: Value,
) -> (ModelRequest, Value) {
    let (id, namespace) = (format!("call-{tool}"), "mcp__exec".to_owned());
    request.respond(&[OutputItem::NamespacedCall { id: id.clone(), namespace, tool: tool.to_owned(), arguments }]);
    let next = model.next_request().await;
    let output = next.tool_output(&id).and_then(Value::as_str).expect("the tool answers with a text").to_owned();
    let (_, shown) = output.split_once("Output:\n").unwrap_or_else(|| panic!("codex shows the result: {output}"));
    let shown = serde_json::from_str(shown).unwrap_or_else(|_| panic!("codex shows the structure: {shown}"));
    (next, shown)
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
