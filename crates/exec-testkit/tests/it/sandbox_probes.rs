//! Escapes from sandboxes: a program of ours (`prober`) tries hundreds under every policy, as root and as a user without
//! rights, and finds what the tables in [`expectations`] say. Files that must not change are compared before and after, so
//! that not only the probe's own word counts.

mod expectations;
mod pid_namespaces;
mod supervised;
mod targets;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use exec_core::sandbox::{NetworkPolicy, SandboxPolicy};
use exec_core::{Command, Environ, Io, TerminalSize};
use exec_env::process::{ProcessError, ProcessReason};
use exec_testkit::TestEnvironment;
use exec_testkit::os_process::{OsProcess, poll_pause};
use exec_testkit::process::LogReader;
use exec_testkit::test_environment::process_id;
use rustix::fs::OFlags;

use crate::durability::support;
use expectations::{Expected, NEEDS_HOST, NEEDS_ROOT, NO_NETWORKS, Policy, expected_of_server, is_met};
use targets::{Account, Daemon, Facts, ProbeTargets, changes, prober_itself, prober_under, probes};

const ALL_GROUPS: &[&str] = &[
    "confinement",
    "daily-work",
    "writing",
    "system-files",
    "protected",
    "reading",
    "processes",
    "network",
    "kernel",
    "legacy-calls",
];

#[test]
fn under_a_read_only_policy_no_probe_gets_out() {
    judge(Policy::ReadOnly, Account::Own);
}

#[test]
fn under_a_read_only_policy_no_probe_of_an_ordinary_user_gets_out() {
    judge(Policy::ReadOnly, Account::Ordinary);
}

#[test]
fn with_a_writable_workspace_no_probe_gets_out_and_daily_work_is_done() {
    judge(Policy::WorkspaceWrite, Account::Own);
}

#[test]
fn with_a_writable_workspace_no_probe_of_an_ordinary_user_gets_out_and_daily_work_is_done() {
    judge(Policy::WorkspaceWrite, Account::Ordinary);
}

#[test]
fn with_denied_paths_no_probe_reads_or_writes_them() {
    judge(Policy::WithDenials, Account::Own);
}

#[test]
fn with_denied_paths_no_probe_of_an_ordinary_user_reads_or_writes_them() {
    judge(Policy::WithDenials, Account::Ordinary);
}

#[test]
fn with_a_limited_read_set_no_probe_finds_the_rest() {
    judge(Policy::LimitedRead, Account::Own);
}

#[test]
fn with_a_limited_read_set_no_probe_of_an_ordinary_user_finds_the_rest() {
    judge(Policy::LimitedRead, Account::Ordinary);
}

#[test]
fn with_the_network_no_probe_gets_out_by_other_ways() {
    judge(Policy::NetworkEnabled, Account::Own);
}

#[test]
fn with_the_network_no_probe_of_an_ordinary_user_gets_out_by_other_ways() {
    judge(Policy::NetworkEnabled, Account::Ordinary);
}

/// Whether this kernel has such a family or not: on others, more of them are there.
#[test]
fn with_the_network_there_are_sockets_of_networks_and_no_others() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Own);
        let mut command = command(&targets, NO_NETWORKS, &[]);
        command.sandbox = Some(Policy::NetworkEnabled.sandbox(&targets));
        let verdicts = run(&targets.local().await, command).await.expect("this host can enforce the policy");
        let let_in = verdicts.iter().filter(|(_, verdict)| *verdict != "denied: EPERM");
        assert_eq!(let_in.collect::<Vec<_>>(), []);
        assert_eq!(verdicts.len(), NO_NETWORKS.len());
    });
}

/// A disk that could be opened by another name would be read as a whole, and all that is hidden on it.
#[test]
fn a_device_that_has_a_name_out_of_dev_cannot_be_opened_by_it() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Own);
        let nodes = ["bin", "workspace"].map(|place| targets.path(place).join("zero"));
        for node in &nodes {
            use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
            let made = mknodat(CWD, node, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 5));
            if let Err(errno) = made.and_then(|()| rustix::fs::open(node, OFlags::RDONLY, Mode::empty()).map(drop)) {
                return eprintln!("skipped: here nobody can make a device: {errno}");
            }
        }
        let env = targets.local().await;
        for policy in [Policy::ReadOnly, Policy::WorkspaceWrite, Policy::LimitedRead] {
            let script = "for node in \"$@\"; do \
                if head -c 1 \"$node\" >/dev/null 2>&1; then echo \"$node\" read; else echo \"$node\" denied; fi; done";
            let words = ["/bin/sh", "-c", script, "sh", "/dev/zero"].map(OsString::from);
            let words = words.into_iter().chain(nodes.iter().map(|node| node.clone().into_os_string()));
            let mut command = Command::new(words, targets.path("workspace"));
            command.environ = Environ::exactly([("PATH", "/usr/bin:/bin")]);
            command.sandbox = Some(policy.sandbox(&targets));
            let found = run(&env, command).await.expect("this host can enforce the policy");
            let expected = nodes.iter().map(|node| (node.display().to_string(), "denied".to_owned()));
            let own = ("/dev/zero".to_owned(), "read".to_owned());
            assert_eq!(found, expected.chain([own]).collect(), "{policy:?}");
        }
    });
}

#[test]
fn a_terminal_takes_no_input_from_the_process_that_it_controls() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Own);
        let env = targets.local().await;
        let names =
            ["terminal-input", "terminal-input-upper-bits", "terminal-selection", "terminal-selection-upper-bits"];
        let mut command = command(&targets, &names, &[]);
        command.sandbox = Some(Policy::WorkspaceWrite.sandbox(&targets));
        command.io = Io::Pty(TerminalSize::default());
        let verdicts = run(&env, command).await.expect("this host can enforce the policy");
        assert_eq!(mismatches(Policy::WorkspaceWrite, &verdicts), NONE);
        assert_eq!(verdicts.len(), names.len());
    });
}

#[test]
fn a_sandboxed_process_reaches_neither_the_server_nor_its_keeper_nor_its_files() {
    the_server_is_out_of_reach(Account::Own);
}

#[test]
fn a_sandboxed_process_of_an_ordinary_user_reaches_neither_the_server_nor_its_keeper_nor_its_files() {
    the_server_is_out_of_reach(Account::Ordinary);
}

/// A server without a token serves nobody from its own sandboxes. A leader that has gone cannot be asked where those are that it
/// has left behind; a server that was started again never saw it.
#[test]
fn what_a_sandboxed_program_leaves_behind_is_known_by_its_connections_also_to_the_next_owner() {
    support::run(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
        let own = listener.local_addr().expect("it is bound");
        let (env, environment) = support::test_environment(state.path(), support::LONG_TTL).await;
        let witness = env.start("witness", "wait-forever").await.os_process();
        if support::cgroup_directory(witness.pid).is_none() {
            return eprintln!("skipped: here processes have no cgroups");
        }
        let script = format!(
            "(while kill -0 $$ 2>/dev/null; do :; done; exec 3<>/dev/tcp/127.0.0.1/{}; read -u 3 line) & exit 0",
            own.port()
        );
        let mut command = Command::new(["/bin/bash", "-c", &script], "/");
        command.sandbox = Some(SandboxPolicy::read_only(NetworkPolicy::Enabled));
        env.start_command("left", command).await;
        let accepting = tokio::task::spawn_blocking(move || listener.accept());
        let (connection, peer) = accepting.await.expect("it ends").expect("it connects");
        assert!(environment.is_from_a_sandbox(peer, own).await, "by who has started it");
        let plain = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
        let address = plain.local_addr().expect("it is bound");
        let ours = std::net::TcpStream::connect(address).expect("it listens").local_addr().expect("it is connected");
        assert!(!environment.is_from_a_sandbox(ours, address).await, "we are in no sandbox");
        support::into_environment(env, environment).hand_over().await;
        let next = support::open(state.path(), support::LONG_TTL).await.expect("the state folder can be opened");
        assert!(next.is_from_a_sandbox(peer, own).await, "by who has found it");
        drop(connection);
        support::shut_down(next, support::keeper_of(state.path())).await;
    });
}

/// The keeper runs it, and then tells the server, which is busy.
#[test]
fn a_sandboxed_program_is_known_by_its_connections_before_its_server_has_heard_that_it_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a test can make a runtime").block_on(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
        let own = listener.local_addr().expect("it is bound");
        let (env, environment) = support::test_environment(state.path(), support::LONG_TTL).await;
        let witness = env.start("witness", "wait-forever").await;
        if support::cgroup_directory(witness.os_process().pid).is_none() {
            return eprintln!("skipped: here processes have no cgroups");
        }
        witness.kill().await;
        let keeper = support::keeper_of(state.path());
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; read -u 3 line", own.port());
        let mut command = Command::new(["/bin/bash", "-c", &script], "/");
        command.sandbox = Some(SandboxPolicy::read_only(NetworkPolicy::Enabled));
        let judge = async {
            while OsProcess::children_of(keeper.pid).is_empty() {
                tokio::task::yield_now().await;
            }
            // From here to the question nothing else runs on this thread, which has to hear of the start.
            let (connection, peer) = listener.accept().expect("it connects");
            (environment.is_from_a_sandbox(peer, own).await, connection)
        };
        let (process, (is_from_a_sandbox, connection)) = tokio::join!(env.start_command("early", command), judge);
        assert!(is_from_a_sandbox);
        drop(connection);
        process.read_to_end().await;
        env.forget_all().await;
        let environment = support::into_environment(env, environment);
        support::shut_down(environment, keeper).await;
    });
}

#[test]
fn a_sandboxed_process_reaches_no_other_process_of_its_server_sandboxed_or_not() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Ordinary);
        let daemon = targets.serve(&[]).await;
        for sandbox in [None, Some(Policy::WorkspaceWrite.sandbox(&targets))] {
            let name = if sandbox.is_some() { "sandboxed" } else { "plain" };
            let sleeper = Command { sandbox, ..Command::new(["/bin/sleep", "600"], targets.path("workspace")) };
            let sleeper = daemon.environment.start_command(name, sleeper).await;
            // In a pid namespace the pid that the server tells is that of a program which waits for it.
            let victims = OsProcess::children_of(sleeper.pid).into_iter().map(|child| child.pid).chain([sleeper.pid]);
            for victim in victims {
                let keys = [("pid", victim.to_string())];
                assert_denied(&targets, &daemon, Policy::WorkspaceWrite, &["processes"], &keys).await;
            }
        }
    });
}

#[test]
fn where_mounts_cannot_be_had_reading_is_confined_and_denials_are_refused() {
    on_hosts(&[
        (&["docker-like"], [Outcome::Refused, Outcome::Enforced, Outcome::Refused]),
        (&["docker-like", "no-landlock"], [Outcome::Refused; 3]),
        // Root needs no user namespace.
        (&["no-user-namespaces"], [Outcome::Enforced, Outcome::Enforced, Outcome::Refused]),
    ]);
}

#[test]
fn where_mounts_cannot_be_had_root_reads_and_no_probe_gets_out() {
    support::run(on_host(&["docker-like"], Policy::ReadOnly, Account::Own, Outcome::Enforced));
}

/// Codex's usual policy in a container: no namespaces, no mounts, no rights of an administrator.
#[test]
fn where_mounts_cannot_be_had_a_supervisor_writes_the_workspace_and_no_probe_gets_out() {
    support::run(on_host(&["docker-like"], Policy::WorkspaceWrite, Account::Own, Outcome::Enforced));
}

#[test]
fn where_mounts_cannot_be_had_a_supervisor_writes_for_an_ordinary_user_and_no_probe_gets_out() {
    support::run(on_host(&["docker-like"], Policy::WorkspaceWrite, Account::Ordinary, Outcome::Enforced));
}

/// As kernels before 5.13 are, and those that were booted without it. Between them and 6.12 there is more, never less.
#[test]
fn without_landlock_pids_are_its_own_and_no_probe_gets_out() {
    on_hosts(&[(&["no-landlock"], [Outcome::Enforced; 3]), (&["landlock-disabled"], [Outcome::Enforced; 3])]);
}

#[test]
fn without_landlock_no_probe_gets_out_of_any_other_policy() {
    support::run(async {
        for policy in [Policy::WorkspaceWrite, Policy::LimitedRead, Policy::NetworkEnabled] {
            for account in [Account::Own, Account::Ordinary] {
                on_host(&["no-landlock"], policy, account, Outcome::Enforced).await;
            }
        }
    });
}

#[test]
fn without_bubblewrap_every_policy_is_enforced() {
    on_hosts(&[(&["no-bubblewrap"], [Outcome::Enforced; 3])]);
}

#[test]
fn without_filters_of_system_calls_every_policy_is_refused() {
    on_hosts(&[(&["no-seccomp"], [Outcome::Refused; 3])]);
}

#[test]
fn each_condition_takes_from_a_host_what_it_says_and_no_more() {
    let probe = prober_itself();
    for (condition, name, verdict) in [
        ("no-landlock", "landlock-version", "denied: ENOSYS"),
        ("landlock-disabled", "landlock-version", "denied: EOPNOTSUPP"),
        ("no-seccomp", "filter-of-its-own", "denied: ENOSYS"),
        ("no-user-namespaces", "unshare-user", "denied: EPERM"),
        ("no-user-namespaces", "clone-user", "denied: EPERM"),
        ("no-user-namespaces", "clone3-user", "denied: ENOSYS"),
        ("docker-like", "unshare-user", "denied: EPERM"),
        ("docker-like", "clone-user", "denied: EPERM"),
        ("docker-like", "clone3-user", "denied: ENOSYS"),
        ("docker-like", "key-ring", "denied: EPERM"),
        ("docker-like", "unmount-proc", "denied: EPERM"),
    ] {
        assert_eq!(prober_under(&[condition], &[probe, name]), format!("{name} {verdict}\n"), "{condition}");
    }
    for condition in ["no-landlock", "no-seccomp", "no-user-namespaces", "docker-like", "no-bubblewrap"] {
        for name in ["work-shell", "work-thread"] {
            let found = prober_under(&[condition], &[probe, name]);
            assert!(found.starts_with(&format!("{name} escaped")), "{condition}: {found}");
        }
    }
    let without = prober_under(&["no-bubblewrap"], &["/bin/sh", "-c", "bwrap --version >/dev/null 2>&1; echo $?"]);
    assert!(["126\n", "127\n"].contains(&without.as_str()), "{without}");
}

/// A probe that never gets anywhere would prove nothing where it is denied.
#[test]
fn without_a_sandbox_the_probes_get_through() {
    the_probes_get_through(Account::Own);
}

#[test]
fn without_a_sandbox_the_probes_of_an_ordinary_user_get_through() {
    the_probes_get_through(Account::Ordinary);
}

/// A judge that has never found anything may be blind. Bubblewrap alone keeps files apart, and leaves much of the kernel.
#[test]
fn the_judge_finds_what_bubblewrap_alone_lets_through() {
    support::run(async {
        let mut trial = std::process::Command::new("bwrap");
        if !trial.args(["--unshare-user", "--ro-bind", "/", "/", "true"]).status().is_ok_and(|status| status.success())
        {
            return eprintln!("skipped: bubblewrap does not start here");
        }
        let targets = ProbeTargets::new(Account::Own);
        let (before, workspace) = (targets.facts(), targets.path("workspace"));
        let git = workspace.join(".git");
        let root = std::path::Path::new("/");
        let mut argv: Vec<std::ffi::OsString> = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc"]
            .into_iter()
            .chain(["--unshare-net", "--cap-drop", "ALL", "--new-session"])
            .map(Into::into)
            .collect();
        for (mount, path) in [("--ro-bind", root), ("--bind", &workspace), ("--ro-bind", &git)] {
            argv.extend([mount.into(), path.into(), path.into()]);
            if path == root {
                argv.extend(["--dev", "/dev", "--proc", "/proc"].map(Into::into));
            }
        }
        let mut command = command(&targets, ALL_GROUPS, &[]);
        argv.append(&mut command.argv);
        command.argv = argv;
        let verdicts = run(&targets.local().await, command).await.expect("bubblewrap was tried");
        let found = mismatches(Policy::WorkspaceWrite, &verdicts);
        let finds = |name: &str| found.iter().any(|line| line.split(' ').next() == Some(name));
        for name in ["without-filter", "unshare-user", "protected-deeper-write", "missing-protected-filled", "key-ring"]
        {
            assert!(finds(name), "{name} is let through: {found:?}");
        }
        for name in ["write-file", "protected-write", "proc-memory", "connect-tcp", "mount-tmpfs", "work-write"] {
            assert!(!finds(name), "{name} is as it should be: {found:?}");
        }
        let after = targets.facts();
        let changed = changes(&before, &after);
        assert!(
            !changed.is_empty() && changed.iter().all(|path| path.starts_with(workspace.join("project"))),
            "{changed:?}"
        );
    });
}

const NONE: [String; 0] = [];

/// Runs every probe under the policy: on this machine directly, and for another account in a server of its own.
fn judge(policy: Policy, account: Account) {
    support::run(async {
        let targets = ProbeTargets::new(account);
        let before = targets.facts();
        let mut command = command(&targets, ALL_GROUPS, &[]);
        command.sandbox = Some(policy.sandbox(&targets));
        let verdicts = match account {
            Account::Own => run(&targets.local().await, command).await,
            Account::Ordinary => run(&targets.serve(&[]).await.environment, command).await,
        };
        let verdicts = verdicts.expect("this host can enforce the policy");
        assert_eq!(mismatches(policy, &verdicts), NONE);
        assert_eq!(verdicts.len(), probes().len(), "every probe has its verdict");
        assert_nothing_changed(policy, &targets, &before, "nothing out of reach was changed");
        // What was missing and protected is missing again once the last process of the tree is gone, which nobody is told of.
        while policy != Policy::LimitedRead && targets.path("workspace/.codex").exists() {
            poll_pause().await;
        }
    });
}

fn the_server_is_out_of_reach(account: Account) {
    support::run(async {
        let targets = ProbeTargets::new(account);
        let daemon = targets.serve(&[]).await;
        let keeper = support::keeper_of(&daemon.state).pid;
        // What is in the server's own directory is as secret as what a policy denies.
        let secret = daemon.state.join("probed").display().to_string();
        targets.prepare(&[format!("secret={secret}")]);
        for (pid, socket) in [(daemon.pid(), "daemon.sock"), (keeper, "keeper.sock")] {
            let socket = daemon.state.join(socket).display().to_string();
            let (pid, port) = (pid.to_string(), daemon.port.clone());
            let keys = [("pid", pid), ("socket", socket), ("secret", secret.clone()), ("server", port)];
            for policy in [Policy::WithDenials, Policy::NetworkEnabled] {
                // Whatever other sockets a policy lets be reached, not these.
                let sockets = ["connect-unix", "connect-unix-by-root-of-self", "connect-unix-by-path-descriptor"];
                let wanted = [&["processes", "reading", "connect-server"], &sockets[..]].concat();
                assert_denied(&targets, &daemon, policy, &wanted, &keys).await;
            }
        }
    });
}

/// What becomes of a policy on a host that lacks something: never something in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Enforced,
    Refused,
}

/// The terminals of the machine belong to others, and without mounts there are no own ones.
const NEEDS_MOUNTS: &str = "work-terminal-pair denied";

/// Takes something away from the host, and asks for denials as root, for reading only as a user, and for denials as a user.
fn on_hosts(hosts: &[(&[&str], [Outcome; 3])]) {
    support::run(async {
        for (conditions, outcomes) in hosts {
            let asked = [
                (Policy::WithDenials, Account::Own),
                (Policy::ReadOnly, Account::Ordinary),
                (Policy::WithDenials, Account::Ordinary),
            ];
            for ((policy, account), outcome) in asked.into_iter().zip(*outcomes) {
                on_host(conditions, policy, account, outcome).await;
            }
        }
    });
}

/// Takes something away from the host, and runs every probe under a policy.
async fn on_host(conditions: &[&str], policy: Policy, account: Account, outcome: Outcome) {
    let targets = ProbeTargets::new(account);
    let daemon = targets.serve(conditions).await;
    let context = format!("{policy:?} of {account:?} under {conditions:?}");
    let before = targets.facts();
    let mut command = command(&targets, ALL_GROUPS, &[]);
    command.sandbox = Some(policy.sandbox(&targets));
    match run(&daemon.environment, command).await {
        Ok(verdicts) => {
            assert_eq!(outcome, Outcome::Enforced, "{context}");
            let mut found = mismatches(policy, &verdicts);
            found.retain(|mismatch| !mismatch.starts_with(NEEDS_MOUNTS));
            assert_eq!(found, NONE, "{context}");
            assert_eq!(verdicts.len(), probes().len(), "every probe has its verdict");
        }
        Err(ProcessError { reason: ProcessReason::SandboxUnavailable { why }, .. }) => {
            assert_eq!(outcome, Outcome::Refused, "{context}: {why}");
        }
        Err(error) => panic!("{context}: {error}"),
    }
    assert_nothing_changed(policy, &targets, &before, &context);
}

fn assert_nothing_changed(policy: Policy, targets: &ProbeTargets, before: &BTreeMap<PathBuf, Facts>, context: &str) {
    let after = targets.facts();
    let mut changed = changes(before, &after);
    if policy == Policy::LimitedRead {
        // Nothing is protected in this policy, so what is in the workspace may change.
        changed.retain(|path| !path.starts_with(targets.path("workspace")));
    }
    assert_eq!(changed, [] as [&PathBuf; 0], "{context}");
}

/// Every one of these probes is denied, whatever the policy lets happen to others.
async fn assert_denied(
    targets: &ProbeTargets,
    daemon: &Daemon,
    policy: Policy,
    wanted: &[&str],
    keys: &[(&str, String)],
) {
    let mut command = command(targets, wanted, keys);
    command.sandbox = Some(policy.sandbox(targets));
    let verdicts = run(&daemon.environment, command).await.expect("this host can enforce the policy");
    // Without cgroups, which an ordinary user has not, a server does not know whose connection it is; SECURITY.md says so.
    let unknown = |name: &str| {
        name == "connect-server" && policy == Policy::NetworkEnabled && matches!(targets.account, Account::Ordinary)
    };
    let escaped = verdicts.iter().filter(|(name, verdict)| {
        verdict.starts_with("escaped:") && expected_of_server(name) == Expected::Denied && !unknown(name)
    });
    assert_eq!(escaped.collect::<Vec<_>>(), [] as [(&String, &String); 0], "{policy:?} {keys:?}");
    assert!(verdicts.len() >= wanted.len(), "every probe has its verdict");
}

fn the_probes_get_through(account: Account) {
    support::run(async {
        let targets = ProbeTargets::new(account);
        let verdicts = match account {
            Account::Own => run(&targets.local().await, command(&targets, ALL_GROUPS, &[])).await,
            Account::Ordinary => {
                let daemon = targets.serve(&[]).await;
                let server = ("server", daemon.port.clone());
                let verdicts = run(&daemon.environment, command(&targets, ALL_GROUPS, &[server])).await;
                let of_server = verdicts.as_ref().ok().and_then(|verdicts| verdicts.get("connect-server"));
                assert_eq!(of_server.map(String::as_str), Some("escaped: the server's service"));
                verdicts
            }
        };
        let verdicts = verdicts.expect("a process without a sandbox can be started");
        // A container's root may have few rights; then it is judged as a user would be.
        let all_rights = account == Account::Own && rustix::process::geteuid().is_root() && may_administrate();
        let is_excused = |name: &str| NEEDS_HOST.contains(&name) || (!all_rights && NEEDS_ROOT.contains(&name));
        let denied = verdicts.iter().filter(|(name, verdict)| !verdict.starts_with("escaped:") && !is_excused(name));
        assert_eq!(denied.map(|(name, verdict)| format!("{name} {verdict}")).collect::<Vec<_>>(), NONE);
        let escaped = verdicts.values().filter(|verdict| verdict.starts_with("escaped:")).count();
        assert!(escaped >= 300, "only {escaped} of {} get through", verdicts.len());
        assert_eq!(verdicts.len(), probes().len(), "every probe has its verdict");
    });
}

/// `CAP_SYS_ADMIN`.
fn may_administrate() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is always there");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("every Linux tells it");
    u64::from_str_radix(effective.trim(), 16).expect("it is a number") & (1 << 21) != 0
}

/// The prober with these groups or probes, in the workspace.
fn command(targets: &ProbeTargets, wanted: &[&str], keys: &[(&str, String)]) -> Command {
    let program = targets.prober().display().to_string();
    let words = [program, "all".to_owned()].into_iter().chain(wanted.iter().map(|word| (*word).to_owned()));
    let environ = Environ::exactly([("PATH", "/usr/bin:/bin")]);
    Command { environ, ..Command::new(words.chain(targets.keys(keys)), targets.path("workspace")) }
}

/// The verdict on every probe, by its name.
async fn run(env: &TestEnvironment, command: Command) -> Result<BTreeMap<String, String>, ProcessError> {
    let id = process_id("prober");
    env.processes().start(&id, command).await?;
    let log = LogReader::open(env.processes(), &id, 0).await.read_to_end().await;
    let text = log.printed();
    assert_eq!(log.exit().shell_code(), 0, "{text}");
    env.processes().forget(&id).await?;
    let lines = text.lines().filter_map(|line| line.trim_end().split_once(' '));
    Ok(lines.map(|(name, verdict)| (name.to_owned(), verdict.to_owned())).collect())
}

/// What is not as the policy wants it, one line each.
fn mismatches(policy: Policy, verdicts: &BTreeMap<String, String>) -> Vec<String> {
    let groups = probes();
    let mut found = Vec::new();
    for (name, verdict) in verdicts {
        let expected = groups.get(name).map_or(Expected::Denied, |group| policy.expected(group, name));
        if !is_met(expected, name, verdict) {
            found.push(format!("{name} {verdict} (expected: {expected:?})"));
        }
    }
    found
}
