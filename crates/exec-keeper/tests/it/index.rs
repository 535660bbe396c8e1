//! The format of the index: bytes of a damaged disk are decoded or refused, never a panic, and the format does not change.

use exec_core::{Exit, ExitCause, ExitStatus, LimitSet, ResourceUsage, Stream, TerminalSize};
use exec_keeper::spool::index::{Dropped, IndexHeader, IndexRecord, RecordKind};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn no_bytes_make_a_reader_of_records_panic(mut bytes in vec(any::<u8>(), 0..48), kind in 0_u8..8) {
        let _ = IndexRecord::decode(&bytes).map(|record| record.ends());
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let _ = IndexRecord::decode(&bytes).map(|record| record.ends());
    }

    #[test]
    fn no_bytes_make_a_reader_of_headers_panic(bytes in vec(any::<u8>(), 0..160), tag in 0_u8..6, cause in 0_u8..6) {
        let _ = IndexHeader::decode(&bytes);
        let mut nearly = [b"execlog1", &bytes[..]].concat();
        for (at, value) in [(56, tag), (57, cause)] {
            if let Some(byte) = nearly.get_mut(at) {
                *byte = value;
            }
        }
        let _ = IndexHeader::decode(&nearly);
    }

    #[test]
    fn a_record_that_is_cut_short_is_none(kind in 1_u8..6, length in 0_usize..32) {
        let bytes = [kind; 32];
        prop_assert!(IndexRecord::decode(&bytes).is_some());
        prop_assert_eq!(IndexRecord::decode(&bytes[..length]), None);
    }
}

/// A keeper of an earlier build may have written the index.
#[test]
fn a_record_is_32_bytes_in_this_order() {
    let mut bytes = vec![2, 0, 0, 0];
    bytes.extend(7_u32.to_le_bytes());
    for number in [100_u64, 200, 300] {
        bytes.extend(number.to_le_bytes());
    }
    let record = IndexRecord {
        kind: RecordKind::Output(Stream::Stderr),
        len: 7,
        offset: 100,
        other_end: 200,
        unix_micros: 300,
        terminal: None,
    };
    assert_eq!(IndexRecord::decode(&bytes), Some(record));
    assert_eq!(record.ends(), [200, 107]);
    let kinds = [
        RecordKind::Output(Stream::Stdout),
        record.kind,
        RecordKind::Output(Stream::Pty),
        RecordKind::Exited,
        RecordKind::Closed,
    ];
    for (tag, kind) in (1..).zip(kinds) {
        bytes[0] = tag;
        assert_eq!(IndexRecord::decode(&bytes).map(|record| record.kind), Some(kind));
    }
}

/// Where other processes have the end of their other stream, which a terminal has not. An older keeper has written 0 there.
#[test]
fn a_record_of_a_terminal_tells_its_size() {
    let mut bytes = vec![3, 0, 0, 0];
    bytes.extend(7_u32.to_le_bytes());
    for number in [100_u64, u64::from(24_u16) | u64::from(80_u16) << 16, 300] {
        bytes.extend(number.to_le_bytes());
    }
    let record = IndexRecord::decode(&bytes).expect("a record");
    assert_eq!((record.terminal, record.other_end), (Some(TerminalSize { rows: 24, cols: 80 }), 0));
    assert_eq!(record.ends(), [107, 0]);
    bytes[16..24].fill(0);
    assert_eq!(IndexRecord::decode(&bytes).map(|record| record.terminal), Some(None));
}

#[test]
fn a_header_tells_what_is_forgotten_and_how_it_ended() {
    let mut bytes = b"execlog1".to_vec();
    for number in [5_u64, 400, 300, 100, 0, 9] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([3, 2, 0, 0]);
    bytes.extend(11_i32.to_le_bytes());
    for number in [1_u64, 2, 3] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.resize(128, 0);
    bytes[96] = 1;
    let micros = std::time::Duration::from_micros;
    let exit = Exit {
        status: ExitStatus::Signal { number: 11, core_dumped: true },
        cause: ExitCause::Terminated,
        usage: ResourceUsage { user: micros(1), system: micros(2), max_rss_bytes: 3 },
        limits_reached: LimitSet::NONE,
    };
    let dropped = Dropped { first_seq: 5, bytes: 400, starts: [300, 100] };
    let header = IndexHeader { dropped, exit: Some((9, exit)), nobody_reads: true };
    assert_eq!(IndexHeader::decode(&bytes), Some(header));
    bytes[7] = b'2';
    assert_eq!(IndexHeader::decode(&bytes), None, "another format is not guessed at");
}
