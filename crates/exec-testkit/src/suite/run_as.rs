//! Processes that have the rights of another user. The shell is the subject here: it is there for every user, and what it
//! prints is what a user sees. An environment that is not root's refuses, which is asserted instead.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use exec_core::sandbox::NetworkPolicy;
use exec_core::{Command, Environ, ExitCause, ExitStatus, Io, RunAs, SandboxPolicy, Signal, TerminalSize};
use exec_env::process::{ProcessReason, SpawnFailure, SpawnStep, WaitCondition};

use crate::process::TestProcess;
use crate::test_environment::{TestEnvironment, process_id};

/// A user that every machine has and that the test is not.
fn user() -> &'static str {
    if uid_of("nobody") == rustix::process::geteuid().as_raw().to_string() { "daemon" } else { "nobody" }
}

const EACCES: i32 = 13;

fn command(script: &str, user: &str) -> Command {
    let mut command = Command::new(["/bin/sh", "-c", script], "/");
    command.environ = Environ::exactly([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LC_ALL", "C")]);
    command.run_as = Some(RunAs { user: user.to_owned() });
    command
}

/// `None` if the environment is not root's: then it refuses, and says so.
async fn start(env: &TestEnvironment, command: Command) -> Option<TestProcess<'_>> {
    let id = process_id("p");
    match env.processes().start(&id, command).await.map_err(|error| error.reason) {
        Ok(started) => Some(TestProcess::new(env, id, started.pid)),
        Err(ProcessReason::UserUnavailable { why }) => {
            assert!(!rustix::process::geteuid().is_root() && why.contains("only root"), "{why}");
            None
        }
        Err(reason) => panic!("it starts, or is refused for its user: {reason:?}"),
    }
}

/// What the shell prints about itself, line by line.
async fn run(env: &TestEnvironment, command: Command) -> Option<Vec<String>> {
    let log = start(env, command).await?.read_to_end().await;
    assert_eq!(log.stderr(), "");
    Some(log.stdout().lines().map(str::to_owned).collect())
}

/// Name, user id, group id and home of [`user`], from the machine's own database.
fn account() -> [String; 4] {
    account_of(user())
}

fn account_of(name: &str) -> [String; 4] {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("every machine has it");
    let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let of_user = fields.find(|fields| fields[0] == name).expect("every machine has this user");
    [0, 2, 3, 5].map(|at| of_user[at].to_owned())
}

fn uid_of(name: &str) -> String {
    let [_, uid, ..] = account_of(name);
    uid
}

pub async fn a_process_has_the_ids_and_variables_of_its_user_and_no_capabilities(env: &TestEnvironment) {
    let script = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME $SHELL; grep CapEff /proc/self/status; \
                  grep -c . /root/x 2>/dev/null || touch /root/x 2>/dev/null || echo kept out";
    let Some(lines) = run(env, command(script, user())).await else { return };
    let [name, uid, gid, home] = account();
    let shell = lines[3].rsplit(' ').next().unwrap_or_default();
    assert!(Path::new(shell).is_absolute(), "{lines:?}");
    let expected = [
        uid,
        gid.clone(),
        gid,
        format!("{home} {name} {name} {shell}"),
        "CapEff:\t0000000000000000".to_owned(),
        "kept out".to_owned(),
    ];
    assert_eq!(lines, expected);
}

pub async fn variables_that_the_request_sets_are_kept(env: &TestEnvironment) {
    let mut command = command("echo $HOME $USER", user());
    command.environ = Environ::inherit_and([("HOME", "/elsewhere")]);
    let Some(lines) = run(env, command).await else { return };
    assert_eq!(lines, [format!("/elsewhere {}", user())]);
}

pub async fn a_user_can_be_named_by_number_with_or_without_an_account(env: &TestEnvironment) {
    let [name, uid, ..] = account();
    let Some(lines) = run(env, command("id -u; echo $USER", &uid)).await else { return };
    assert_eq!(lines, [uid, name]);
    env.forget_all().await;
    let lines = run(env, command("id -u; id -g", "34567")).await.expect("as before");
    assert_eq!(lines, ["34567", "34567"]);
}

pub async fn a_user_opens_its_own_streams_again(env: &TestEnvironment) {
    let Some(process) = start(env, command("echo out > /dev/stdout; echo err > /dev/stderr", user())).await else {
        return;
    };
    let log = process.read_to_end().await;
    assert_eq!((log.stdout().as_str(), log.stderr().as_str()), ("out\n", "err\n"));
}

pub async fn a_terminal_belongs_to_its_user(env: &TestEnvironment) {
    let script = "stat -c %u $(tty); echo hello > /dev/tty; test -t 0 && stty size; exit 6";
    let mut command = command(script, user());
    command.io = Io::Pty(TerminalSize { rows: 31, cols: 77 });
    let Some(process) = start(env, command).await else { return };
    let log = process.read_to_end().await;
    let [_, uid, ..] = account();
    assert_eq!(log.terminal(), format!("{uid}\nhello\n31 77\n"));
    assert_eq!(log.exit().status, ExitStatus::Code(6));
}

pub async fn a_folder_that_the_user_may_not_enter_is_refused_as_a_working_folder(env: &TestEnvironment) {
    if start(env, command("true", user())).await.is_none() {
        return;
    }
    let private = env.scratch().join("private");
    std::fs::DirBuilder::new().mode(0o700).create(&private).expect("the scratch folder is ours");
    let refused = Command { cwd: private.clone(), ..command("true", user()) };
    let refused = env.processes().start(&process_id("q"), refused).await.map_err(|error| error.reason);
    let failure = SpawnFailure { step: SpawnStep::Cwd, errno: EACCES, subject: private };
    assert_eq!(refused, Err(ProcessReason::SpawnFailed(failure)));
}

pub async fn a_sandboxed_process_has_the_rights_of_its_user_and_those_of_its_sandbox(env: &TestEnvironment) {
    let script = "id -u; grep NoNewPrivs /proc/self/status; touch /tmp/run-as-$$ 2>/dev/null || echo read-only";
    let mut command = command(script, user());
    command.sandbox = Some(SandboxPolicy::read_only(NetworkPolicy::Restricted));
    let Some(lines) = run(env, command).await else { return };
    let [_, uid, ..] = account();
    assert_eq!(lines, [uid, "NoNewPrivs:\t1".to_owned(), "read-only".to_owned()]);
}

pub async fn signals_and_the_end_reach_a_process_of_another_user(env: &TestEnvironment) {
    // The signal goes to the group of the leader and would end a descendant that has not left it yet. So the descendant
    // itself says when it has a session of its own.
    let script = "trap 'echo got' USR1; setsid sh -c 'echo ready; exec sleep 1000' & while :; do wait; done";
    let Some(process) = start(env, command(script, user())).await else { return };
    let said = |regex: &str| WaitCondition::Output { regex: regex.to_owned(), after: 0 };
    process.wait(said("ready")).await.expect("it gets ready");
    process.signal(Signal::User1).await;
    process.wait(said("got")).await.expect("the signal arrives");
    let ended = process.terminate(Duration::ZERO).await;
    assert_eq!((ended.was_running, ended.left), (true, 0));
    assert!(ended.ended >= 2, "{ended:?}");
    assert_eq!(process.exit().await.cause, ExitCause::Terminated);
}

pub async fn a_user_that_does_not_exist_is_refused(env: &TestEnvironment) {
    let refused = env.processes().start(&process_id("p"), command("true", "no-such-user")).await;
    let Err(ProcessReason::UserUnavailable { why }) = refused.map_err(|error| error.reason) else {
        panic!("it is refused for its user")
    };
    assert!(why.contains("no-such-user"), "{why}");
}

pub async fn everybody_may_run_as_the_user_that_the_environment_has_anyway(env: &TestEnvironment) {
    let own = rustix::process::geteuid().as_raw().to_string();
    let log = env.start_command("p", command("id -u", &own)).await.read_to_end().await;
    assert_eq!(log.stdout(), format!("{own}\n"));
}
