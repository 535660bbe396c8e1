//! How a process ends, as its log tells it.

use std::time::Duration;

use exec_core::{ExitCause, ExitStatus};
use futures_util::StreamExt;

use crate::test_environment::TestEnvironment;

pub async fn the_exit_code_is_the_childs_own(env: &TestEnvironment) {
    for code in [0, 1, 3, 126, 127, 128, 255] {
        let exit = env.run(&format!("{code}"), &format!("exit {code}")).await.exit();
        assert_eq!((exit.status, exit.cause), (ExitStatus::Code(code), ExitCause::Own));
        assert_eq!(exit.shell_code(), code);
    }
}

/// The cause is the child's own, because nobody terminated it.
pub async fn death_by_every_signal_is_told_by_its_number(env: &TestEnvironment) {
    // Of 1 to 31: not the ones that are ignored (CHLD, CONT, URG, WINCH) or stop (STOP, TSTP, TTIN, TTOU).
    let deadly = (1..=31).filter(|number| !matches!(number, 17..=23 | 28));
    let deaths: Vec<(i32, exec_core::Exit)> = futures_util::stream::iter(deadly)
        .map(|number| async move {
            let script = format!("say before ; signal-self {number} ; say after");
            let log = env.run(&format!("{number}"), &script).await;
            assert_eq!(log.stdout(), "before\n", "signal {number}");
            (number, log.exit())
        })
        .buffer_unordered(6)
        .collect()
        .await;
    assert_eq!(deaths.len(), 23);
    for (number, exit) in deaths {
        assert_eq!(super::signal_of(exit), Some(number));
        assert_eq!(exit.cause, ExitCause::Own, "signal {number}");
        assert_eq!(exit.shell_code(), 128 + number);
    }
}

pub async fn an_abort_is_signal_6(env: &TestEnvironment) {
    let exit = env.run("p", "err dying ; abort").await.exit();
    assert_eq!(super::signal_of(exit), Some(6));
}

pub async fn a_child_that_prints_nothing_logs_exited_and_closed(env: &TestEnvironment) {
    let log = env.run("p", "exit 0").await;
    assert_eq!(log.entries.len(), 2);
    assert_eq!(log.exited().map(|(seq, _)| seq), Some(1));
}

/// A leader that closes its streams first still ends with `exited`, then `closed`.
pub async fn streams_that_end_before_the_leader_do_not_close_the_log(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("say last ; close-stdout ; close-stderr ; {} ; exit 5", semaphore.acquire());
    let process = env.start("p", &script).await;
    let reader = process.reader_at_line("last").await;
    let head = process.read_now().await.head;
    assert_eq!((head.exit, head.closed), (None, false));
    semaphore.release();
    let log = reader.read_to_end().await;
    assert_eq!(log.stdout(), "last\n");
    assert_eq!(log.exit().status, ExitStatus::Code(5));
}

/// It keeps its pid and its log.
pub async fn a_leader_that_executes_again_stays_the_leader(env: &TestEnvironment) {
    let process = env.start("p", "say one ; pid ; exec [ say two ; pid ; exit 9 ]").await;
    let log = process.read_to_end().await;
    let pid = process.pid;
    assert_eq!(log.stdout(), format!("one\npid {pid}\ntwo\npid {pid}\n"));
    assert_eq!(log.exit().status, ExitStatus::Code(9));
}

/// What the grandchild prints later still arrives; only `closed` waits for it.
pub async fn exited_does_not_wait_for_a_grandchild_that_holds_the_pipe(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("fork [ {} ; say held ] ; say leader ; exit 3", semaphore.acquire());
    let process = env.start("p", &script).await;
    let mut reader = process.reader().await;
    let exit = reader.wait_for_exit().await;
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(3), ExitCause::Own));
    let head = process.read_now().await.head;
    assert!(!head.closed, "the grandchild still holds the pipe");
    semaphore.release();
    let log = reader.read_to_end().await;
    let (exited, _) = log.exited().expect("seen above");
    let held = log.outputs().find(|(_, _, bytes)| bytes.ends_with(b"held\n")).expect("what survivors print arrives");
    assert!(exited < held.0, "it was printed after the leader's end");
}

pub async fn what_the_leader_printed_stands_before_exited(env: &TestEnvironment) {
    for round in 0..20 {
        let script = "flood stdout 60000 1 60000 ; flood stderr 60000 2 60000 ; exit 0";
        let log = env.run(&format!("{round}"), script).await;
        let (exited, _) = log.exited().expect("a log is complete");
        let last_output = log.outputs().last().expect("it printed").0;
        assert!(last_output < exited, "round {round}");
        assert_eq!(log.output_bytes(), 120_000);
    }
}

pub async fn an_exited_leader_is_no_zombie(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let process = env.start("p", &format!("{} ; exit 0", semaphore.acquire())).await;
    let leader = process.os_process();
    semaphore.release();
    process.exit().await;
    assert!(!leader.is_present(), "told as ended, but {:?}", leader.state());
}

pub async fn usage_tells_processor_time_and_memory(env: &TestEnvironment) {
    let script = format!("rss {} ; spin 200 ; exit 0", 64 << 20);
    let usage = env.run("p", &script).await.exit().usage;
    let processor = usage.user + usage.system;
    assert!(processor >= Duration::from_millis(190), "{usage:?}");
    assert!(processor < Duration::from_secs(30), "{usage:?}");
    assert!(usage.max_rss_bytes >= 64 << 20, "{usage:?}");
    assert!(usage.max_rss_bytes < 1 << 30, "{usage:?}");
}
