//! Stdin: every byte arrives once and in order, and a write that nobody can read is answered so.

use bytes::Bytes;
use exec_core::ExitStatus;
use exec_core::limits::REMEMBERED_WRITES;
use exec_env::process::Written;
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::test_data::{Checksum, SeededBytes};
use crate::test_environment::TestEnvironment;

pub async fn writes_arrive_in_order_and_then_the_end(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat").await;
    for (key, text) in [("1", "one "), ("2", ""), ("3", "two "), ("4", "three\n")] {
        assert_eq!(process.write(key, text).await, Written::Accepted);
    }
    assert_eq!(process.close_stdin().await, Written::Accepted);
    let log = process.read_to_end().await;
    assert_eq!(log.stdout(), "one two three\n");
    assert_eq!(log.exit().status, ExitStatus::Code(0));
}

pub async fn every_byte_value_can_be_written(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "digest").await;
    let all: Vec<u8> = (0..=255).collect();
    process.write("1", all.clone()).await;
    process.close_stdin().await;
    let expected = format!("256 bytes {}\n", Checksum::of(&all));
    assert_eq!(process.read_to_end().await.stdout(), expected);
}

/// A line is answered at once, before stdin ends.
pub async fn a_conversation_goes_line_by_line(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "echo-lines").await;
    let mut reader = process.reader().await;
    for turn in 0..50 {
        let line = format!("turn {turn}");
        process.write(&line, format!("{line}\n")).await;
        reader.wait_for_line(&line).await;
    }
    process.close_stdin().await;
    assert_eq!(reader.read_to_end().await.exit().status, ExitStatus::Code(0));
}

pub async fn a_large_write_waits_for_a_slow_reader_and_arrives_exactly(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let process = env.start_with_stdin("p", &format!("{} ; digest", semaphore.acquire())).await;
    let large = SeededBytes::new(11).bytes(1 << 20);
    let checksum = Checksum::of(&large);
    let mut write = Box::pin(process.write("1", large));
    // A pipe holds far less than this, so the write cannot be over while nobody reads.
    for _ in 0..100 {
        assert!((&mut write).now_or_never().is_none(), "nobody reads yet");
        tokio::task::yield_now().await;
    }
    let other = env.run("other", "say meanwhile").await;
    assert_eq!(other.stdout(), "meanwhile\n");
    semaphore.release();
    assert_eq!(write.await, Written::Accepted);
    process.close_stdin().await;
    let expected = format!("{} bytes {checksum}\n", 1 << 20);
    assert_eq!(process.read_to_end().await.stdout(), expected);
}

pub async fn a_large_echo_does_not_lock_up(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat").await;
    let content = SeededBytes::new(12);
    let large = Bytes::from(content.bytes(4 << 20));
    assert_eq!(process.write("1", large).await, Written::Accepted);
    process.close_stdin().await;
    let log = process.read_to_end().await;
    super::assert_stream(&log, exec_core::Stream::Stdout, content, 4 << 20);
}

pub async fn the_same_write_id_is_applied_once(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat").await;
    for _ in 0..3 {
        assert_eq!(process.write("same", "once\n").await, Written::Accepted);
    }
    assert_eq!(process.write("other", "twice\n").await, Written::Accepted);
    assert_eq!(process.write("same", "never\n").await, Written::Accepted);
    process.close_stdin().await;
    assert_eq!(process.read_to_end().await.stdout(), "once\ntwice\n");
}

pub async fn the_same_write_id_asked_at_once_is_applied_once(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat").await;
    for round in 0..20 {
        let key = format!("{round}");
        let writes = (0..8).map(|_| process.write(&key, format!("{key}\n")));
        let outcomes = join_all(writes).await;
        assert_eq!(outcomes, [Written::Accepted; 8], "round {round}");
    }
    process.close_stdin().await;
    let expected: String = (0..20).map(|round| format!("{round}\n")).collect();
    assert_eq!(process.read_to_end().await.stdout(), expected);
}

pub async fn write_ids_belong_to_their_process(env: &TestEnvironment) {
    let (one, two) = (env.start_with_stdin("one", "cat").await, env.start_with_stdin("two", "cat").await);
    one.write("1", "first\n").await;
    two.write("1", "second\n").await;
    one.close_stdin().await;
    two.close_stdin().await;
    assert_eq!(one.read_to_end().await.stdout(), "first\n");
    assert_eq!(two.read_to_end().await.stdout(), "second\n");
}

/// The oldest of them is still known; one more id makes it forgotten.
pub async fn the_last_4096_write_ids_are_remembered(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat-count").await;
    for number in 0..REMEMBERED_WRITES {
        assert_eq!(process.write(&format!("{number}"), "x").await, Written::Accepted);
    }
    process.write("0", "known").await;
    process.write("one more", "x").await;
    process.write("1", "known").await;
    process.write("0", "forgotten").await;
    process.close_stdin().await;
    let expected = format!("{} bytes\n", REMEMBERED_WRITES + 1 + "forgotten".len());
    assert_eq!(process.read_to_end().await.stdout(), expected);
}

pub async fn a_process_without_a_stdin_says_that_it_is_closed(env: &TestEnvironment) {
    let process = env.start("p", "wait-forever").await;
    assert_eq!(process.write("1", "x").await, Written::StdinClosed);
    assert!(!process.info().await.stdin_open);
}

pub async fn a_write_after_close_stdin_says_that_it_is_closed(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat-count ; wait-forever").await;
    process.write("1", "123").await;
    process.close_stdin().await;
    assert_eq!(process.write("2", "4").await, Written::StdinClosed);
    process.reader_at_line("3 bytes").await;
    assert_eq!(process.write("1", "123").await, Written::Accepted, "it was");
}

pub async fn a_write_to_a_child_that_closed_its_stdin_says_so(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "close-stdin ; say deaf ; wait-forever").await;
    process.reader_at_line("deaf").await;
    assert_eq!(process.write("1", "x").await, Written::StdinClosed);
}

pub async fn a_write_after_the_end_says_that_stdin_is_closed(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "exit 0").await;
    process.read_to_end().await;
    assert_eq!(process.write("1", "x").await, Written::StdinClosed);
    assert!(!process.info().await.stdin_open);
}

pub async fn a_waiting_write_is_answered_when_the_child_dies(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "wait-forever").await;
    let large = process.write("1", vec![b'x'; 1 << 20]);
    let (written, terminated) = tokio::join!(large, process.kill());
    assert_eq!(written, Written::StdinClosed);
    assert!(terminated.was_running);
}

pub async fn closing_stdin_twice_is_no_mistake(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat-count").await;
    process.close_stdin().await;
    process.close_stdin().await;
    assert_eq!(process.read_to_end().await.stdout(), "0 bytes\n");
}

/// Also after a write that is still waiting.
pub async fn close_stdin_comes_after_the_writes_before_it(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let process = env.start_with_stdin("p", &format!("{} ; cat-count", semaphore.acquire())).await;
    let mut write = Box::pin(process.write("1", vec![b'x'; 1 << 20]));
    assert!((&mut write).now_or_never().is_none(), "nobody reads yet");
    let close = process.close_stdin();
    semaphore.release();
    let (written, _) = tokio::join!(write, close);
    assert_eq!(written, Written::Accepted);
    let expected = format!("{} bytes\n", 1 << 20);
    assert_eq!(process.read_to_end().await.stdout(), expected);
}
