//! A sandboxed program in a pid namespace of its own, as on kernels whose Landlock keeps no signals inside: its exits, its
//! signals, its terminal and its tree are those of any program, and nothing is left of the process that waits beside it.

use std::time::Duration;

use exec_core::sandbox::SandboxMeans;
use exec_core::{Command, Exit, ExitStatus, Io, Signal, TerminalSize};
use exec_env::process::ProcessReason;
use exec_testkit::os_process::{OsProcess, eventually};
use exec_testkit::test_environment::process_id;

use super::supervised::{ordinary_programs_work, shell};
use super::targets::{Account, Daemon, ProbeTargets};
use crate::durability::support;

const OLD_KERNEL: &[&str] = &["no-landlock"];

#[test]
fn ordinary_programs_of_an_ordinary_user_work_in_a_pid_namespace() {
    support::run(ordinary_programs_work(OLD_KERNEL, Account::Ordinary));
}

#[test]
fn a_program_in_a_pid_namespace_ends_as_any_other() {
    support::run(async {
        for account in [Account::Own, Account::Ordinary] {
            let host = OldHost::new(account).await;
            assert_eq!(host.run("exit 7").await.status, ExitStatus::Code(7));
            // Its own first process would ignore it.
            assert_eq!(host.run("kill -TERM $$; echo here").await.status, signalled(libc::SIGTERM));
            assert_eq!(host.run("kill -KILL $$").await.status, signalled(libc::SIGKILL));

            let sleeper = host.daemon.environment.start_command("sleeper", host.sleep()).await;
            sleeper.signal(Signal::Interrupt).await;
            assert_eq!(sleeper.exit().await.status, signalled(libc::SIGINT));

            let terminal = Command { io: Io::Pty(TerminalSize::default()), ..host.sleep() };
            let terminal = host.daemon.environment.start_command("terminal", terminal).await;
            terminal.write("interrupt", "\x03").await;
            assert_eq!(terminal.exit().await.status, signalled(libc::SIGINT));
            host.nothing_is_left().await;
        }
    });
}

#[test]
fn a_program_in_a_pid_namespace_sees_its_own_processes_only() {
    support::run(async {
        let host = OldHost::new(Account::Ordinary).await;
        let process = host.daemon.environment.start_command("p", shell(&host.targets, "echo /proc/[0-9]*")).await;
        let means = process.info().await.sandbox.expect("it is sandboxed").means;
        assert!(means.contains(&SandboxMeans::PidNamespace), "{means:?}");
        assert_eq!(process.read_to_end().await.stdout(), "/proc/1 /proc/2\n");
    });
}

#[test]
fn what_a_program_in_a_pid_namespace_leaves_behind_goes_on_and_is_terminated_with_it() {
    support::run(async {
        let host = OldHost::new(Account::Own).await;
        let late = "(until test -e go; do sleep 0.02; done; echo late) & exit 3";
        let late = host.daemon.environment.start_command("late", shell(&host.targets, late)).await;
        assert_eq!(late.exit().await.status, ExitStatus::Code(3));
        std::fs::write(host.targets.path("workspace/go"), "").expect("the workspace is ours");
        assert_eq!(late.read_to_end().await.stdout(), "late\n");

        let escaping = "setsid sleep 600 & (setsid sleep 600 &) ; echo left; exit 0";
        let escaping = host.daemon.environment.start_command("escaping", shell(&host.targets, escaping)).await;
        escaping.reader_at_line("left").await;
        escaping.exit().await;
        let ended = escaping.terminate(Duration::ZERO).await;
        assert_eq!((ended.was_running, ended.ended, ended.left), (false, 2, 0));
        host.nothing_is_left().await;
    });
}

#[test]
fn orphans_in_a_pid_namespace_are_reaped_while_the_program_runs() {
    support::run(async {
        let host = OldHost::new(Account::Own).await;
        let script = "for i in 1 2 3 4 5 6 7 8 9; do (sh -c : &); done
            while grep -lE '^[0-9]+ .* Z ' /proc/[0-9]*/stat 2>/dev/null; do sleep 0.02; done >/dev/null; echo none";
        let process = host.daemon.environment.start_command("p", shell(&host.targets, script)).await;
        assert_eq!(process.read_to_end().await.stdout(), "none\n");
    });
}

#[test]
fn a_start_that_fails_in_a_pid_namespace_says_why_and_leaves_nothing() {
    support::run(async {
        let host = OldHost::new(Account::Ordinary).await;
        let command = shell(&host.targets, "");
        let absent = Command { argv: vec!["/nonexistent/program".into()], ..command };
        for name in ["first", "second"] {
            let started = host.daemon.environment.processes().start(&process_id(name), absent.clone()).await;
            let reason = started.expect_err("there is no such program").reason;
            assert!(matches!(reason, ProcessReason::SpawnFailed(_)), "{reason:?}");
        }
        host.nothing_is_left().await;
    });
}

#[test]
fn a_program_in_a_pid_namespace_outlives_its_server() {
    support::run(async {
        let host = OldHost::new(Account::Own).await;
        let workspace = host.targets.path("workspace");
        let script = "until test -e go; do sleep 0.02; done; echo written > done";
        let process = host.daemon.environment.start_command("p", shell(&host.targets, script)).await;
        let server = OsProcess::of(host.daemon.pid()).expect("it serves");
        server.signal(rustix::process::Signal::KILL);
        eventually("the server is gone", || !server.is_alive()).await;
        std::fs::write(workspace.join("go"), "").expect("the workspace is ours");
        let os_process = process.os_process();
        eventually("the process has ended", || !os_process.is_alive()).await;
        assert_eq!(std::fs::read_to_string(workspace.join("done")).ok().as_deref(), Some("written\n"));
        host.keeper.signal(rustix::process::Signal::TERM);
        host.keeper.wait_until_gone().await;
    });
}

/// A server on a kernel without Landlock.
struct OldHost {
    targets: ProbeTargets,
    daemon: Daemon,
    keeper: OsProcess,
}

impl OldHost {
    async fn new(account: Account) -> Self {
        let targets = ProbeTargets::new(account);
        let daemon = targets.serve(OLD_KERNEL).await;
        let keeper = support::keeper_of(&daemon.state);
        Self { targets, daemon, keeper }
    }

    async fn run(&self, script: &str) -> Exit {
        self.daemon.environment.start_command(script, shell(&self.targets, script)).await.exit().await
    }

    fn sleep(&self) -> Command {
        Command { argv: ["/bin/sleep", "600"].map(Into::into).to_vec(), ..shell(&self.targets, "") }
    }

    /// The first process of a namespace would be a child of the keeper when all others are gone.
    async fn nothing_is_left(&self) {
        eventually("all are gone", || OsProcess::children_of(self.keeper.pid).is_empty()).await;
    }
}

fn signalled(signal: i32) -> ExitStatus {
    ExitStatus::Signal { number: signal, core_dumped: false }
}
