//! The keeper is killed: output goes on, exits are reported as lost (and not before they happen), and nothing hangs.

use std::path::Path;
use std::time::Duration;

use exec_core::{ExitStatus, Overflow, Signal, Stream};
use exec_env::process::{ProcessError, ProcessReason, WaitCondition, Waited, Written};
use exec_local::{KeeperChoice, LocalOptions};
use exec_testkit::TestEnvironment;
use exec_testkit::os_process::OsProcess;
use exec_testkit::test_data::SeededBytes;
use exec_testkit::test_environment::process_id;

use super::support::{self, LONG_TTL};
use crate::environments::{self, keeper_program};

/// More than pipes hold, so that it arrives only if it is moved.
const FLOOD_BYTES: usize = 1 << 20;
const OUT: SeededBytes = SeededBytes::new(31);
const ERR: SeededBytes = SeededBytes::new(32);

#[test]
fn the_owner_of_a_durable_keeper_reads_on_when_it_is_killed() {
    support::run(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let (env, environment) = support::test_environment(state.path(), LONG_TTL).await;
        output_goes_on(&env, support::keeper_of(state.path())).await;
        drop(support::into_environment(env, environment));
        a_new_keeper_serves(state.path()).await;
    });
}

#[test]
fn the_owner_of_a_keeper_process_reads_on_when_it_is_killed() {
    support::run(async {
        let spool = tempfile::tempdir().expect("a temporary folder");
        let options = LocalOptions {
            keeper: KeeperChoice::Process(keeper_program()),
            spool_folder: Some(spool.path().into()),
            ..LocalOptions::default()
        };
        let env = environments::local(options).await;
        output_goes_on(&env, support::keeper_of(spool.path())).await;
    });
}

async fn output_goes_on(env: &TestEnvironment, keeper: OsProcess) {
    let semaphore = env.semaphore("semaphore");
    let wait = semaphore.acquire();
    let floods = format!("flood stdout {FLOOD_BYTES} 31 9000 ; flood stderr {FLOOD_BYTES} 32 9000");
    let talker = env.start("talker", &format!("say begun ; {wait} ; {floods} ; exit 3")).await;
    // Prints nothing before the kill: its data files are created when there is no keeper to hold them.
    let silent = env.start("silent", &format!("{wait} ; {floods} ; exit 4")).await;
    let terminal = env.start_on_terminal("terminal", &format!("say begun ; {wait} ; lines 20000 ; exit 5")).await;
    let orphaner = env.start("orphaner", &format!("fork [ {wait} ; err late ] ; exit 6")).await;
    let listener = env.start_with_stdin("listener", "cat ; exit 0").await;
    let orphaned = orphaner.exit().await;
    assert_eq!(orphaned.status, ExitStatus::Code(6));
    talker.reader_at_line("begun").await;
    terminal.reader_at_line("begun").await;
    let leaders = [talker.os_process(), silent.os_process(), terminal.os_process(), listener.os_process()];

    support::kill(keeper).await;
    let refused = env.processes().start(&process_id("new"), env.command("exit 0")).await;
    let Err(ProcessError { reason: ProcessReason::Unreachable(unreachable), .. }) = refused else {
        panic!("nobody can start it: {refused:?}")
    };
    assert!(unreachable.to_string().contains("start the server again"), "{unreachable}");
    for process in [&talker, &silent, &terminal, &listener] {
        // A leader that runs must not be reported as ended.
        let waited = process.wait_at_most(WaitCondition::Exited, Duration::from_millis(20)).await;
        assert_eq!(waited, Ok(Waited::DeadlinePassed), "{}", process.id);
    }
    assert!(leaders.iter().all(OsProcess::is_alive));

    assert_eq!(listener.write("w", "typed").await, Written::Accepted);
    assert_eq!(listener.close_stdin().await, Written::Accepted);
    for _ in 0..4 {
        semaphore.release();
    }
    for process in [&talker, &silent] {
        let seen = process.read_to_end().await;
        let begun: &[u8] = if process.id == talker.id { b"begun\n" } else { b"" };
        assert_eq!(seen.bytes(Stream::Stdout).strip_prefix(begun), Some(&OUT.bytes(FLOOD_BYTES)[..]));
        assert_eq!(seen.bytes(Stream::Stderr), ERR.bytes(FLOOD_BYTES));
        assert_eq!(seen.exit().status, ExitStatus::Lost, "nobody was there to ask");
    }
    let shown = terminal.read_to_end().await;
    assert!(shown.terminal().ends_with("line 20000\n"));
    assert_eq!(shown.terminal().lines().count(), 20_001);
    assert_eq!(shown.exit().status, ExitStatus::Lost);
    let late = orphaner.read_to_end().await;
    assert_eq!((late.stderr().as_str(), late.exit()), ("late\n", orphaned), "what was known stays known");
    let log = listener.read_to_end().await;
    assert_eq!((log.stdout().as_str(), log.exit().status), ("typed", ExitStatus::Lost));
    assert!(leaders.iter().all(|leader| !leader.is_alive()), "lost is only told of those that are gone");
}

async fn a_new_keeper_serves(state: &Path) {
    let (env, environment) = support::test_environment(state, LONG_TTL).await;
    assert_eq!(env.run("p", "say here ; exit 2").await.exit().shell_code(), 2);
    let keeper = support::keeper_of(state);
    support::shut_down(support::into_environment(env, environment), keeper).await;
}

#[test]
fn no_verb_hangs_when_the_keeper_is_gone() {
    support::run(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let (env, _environment) = support::test_environment(state.path(), LONG_TTL).await;
        let semaphore = env.semaphore("semaphore");
        let process = env.start("p", &format!("{} ; exit 0", semaphore.acquire())).await;
        let mut blocked = env.command("flood stdout 4000000 31 9000 ; exit 0");
        (blocked.overflow, blocked.spool_bytes) = (Overflow::Block, Some(exec_core::limits::SPOOL_MIN_BYTES));
        let blocked = env.start_command("blocked", blocked).await;
        let leader = blocked.os_process();
        // Requests under way when the keeper dies must be answered, too.
        let id = process_id("p");
        let port = env.processes().wait(&id, WaitCondition::Port(None), None);
        let start = async |at: u32| env.processes().start(&process_id(&format!("s{at}")), env.command("exit 0")).await;
        let starts = futures_util::future::join_all((0..50).map(start));
        let killed = support::kill(support::keeper_of(state.path()));
        let (port, starts, ()) = tokio::join!(port, starts, killed);
        assert!(port.is_err(), "{port:?}");
        for start in starts.into_iter().filter_map(Result::err) {
            assert!(matches!(start.reason, ProcessReason::Unreachable(_)), "{start:?}");
        }
        assert!(env.processes().terminate(&id, Duration::ZERO).await.is_err());
        let signal = Signal::from_number(15).expect("TERM is a signal");
        assert!(env.processes().signal(&id, signal).await.is_err());
        assert!(env.processes().list().await.expect("the list is our own").len() >= 2);
        semaphore.release();
        assert_eq!(process.exit().await.status, ExitStatus::Lost);
        // No keeper can kill it any more, but it ends when its pipes close.
        let _ = env.processes().forget(&process_id("blocked")).await;
        leader.wait_until_gone().await;
    });
}
