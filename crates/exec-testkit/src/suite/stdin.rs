//! Stdin: every byte once, in order, and an honest answer when nobody can read it.

use bytes::Bytes;
use exec_core::ExitStatus;
use exec_core::limits::REMEMBERED_WRITES;
use exec_env::process::Written;
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::bench::Bench;
use crate::pattern::{Digest, Pattern};

/// Writes arrive in order, and the end of stdin after them.
pub async fn writes_arrive_in_order_and_then_the_end(bench: &Bench) {
    let process = bench.start_listening("p", "cat").await;
    for (key, text) in [("1", "one "), ("2", ""), ("3", "two "), ("4", "three\n")] {
        assert_eq!(process.write(key, text).await, Written::Accepted);
    }
    assert_eq!(process.close_stdin().await, Written::Accepted);
    let transcript = process.transcript().await;
    assert_eq!(transcript.stdout(), "one two three\n");
    assert_eq!(transcript.exit().status, ExitStatus::Code(0));
}

/// Any byte may be written: zero, line ends, control characters and what is not UTF-8.
pub async fn every_byte_value_can_be_written(bench: &Bench) {
    let process = bench.start_listening("p", "digest").await;
    let all: Vec<u8> = (0..=255).collect();
    process.write("1", all.clone()).await;
    process.close_stdin().await;
    let expected = format!("256 bytes {}\n", Digest::of(&all));
    assert_eq!(process.transcript().await.stdout(), expected);
}

/// A line is answered at once: a conversation needs no end of stdin.
pub async fn a_conversation_goes_line_by_line(bench: &Bench) {
    let process = bench.start_listening("p", "echo-lines").await;
    let mut reader = process.reader().await;
    for turn in 0..50 {
        let line = format!("turn {turn}");
        process.write(&line, format!("{line}\n")).await;
        reader.line(&line).await;
    }
    process.close_stdin().await;
    assert_eq!(reader.to_the_end().await.exit().status, ExitStatus::Code(0));
}

/// A large write to a child that does not read yet waits, slows nobody, and arrives byte for byte.
pub async fn a_large_write_waits_for_a_slow_reader_and_arrives_exactly(bench: &Bench) {
    let gate = bench.gate("gate");
    let process = bench.start_listening("p", &format!("{} ; digest", gate.wait())).await;
    let large = Pattern::new(11).bytes(1 << 20);
    let digest = Digest::of(&large);
    let mut write = Box::pin(process.write("1", large));
    // A pipe holds far less than this, so the write cannot be over while nobody reads.
    for _ in 0..100 {
        assert!((&mut write).now_or_never().is_none(), "nobody reads yet");
        tokio::task::yield_now().await;
    }
    let other = bench.run("other", "say meanwhile").await;
    assert_eq!(other.stdout(), "meanwhile\n");
    gate.open_once();
    assert_eq!(write.await, Written::Accepted);
    process.close_stdin().await;
    let expected = format!("{} bytes {digest}\n", 1 << 20);
    assert_eq!(process.transcript().await.stdout(), expected);
}

/// A child that echoes as much as it is sent never locks up with its writer.
pub async fn a_large_echo_does_not_lock_up(bench: &Bench) {
    let process = bench.start_listening("p", "cat").await;
    let pattern = Pattern::new(12);
    let large = Bytes::from(pattern.bytes(4 << 20));
    assert_eq!(process.write("1", large).await, Written::Accepted);
    process.close_stdin().await;
    let transcript = process.transcript().await;
    super::assert_pattern(&transcript, exec_core::Stream::Stdout, pattern, 4 << 20);
}

/// The same id again is answered and not written again.
pub async fn the_same_write_id_is_applied_once(bench: &Bench) {
    let process = bench.start_listening("p", "cat").await;
    for _ in 0..3 {
        assert_eq!(process.write("same", "once\n").await, Written::Accepted);
    }
    assert_eq!(process.write("other", "twice\n").await, Written::Accepted);
    assert_eq!(process.write("same", "never\n").await, Written::Accepted);
    process.close_stdin().await;
    assert_eq!(process.transcript().await.stdout(), "once\ntwice\n");
}

/// Also when it is asked many times at once.
pub async fn the_same_write_id_asked_at_once_is_applied_once(bench: &Bench) {
    let process = bench.start_listening("p", "cat").await;
    for round in 0..20 {
        let key = format!("{round}");
        let writes = (0..8).map(|_| process.write(&key, format!("{key}\n")));
        let outcomes = join_all(writes).await;
        assert_eq!(outcomes, [Written::Accepted; 8], "round {round}");
    }
    process.close_stdin().await;
    let expected: String = (0..20).map(|round| format!("{round}\n")).collect();
    assert_eq!(process.transcript().await.stdout(), expected);
}

/// An id is its process's own: another process takes the same id as new.
pub async fn write_ids_belong_to_their_process(bench: &Bench) {
    let (one, two) = (bench.start_listening("one", "cat").await, bench.start_listening("two", "cat").await);
    one.write("1", "first\n").await;
    two.write("1", "second\n").await;
    one.close_stdin().await;
    two.close_stdin().await;
    assert_eq!(one.transcript().await.stdout(), "first\n");
    assert_eq!(two.transcript().await.stdout(), "second\n");
}

/// 4,096 ids are remembered: the oldest of them is still known, and one more makes it forgotten.
pub async fn the_last_4096_write_ids_are_remembered(bench: &Bench) {
    let process = bench.start_listening("p", "cat-count").await;
    for number in 0..REMEMBERED_WRITES {
        assert_eq!(process.write(&format!("{number}"), "x").await, Written::Accepted);
    }
    process.write("0", "known").await;
    process.write("one more", "x").await;
    process.write("1", "known").await;
    process.write("0", "forgotten").await;
    process.close_stdin().await;
    let expected = format!("{} bytes\n", REMEMBERED_WRITES + 1 + "forgotten".len());
    assert_eq!(process.transcript().await.stdout(), expected);
}

/// A process without a stdin says so.
pub async fn a_process_without_a_stdin_says_that_it_is_closed(bench: &Bench) {
    let process = bench.start("p", "wait-forever").await;
    assert_eq!(process.write("1", "x").await, Written::StdinClosed);
    assert!(!process.info().await.stdin_open);
}

/// After its end was asked for, stdin takes no more.
pub async fn a_write_after_close_stdin_says_that_it_is_closed(bench: &Bench) {
    let process = bench.start_listening("p", "cat-count ; wait-forever").await;
    process.write("1", "123").await;
    process.close_stdin().await;
    assert_eq!(process.write("2", "4").await, Written::StdinClosed);
    let mut reader = process.reader().await;
    reader.line("3 bytes").await;
    assert_eq!(process.write("1", "123").await, Written::Accepted, "it was");
}

/// A child that closed its stdin cannot be written to, though it lives.
pub async fn a_write_to_a_child_that_closed_its_stdin_says_so(bench: &Bench) {
    let process = bench.start_listening("p", "close-stdin ; say deaf ; wait-forever").await;
    process.reader().await.line("deaf").await;
    assert_eq!(process.write("1", "x").await, Written::StdinClosed);
}

/// Nobody can read what is written after the end.
pub async fn a_write_after_the_end_says_that_stdin_is_closed(bench: &Bench) {
    let process = bench.start_listening("p", "exit 0").await;
    process.transcript().await;
    assert_eq!(process.write("1", "x").await, Written::StdinClosed);
    assert!(!process.info().await.stdin_open);
}

/// A write that waits for a reader is answered when the reader dies.
pub async fn a_waiting_write_is_answered_when_the_child_dies(bench: &Bench) {
    let process = bench.start_listening("p", "wait-forever").await;
    let large = process.write("1", vec![b'x'; 1 << 20]);
    let (written, terminated) = tokio::join!(large, process.kill());
    assert_eq!(written, Written::StdinClosed);
    assert!(terminated.was_running);
}

/// Closing twice is no mistake.
pub async fn closing_stdin_twice_is_no_mistake(bench: &Bench) {
    let process = bench.start_listening("p", "cat-count").await;
    process.close_stdin().await;
    process.close_stdin().await;
    assert_eq!(process.transcript().await.stdout(), "0 bytes\n");
}

/// The end of stdin stands behind a write that is still waiting, not in its middle.
pub async fn close_stdin_comes_after_the_writes_before_it(bench: &Bench) {
    let gate = bench.gate("gate");
    let process = bench.start_listening("p", &format!("{} ; cat-count", gate.wait())).await;
    let mut write = Box::pin(process.write("1", vec![b'x'; 1 << 20]));
    assert!((&mut write).now_or_never().is_none(), "nobody reads yet");
    let close = process.close_stdin();
    gate.open_once();
    let (written, _) = tokio::join!(write, close);
    assert_eq!(written, Written::Accepted);
    let expected = format!("{} bytes\n", 1 << 20);
    assert_eq!(process.transcript().await.stdout(), expected);
}
