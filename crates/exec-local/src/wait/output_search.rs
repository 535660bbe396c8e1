//! Looks for an expression in the output of a process, as far as it goes, and again when there is more.
//!
//! Nothing of the output is kept while no more comes, and of the expressions only so much as there is room for: a thousand
//! searches that wait cost no more than as many tasks. What is new is searched together with the end of what was searched
//! before, in which a match may have begun; that is read from the log's files again.

use std::sync::Arc;

use bytes::Bytes;
use exec_core::{Head, Seq, Stream};
use exec_env::process::{ProcessReason, Waited, wait_expression};
use exec_env::view::REGEX_BYTES;
use exec_keeper::spool::index::slot_of;
use exec_keeper::spool::log_files::LogFiles;
use exec_keeper::spool::log_scan::{LogScan, Scanned};
use regex::bytes::Regex;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::files::blocking::{BlockingPool, CancelFlag, PoolSize};

/// How much of a stream is searched together, at least: a match may span entries, but not more than this.
const WINDOW_BYTES: usize = 128 << 10;
/// What is returned of a match.
const MATCH_BYTES: usize = 4096;
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
    /// Only output behind this entry counts.
    after: Seq,
    searched_upto: Seq,
}

impl OutputSearch {
    pub(super) fn new(files: Arc<LogFiles>, streams: &'static [Stream], pattern: String, after: Seq) -> Self {
        Self { files, streams, pattern, compiled: None, after, searched_upto: after }
    }

    pub(super) fn searched_upto(&self) -> Seq {
        self.searched_upto
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
        Ok(first.map(|(seq, text)| Waited::Matched { seq, text }))
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
        let mut window = Window::default();
        while !cancel.is_set() {
            match scan.next_run()? {
                Scanned::Run(run) => {
                    let before = window.bytes.len();
                    window.bytes.extend_from_slice(run.bytes);
                    let new_ends = run.ends.iter().filter(|(_, seq)| *seq >= new);
                    window.new_ends.extend(new_ends.map(|(end, seq)| (before + end, *seq)));
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
                    window = Window::default();
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
        let counted = self.after.saturating_add(1).max(held);
        self.files.first_of_last_bytes_in(slot, WINDOW_BYTES as u64, counted, new).map(Some)
    }
}

/// Consecutive output of one stream: the end of what was searched, and what was not.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    /// Where each new entry ends, and its number.
    new_ends: Vec<(usize, Seq)>,
}

impl Window {
    /// Whether so much is new that to search the rest again costs little beside it.
    fn has_enough(&self) -> bool {
        self.bytes.len() >= 2 * WINDOW_BYTES
    }

    /// The first match, if anything is new. Then only so much is kept as may begin a match.
    fn search(&mut self, regex: &Regex) -> Option<(Seq, Bytes)> {
        let (_, last) = *self.new_ends.last()?;
        if let Some(found) = regex.find(&self.bytes) {
            let completed = self.new_ends.iter().find(|(end, _)| *end >= found.end()).map_or(last, |(_, seq)| *seq);
            return Some((completed, Bytes::copy_from_slice(&found.as_bytes()[..found.len().min(MATCH_BYTES)])));
        }
        self.bytes.drain(..self.bytes.len().saturating_sub(WINDOW_BYTES));
        self.new_ends.clear();
        None
    }
}
