//! Reading the log: pages, budgets, waiting.

use std::time::{Duration, Instant};

use exec_core::{EntryBody, Page, Seq, Stream};
use exec_env::process::ReadQuery;

use crate::checked_log::CheckedLog;
use crate::process::TestProcess;
use crate::test_data::SeededBytes;
use crate::test_environment::TestEnvironment;

const LONG: Duration = Duration::from_secs(3600);

/// 8 MiB on each stream at once.
pub async fn every_byte_of_both_streams_arrives_in_order(env: &TestEnvironment) {
    let total = 8 << 20;
    let script = format!("fork [ flood stderr {total} 2 100000 ] ; flood stdout {total} 1 70000 ; exit 0");
    let log = env.run("p", &script).await;
    let stdout = log.bytes(Stream::Stdout);
    let announcement = stdout.iter().position(|byte| *byte == b'\n');
    let flood = &stdout[announcement.expect("the leader announced its descendant first") + 1..];
    assert_eq!(flood.len(), total);
    assert_eq!(SeededBytes::new(1).first_difference(0, flood), None);
    super::assert_stream(&log, Stream::Stderr, SeededBytes::new(2), total);
}

pub async fn bytes_written_one_by_one_all_arrive(env: &TestEnvironment) {
    let log = env.run("p", "bytes1 20000").await;
    let expected: Vec<u8> = (0..20_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
    assert!(log.bytes(Stream::Stdout) == expected);
}

/// The same cases as the golden files of the wire: `echo out; echo err >&2; exit 3`.
pub async fn pages_hold_what_fits_their_budget_and_at_least_one_entry(env: &TestEnvironment) {
    let process = finished_example(env).await;
    let all: &[Seq] = &[1, 2];
    let none: &[Seq] = &[];
    let cases: [(Seq, Option<usize>, &[Seq]); 14] = [
        (0, None, all),
        (1, None, &[2]),
        (2, None, none),
        (3, None, none),
        (4, None, none),
        (100, None, none),
        (0, Some(0), &[1]),
        (0, Some(1), &[1]),
        (0, Some(4), &[1]),
        (0, Some(7), &[1]),
        (0, Some(8), all),
        (0, Some(100), all),
        (1, Some(1), &[2]),
        (4, Some(1), none),
    ];
    for (after, max_bytes, outputs) in cases {
        let query = ReadQuery { after, max_bytes, wait: LONG };
        let page = process.read(query).await;
        let found: Vec<Seq> = output_seqs(&page);
        assert_eq!(found, outputs, "after {after}, max {max_bytes:?}");
        assert_eq!(page.gap, None);
        let head = page.head;
        assert_eq!((head.first_seq, head.next_seq, head.closed), (1, 5, true));
        assert_eq!(head.exit.map(|(seq, exit)| (seq, exit.shell_code())), Some((3, 3)));
        assert_eq!((head.held_bytes, head.dropped_bytes), (8, 0));
        // Whatever the budget, the entries follow the reader's position without a hole.
        for (entry, seq) in page.entries.iter().zip(after + 1..) {
            assert_eq!(entry.seq, seq);
        }
        assert_eq!(page.entries.is_empty(), after >= 4);
    }
}

pub async fn exit_and_closed_are_entries_of_the_page(env: &TestEnvironment) {
    let process = finished_example(env).await;
    let page = process.read_now().await;
    let kinds: Vec<&str> = page.entries.iter().map(|entry| kind(&entry.body)).collect();
    assert_eq!(kinds, ["output", "output", "exited", "closed"]);
    let page = process.read(after(2)).await;
    let kinds: Vec<&str> = page.entries.iter().map(|entry| kind(&entry.body)).collect();
    assert_eq!(kinds, ["exited", "closed"]);
}

pub async fn paging_with_any_budget_sees_the_same_log(env: &TestEnvironment) {
    let script = "flood stdout 300000 1 9000 ; flood stderr 200000 2 40000 ; exit 0";
    let process = env.start("p", script).await;
    let whole = process.read_to_end().await;
    for max_bytes in [0, 1, 1000, 65_536, 100_000, 10_000_000] {
        let mut paged = CheckedLog::new(0);
        while !paged.is_closed() {
            let query = ReadQuery { after: paged.cursor(), max_bytes: Some(max_bytes), wait: LONG };
            let page = process.read(query).await;
            let bytes: usize = page.entries.iter().map(|entry| size(&entry.body)).sum();
            let outputs = output_seqs(&page).len();
            assert!(bytes <= max_bytes || outputs == 1, "{bytes} of {max_bytes}");
            assert!(!page.entries.is_empty(), "a page makes progress");
            paged.add_page(page);
        }
        assert_eq!(paged.entries, whole.entries, "pages of {max_bytes}");
    }
}

pub async fn a_waiting_read_wakes_on_output_on_exit_and_on_closed(env: &TestEnvironment) {
    let (speak, leave, close) = (env.semaphore("speak"), env.semaphore("leave"), env.semaphore("close"));
    let script = format!("fork [ {} ] ; {} ; say a ; {} ; exit 4", close.acquire(), speak.acquire(), leave.acquire());
    let process = env.start("p", &script).await;
    process.reader().await.wait_for_descendant().await;
    let start = process.read_now().await.head.next_seq - 1;

    for (seq, semaphore, expected) in
        [(start, &speak, "output"), (start + 1, &leave, "exited"), (start + 2, &close, "closed")]
    {
        let waiting = process.read(waiting_after(seq));
        let opening = async {
            // `join!` polls in order, so the read waits already when the event comes.
            semaphore.release();
        };
        let (page, ()) = tokio::join!(waiting, opening);
        let kinds: Vec<&str> = page.entries.iter().map(|entry| kind(&entry.body)).collect();
        assert_eq!(kinds, [expected]);
    }
    let over = process.read(waiting_after(start + 3)).await;
    assert!(over.entries.is_empty() && over.head.closed);
}

pub async fn a_waiting_read_is_over_at_its_deadline(env: &TestEnvironment) {
    let process = env.start("p", "say one ; wait-forever").await;
    process.reader_at_line("one").await;
    let wait = Duration::from_millis(100);
    for seq in [1, 100] {
        let before = Instant::now();
        let query = ReadQuery { wait, ..after(seq) };
        let page = process.read(query).await;
        assert!(before.elapsed() >= wait, "{:?}", before.elapsed());
        assert!(page.entries.is_empty() && page.gap.is_none());
        assert_eq!((page.head.next_seq, page.head.closed), (2, false));
    }
}

pub async fn a_read_without_a_wait_answers_at_once(env: &TestEnvironment) {
    let process = env.start("p", "wait-forever").await;
    let page = process.read_now().await;
    assert!(page.entries.is_empty() && page.head.exit.is_none());
}

pub async fn a_read_beyond_the_end_of_a_closed_log_answers_at_once(env: &TestEnvironment) {
    let process = finished_example(env).await;
    for seq in [4, 5, 1 << 40] {
        let page = process.read(waiting_after(seq)).await;
        assert!(page.entries.is_empty() && page.head.closed, "after {seq}");
    }
}

pub async fn a_closed_log_reads_the_same_again_and_again(env: &TestEnvironment) {
    let process = finished_example(env).await;
    let first = process.read_now().await;
    for _ in 0..5 {
        assert_eq!(process.read_now().await, first);
    }
}

pub async fn a_cancelled_read_takes_nothing_away(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let process = env.start("p", &format!("{} ; say kept", semaphore.acquire())).await;
    for _ in 0..20 {
        let cancelled = tokio::time::timeout(Duration::from_millis(1), process.read(waiting_after(0))).await;
        assert!(cancelled.is_err(), "there is nothing to read yet");
    }
    semaphore.release();
    assert_eq!(process.read_to_end().await.stdout(), "kept\n");
}

/// `echo out; echo err >&2; exit 3`, closed. A line on stdin stands between the two, so that their order is certain.
async fn finished_example(env: &TestEnvironment) -> TestProcess<'_> {
    let process = env.start_with_stdin("p", "say out ; read-line ; err err ; read-line ; exit 3").await;
    let mut reader = process.reader_at_line("out").await;
    process.write("1", "\n").await;
    reader.wait_for_line("err").await;
    process.write("2", "\n").await;
    reader.read_to_end().await;
    process
}

fn after(after: Seq) -> ReadQuery {
    ReadQuery { after, ..ReadQuery::default() }
}

fn waiting_after(seq: Seq) -> ReadQuery {
    ReadQuery { wait: LONG, ..after(seq) }
}

fn output_seqs(page: &Page) -> Vec<Seq> {
    let outputs = page.entries.iter().filter(|entry| size(&entry.body) > 0);
    outputs.map(|entry| entry.seq).collect()
}

fn size(body: &EntryBody) -> usize {
    match body {
        EntryBody::Output { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

fn kind(body: &EntryBody) -> &'static str {
    match body {
        EntryBody::Output { .. } => "output",
        EntryBody::Exited(_) => "exited",
        EntryBody::Closed => "closed",
    }
}
