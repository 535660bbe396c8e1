//! The arithmetic of a log, number by number; random histories are in `history`.

use bytes::Bytes;
use exec_core::limits::RECORD_BYTES;
use exec_core::{Entry, EntryBody, Exit, Gap, Head, Log, Page, Stall, Stream};

/// Three entries of which the first, of 10 bytes, is dropped.
fn log() -> Log {
    let mut log = Log::default();
    assert_eq!((log.append_output(10), log.append_output(20)), (1, 2));
    assert_eq!(log.append_exit(Exit::LOST), 3);
    log.drop_first(10);
    log
}

#[test]
fn a_log_counts_what_it_holds_and_what_it_dropped() {
    assert_eq!(Log::default().head(None).next_seq, 1);
    assert_eq!(Log::default().cost_bytes(), 0);
    let mut log = log();
    let head = Head {
        first_seq: 2,
        next_seq: 4,
        held_bytes: 20,
        dropped_bytes: 10,
        exit: Some((3, Exit::LOST)),
        closed: false,
        stalled: Some(Stall::Disk),
    };
    assert_eq!(log.head(Some(Stall::Disk)), head);
    assert_eq!(log.cost_bytes(), 20 + 2 * RECORD_BYTES);
    assert_eq!(log.append_closed(), 4);
    log.drop_first(20);
    assert_eq!(
        log.head(None),
        Head { first_seq: 3, next_seq: 5, held_bytes: 0, dropped_bytes: 30, closed: true, stalled: None, ..head }
    );
    assert_eq!(Log::resume(&log.head(None)), log);
}

#[test]
fn a_reader_has_news_if_there_is_an_entry_or_no_more_to_wait_for() {
    let head = log().head(None);
    assert_eq!([0, 1, 2, 3, 4].map(|after| head.has_news(after)), [true, true, true, false, false]);
    assert!(!Log::default().head(None).has_news(0));
    assert!(Head { closed: true, ..head }.has_news(9));
}

#[test]
fn a_gap_is_told_to_those_who_missed_something() {
    let head = Head { first_seq: 4, next_seq: 6, dropped_bytes: 7, ..log().head(None) };
    let gap = |from_seq| Some(Gap { from_seq, to_seq: 3, dropped_bytes: 7 });
    assert_eq!([0, 1, 2, 3, 4].map(|after| head.gap(after)), [gap(1), gap(2), gap(3), None, None]);
    assert_eq!(Log::default().head(None).gap(0), None);
}

#[test]
fn the_position_after_a_page_is_its_last_entry_or_the_end_of_its_gap() {
    let head = log().head(None);
    let body = EntryBody::Output { stream: Stream::Stdout, bytes: Bytes::from_static(b"x") };
    let gap = Gap { from_seq: 3, to_seq: 5, dropped_bytes: 1 };
    let page = |entries, gap| Page { entries, gap, head }.cursor(2);
    assert_eq!(page(vec![], None), 2);
    assert_eq!(page(vec![], Some(gap)), 5);
    assert_eq!(page(vec![Entry { seq: 6, body: body.clone() }, Entry { seq: 7, body }], Some(gap)), 7);
}
