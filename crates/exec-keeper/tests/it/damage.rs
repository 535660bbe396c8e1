//! A damaged index is refused or read as far as it goes, and costs neither a panic nor much memory. The cases were found
//! by the fuzz target `spool_index`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use exec_core::flow::Quota;
use exec_core::{EntryBody, Overflow, Page};
use exec_keeper::spool::directory::SpoolDirectory;
use exec_keeper::spool::log_files::{DiskWait, ReadRequest};
use exec_keeper::spool::{RecoveredFiles, Spool};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EXITED: u8 = 4;
const CLOSED: u8 = 5;

/// The header, without its magic.
#[derive(Clone, Copy)]
struct Header {
    first_seq: u64,
    dropped_bytes: u64,
    starts: [u64; 2],
    /// The seq of an exit with code 7.
    exit_seq: Option<u64>,
}

const PLAIN: Header = Header { first_seq: 1, dropped_bytes: 0, starts: [0, 0], exit_seq: None };

fn index(header: Header, records: &[(u8, u32, u64)]) -> OwnedFd {
    let mut bytes = b"execlog1".to_vec();
    for number in [header.first_seq, header.dropped_bytes, header.starts[0], header.starts[1], 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(header.exit_seq.unwrap_or(0).to_le_bytes());
    bytes.extend([u8::from(header.exit_seq.is_some()), 0, 0, 0, 7]);
    bytes.resize(128, 0);
    for (kind, len, offset) in records {
        bytes.extend([*kind, 0, 0, 0]);
        bytes.extend(len.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend([0; 16]);
    }
    file(&bytes)
}

fn file(bytes: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("damage", MemfdFlags::CLOEXEC).expect("memory for a small file");
    rustix::io::pwrite(&file, bytes, 0).expect("memory for a few bytes");
    file
}

/// A log of these records and of ten bytes of stdout, all streams of which have ended.
fn resumed(header: Header, records: &[(u8, u32, u64)]) -> Result<Spool, Errno> {
    let directory = Arc::new(SpoolDirectory::new(std::env::temp_dir(), 1 << 20));
    let files = RecoveredFiles { index: Some(index(header, records)), data: [Some(file(b"0123456789")), None] };
    let quota = Quota { cap_bytes: 1 << 20, overflow: Overflow::DropOldest };
    Spool::resume(directory, files, quota, Vec::new())
}

fn page(spool: &Spool, after: u64) -> Result<Page, Errno> {
    spool.log_files().page(spool.head(), ReadRequest { after, max_bytes: None, disk_wait: DiskWait::Allowed })
}

#[test]
fn a_header_that_does_not_fit_its_records_is_refused() {
    let records = [(STDOUT, 10, 0)];
    resumed(PLAIN, &records).map(drop).expect("a true index");
    for wrong in [
        Header { first_seq: 3, ..PLAIN },
        Header { first_seq: u64::MAX, ..PLAIN },
        Header { dropped_bytes: 1, ..PLAIN },
        Header { starts: [11, 0], dropped_bytes: 11, ..PLAIN },
        Header { starts: [0, 1], dropped_bytes: 1, ..PLAIN },
    ] {
        assert_eq!(resumed(wrong, &records).map(drop), Err(Errno::IO));
    }
}

#[test]
fn records_that_name_more_than_there_is_are_refused() {
    assert_eq!(resumed(PLAIN, &[(STDOUT, 11, 0)]).map(drop), Err(Errno::IO));
    assert_eq!(resumed(PLAIN, &[(STDOUT, 10, u64::MAX - 10)]).map(drop), Err(Errno::IO));
    // Of stderr there is no file at all here.
    assert_eq!(resumed(PLAIN, &[(STDERR, 10, u64::MAX - 20)]).map(drop), Err(Errno::IO));
}

#[test]
fn an_end_without_an_exit_is_refused() {
    assert_eq!(resumed(PLAIN, &[(STDOUT, 10, 0), (CLOSED, 0, 10)]).map(drop), Err(Errno::IO));
    let header = Header { exit_seq: Some(2), ..PLAIN };
    resumed(header, &[(STDOUT, 10, 0), (EXITED, 0, 10), (CLOSED, 0, 10)]).map(drop).expect("a true index");
}

#[test]
fn a_record_longer_than_any_entry_is_an_error_and_takes_no_memory() {
    let spool = resumed(PLAIN, &[(STDOUT, u32::MAX, 0), (STDOUT, 10, 0)]).expect("its end is true");
    assert_eq!(page(&spool, 0), Err(Errno::IO));
    assert_eq!(page(&spool, 1).expect("the rest is readable").entries.len(), 1);
}

#[test]
fn no_more_is_forgotten_than_there_is() {
    let mut spool = resumed(PLAIN, &[(STDOUT, 9, 0), (STDOUT, 9, 0), (STDOUT, 10, 0)]).expect("its end is true");
    assert_eq!(spool.shed(1 << 10, None), 0);
    assert_eq!(spool.head().held_bytes, 10);
}

#[test]
fn bytes_behind_the_end_are_nobodys() {
    let header = Header { exit_seq: Some(2), ..PLAIN };
    let spool = resumed(header, &[(STDOUT, 4, 0), (EXITED, 0, 4), (CLOSED, 0, 4)]).expect("its end is true");
    assert_eq!(page(&spool, 0).expect("it is readable").entries.len(), 3);
}

/// The writer that wrote the exit into the header was killed before the record, and the next one after another record.
#[test]
fn an_exit_that_was_noted_and_not_recorded_is_told_after_what_came_between() {
    let header = Header { exit_seq: Some(1), ..PLAIN };
    let mut spool = resumed(header, &[(STDOUT, 10, 0)]).expect("a true index");
    assert_eq!(spool.head().exit, None);
    spool.on_time(Instant::now(), None, &mut |_, _| Ok(()));
    let entries = page(&spool, 0).expect("a true index").entries;
    let kinds: Vec<&str> = entries
        .iter()
        .map(|entry| match entry.body {
            EntryBody::Output { .. } => "output",
            EntryBody::Exited(_) => "exited",
            EntryBody::Closed => "closed",
        })
        .collect();
    assert_eq!(kinds, ["output", "exited", "closed"]);
}

#[test]
fn a_reader_beyond_every_end_gets_nothing() {
    let spool = resumed(PLAIN, &[(STDOUT, 10, 0)]).expect("a true index");
    assert_eq!(page(&spool, u64::MAX).expect("nothing to read").entries, []);
}
