//! Codex in its own modes `workspace-write` and `read-only`: what the model may do there, and what it is told when it may not.
//!
//! Commands print by one stream (`exec 2>&1`): of two, nobody knows which comes first.

use serde_json::json;

use super::agent::Agent;
use super::files::{content, put};
use super::report::CommandState;

pub(super) async fn a_command_writes_in_the_workspace_and_is_told_that_the_rest_is_read_only(agent: &mut Agent) {
    let report = agent.run("exec 2>&1; echo in > in.txt && cat in.txt; echo out > ../out.txt").await;
    assert!(matches!(report.state, CommandState::Exited(1 | 2)), "{report:?}");
    assert!(report.output.starts_with("in\n") && report.output.contains("Read-only file system"), "{report:?}");
    assert_eq!(content(agent, "in.txt").as_deref(), Some("in\n"));
    assert!(!agent.path("../out.txt").exists());
}

pub(super) async fn the_repository_of_the_workspace_is_protected(agent: &mut Agent) {
    std::fs::create_dir(agent.path(".git")).expect("the working directory is ours");
    let report = agent.run("exec 2>&1; mkdir .git/hooks; mkdir .codex; mv .git moved; ls -d .git").await;
    assert_eq!(report.output.lines().last(), Some(".git"), "{report:?}");
    assert_eq!(std::fs::read_dir(agent.path(".git")).expect("it is there").count(), 0);
    assert!(!agent.path("moved").exists());
}

pub(super) async fn a_command_has_no_network(agent: &mut Agent) {
    let report = agent.run("python3 -c 'import socket; socket.socket()' 2>&1 | tail -1").await;
    assert!(report.output.contains("Operation not permitted"), "{report:?}");
}

pub(super) async fn a_patch_in_the_workspace_is_applied(agent: &mut Agent) {
    put(agent, "old.txt", "one\n");
    let patch =
        "*** Begin Patch\n*** Add File: new/file.txt\n+new\n*** Update File: old.txt\n@@\n-one\n+two\n*** End Patch";
    let output = agent.patch(patch).await;
    assert!(output.starts_with("Exit code: 0\n"), "{output}");
    assert_eq!(content(agent, "new/file.txt").as_deref(), Some("new\n"));
    assert_eq!(content(agent, "old.txt").as_deref(), Some("two\n"));
}

pub(super) async fn a_shell_on_a_terminal_works(agent: &mut Agent) {
    let session = agent.open_shell().await;
    agent.type_line(session, "echo [$((40 + 2))] > n; cat n", "[42]").await;
    agent.type_line(session, "echo sta''rted; sleep 1000", "started").await;
    let report = agent.write(session, "\u{3}", super::terminals::ANSWER_MS).await;
    agent.poll_until(session, report.output, "shell> ").await;
    agent.close_shell(session, 6).await;
}

pub(super) async fn a_command_reads_and_writes_nothing(agent: &mut Agent) {
    put(agent, "given.txt", "given\n");
    let report =
        agent.run("exec 2>&1; cat given.txt; echo x > given.txt; echo y > /tmp/y-of-a-read-only-sandbox").await;
    assert!(report.output.starts_with("given\n"), "{report:?}");
    assert_eq!(report.output.matches("Read-only file system").count(), 2, "{report:?}");
    assert_eq!(content(agent, "given.txt").as_deref(), Some("given\n"));
}

pub(super) async fn a_patch_is_refused_and_changes_nothing(agent: &mut Agent) {
    put(agent, "old.txt", "one\n");
    let output = agent.patch("*** Begin Patch\n*** Update File: old.txt\n@@\n-one\n+two\n*** End Patch").await;
    assert!(!output.starts_with("Exit code: 0\n"), "{output}");
    assert_eq!(content(agent, "old.txt").as_deref(), Some("one\n"));
    let seen = agent.call("exec_command", json!({"cmd": "cat old.txt"})).await;
    assert!(seen.as_str().is_some_and(|seen| seen.contains("one")), "{seen}");
}
