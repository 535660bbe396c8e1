//! The server of the account on this machine: `run --detach` starts it, and the other commands find it.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use exec_testkit::far::{Far, code, stdout};

#[test]
fn a_program_is_detached_here_without_a_server_of_ones_own() {
    let far = Far::empty();
    let folder = far.path("own").canonicalize().expect("it is there");
    let mut command = far.client(&["run", "--detach", "--", "sh", "-c", "pwd -P; echo $GREETING; read x; exit 8"]);
    let started = command.current_dir(&folder).env("GREETING", "hello").output().expect("the binary can be started");
    let id = stdout(&started).trim_end().to_owned();
    assert!(id.starts_with("sh-"), "{started:?}");
    // Our folder and variables are the program's, whoever needed the server first.
    assert_eq!(stdout(&far.finish(&["logs", &id])), format!("{}\nhello\n", folder.display()));
    let listed = far.finish(&["ps"]);
    assert!(stdout(&listed).contains(&id) && stdout(&listed).contains("local"), "{listed:?}");
    let all = far.finish(&["ps", "--all"]);
    assert!(stdout(&all).contains(&id), "{all:?}");
    let attached = far.finish_with_input(&["attach", &id], b"x\n");
    assert_eq!(code(&attached), 8, "{attached:?}");
    assert_eq!(code(&far.finish(&["kill", "--forget", &id])), 0);
}

#[test]
fn what_an_agent_runs_by_mcp_is_listed_and_read_by_people() {
    let far = Far::empty();
    let mut command = far.client(&["mcp"]);
    let mut mcp = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary can be started");
    let mut stdin = mcp.stdin.take().expect("piped");
    let mut answers = BufReader::new(mcp.stdout.take().expect("piped")).lines();
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec_command","arguments":{"cmd":"echo begun; sleep 1000","yield_time_ms":10}}}"#,
    ] {
        writeln!(stdin, "{message}").expect("it reads");
    }
    let answered = answers.any(|line| line.expect("a pipe can be read").contains("\"id\":2"));
    assert!(answered, "the command was started");
    let all = far.finish(&["ps", "--all"]);
    assert!(stdout(&all).contains("sleep 1000"), "{all:?}");
    let id = stdout(&all).lines().find(|line| line.contains("sleep 1000")).and_then(|line| line.split(' ').next());
    let logs = far.finish(&["logs", id.expect("a line has an id")]);
    assert_eq!(stdout(&logs), "begun\n", "{logs:?}");
    drop(stdin);
    mcp.wait().expect("it is our child");
}
