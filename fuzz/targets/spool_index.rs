//! A log that is opened again: any index, with data files of any length, is accepted or refused, and can be read to its
//! end.
//!
//! An index of ours is always right up to its last record, whatever instruction its writer was killed at. This asks for
//! more: even an index that a broken disk made up causes an error and not the end of the daemon.

#![no_main]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use exec_core::Overflow;
use exec_core::flow::Quota;
use exec_keeper::spool::directory::SpoolDirectory;
use exec_keeper::spool::index::{IndexHeader, IndexRecord};
use exec_keeper::spool::log_files::{DiskWait, ReadRequest};
use exec_keeper::spool::{RecoveredFiles, Spool};
use libfuzzer_sys::fuzz_target;
use rustix::fs::MemfdFlags;

fuzz_target!(|bytes: &[u8]| {
    let _ = IndexHeader::decode(bytes);
    if let Some(record) = IndexRecord::decode(bytes) {
        let _ = record.ends();
    }
    let [size0, size1, index @ ..] = bytes else { return };
    let quota = Quota { cap_bytes: 1 << 20, overflow: Overflow::DropOldest };
    let folder = Arc::new(SpoolDirectory::new(std::env::temp_dir(), 1 << 20));
    let files = RecoveredFiles { index: Some(file(index)), data: [data(*size0), data(*size1)] };
    let Ok(mut spool) = Spool::resume(folder, files, quota, Vec::new()) else { return };
    read_all(&spool);
    spool.shed(1 << 10, None);
    read_all(&spool);
});

fn read_all(spool: &Spool) {
    let head = spool.head();
    let mut after = 0;
    for max_bytes in [Some(1), Some(64 << 10), None] {
        match spool.log_files().page(head, ReadRequest { after, max_bytes, disk_wait: DiskWait::Allowed }) {
            Ok(page) => after = page.cursor(after),
            Err(_) => return,
        }
    }
}

/// A data file of so many times 16 bytes; none for zero, as before a stream's first byte.
fn data(size: u8) -> Option<OwnedFd> {
    (size > 0).then(|| file(&vec![b'x'; usize::from(size) * 16]))
}

fn file(bytes: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory for a small file");
    let written = rustix::io::pwrite(&file, bytes, 0).expect("memory for a few bytes");
    assert_eq!(written, bytes.len(), "memory files are not written by halves");
    file
}
