//! The real Claude Code with our server in its `--mcp-config`, and a model that does what the test says.
//!
//! Claude Code shows its model the structure of a result as JSON, or the content blocks of a result without one. The tests
//! look at what the model was shown, and at what happened on the machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use exec_testkit::binaries;
use exec_testkit::fake_model::{FakeModelServer, ModelRequest, OutputItem};
use serde_json::{Value, json};
use tokio::process::Child;

use super::files::PIXEL;
use super::protocol::{semaphore, waiting_command};
use super::server::Account;
use crate::durability::support::run;
use exec_testkit::packages;

/// The program itself is in a package for each platform, which the registry has, too. It is native: Node is not needed to
/// run it.
const VERSION: &str = "2.1.326";
/// What Claude Code puts before the name of each of our tools.
const NAMESPACE: &str = "mcp__exec";

fn claude_code() -> Option<PathBuf> {
    let package = format!("@anthropic-ai/claude-code@{VERSION}");
    Some(packages::npm(&format!("claude-code-{VERSION}"), &[&package])?.join("node_modules/.bin/claude"))
}

/// A Claude Code at work in the account's folder, and its model.
struct Claude {
    process: Child,
    model: FakeModelServer,
    /// It waits for our response. There always is one but while we wait for the next.
    request: Option<ModelRequest>,
    calls: u32,
}

impl Claude {
    /// Starts it, and lets the model look up these tools of ours, as it must before it calls them.
    async fn start(account: &Account, program: &Path, tools: &[&str]) -> Self {
        Self::start_with(account, program, tools, &["mcp"], &json!({})).await
    }

    /// The same with other arguments of our server, and with settings of Claude Code.
    async fn start_with(account: &Account, program: &Path, tools: &[&str], server: &[&str], settings: &Value) -> Self {
        let mut model = FakeModelServer::start().await;
        let process = spawn(account, program, &format!("http://{}", model.address()), server, settings);
        let mut claude = Self { process, request: Some(model.next_request().await), model, calls: 0 };
        let names: Vec<String> = tools.iter().map(|tool| format!("{NAMESPACE}__{tool}")).collect();
        let (tool, arguments) = ("ToolSearch".to_owned(), json!({"query": format!("select:{}", names.join(","))}));
        let search = OutputItem::FunctionCall { id: "toolu_search".to_owned(), tool, arguments };
        let offered = claude.respond(search).await.tools();
        assert!(names.iter().all(|name| offered.contains(&name.as_str())), "claude offers {offered:?}");
        claude
    }

    /// Lets the model call a tool of ours; returns what the model is shown of the result.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.calls += 1;
        let (id, namespace) = (format!("toolu_{}", self.calls), NAMESPACE.to_owned());
        let call = OutputItem::NamespacedCall { id: id.clone(), namespace, tool: tool.to_owned(), arguments };
        self.respond(call).await.tool_output(&id).unwrap_or_else(|| panic!("{tool} has a result")).clone()
    }

    /// The same for a tool whose result has a structure.
    async fn call_structured(&mut self, tool: &str, arguments: Value) -> Value {
        let shown = self.call(tool, arguments).await;
        let structure = shown.as_str().and_then(|text| serde_json::from_str(text).ok());
        structure.unwrap_or_else(|| panic!("the model is shown the structure of {tool}: {shown}"))
    }

    /// Lets the model say that it is done: Claude Code ends.
    async fn finish(mut self) {
        self.waiting_request().respond(&[OutputItem::Message("done".to_owned())]);
        let status = self.process.wait().await.expect("it is our child");
        assert!(status.success(), "claude ended with {status}");
        assert_eq!(self.model.unexpected_requests(), Vec::<String>::new(), "claude contacted nobody but the model");
        self.model.shutdown().await;
    }

    /// Answers Claude Code's request; returns the next.
    async fn respond(&mut self, item: OutputItem) -> &ModelRequest {
        self.waiting_request().respond(&[item]);
        self.request.insert(self.model.next_request().await)
    }

    fn waiting_request(&mut self) -> ModelRequest {
        self.request.take().expect("whoever takes it waits for the next")
    }
}

fn spawn(account: &Account, program: &Path, model_url: &str, arguments: &[&str], settings: &Value) -> Child {
    let home = account.path().join("claude");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let state = account.path().join("state");
    let server = json!({"command": binaries::exec_server(), "args": arguments, "env": {"EXEC_SERVER_HOME": state}});
    let mut command = account.command(program);
    command.args(["--print", "do as the model says", "--allowedTools", NAMESPACE, "--strict-mcp-config"]);
    command.arg("--mcp-config").arg(json!({"mcpServers": {"exec": server}}).to_string());
    command.arg("--settings").arg(settings.to_string()).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &home).env("CLAUDE_CONFIG_DIR", &home);
    command.envs([("ANTHROPIC_BASE_URL", model_url), ("ANTHROPIC_API_KEY", "none")]);
    command.envs([("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("DISABLE_AUTOUPDATER", "1")]);
    command.envs([("http_proxy", model_url), ("https_proxy", model_url), ("no_proxy", "127.0.0.1")]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("claude starts")
}

#[test]
fn claude_code_runs_a_command_and_its_next_life_finds_one_that_went_on() {
    let Some(program) = claude_code() else { return };
    run(async {
        let account = Account::new();
        let semaphore = semaphore(&account);
        let mut first = Claude::start(&account, &program, &["exec_command"]).await;
        let arguments = json!({"cmd": "echo hello; pwd; exit 3", "login": false, "yield_time_ms": 30_000});
        let ended = first.call_structured("exec_command", arguments).await;
        let folder = std::fs::canonicalize(account.path()).expect("it exists");
        assert_eq!(
            (&ended["output"], &ended["exit_code"]),
            (&json!(format!("hello\n{}\n", folder.display())), &json!(3))
        );
        let build = waiting_command(&semaphore);
        let arguments = json!({"cmd": build, "login": false, "yield_time_ms": 250});
        let started = first.call_structured("exec_command", arguments).await;
        assert_eq!(started["status"], "running", "{started}");
        first.finish().await;

        semaphore.release();
        let mut second = Claude::start(&account, &program, &["list_sessions", "wait_for"]).await;
        let listed = second.call_structured("list_sessions", json!({})).await;
        let sessions = listed["sessions"].as_array().expect("they are listed");
        let found = sessions.iter().find(|session| session["session_id"] == started["session_id"]);
        assert_eq!(found.map(|session| &session["cmd"]), Some(&json!(build)), "{listed}");
        let arguments = json!({"session_id": started["session_id"], "timeout_ms": 100_000});
        let ended = second.call_structured("wait_for", arguments).await;
        assert_eq!((&ended["output"], &ended["exit_code"]), (&json!("begin\nend\n"), &json!(7)));
        second.finish().await;
    });
}

#[test]
fn claude_code_talks_to_a_program_on_a_terminal() {
    let Some(program) = claude_code() else { return };
    run(async {
        let account = Account::new();
        let mut claude = Claude::start(&account, &program, &["exec_command", "write_stdin"]).await;
        let arguments = json!({"cmd": "exec sh -i", "login": false, "tty": true, "yield_time_ms": 250});
        let started = claude.call_structured("exec_command", arguments).await;
        assert_eq!(started["status"], "running", "it waits for input: {started}");
        let session = &started["session_id"];
        let typed = json!({"session_id": session, "chars": "answer=$((6 * 7)); tty\n"});
        let first = claude.call_structured("write_stdin", typed).await;
        let typed = json!({"session_id": session, "chars": "echo \"<$answer>\"; exit 5\n", "yield_time_ms": 100_000});
        let last = claude.call_structured("write_stdin", typed).await;
        let printed: String = [&first, &last].iter().filter_map(|look| look["output"].as_str()).collect();
        assert!(printed.contains("/dev/pts/") && printed.contains("<42>"), "{printed}");
        assert_eq!(last["exit_code"], 5, "{last}");
        claude.finish().await;
    });
}

#[test]
fn claude_code_edits_and_searches_files_and_sees_an_image() {
    let Some(program) = claude_code() else { return };
    run(async {
        let account = Account::new();
        let notes = account.path().join("notes.txt");
        std::fs::write(&notes, "one\ntwo\nthree\n").expect("it is ours");
        let png = base64_simd::STANDARD.decode_to_vec(PIXEL).expect("it is base64");
        std::fs::write(account.path().join("pixel.png"), png).expect("it is ours");
        let mut claude = Claude::start(&account, &program, &["edit_file", "search_files", "view_image"]).await;

        let edit = json!({"path": "notes.txt", "old": "two", "new": "deux"});
        let edited = claude.call_structured("edit_file", edit).await;
        assert_eq!((&edited["replacements"], &edited["lines"]), (&json!(1), &json!([2])));
        assert_eq!(std::fs::read_to_string(&notes).expect("it is there"), "one\ndeux\nthree\n");

        let search = json!({"pattern": "^d.ux$", "globs": ["*.txt"]});
        let found = claude.call_structured("search_files", search).await;
        let text = found["text"].as_str().expect("there is a text");
        assert!(found["count"] == 1 && text.contains("notes.txt") && text.contains("2:deux"), "{found}");

        let shown = claude.call("view_image", json!({"path": "pixel.png"})).await;
        let blocks = shown.as_array().unwrap_or_else(|| panic!("the model is shown blocks: {shown}"));
        let image = blocks.iter().find(|block| block["type"] == "image").map(|block| &block["source"]);
        assert_eq!(image, Some(&json!({"type": "base64", "media_type": "image/png", "data": PIXEL})));
        claude.finish().await;
    });
}

/// By itself, Claude Code would show the first 2 KB of either, and the name of a file with the rest.
#[test]
fn claude_code_shows_its_model_long_results_whole() {
    let Some(program) = claude_code() else { return };
    run(async {
        let account = Account::new();
        let lines = "A line of some \"sixty\" bytes, so that a tool shows them all.\n".repeat(850);
        std::fs::write(account.path().join("long.txt"), &lines).expect("it is ours");
        let mut claude = Claude::start(&account, &program, &["exec_command", "read_file"]).await;
        let read = claude.call_structured("read_file", json!({"path": "long.txt"})).await;
        assert!(read["text"].as_str().is_some_and(|text| text.contains("\n   850\t")), "{read}");
        let numbers =
            json!({"cmd": "seq 1 30000", "login": false, "max_output_tokens": 60_000, "yield_time_ms": 30_000});
        let ended = claude.call_structured("exec_command", numbers).await;
        let whole: String = (1..=30_000).map(|number| format!("{number}\n")).collect();
        assert!(ended["output"] == whole, "{:.200}", ended.to_string());
        claude.finish().await;
    });
}

/// `--print` has nobody to ask. Claude Code says that it supports elicitation, and cancels.
#[test]
fn claude_code_without_a_user_runs_nothing_that_needs_a_yes_and_its_model_is_told() {
    let Some(program) = claude_code() else { return };
    run(async {
        let account = Account::new();
        let server = ["mcp", "--ask", "always"];
        let mut claude = Claude::start_with(&account, &program, &["exec_command"], &server, &json!({})).await;
        let shown = claude.call("exec_command", json!({"cmd": "touch ran", "login": false})).await.to_string();
        assert!(shown.contains("has not decided, and nothing was done") && shown.contains("--ask"), "{shown}");
        assert!(!account.path().join("ran").exists());
        claude.finish().await;
    });
}

/// A hook of the user's answers in their place: what it says counts, once.
#[test]
fn claude_code_runs_what_a_hook_of_its_user_approves_once_and_nothing_else() {
    let Some(program) = claude_code() else { return };
    run(async {
        for (action, content, runs, told) in [
            ("accept", json!({"approve": true}), "ran\n", "exit_code"),
            ("accept", json!({}), "", "nothing was done"),
            ("decline", json!({}), "", "declined, and nothing was done"),
        ] {
            let account = Account::new();
            let answer = json!({"hookEventName": "Elicitation", "action": action, "content": content});
            let (hook, answers) = (account.path().join("asked"), account.path().join("answer.json"));
            let answer = json!({"hookSpecificOutput": answer}).to_string();
            std::fs::write(&answers, answer).expect("the folder is ours");
            let command = format!("cat >> {}; cat {}", hook.display(), answers.display());
            let hooks = json!({"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": command}]}]}});
            let server = ["mcp", "--ask", "always"];
            let mut claude = Claude::start_with(&account, &program, &["exec_command"], &server, &hooks).await;
            let arguments = json!({"cmd": "echo ran >> ran", "login": false, "yield_time_ms": 30_000});
            let shown = claude.call("exec_command", arguments).await.to_string();
            assert!(shown.contains(told), "{action} {content}: {shown}");
            let ran = std::fs::read_to_string(account.path().join("ran")).unwrap_or_default();
            assert_eq!(ran, runs, "{action} {content}");
            let asked = std::fs::read_to_string(&hook).expect("the hook was asked");
            assert!(asked.contains("Run this command?") && asked.contains("echo ran >> ran"), "{asked}");
            claude.finish().await;
        }
    });
}
