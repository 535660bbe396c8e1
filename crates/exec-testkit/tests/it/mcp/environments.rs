//! Several environments behind one server: each call goes where it says, sessions are found wherever they are, and one that
//! is away fails its own calls only.

use std::path::Path;

use exec_testkit::os_process::poll_pause;
use serde_json::{Value, json};

use super::server::{Account, McpProcess, Protocol};
use crate::durability::support::run;
use crate::router::daemon::Daemon;
use crate::router::two;

const LATEST: Protocol = Protocol::Stateless;

/// Two servers, and the file that names them; `a` is the default.
struct TwoMachines {
    account: Account,
    a: Daemon,
    _b: Daemon,
    file: String,
}

impl TwoMachines {
    fn start() -> Self {
        let account = Account::new();
        let (a, b) = (Daemon::start(account.path(), "a", &[]), Daemon::start(account.path(), "b", &[]));
        let text = format!("default = \"a\"\ninclude_local = false\n{}", two(&a.url, &b.url));
        let file = account.path().join("environments.toml");
        std::fs::write(&file, text).expect("the folder is ours");
        let file = file.to_str().expect("temporary folders are plain").to_owned();
        Self { account, a, _b: b, file }
    }

    async fn serve(&self, more: &[&str], tasks: bool) -> McpProcess {
        let arguments: Vec<&str> = ["--environments", &self.file].iter().chain(more).copied().collect();
        self.account.start_with(&arguments, LATEST, tasks).await
    }
}

/// A command that echoes its input, in an environment.
fn echoing(environment: Option<&str>) -> Value {
    let mut arguments = json!({"cmd": "echo begin; cat", "stdin": true, "login": false, "yield_time_ms": 250});
    if let Some(environment) = environment {
        arguments["environment_id"] = json!(environment);
    }
    arguments
}

fn end_of(session: &Value) -> Value {
    json!({"session_id": session["session_id"], "chars": "x\n", "close_stdin": true, "yield_time_ms": 30_000})
}

/// Why a tool failed, as a model reads it.
pub(super) async fn refusal(server: &mut McpProcess, tool: &str, arguments: Value) -> String {
    let answer = server.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
    assert_eq!(answer["result"]["isError"], true, "{tool} was refused: {answer}");
    answer["result"]["content"][0]["text"].as_str().expect("it is told").to_owned()
}

async fn tools_that_name_environments(server: &mut McpProcess) -> Vec<String> {
    let listed = server.request("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().expect("they are listed");
    let named = tools.iter().filter(|tool| tool["inputSchema"]["properties"]["environment_id"].is_object());
    named.map(|tool| tool["name"].as_str().expect("it has a name").to_owned()).collect()
}

async fn instructions(server: &mut McpProcess) -> String {
    let told = server.request("server/discover", json!({})).await;
    told["result"]["instructions"].as_str().expect("there are some").to_owned()
}

#[test]
fn models_are_told_of_environments_only_where_there_are_several() {
    run(async {
        let machines = TwoMachines::start();
        let mut server = machines.serve(&[], false).await;
        let several = tools_that_name_environments(&mut server).await;
        for tool in
            ["exec_command", "list_sessions", "read_file", "write_file", "edit_files", "apply_patch", "search_files"]
        {
            assert!(several.iter().any(|name| name == tool), "{tool} is not among {several:?}");
        }
        let told = instructions(&mut server).await;
        assert!(told.contains("a, b") && told.contains("without it, a"), "{told}");
        server.leave().await;

        // Whoever names one gets that one alone, and one is all there is without a file.
        let url = machines.a.url.clone();
        for arguments in [&["--connect", url.as_str()][..], &["--environment", "local"], &[]] {
            let account = Account::new();
            let mut server = account.start_with(arguments, LATEST, false).await;
            assert_eq!(tools_that_name_environments(&mut server).await, [""; 0], "{arguments:?}");
            assert!(!instructions(&mut server).await.contains("environment_id"));
            server.leave().await;
        }
    });
}

#[test]
fn a_call_goes_where_it_says_and_sessions_and_tasks_are_found_without_saying() {
    run(async {
        let machines = TwoMachines::start();
        let mut server = machines.serve(&[], false).await;
        let here = server.call("exec_command", echoing(None)).await;
        let there = server.call("exec_command", echoing(Some("b"))).await;
        assert_eq!((&here["environment_id"], &there["environment_id"]), (&json!("a"), &json!("b")));
        let listed = server.call("list_sessions", json!({})).await;
        let found = |listed: &Value| {
            let sessions = listed["sessions"].as_array().expect("a list").iter();
            sessions
                .map(|session| (session["session_id"].clone(), session["environment_id"].clone()))
                .collect::<Vec<_>>()
        };
        let both = [(here["session_id"].clone(), json!("a")), (there["session_id"].clone(), json!("b"))];
        assert_eq!(found(&listed), both);
        let only_b = server.call("list_sessions", json!({"environment": "b"})).await;
        assert_eq!(found(&only_b), both[1..]);
        let unknown = refusal(&mut server, "exec_command", echoing(Some("mars"))).await;
        assert_eq!(unknown, "there is no environment \"mars\": use one of a, b");

        let ended = server.call("write_stdin", end_of(&there)).await;
        assert_eq!((&ended["environment_id"], &ended["exit_code"]), (&json!("b"), &json!(0)));
        server.kill().await;

        // The next one has another default, and finds both all the same.
        let mut server = machines.serve(&["--environment", "b"], true).await;
        let read = server.call("read_output", json!({"session_id": there["session_id"]})).await;
        assert_eq!((&read["output"], &read["environment_id"]), (&json!("begin\nx\n"), &json!("b")));
        let ended = server.call("write_stdin", end_of(&here)).await;
        assert_eq!((&ended["environment_id"], &ended["exit_code"]), (&json!("a"), &json!(0)));

        let call = json!({"name": "exec_command", "arguments": echoing(Some("a"))});
        let task = server.request("tools/call", call).await["result"]["taskId"].clone();
        server.kill().await;
        let mut server = machines.serve(&[], true).await;
        let found = server.request("tasks/get", json!({"taskId": task})).await;
        assert_eq!(found["result"]["status"], "working", "{found}");
        let cancelled = server.request("tasks/cancel", json!({"taskId": task})).await;
        assert_eq!(cancelled["result"]["resultType"], "complete", "{cancelled}");
        server.leave().await;
    });
}

fn patch(environment: &str, file: &Path) -> Value {
    let header = format!("*** Begin Patch\n*** Environment ID: {environment}\n");
    json!({"patch": format!("{header}*** Add File: {}\n+{environment}\n*** End Patch", file.display())})
}

#[test]
fn a_dead_environment_fails_its_own_calls_only_and_says_since_when() {
    run(async {
        let mut machines = TwoMachines::start();
        let mut server = machines.serve(&[], false).await;
        let here = server.call("exec_command", echoing(None)).await;
        let there = server.call("exec_command", echoing(Some("b"))).await;
        machines.a.kill();
        let away = "`a` has been away for ";
        let started = refusal(&mut server, "exec_command", echoing(None)).await;
        assert!(started.contains(away), "{started}");
        let written = refusal(&mut server, "write_stdin", json!({"session_id": here["session_id"]})).await;
        assert!(written.contains(away), "{written}");
        let read = refusal(&mut server, "read_file", json!({"path": "/etc/passwd", "environment_id": "a"})).await;
        assert!(read.contains(away), "{read}");
        let unknown = refusal(&mut server, "write_stdin", json!({"session_id": 1})).await;
        assert!(unknown.contains("unknown session id 1") && unknown.contains(away), "{unknown}");

        let read = json!({"path": machines.file, "environment_id": "b"});
        server.call("read_file", read).await;
        let (in_a, in_b) = (machines.account.path().join("in_a"), machines.account.path().join("in_b"));
        let patched = refusal(&mut server, "apply_patch", patch("a", &in_a)).await;
        assert!(patched.contains(away) && !in_a.exists(), "{patched}");
        server.call("apply_patch", patch("b", &in_b)).await;
        assert_eq!(std::fs::read_to_string(in_b).expect("b has written it"), "b\n");
        let listed = server.call("list_sessions", json!({})).await;
        let [session] = &listed["sessions"].as_array().expect("a list")[..] else { panic!("one: {listed}") };
        assert_eq!(session["session_id"], there["session_id"]);
        assert!(listed["not_listed"][0].as_str().is_some_and(|why| why.contains(away)), "{listed}");
        let ended = server.call("write_stdin", end_of(&there)).await;
        assert_eq!(ended["exit_code"], 0);

        machines.a.start_again();
        let list = json!({"environment_id": "a"});
        while server.request("tools/call", json!({"name": "list_sessions", "arguments": list})).await["result"]["isError"]
            == true
        {
            poll_pause().await;
        }
        let ended = server.call("write_stdin", end_of(&here)).await;
        assert_eq!((&ended["output"], &ended["exit_code"]), (&json!("x\n"), &json!(0)));
        server.leave().await;
    });
}

#[test]
fn what_the_command_line_says_of_environments_is_checked_before_anything_is_served() {
    run(async {
        let machines = TwoMachines::start();
        let cases = [
            (&["--environments", "/no/such"][..], "/no/such does not exist"),
            (
                &["--environments", &machines.file, "--environment", "mars"],
                "environment `mars` is not configured; there is `a`, `b`",
            ),
        ];
        for (arguments, expected) in cases {
            let mut command = machines.account.command(exec_testkit::binaries::exec_server());
            let output = command.arg("mcp").args(arguments).output().await.expect("it runs");
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && told.contains(expected), "{told}");
        }
    });
}
