//! A server with a sandbox: it holds for commands and for the tools over files, and whoever is denied something is told.

use std::net::TcpListener;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::environments::refusal;
use super::server::{Account, McpProcess, Protocol};
use crate::durability::support::run;

const LATEST: Protocol = Protocol::Stateless;

/// A folder outside every workspace and outside the folders for temporary files, which can be written in a sandbox.
pub(super) fn outside() -> TempDir {
    tempfile::tempdir_in("/var/tmp").expect("every machine has it")
}

pub(super) fn command(cmd: impl Into<String>) -> Value {
    json!({"cmd": cmd.into(), "login": false, "yield_time_ms": 30_000})
}

async fn exec(server: &mut McpProcess, cmd: impl Into<String>) -> Value {
    server.call("exec_command", command(cmd)).await
}

#[test]
fn commands_and_file_tools_stay_in_the_sandbox_and_what_it_denied_is_told() {
    run(async {
        let (account, outside, writable) = (Account::new(), outside(), outside());
        let more = writable.path().to_str().expect("it is plain");
        let arguments = ["--sandbox", "workspace-write", "--writable", more];
        let mut server = account.start_with(&arguments, LATEST, false).await;
        let stolen = outside.path().join("stolen");

        let denied = exec(&mut server, format!("echo x > {}", stolen.display())).await;
        assert_eq!((&denied["sandbox_denied"], stolen.exists()), (&json!(true), false), "{denied}");
        let names_the_sandbox = |text: &str| text.contains("sandbox") && text.contains("--writable DIR");
        assert!(denied["note"].as_str().is_some_and(names_the_sandbox), "{denied}");
        let failed = exec(&mut server, "echo unrelated; exit 3").await;
        assert_eq!((&failed["sandbox_denied"], &failed["exit_code"]), (&Value::Null, &json!(3)));
        // The directory that a call names is not the workspace.
        let mut elsewhere = command("echo x > stolen");
        elsewhere["workdir"] = json!(outside.path());
        let denied = server.call("exec_command", elsewhere).await;
        assert_eq!((&denied["sandbox_denied"], stolen.exists()), (&json!(true), false), "{denied}");
        let refused = refusal(&mut server, "write_file", json!({"path": stolen, "contents": "x"})).await;
        assert!(names_the_sandbox(&refused) && refused.contains("written only those in"), "{refused}");
        let patch = format!("*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch", stolen.display());
        let refused = refusal(&mut server, "apply_patch", json!({"patch": patch})).await;
        assert!(names_the_sandbox(&refused), "{refused}");
        // What has nothing to do with the sandbox is not blamed on it.
        let missing = refusal(&mut server, "read_file", json!({"path": "nowhere"})).await;
        assert!(!missing.contains("sandbox"), "{missing}");
        assert!(!stolen.exists());

        let done = exec(&mut server, format!("echo x > inside && echo x > {more}/more")).await;
        assert_eq!(done["exit_code"], 0, "{done}");
        server.call("write_file", json!({"path": "written", "contents": "x"})).await;
        assert!(["inside", "written"].iter().all(|name| account.path().join(name).exists()));
        assert!(writable.path().join("more").exists());
        server.leave().await;
    });
}

#[test]
fn without_somebody_to_ask_nothing_leaves_the_sandbox_and_models_are_not_told_that_it_could() {
    run(async {
        let (account, outside) = (Account::new(), outside());
        let mut server = account.start_with(&["--sandbox", "read-only"], LATEST, false).await;
        let listed = server.request("tools/list", json!({})).await;
        let exec_command = &listed["result"]["tools"][0];
        assert_eq!(exec_command["name"], "exec_command");
        assert_eq!(exec_command["inputSchema"]["properties"]["outside_sandbox"], Value::Null);
        let told = server.request("server/discover", json!({})).await;
        let told = told["result"]["instructions"].as_str().expect("there are some").to_owned();
        assert!(told.contains("all files can be read, none written, without network"), "{told}");
        let ran = outside.path().join("ran");
        let mut asks = command(format!("touch {}", ran.display()));
        asks["outside_sandbox"] = json!(true);
        let refused = refusal(&mut server, "exec_command", asks).await;
        assert!(refused.contains("nothing is done outside the sandbox here") && !ran.exists(), "{refused}");
        let denied = exec(&mut server, "touch here").await;
        assert_eq!(
            (&denied["sandbox_denied"], account.path().join("here").exists()),
            (&json!(true), false),
            "{denied}"
        );
        server.leave().await;
    });
}

#[test]
fn a_sandbox_has_a_network_only_if_it_is_said() {
    run(async {
        let account = Account::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
        for (arguments, code) in [(&["--sandbox", "read-only"][..], 1), (&["--sandbox", "read-only", "--network"], 0)] {
            let mut server = account.start_with(arguments, LATEST, false).await;
            let mut tries = command(&connect);
            tries["shell"] = json!("/bin/bash");
            let done = server.call("exec_command", tries).await;
            assert_eq!(done["exit_code"], code, "{arguments:?}: {done}");
            server.leave().await;
        }
    });
}

#[test]
fn a_confined_server_looks_at_what_others_have_started_but_does_not_type_into_it() {
    run(async {
        let account = Account::new();
        let free = json!({"cmd": "echo begin; sh", "stdin": true, "login": false, "yield_time_ms": 250});
        let mut server = account.start(LATEST, true).await;
        let answer = server.request("tools/call", json!({"name": "exec_command", "arguments": free})).await;
        let task = answer["result"]["taskId"].as_str().expect("it goes on").to_owned();
        let session: u64 =
            task.split('-').nth(1).and_then(|number| number.parse().ok()).expect("the id has the number");
        server.leave().await;

        let mut server = account.start_with(&["--sandbox", "workspace-write"], LATEST, true).await;
        let typed = json!({"session_id": session, "chars": "touch stolen\n"});
        let refused = refusal(&mut server, "write_stdin", typed).await;
        assert!(refused.contains("outside the sandbox"), "{refused}");
        let update = json!({"taskId": task, "inputResponses": {"stdin": "touch stolen\n"}});
        let refused = server.request("tasks/update", update).await;
        assert!(refused["error"]["message"].as_str().is_some_and(|why| why.contains("sandbox")), "{refused}");
        let read = server.call("read_output", json!({"session_id": session})).await;
        assert_eq!(read["output"], "begin\n");
        let killed = server.call("kill_session", json!({"session_id": session})).await;
        assert_eq!((&killed["status"], account.path().join("stolen").exists()), (&json!("exited"), false));

        // Its own are as they were.
        let own = json!({"cmd": "cat", "stdin": true, "tty": true, "login": false, "yield_time_ms": 250});
        let own = server.call("exec_command", own).await;
        server.call("write_stdin", json!({"session_id": own["session_id"], "chars": "x\n"})).await;
        server.leave().await;
    });
}
