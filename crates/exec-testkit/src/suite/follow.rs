//! Followers of a log.

use std::time::Duration;

use exec_core::Stream;
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::test_data::{SeededBytes, SeededRng};
use crate::test_environment::TestEnvironment;

pub async fn all_followers_see_the_same_log(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!(
        "flood stdout 500000 1 5000 ; err half ; {} ; flood stdout 500000 2 90000 ; exit 1",
        semaphore.acquire()
    );
    let process = env.start("p", &script).await;
    let early = process.reader().await;
    let mut middle = process.reader().await;
    middle.read_until("the middle", |seen| !seen.bytes(Stream::Stderr).is_empty()).await;
    let late = process.reader().await;
    semaphore.release();
    let readers = [early, middle, late].map(crate::process::LogReader::read_to_end);
    let seen = join_all(readers).await;
    assert_eq!(seen[0].output_bytes(), 1_000_005);
    assert!(seen.iter().all(|other| other.entries == seen[0].entries));
    assert_eq!(process.read_to_end().await.entries, seen[0].entries);
}

pub async fn a_follower_from_the_middle_begins_behind_its_place(env: &TestEnvironment) {
    let process = env.start("p", "flood stdout 1000000 3 1000 ; exit 0").await;
    let whole = process.read_to_end().await;
    let last = whole.cursor();
    for after in [1, last / 2, last - 2, last - 1] {
        let rest = process.reader_after(after).await.read_to_end().await;
        assert_eq!(rest.entries, whole.entries[after as usize..], "after {after}");
    }
}

pub async fn a_follower_beyond_the_end_of_a_closed_log_ends_at_once(env: &TestEnvironment) {
    let process = env.start("p", "say x ; exit 0").await;
    let last = process.read_to_end().await.cursor();
    for after in [last, last + 1, last + 100] {
        let mut reader = process.reader_after(after).await;
        assert_eq!(reader.follow().next(1000).await, Ok(None), "after {after}");
    }
}

pub async fn cancelling_next_loses_nothing(env: &TestEnvironment) {
    let total = 2 << 20;
    let process = env.start("p", &format!("flood stdout {total} 4 3000 ; exit 0")).await;
    let mut reader = process.reader().await;
    let mut rng = SeededRng::new(9);
    while !reader.log.is_closed() {
        let max_bytes = 1 + rng.below(50_000);
        // Polled once and dropped; then dropped after a moment; then awaited.
        let attempt = reader.follow().next(max_bytes).now_or_never();
        let attempt = match attempt {
            Some(page) => Some(page),
            None => {
                let timeout = Duration::from_micros(rng.below(500) as u64);
                let next = reader.follow().next(max_bytes);
                tokio::time::timeout(timeout, next).await.ok()
            }
        };
        let page = match attempt {
            Some(page) => page,
            None => reader.follow().next(max_bytes).await,
        };
        let page = page.expect("the log can be read on");
        reader.log.add_page(page.expect("the log is not over before closed"));
    }
    super::assert_stream(&reader.log, Stream::Stdout, SeededBytes::new(4), total);
}

pub async fn small_pages_see_the_same_log(env: &TestEnvironment) {
    let process = env.start("p", "flood stdout 200000 5 700 ; exit 0").await;
    let whole = process.read_to_end().await;
    for max_bytes in [0, 1, 70_000] {
        let mut reader = process.reader().await;
        while let Some(page) = reader.follow().next(max_bytes).await.expect("readable") {
            let outputs: Vec<usize> = page
                .entries
                .iter()
                .filter_map(|entry| match &entry.body {
                    exec_core::EntryBody::Output { bytes, .. } => Some(bytes.len()),
                    _ => None,
                })
                .collect();
            let bytes: usize = outputs.iter().sum();
            assert!(bytes <= max_bytes || outputs.len() == 1, "{outputs:?}");
            reader.log.add_page(page);
        }
        assert_eq!(reader.log.entries, whole.entries);
    }
}

pub async fn an_idle_follower_holds_nobody_up(env: &TestEnvironment) {
    let total = 4 << 20;
    let process = env.start("p", &format!("flood stdout {total} 6 60000 ; exit 0")).await;
    let idle = process.reader().await;
    drop(process.reader().await);
    let log = process.read_to_end().await;
    super::assert_stream(&log, Stream::Stdout, SeededBytes::new(6), total);
    let late = idle.read_to_end().await;
    assert_eq!(late.entries, log.entries);
}

pub async fn alternate_writes_keep_their_order_across_streams(env: &TestEnvironment) {
    let steps: String =
        (0..20).map(|round| format!("say out{round} ; read-line ; err err{round} ; read-line ; ")).collect();
    let process = env.start_with_stdin("p", &format!("{steps} exit 0")).await;
    let mut reader = process.reader().await;
    for round in 0..20 {
        for word in ["out", "err"] {
            reader.wait_for_line(&format!("{word}{round}")).await;
            process.write(&format!("{word}{round}"), "\n").await;
        }
    }
    let log = reader.read_to_end().await;
    let expected: String = (0..20).map(|round| format!("out{round}\nerr{round}\n")).collect();
    assert_eq!(log.printed(), expected);
    let mut streams = log.outputs().map(|(_, from, _)| from);
    assert!(streams.all(|from| from != Stream::Pty));
}
