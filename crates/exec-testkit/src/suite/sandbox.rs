//! What a sandboxed process may reach. The shell is the subject here: what it prints is what a user of the sandbox sees.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxMeans, SandboxPolicy};
use exec_core::{Command, Environ, ExitStatus, Io, Signal, TerminalSize};
use exec_env::process::{ProcessReason, WaitCondition};

use crate::checked_log::CheckedLog;
use crate::os_process::poll_pause;
use crate::test_environment::{TestEnvironment, process_id};

fn rule(path: impl Into<PathBuf>, access: FileAccess) -> FileRule {
    FileRule { target: RuleTarget::Path(path.into()), access }
}

fn policy(rules: Vec<FileRule>) -> SandboxPolicy {
    SandboxPolicy { files: FilePolicy::Restricted { rules, glob_scan_depth: None }, network: NetworkPolicy::Restricted }
}

/// All can be read, the workspace written, and its `.git` not.
fn workspace_policy(workspace: &Path) -> SandboxPolicy {
    policy(vec![
        rule("/", FileAccess::Read),
        rule(workspace, FileAccess::Write),
        rule(workspace.join(".git"), FileAccess::Read),
    ])
}

/// A folder `w` with a `.git`, beside it a folder `out`.
fn workspace(env: &TestEnvironment) -> PathBuf {
    let workspace = env.scratch().join("w");
    for folder in [workspace.join(".git"), env.scratch().join("out")] {
        std::fs::create_dir_all(folder).expect("the scratch folder is ours");
    }
    workspace
}

fn shell(script: &str, cwd: &Path, sandbox: SandboxPolicy) -> Command {
    let mut command = Command::new(["/bin/sh", "-c", script], cwd);
    command.environ = Environ::exactly([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LC_ALL", "C")]);
    command.sandbox = Some(sandbox);
    command
}

async fn run(env: &TestEnvironment, script: &str, cwd: &Path, sandbox: SandboxPolicy) -> CheckedLog {
    env.start_command("p", shell(script, cwd, sandbox)).await.read_to_end().await
}

pub async fn a_sandboxed_process_writes_in_its_workspace_and_nowhere_else(env: &TestEnvironment) {
    let workspace = workspace(env);
    let script =
        "echo in > in; echo out > ../out/x; echo git > .git/x; mv .git g; rm -rf .git; echo null > /dev/null; cat in";
    let log = run(env, script, &workspace, workspace_policy(&workspace)).await;
    assert_eq!(log.stdout(), "in\n");
    assert_eq!(std::fs::read_dir(env.scratch().join("out")).expect("it is there").count(), 0);
    assert_eq!(std::fs::read_dir(workspace.join(".git")).expect("it is there").count(), 0);
    assert!(workspace.join("in").exists() && !workspace.join("g").exists());
}

pub async fn a_start_and_a_listing_tell_what_confines_a_process(env: &TestEnvironment) {
    let sandbox = SandboxPolicy::read_only(NetworkPolicy::Restricted);
    let command = shell("true", &env.scratch(), sandbox);
    let started = env.processes().start(&process_id("p"), command).await.expect("it can be enforced here");
    let report = started.sandbox.expect("it is told");
    assert!(report.means.contains(&SandboxMeans::Seccomp), "{report:?}");
    let listed = env.processes().list().await.expect("the environment is there");
    assert_eq!(listed.iter().find_map(|info| info.sandbox.clone()), Some(report));
    let free = env.processes().start(&process_id("q"), env.command("exit 0")).await.expect("it starts");
    assert_eq!(free.sandbox, None);
}

pub async fn a_sandboxed_process_reaches_no_network_and_no_other_process(env: &TestEnvironment) {
    let outside = env.start("o", "wait-forever").await;
    let pid = outside.pid;
    let script = format!(
        "kill -0 {pid} && echo killed; cat /proc/{pid}/environ > /dev/null && echo read; \
         python3 -c 'import socket; socket.socket()' && echo socket; \
         python3 -c 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); print(b.recv(1))'"
    );
    let sandbox = SandboxPolicy::read_only(NetworkPolicy::Restricted);
    let log = run(env, &script, &env.scratch(), sandbox).await;
    assert_eq!(log.stdout(), "b'x'\n", "{}", log.stderr());
    assert!(outside.os_process().is_alive());
}

pub async fn what_is_denied_cannot_be_read_and_what_is_not_named_is_not_there(env: &TestEnvironment) {
    let workspace = workspace(env);
    let secret = env.scratch().join("secret");
    std::fs::create_dir(&secret).expect("the scratch folder is ours");
    std::fs::write(secret.join("key"), "k").expect("it is ours");
    std::fs::write(workspace.join("a.env"), "k").expect("it is ours");
    let mut rules =
        vec![rule("/", FileAccess::Read), rule(&workspace, FileAccess::Write), rule(&secret, FileAccess::Deny)];
    let glob = RuleTarget::Glob(format!("{}/**/*.env", workspace.display()));
    rules.push(FileRule { target: glob, access: FileAccess::Deny });
    let script = "cat ../secret/key || ls ../secret || cat a.env || echo none";
    let log = run(env, script, &workspace, policy(rules)).await;
    assert_eq!(log.stdout(), "none\n");
    assert_eq!(log.stderr().matches("Permission denied").count(), 3, "{}", log.stderr());

    let named = vec![
        FileRule { target: RuleTarget::SystemFiles, access: FileAccess::Read },
        rule(&workspace, FileAccess::Write),
    ];
    env.forget_all().await;
    let log = run(env, "cat ../secret/key || ls / | grep -x home || echo none", &workspace, policy(named)).await;
    assert_eq!(log.stdout(), "none\n");
    assert!(log.stderr().contains("No such file"), "{}", log.stderr());
}

/// Also where a rule, or what is protected in every writable directory, lies below it.
pub async fn nothing_is_granted_below_what_a_pattern_denies(env: &TestEnvironment) {
    let workspace = workspace(env);
    let secret = workspace.join("secret-a");
    std::fs::create_dir_all(secret.join(".git")).expect("the scratch folder is ours");
    for name in ["key", ".git/config"] {
        std::fs::write(secret.join(name), "k").expect("it is ours");
    }
    let glob = RuleTarget::Glob(format!("{}/secret*", workspace.display()));
    let rules = vec![
        rule("/", FileAccess::Read),
        rule(&workspace, FileAccess::Write),
        rule(&secret, FileAccess::Write),
        FileRule { target: glob, access: FileAccess::Deny },
    ];
    let script = "cat secret-a/key || cat secret-a/.git/config || echo x > secret-a/.git/x || echo none";
    let log = run(env, script, &workspace, policy(rules)).await;
    assert_eq!(log.stdout(), "none\n", "{}", log.stderr());
    assert!(!secret.join(".git/x").exists());
}

/// A mount cannot be renamed, but what is above it could be, and something else put in its place.
pub async fn what_is_protected_deeper_down_stays_where_it_is(env: &TestEnvironment) {
    let workspace = workspace(env);
    let protected = workspace.join("a/b/.git");
    std::fs::create_dir_all(&protected).expect("the scratch folder is ours");
    let mut sandbox = workspace_policy(&workspace);
    if let FilePolicy::Restricted { rules, .. } = &mut sandbox.files {
        rules.push(rule(&protected, FileAccess::Read));
    }
    let script = "mv a z; mv a/b a/c; mkdir -p a/b/.git/hooks; echo ok > a/b/file; cat a/b/file";
    let log = run(env, script, &workspace, sandbox).await;
    assert_eq!(log.stdout(), "ok\n", "{}", log.stderr());
    assert!(protected.is_dir() && !protected.join("hooks").exists());
}

pub async fn a_protected_folder_that_is_missing_cannot_be_made_and_leaves_nothing_behind(env: &TestEnvironment) {
    let workspace = workspace(env);
    std::fs::remove_dir(workspace.join(".git")).expect("it is empty");
    let script = "mkdir .git; ls -Ad .git; ls -A .git; echo x > .git/config; rm -rf .git; echo done";
    let log = run(env, script, &workspace, workspace_policy(&workspace)).await;
    assert_eq!(log.stdout(), ".git\ndone\n", "{}", log.stderr());
    // It is removed when the last process of the tree is gone, which nobody is told of.
    while workspace.join(".git").exists() {
        poll_pause().await;
    }
}

/// What is protected in a directory that may be written is not missing in a file.
pub async fn a_file_alone_can_be_writable(env: &TestEnvironment) {
    let workspace = workspace(env);
    for name in ["notes", "others"] {
        std::fs::write(workspace.join(name), "old\n").expect("the scratch folder is ours");
    }
    let mut sandbox = SandboxPolicy::read_only(NetworkPolicy::Restricted);
    if let FilePolicy::Restricted { rules, .. } = &mut sandbox.files {
        rules.push(rule(workspace.join("notes"), FileAccess::Write));
    }
    let script = "echo new >> notes; echo new >> others; rm notes; mkdir notes/.git; cat notes others";
    let log = run(env, script, &workspace, sandbox).await;
    assert_eq!(log.stdout(), "old\nnew\nold\n", "{}", log.stderr());
}

pub async fn a_sandboxed_process_has_its_terminal_and_gets_its_signals(env: &TestEnvironment) {
    let workspace = workspace(env);
    let mut command = shell(
        "trap 'echo got; exit 5' INT; test -t 0 && stty size; echo ready; while :; do sleep 0.05; done",
        &workspace,
        workspace_policy(&workspace),
    );
    command.io = Io::Pty(TerminalSize { rows: 31, cols: 77 });
    let process = env.start_command("p", command).await;
    let ready = WaitCondition::Output { regex: "ready".to_owned(), after: 0 };
    process.wait(ready).await.expect("it gets ready");
    process.signal(Signal::Interrupt).await;
    let log = process.read_to_end().await;
    assert!(log.terminal().contains("31 77") && log.terminal().contains("got"), "{}", log.terminal());
    assert_eq!(log.exit().status, ExitStatus::Code(5));
}

pub async fn a_sandboxed_tree_is_ended_whole(env: &TestEnvironment) {
    let workspace = workspace(env);
    let script = "setsid sleep 1000 & sleep 1000 & echo ready; wait";
    let process = env.start_command("p", shell(script, &workspace, workspace_policy(&workspace))).await;
    let ready = WaitCondition::Output { regex: "ready".to_owned(), after: 0 };
    process.wait(ready).await.expect("it gets ready");
    let ended = process.terminate(Duration::ZERO).await;
    assert_eq!((ended.was_running, ended.left), (true, 0));
    assert!(ended.ended >= 2, "{ended:?}");
}

/// No mount holds a link in place, so that the policy would not hold.
pub async fn a_policy_that_cannot_be_enforced_is_refused_and_says_why(env: &TestEnvironment) {
    let workspace = workspace(env);
    std::fs::remove_dir(workspace.join(".git")).expect("it is empty");
    std::os::unix::fs::symlink("elsewhere", workspace.join(".git")).expect("the scratch folder is ours");
    let command = shell("echo ran > ran", &workspace, workspace_policy(&workspace));
    let refused = env.processes().start(&process_id("p"), command).await.map_err(|error| error.reason);
    let Err(ProcessReason::SandboxUnavailable { why }) = refused else { panic!("it is refused: {refused:?}") };
    assert!(why.contains(".git") && why.contains("link"), "{why}");
    assert!(!workspace.join("ran").exists());
}
