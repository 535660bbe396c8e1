//! The writer of a log may be killed at any instruction. Here a log is cut after every record and resumed: it has the same
//! bytes in the same order for each stream, dense seqs, one exit and one end.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use exec_core::flow::Quota;
use exec_core::{EntryBody, Exit, ExitCause, ExitStatus, Overflow, Page, ResourceUsage, Stream};
use exec_keeper::spool::directory::SpoolDirectory;
use exec_keeper::spool::log_files::{DiskWait, ReadRequest};
use exec_keeper::spool::{LogFileKind, OutputSource, PumpContext, PumpOutcome, RecoveredFiles, Spool};
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::pipe::{PipeFlags, pipe_with};

const HEADER_BYTES: u64 = 128;
const RECORD_BYTES: u64 = 32;
const EXIT: Exit = Exit {
    status: ExitStatus::Code(7),
    cause: ExitCause::Own,
    usage: ResourceUsage { user: std::time::Duration::ZERO, system: std::time::Duration::ZERO, max_rss_bytes: 1 },
    limits_reached: exec_core::LimitSet::NONE,
};
const ROOMY: Quota = Quota { cap_bytes: 1 << 30, overflow: Overflow::DropOldest };

#[derive(Debug, Clone, Copy)]
struct Print {
    stream: Stream,
    bytes: u16,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_log_cut_after_any_record_is_completed(prints in vec(print(), 0..12), exit_first in any::<bool>()) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = Arc::new(SpoolDirectory::new(folder.path(), 1 << 30));
        let whole = Whole::written(&directory, &prints, exit_first);
        for records in 0..=whole.records {
            for streams_left in [true, false] {
                let page = whole.cut_and_completed(&directory, records, streams_left);
                prop_assert_eq!(page.head.next_seq - 1, page.entries.len() as u64);
                let seqs: Vec<u64> = page.entries.iter().map(|entry| entry.seq).collect();
                prop_assert_eq!(seqs, (1..page.head.next_seq).collect::<Vec<_>>());
                prop_assert_eq!(page.entries.iter().filter(|entry| entry.body == EntryBody::Exited(EXIT)).count(), 1);
                prop_assert_eq!(page.entries.last().map(|entry| &entry.body), Some(&EntryBody::Closed));
                for stream in [Stream::Stdout, Stream::Stderr] {
                    prop_assert_eq!(bytes(&page, stream), expected(&prints, stream));
                }
            }
        }
    }
}

/// The files of a finished log.
struct Whole {
    /// `None` if nothing was printed, and the exit and `closed` came together.
    index: Option<OwnedFd>,
    data: [Option<OwnedFd>; 2],
    records: u64,
    exit_seq: u64,
}

impl Whole {
    fn written(directory: &Arc<SpoolDirectory>, prints: &[Print], exit_first: bool) -> Self {
        let (mut index, mut data) = (None, [None, None]);
        let (out, mut out_end) = pipe();
        let (err, mut err_end) = pipe();
        let sources = vec![(Stream::Stdout, out), (Stream::Stderr, err)];
        let mut spool = Spool::begin(directory.clone(), ROOMY, sources);
        let mut register_file = |kind: LogFileKind, file: &OwnedFd| {
            match kind {
                LogFileKind::Index => index = Some(duplicate(file)),
                LogFileKind::Data(at) => data[at] = Some(duplicate(file)),
            }
            Ok(())
        };
        for (at, print) in prints.iter().enumerate() {
            let end = if print.stream == Stream::Stdout { &mut out_end } else { &mut err_end };
            end.write_all(&said(at, *print)).expect("a pipe takes this much");
            while matches!(spool.pump(print.stream, pump_context(), &mut register_file), PumpOutcome::Moved { .. }) {}
        }
        if exit_first {
            spool.on_exit(EXIT, pump_context(), &mut register_file);
        }
        drop((out_end, err_end));
        for stream in [Stream::Stdout, Stream::Stderr] {
            assert_eq!(spool.pump(stream, pump_context(), &mut register_file), PumpOutcome::Eof);
        }
        spool.on_exit(EXIT, pump_context(), &mut register_file);
        let head = spool.head();
        assert!(head.closed, "{head:?}");
        let (exit_seq, _) = head.exit.expect("it was told");
        drop(spool);
        Self { index, data, records: head.next_seq - 1, exit_seq }
    }

    /// The log as it is when its writer was killed after `records` records and the next one has resumed it. Sources of
    /// streams that had ended may have been closed already.
    fn cut_and_completed(&self, directory: &Arc<SpoolDirectory>, records: u64, streams_left: bool) -> Page {
        let index = self.index.as_ref().map(|index| self.cut(index, directory, records));
        let data = [0, 1].map(|at| self.data[at].as_ref().map(duplicate));
        // A pipe whose writers are gone, as both are by now.
        let sources =
            if streams_left { vec![(Stream::Stdout, pipe().0), (Stream::Stderr, pipe().0)] } else { Vec::new() };
        let files = RecoveredFiles { index, data };
        let mut spool = Spool::resume(directory.clone(), files, ROOMY, sources).expect("the files are whole");
        let mut register_file = |_: LogFileKind, _: &OwnedFd| Ok(());
        for stream in spool.open_streams().iter() {
            assert_eq!(
                spool.pump(stream, pump_context(), &mut register_file),
                PumpOutcome::Eof,
                "nothing is left in the pipe"
            );
        }
        // The keeper reports the exit again, which counts only if the log does not have it.
        if spool.head().exit.is_none() {
            spool.on_exit(EXIT, pump_context(), &mut register_file);
            spool.on_time(Instant::now(), None, &mut register_file);
        }
        let head = spool.head();
        assert!(head.closed, "cut after {records} of {} records, it ends all the same: {head:?}", self.records);
        let request = ReadRequest { after: 0, max_bytes: None, disk_wait: DiskWait::Allowed };
        spool.log_files().page(head, request).expect("the files are whole")
    }

    /// The index as it was after `records` records.
    fn cut(&self, index: &OwnedFd, folder: &SpoolDirectory, records: u64) -> OwnedFd {
        let mut bytes = vec![0; (HEADER_BYTES + records * RECORD_BYTES) as usize];
        rustix::io::pread(index, &mut bytes[..], 0).expect("it was written");
        // The exit is written to the header just before its record.
        let noted = records + 1 >= self.exit_seq;
        if !noted {
            bytes[48..96].fill(0);
        }
        let cut = folder.create_file().expect("the folder is there");
        rustix::io::pwrite(&cut, &bytes, 0).expect("a disk with room");
        cut
    }
}

fn pipe() -> (OutputSource, std::io::PipeWriter) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("two more descriptors");
    (OutputSource::Pipe(Arc::new(read)), write.into())
}

fn duplicate(file: &OwnedFd) -> OwnedFd {
    file.try_clone().expect("one more descriptor")
}

fn pump_context() -> PumpContext {
    PumpContext { now: Instant::now(), others_ready: false, wanted: None }
}

fn said(at: usize, print: Print) -> Vec<u8> {
    (0..print.bytes).map(|index| (usize::from(index) * 7 + at) as u8).collect()
}

fn expected(prints: &[Print], stream: Stream) -> Vec<u8> {
    let of_stream = prints.iter().enumerate().filter(|(_, print)| print.stream == stream);
    of_stream.flat_map(|(at, print)| said(at, *print)).collect()
}

fn bytes(page: &Page, stream: Stream) -> Vec<u8> {
    let of_stream = page.entries.iter().filter_map(|entry| match &entry.body {
        EntryBody::Output { stream: from, bytes } if *from == stream => Some(bytes),
        _ => None,
    });
    of_stream.flat_map(|bytes| bytes.iter().copied()).collect()
}

fn print() -> impl Strategy<Value = Print> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    (stream, 1_u16..30_000).prop_map(|(stream, bytes)| Print { stream, bytes })
}
