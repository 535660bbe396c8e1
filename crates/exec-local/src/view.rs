//! Views of a log on this machine: the engine of `exec_env::view`, driven over the files of the spool.
//!
//! The index says where to begin: entries have their times and their places in the data files. The end of a log is read
//! from the end, a window at a time, so that the last lines of a long log cost no more than those of a short one.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use exec_core::{Gap, Head, Seq, Stream};
use exec_env::process::ProcessReason;
use exec_env::view::{Chunk, Flow, Outside, Since, View, ViewEngine, ViewQuery};
use exec_keeper::spool::index::slot_of;
use exec_keeper::spool::log_files::LogFiles;
use exec_keeper::spool::log_scan::{LogScan, Run, Scanned};
use rustix::io::Errno;

use crate::files::blocking::CancelFlag;

/// How much is read from the end at first, in bytes: some hundred lines.
const FIRST_WINDOW_BYTES: u64 = 64 << 10;
/// If that does not hold as many lines as are wanted, this many times as much is read.
const WINDOW_GROWTH: u64 = 8;
/// A log up to this size is read from its beginning, because then all its lines are counted too.
const COUNTED_BYTES: u64 = 1 << 20;

/// What is known about a log before its output is looked at.
struct Range {
    files: Arc<LogFiles>,
    head: Head,
    gap: Option<Gap>,
    first: Seq,
    /// Behind the last entry.
    end: Seq,
    /// How much of the first entry is not wanted.
    skip_bytes: u64,
    /// Of the streams that are wanted.
    bytes: u64,
}

/// Computes a view, until it is cancelled. It may take as long as it takes to read the log, so it needs a thread of its own.
pub(crate) fn view(
    files: &Arc<LogFiles>,
    head: Head,
    streams: &[Stream],
    query: &ViewQuery,
    cancel: &CancelFlag,
) -> Result<Option<View>, ProcessReason> {
    let unreadable = |errno: Errno| ProcessReason::SpoolUnreadable { errno: errno.raw_os_error() };
    let new_engine = || ViewEngine::new(query.clone()).map_err(|why| ProcessReason::BadRegex { why });
    let mut range = Range::find(files, head, query).map_err(unreadable)?;
    if query.stream.is_some_and(|wanted| !streams.contains(&wanted)) {
        // A terminal's output is where stdout's would be, and is not counted as that.
        range.bytes = 0;
    }
    // Who wants nothing, only wants to know how much there is, and the index tells.
    let is_only_tail = query.part.only_tail().is_some_and(|tail| !tail.is_nothing());
    if is_only_tail && query.grep.is_none() && range.bytes > COUNTED_BYTES {
        let mut window = FIRST_WINDOW_BYTES;
        while window < range.bytes {
            let engine = new_engine()?;
            if let Some(view) = range.tail(engine, window, streams, query, cancel).map_err(unreadable)? {
                return Ok(Some(view));
            }
            if cancel.is_set() {
                return Ok(None);
            }
            window = window.saturating_mul(WINDOW_GROWTH);
        }
    }
    range.whole(new_engine()?, query, cancel).map_err(unreadable)
}

impl Range {
    fn find(files: &Arc<LogFiles>, head: Head, query: &ViewQuery) -> Result<Self, Errno> {
        let end = query.upto.map_or(head.next_seq, |upto| head.next_seq.min(upto.saturating_add(1)));
        let asked = query.from.after.saturating_add(1);
        loop {
            let held = files.first_held_seq();
            let found = Self::find_held(files, head, query, asked, held, end);
            // What was dropped meanwhile cannot be read; what is left can.
            if files.first_held_seq() == held {
                return found;
            }
        }
    }

    fn find_held(
        files: &Arc<LogFiles>,
        head: Head,
        query: &ViewQuery,
        asked: Seq,
        held: Seq,
        end: Seq,
    ) -> Result<Self, Errno> {
        let end = end.max(held);
        let mut first = asked.max(held).min(end);
        if let Some(since) = query.since {
            first = files.first_since(unix_micros(since), first, end)?;
        }
        let gap = (asked < held && (query.since.is_none() || first == held)).then_some(Gap {
            from_seq: asked,
            to_seq: held - 1,
            dropped_bytes: head.dropped_bytes,
        });
        let skip_bytes = if first == asked { query.from.skip_bytes } else { 0 };
        let (before, behind) = (files.bytes_before(first, end)?, files.bytes_before(end, end)?);
        let is_wanted = |slot: usize| query.stream.is_none_or(|stream| slot_of(stream) == slot);
        let bytes = (0..2).filter(|slot| is_wanted(*slot)).map(|slot| behind[slot].saturating_sub(before[slot])).sum();
        Ok(Self { files: files.clone(), head, gap, first, end, skip_bytes, bytes })
    }

    /// The end of the log, from the last `window` bytes on; `None` if that is not enough.
    fn tail(
        &mut self,
        mut engine: ViewEngine,
        window: u64,
        streams: &[Stream],
        query: &ViewQuery,
        cancel: &CancelFlag,
    ) -> Result<Option<View>, Errno> {
        let start = self.files.first_of_last_bytes(window, self.first, self.end)?;
        if start <= self.first {
            return Ok(None);
        }
        let wanted = streams.iter().filter(|stream| query.stream.is_none_or(|wanted| wanted == **stream));
        for stream in wanted {
            let before = self.files.byte_before(slot_of(*stream), start, self.end)?;
            if before.is_some_and(|byte| byte != b'\n') {
                engine.begins_within_line(*stream);
            }
        }
        let mut scan = LogScan::new(self.files.clone(), start, self.end, query.stream);
        loop {
            match scan.next_run()? {
                Scanned::Run(run) => drop(engine.push(chunk(&run, 0))),
                // It is printed faster than it is read, so the window has moved.
                Scanned::Dropped { .. } => return Ok(None),
                Scanned::End => break,
            }
            if cancel.is_set() {
                return Ok(None);
            }
        }
        Ok(engine.finish_tail(self.outside(true)))
    }

    /// From the beginning, as far as is needed; `None` if nobody waits for it any more.
    fn whole(&mut self, mut engine: ViewEngine, query: &ViewQuery, cancel: &CancelFlag) -> Result<Option<View>, Errno> {
        let scan = LogScan::new(self.files.clone(), self.first, self.end, query.stream);
        let mut unread_bytes = self.bytes;
        // The engine is told the log in order. What is to be done per byte may be done for several runs at once.
        let search = engine.line_search();
        let look = move |run: &Run<'_>| search.as_ref().map(|search| search.search(run.bytes));
        scan.for_each_run(self.bytes, look, |scanned, found| {
            match scanned {
                Scanned::Run(run) => {
                    unread_bytes = unread_bytes.saturating_sub(run.bytes.len() as u64);
                    let is_first = run.ends.first().is_some_and(|(_, seq)| *seq == self.first);
                    let first_end = run.ends.first().map_or(0, |(end, _)| *end);
                    let skipped = usize::try_from(self.skip_bytes).unwrap_or(usize::MAX).min(first_end);
                    let skipped = if is_first { skipped } else { 0 };
                    self.bytes = self.bytes.saturating_sub(skipped as u64);
                    let flow = match found.flatten() {
                        Some(found) if skipped == 0 => engine.push_searched(chunk(&run, 0), &found),
                        _ => engine.push(chunk(&run, skipped)),
                    };
                    if flow == Flow::Enough {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Scanned::Dropped { to_seq } => {
                    engine.gap();
                    self.note_dropped(to_seq, query, &mut unread_bytes)?;
                }
                Scanned::End => {}
            }
            Ok(if cancel.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if cancel.is_set() {
            return Ok(None);
        }
        Ok(Some(engine.finish(self.outside(false))))
    }

    /// Entries of the range were dropped before they were read, and are no part of it any more.
    fn note_dropped(&mut self, to_seq: Seq, query: &ViewQuery, unread_bytes: &mut u64) -> Result<(), Errno> {
        let now = Self::find(&self.files, self.head, query)?;
        let lost = unread_bytes.saturating_sub(now.bytes);
        self.bytes = self.bytes.saturating_sub(lost);
        *unread_bytes -= lost;
        let from_seq = self.gap.map_or(self.first, |gap| gap.from_seq);
        self.gap = Some(Gap { from_seq, to_seq, dropped_bytes: self.head.dropped_bytes });
        Ok(())
    }

    fn outside(&self, began_late: bool) -> Outside {
        Outside {
            range_bytes: self.bytes,
            first_seq: self.first,
            last_seq: self.end.saturating_sub(1),
            gap: self.gap,
            head: self.head,
            began_late,
        }
    }
}

fn chunk<'a>(run: &Run<'a>, skipped_bytes: usize) -> Chunk<'a> {
    Chunk { stream: run.stream, bytes: &run.bytes[skipped_bytes..], ends: run.ends, skipped_bytes }
}

fn unix_micros(since: Since) -> u64 {
    let time = match since {
        Since::Time(time) => time,
        Since::Age(age) => SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH),
    };
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
