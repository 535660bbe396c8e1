//! Looks for an expression in the output of a process, as far as it goes, and again when there is more.
//!
//! Nothing of the output is kept while no more comes, and of the expressions only so much as there is room for: a thousand
//! searches that wait cost no more than as many tasks. What is new is searched together with the end of what was searched
//! before, in which a match may have begun; that is read from the log's files again, so the log must not drop it yet.

use std::sync::Arc;

use bytes::Bytes;
use exec_core::{Head, Seq, Stream};
use exec_env::process::{MATCH_WINDOW_BYTES, MatchWindow, ProcessReason, Waited, wait_expression};
use exec_env::view::REGEX_BYTES;
use exec_keeper::spool::index::slot_of;
use exec_keeper::spool::log_files::LogFiles;
use exec_keeper::spool::log_scan::{LogScan, Scanned};
use regex::bytes::Regex;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::files::blocking::{BlockingPool, CancelFlag, PoolSize};

/// How much output a log keeps for a search that has looked at all of it, counting all streams. What two streams print in turn
/// is less than a window of each of them then, but one that prints much must not wait because another prints little.
const KEPT_BYTES: u64 = 2 * MATCH_WINDOW_BYTES as u64;
/// The same in entries, which take room beside their bytes.
const KEPT_ENTRIES: u64 = 4096;
/// Entries that are searched before others have a turn.
const ENTRIES_PER_LOOK: u64 = 1024;

/// Searches of all processes. Two of one process run at once, so that one with an expensive expression keeps the others only
/// half as long; what takes more than a second makes room for others.
const SEARCHES: PoolSize = PoolSize { per_caller: 2, at_once: 4, threads: 64 };

/// Memory that a compiled expression may take: most take no more than the first. Each is counted as the first that suffices.
const EXPRESSION_BYTES: [usize; 3] = [32 << 10, 256 << 10, REGEX_BYTES];
/// Memory of all compiled expressions that are kept while their searches wait for output. Beyond, they are compiled again when
/// there is some.
const KEPT_EXPRESSION_BYTES: usize = 8 << 20;

/// What the searches in one process's output share, some of it with those in the output of others.
#[derive(Clone)]
pub(crate) struct SearchResources {
    pub(super) pool: BlockingPool,
    /// One permit for each KiB.
    pub(super) expressions: Arc<Semaphore>,
}

impl SearchResources {
    pub(crate) fn new() -> Self {
        let expressions = Arc::new(Semaphore::new(KEPT_EXPRESSION_BYTES >> 10));
        Self { pool: BlockingPool::new(SEARCHES), expressions }
    }

    /// The same for another process.
    pub(crate) fn for_process(&self) -> Self {
        Self { pool: self.pool.for_caller(), ..self.clone() }
    }
}

pub(super) struct OutputSearch {
    files: Arc<LogFiles>,
    /// Those that the process has.
    streams: &'static [Stream],
    pattern: String,
    compiled: Option<(Regex, OwnedSemaphorePermit)>,
    searched_upto: Seq,
    kept_after: Seq,
}

impl OutputSearch {
    /// A match counts if it is completed behind entry `after`.
    pub(super) fn new(files: Arc<LogFiles>, streams: &'static [Stream], pattern: String, after: Seq) -> Self {
        Self { files, streams, pattern, compiled: None, searched_upto: after, kept_after: after }
    }

    pub(super) fn searched_upto(&self) -> Seq {
        self.searched_upto
    }

    /// Behind this entry a match may have begun.
    pub(super) fn kept_after(&self) -> Seq {
        self.kept_after
    }

    /// Searches some of what is new, which takes as long as it takes.
    pub(super) fn look(
        &mut self,
        head: Head,
        expressions: &Arc<Semaphore>,
        cancel: &CancelFlag,
    ) -> Result<Option<Waited>, ProcessReason> {
        let regex = self.expression(expressions).map_err(|why| ProcessReason::BadRegex { why })?;
        let end = head.next_seq.min(self.searched_upto.saturating_add(1 + ENTRIES_PER_LOOK));
        let mut first: Option<(Seq, Bytes)> = None;
        for stream in self.streams {
            // What the other stream completed later does not come first.
            let end = first.as_ref().map_or(end, |(seq, _)| *seq);
            let found = self.search_stream(&regex, *stream, end, cancel);
            let found = found.map_err(|errno| ProcessReason::SpoolUnreadable { errno: errno.raw_os_error() })?;
            first = found.or(first);
        }
        self.searched_upto = self.searched_upto.max(end.saturating_sub(1));
        // What cannot be counted cannot be searched again either.
        self.kept_after = self.first_kept().unwrap_or(self.searched_upto + 1) - 1;
        Ok(first.map(|(seq, text)| Waited::Matched { seq, text }))
    }

    /// The first entry that is searched again when there is more.
    fn first_kept(&self) -> Result<Seq, Errno> {
        let end = self.searched_upto + 1;
        let held = self.files.first_held_seq().max(end.saturating_sub(KEPT_ENTRIES));
        self.files.first_of_last_bytes(KEPT_BYTES, held, end)
    }

    fn expression(&mut self, room: &Arc<Semaphore>) -> Result<Regex, String> {
        if let Some((regex, _)) = &self.compiled {
            // The copy has memory of its own to search with, which ends with it.
            return Ok(regex.clone());
        }
        let mut why = String::new();
        for bytes in EXPRESSION_BYTES {
            match wait_expression(&self.pattern, bytes) {
                Ok(regex) => {
                    let permit = room.clone().try_acquire_many_owned((bytes >> 10) as u32).ok();
                    self.compiled = permit.map(|permit| (regex.clone(), permit));
                    return Ok(regex);
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The first match that is completed by a new entry before `end`: that entry, and what matched.
    fn search_stream(
        &self,
        regex: &Regex,
        stream: Stream,
        end: Seq,
        cancel: &CancelFlag,
    ) -> Result<Option<(Seq, Bytes)>, Errno> {
        let new = self.searched_upto + 1;
        let Some(from) = self.search_from(slot_of(stream), new, end)? else { return Ok(None) };
        let mut scan = LogScan::new(self.files.clone(), from, end, Some(stream));
        // Where it was dropped meanwhile, nobody knows whether a line begins here.
        let mut window = MatchWindow::behind(self.files.byte_before(slot_of(stream), from, end).ok().flatten());
        while !cancel.is_set() {
            match scan.next_run()? {
                Scanned::Run(run) => {
                    window.push(run.bytes, run.ends, self.searched_upto);
                    if window.has_enough()
                        && let Some(found) = window.search(regex)
                    {
                        return Ok(Some(found));
                    }
                }
                Scanned::Dropped { .. } => {
                    if let Some(found) = window.search(regex) {
                        return Ok(Some(found));
                    }
                    // No match spans what nobody can read.
                    window = MatchWindow::default();
                }
                Scanned::End => return Ok(window.search(regex)),
            }
        }
        Ok(None)
    }

    /// The entry with which a search of this stream begins; `None` if there is nothing new.
    fn search_from(&self, slot: usize, new: Seq, end: Seq) -> Result<Option<Seq>, Errno> {
        loop {
            let held = self.files.first_held_seq();
            let found = self.search_from_held(slot, held, new, end);
            // What was dropped meanwhile cannot be read; what is left can.
            if self.files.first_held_seq() == held {
                return found;
            }
        }
    }

    fn search_from_held(&self, slot: usize, held: Seq, new: Seq, end: Seq) -> Result<Option<Seq>, Errno> {
        let first_new = new.max(held);
        if first_new >= end {
            return Ok(None);
        }
        if self.files.bytes_before(first_new, end)?[slot] == self.files.bytes_before(end, end)?[slot] {
            return Ok(None);
        }
        if held > new {
            return Ok(Some(held));
        }
        self.files.first_of_last_bytes_in(slot, MATCH_WINDOW_BYTES as u64, held, new).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use exec_core::Overflow;
    use exec_core::flow::Quota;
    use exec_core::limits::SPOOL_MIN_BYTES;
    use exec_keeper::spool::directory::SpoolDirectory;
    use exec_keeper::spool::{OutputSource, PumpContext, PumpOutcome, Spool};
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// A small log to which a test prints, one entry at a time, and drops what its one reader does not want.
    struct PrintedLog {
        spool: Spool,
        end: std::io::PipeWriter,
        _folder: tempfile::TempDir,
    }

    impl PrintedLog {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let directory = Arc::new(SpoolDirectory::new(folder.path(), 1 << 30));
            let (source, end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("two more descriptors");
            let quota = Quota { cap_bytes: SPOOL_MIN_BYTES, overflow: Overflow::DropOldest };
            let spool = Spool::begin(directory, quota, vec![(Stream::Stdout, OutputSource::Pipe(Arc::new(source)))]);
            Self { spool, end: end.into(), _folder: folder }
        }

        /// False if there is no room that the reader does not want.
        fn print(&mut self, bytes: &[u8], read_upto: Seq) -> bool {
            self.end.write_all(bytes).expect("a pipe takes this much");
            let context = PumpContext { now: Instant::now(), others_ready: false, wanted: Some(read_upto + 1) };
            let moved = self.spool.pump(Stream::Stdout, context, &mut |_, _| Ok(()));
            moved != PumpOutcome::WaitingForReader
        }

        fn flood(&mut self, entries: u64, read_upto: Seq) -> bool {
            (0..entries).all(|_| self.print(&[b'-'; 32 << 10], read_upto))
        }
    }

    fn look(search: &mut OutputSearch, log: &PrintedLog) -> Option<Seq> {
        loop {
            let found = search.look(log.spool.head(), &Arc::new(Semaphore::new(1 << 10)), &CancelFlag::default());
            match found.expect("the files are whole") {
                Some(Waited::Matched { seq, .. }) => return Some(seq),
                Some(other) => panic!("{other:?}"),
                None if search.searched_upto() + 1 >= log.spool.head().next_seq => return None,
                None => {}
            }
        }
    }

    #[test]
    fn a_match_that_began_in_what_was_searched_is_found_though_the_log_is_full() {
        let mut log = PrintedLog::new();
        let mut search = OutputSearch::new(log.spool.log_files().clone(), &[Stream::Stdout], "rea-{0,9}dy".into(), 0);
        for _ in 0..40 {
            log.flood(1, search.kept_after());
            assert_eq!(look(&mut search, &log), None);
        }
        log.print(b"rea", search.kept_after());
        assert_eq!(look(&mut search, &log), None);
        log.print(b"dy", search.kept_after());
        let completed = log.spool.head().next_seq - 1;
        // As much as there is room for, which is most of the log.
        let before = log.spool.head().first_seq;
        assert!(log.flood(18, search.kept_after()));
        assert!(!log.flood(40, search.kept_after()), "the reader has not read it");
        assert!(log.spool.head().first_seq > before + 10, "what was read long ago was dropped");
        assert_eq!(look(&mut search, &log), Some(completed));
    }

    #[test]
    fn a_log_of_tiny_entries_is_not_kept_either() {
        let mut log = PrintedLog::new();
        let mut search = OutputSearch::new(log.spool.log_files().clone(), &[Stream::Stdout], "never".into(), 0);
        for _ in 0..2 * KEPT_ENTRIES {
            log.print(b"-", 0);
        }
        assert_eq!(look(&mut search, &log), None);
        assert_eq!(search.kept_after(), log.spool.head().next_seq - 1 - KEPT_ENTRIES);
    }
}
