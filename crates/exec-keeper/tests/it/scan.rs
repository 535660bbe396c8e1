//! A scan by two threads shows what a scan by one shows: the same runs in the same order, nothing that was dropped
//! meanwhile, and with each run what was seen in it.

use std::io::Write;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use exec_core::flow::Quota;
use exec_core::{Overflow, Seq, Stream};
use exec_keeper::spool::directory::SpoolDirectory;
use exec_keeper::spool::log_scan::{LogScan, Run, Scanned};
use exec_keeper::spool::{OutputSource, PumpContext, PumpOutcome, Spool};
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tempfile::TempDir;

/// More than any log here has, so that a second thread is worth it.
const LONG: u64 = u64::MAX;
const SHORT: u64 = 0;

/// A log to which a test prints, one entry at a time.
struct PrintedLog {
    spool: Spool,
    stdout: std::io::PipeWriter,
    stderr: std::io::PipeWriter,
    /// What each entry has, from the first one on.
    entries: Vec<(Stream, Vec<u8>)>,
    _folder: TempDir,
}

impl PrintedLog {
    fn new(cap_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = Arc::new(SpoolDirectory::new(folder.path(), 1 << 30));
        let pipe = || pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("two more descriptors");
        let [(out, stdout), (err, stderr)] = [pipe(), pipe()];
        let source = |end| OutputSource::Pipe(Arc::new(end));
        let sources = vec![(Stream::Stdout, source(out)), (Stream::Stderr, source(err))];
        let spool = Spool::begin(directory, Quota { cap_bytes, overflow: Overflow::DropOldest }, sources);
        Self { spool, stdout: stdout.into(), stderr: stderr.into(), entries: Vec::new(), _folder: folder }
    }

    fn print(&mut self, stream: Stream, len: usize) {
        // No byte is zero, as those of a hole are, and each entry has bytes of its own.
        let bytes: Vec<u8> = (0..len).map(|at| ((at * 7 + self.entries.len() * 13) % 255) as u8 + 1).collect();
        let end = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
        end.write_all(&bytes).expect("a pipe takes this much");
        let context = PumpContext { now: Instant::now(), others_ready: false, wanted: None };
        let moved = self.spool.pump(stream, context, &mut |_, _| Ok(()));
        assert_eq!(moved, PumpOutcome::Moved { bytes: len as u32 });
        self.entries.push((stream, bytes));
    }

    fn scan(&self, stream: Option<Stream>) -> LogScan {
        LogScan::new(self.spool.log_files().clone(), 1, self.spool.head().next_seq, stream)
    }
}

/// What is seen in a run, so that it can be known later for which run it was.
fn look(run: &Run<'_>) -> (usize, u64) {
    (run.ends.len(), run.bytes.iter().map(|byte| u64::from(*byte)).sum())
}

type Shown = (Stream, Vec<u8>, Vec<(usize, Seq)>, (usize, u64));

fn shown(scan: LogScan, bytes: u64, most: usize) -> Vec<Shown> {
    let mut shown = Vec::new();
    let visit = |scanned: Scanned<'_>, looked: Option<(usize, u64)>| {
        if let (Scanned::Run(run), Some(looked)) = (&scanned, looked) {
            shown.push((run.stream, run.bytes.to_vec(), run.ends.to_vec(), looked));
        }
        Ok(if shown.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    };
    scan.for_each_run(bytes, look, visit).expect("the files are whole");
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn two_threads_show_what_one_shows(
        prints in vec((any::<bool>(), 1..40_000_usize), 0..60),
        stream in prop::sample::select(vec![None, Some(Stream::Stdout), Some(Stream::Stderr)]),
        most in prop_oneof![Just(usize::MAX), 1..20_usize],
    ) {
        let mut log = PrintedLog::new(1 << 30);
        for (is_stdout, len) in prints {
            log.print(if is_stdout { Stream::Stdout } else { Stream::Stderr }, len);
        }
        let expected = shown(log.scan(stream), SHORT, most);
        for (stream, bytes, ends, looked) in &expected {
            prop_assert_eq!(*looked, look(&Run { stream: *stream, bytes, ends, terminal: None }));
        }
        prop_assert_eq!(shown(log.scan(stream), LONG, most), expected);
    }

    /// While somebody reads, so much is printed that what was to be read next is gone. What is shown was printed, and what is not
    /// shown is told.
    #[test]
    fn what_is_dropped_during_a_scan_is_told_and_never_shown(
        prints in vec((any::<bool>(), 1..40_000_usize), 40..80),
        later in vec((0..6_usize, 1..40_000_usize), 1..20),
        bytes in prop::sample::select(vec![SHORT, LONG]),
    ) {
        let mut log = PrintedLog::new(1 << 20);
        for (is_stdout, len) in prints {
            log.print(if is_stdout { Stream::Stdout } else { Stream::Stderr }, len);
        }
        let (scan, end) = (log.scan(None), log.spool.head().next_seq);
        let (mut next, mut later) = (1, later.into_iter());
        let visit = |scanned: Scanned<'_>, looked: Option<(usize, u64)>| {
            match scanned {
                Scanned::Run(run) => {
                    assert_eq!(looked, Some(look(&run)));
                    let mut start = 0;
                    for (entry_end, seq) in run.ends {
                        assert_eq!(*seq, next);
                        let entry = (run.stream, run.bytes[start..*entry_end].to_vec());
                        assert!(log.entries[*seq as usize - 1] == entry, "entry {seq} is not what was printed");
                        (start, next) = (*entry_end, next + 1);
                    }
                }
                Scanned::Dropped { to_seq } => {
                    assert!(to_seq >= next, "{to_seq} was shown already, {next} comes next");
                    next = to_seq + 1;
                }
                Scanned::End => {}
            }
            if let Some((prints, len)) = later.next() {
                (0..prints).for_each(|_| log.print(Stream::Stdout, len));
            }
            Ok(ControlFlow::Continue(()))
        };
        scan.for_each_run(bytes, look, visit).expect("the files are whole");
        prop_assert_eq!(next, end);
    }
}

#[test]
fn what_the_visitor_fails_with_is_the_result() {
    let mut log = PrintedLog::new(1 << 30);
    (0..40).for_each(|_| log.print(Stream::Stdout, 40_000));
    for bytes in [SHORT, LONG] {
        assert_eq!(log.scan(None).for_each_run(bytes, look, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
    }
}

#[test]
fn a_helper_that_panics_is_told_and_not_waited_for() {
    if std::thread::available_parallelism().map_or(1, usize::from) == 1 {
        return;
    }
    let mut log = PrintedLog::new(1 << 30);
    (0..40).for_each(|_| log.print(Stream::Stdout, 40_000));
    let (both_look, is_first) = (Barrier::new(2), std::sync::atomic::AtomicBool::new(true));
    let look = |_: &Run<'_>| {
        if std::thread::current().name() == Some("log-reader") {
            both_look.wait();
            panic!("as it was asked to");
        }
        if is_first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            both_look.wait();
        }
    };
    let scan = || log.scan(None).for_each_run(LONG, look, |_, _| Ok(ControlFlow::Continue(())));
    assert!(catch_unwind(AssertUnwindSafe(scan)).is_err());
}
