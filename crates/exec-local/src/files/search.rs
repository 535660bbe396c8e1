//! Search in contents, with ripgrep's engine.
//!
//! One thread walks and searches in order and sends what it finds through a bounded channel. A slow reader slows the
//! search; one that goes away ends it, in the middle of a file if need be. Deliberately absent: memory maps, which kill
//! the process when a file shrinks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use exec_env::files::limits::{
    SEARCH_AHEAD, SEARCH_BATCH_BYTES, SEARCH_CONTEXT_LINES, SEARCH_PROBLEMS, SEARCH_SPANS, SEARCH_WINDOW_BYTES,
};
use exec_env::files::search::CaseSensitivity;
use exec_env::files::{
    FileError, FileFuture, FileLines, FileReason, FileVerb, LinkPolicy, Pattern, SearchItem, SearchLine, SearchQuery,
    SearchResults, SearchSummary,
};
use exec_env::view::REGEX_BYTES;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::blocking::{CancelFlag, CancelOnDrop, PoolWithRights};
use super::filtered_walk::{WalkFilter, bad_pattern, check_pattern_bytes, filtered_walk, look_at};
use super::policy::{CallPolicy, Wanted};
use super::resolve::{open_handle, open_regular, os};

/// Returns when the query is known to be valid. The search itself waits for its thread in a task of its own, so that
/// the caller has the handle at once.
pub(super) async fn search(
    policy: impl FnOnce() -> Result<CallPolicy, FileReason> + Send + 'static,
    query: SearchQuery,
    short: &PoolWithRights,
    searches: PoolWithRights,
) -> Result<Box<dyn SearchResults>, FileError> {
    let root = query.root.clone();
    let not_begun = move |errno| FileError::new(FileVerb::Search, root.clone(), os(errno));
    // Compiling an expression and opening the root are blocking work, too.
    let prepared = short.run_prepared(policy, move |policy, _| match policy {
        Ok(policy) => match prepare(&policy, query) {
            Ok((query, matcher, walk)) => Ok((policy, query, matcher, walk)),
            Err(error) => Err(FileError { reason: policy.explain(error.reason), ..error }),
        },
        Err(reason) => Err(FileError::new(FileVerb::Search, query.root, reason)),
    });
    let (policy, query, matcher, walk) = prepared.await.map_err(&not_begun)??;
    // When the channel is full, the search waits for its reader.
    let (lines, receiver) = mpsc::channel(SEARCH_AHEAD);
    let cancel = CancelFlag::default();
    let summary = SearchSummary::default();
    let worker = SearchWorker { policy, query, matcher, lines, cancel: cancel.clone(), summary };
    let task = tokio::spawn(async move { searches.run(move |_| worker.run(walk)).await.map_err(not_begun) });
    Ok(Box::new(LocalSearch { receiver, task: Some(task), ended: None, _cancel: CancelOnDrop(cancel) }))
}

fn prepare(policy: &CallPolicy, query: SearchQuery) -> Result<(SearchQuery, RegexMatcher, ignore::Walk), FileError> {
    let failed = |reason| FileError::new(FileVerb::Search, query.root.clone(), reason);
    open_handle(policy, &query.root, LinkPolicy::Follow, Wanted::Read).map_err(|errno| failed(os(errno)))?;
    let matcher = build_matcher(&query).map_err(failed)?;
    let walk = filtered_walk(&WalkFilter {
        policy,
        root: &query.root,
        globs: &query.globs,
        ignore_files: query.ignore_files,
        hidden: query.hidden,
        follow_symlinks: query.follow_symlinks,
        max_depth: None,
    })
    .map_err(failed)?;
    Ok((query, matcher, walk))
}

/// The caller's handle of a search.
struct LocalSearch {
    receiver: mpsc::Receiver<FileLines>,
    /// Awaited at the end; cancelled by `_cancel` if the handle is dropped before.
    task: Option<JoinHandle<Result<SearchSummary, FileError>>>,
    ended: Option<Result<SearchSummary, FileError>>,
    _cancel: CancelOnDrop,
}

impl SearchResults for LocalSearch {
    fn next(&mut self) -> FileFuture<'_, SearchItem> {
        Box::pin(async move {
            if let Some(lines) = self.receiver.recv().await {
                return Ok(SearchItem::Lines(lines));
            }
            if let Some(task) = &mut self.task {
                match task.await.map_err(tokio::task::JoinError::try_into_panic) {
                    Ok(ended) => self.ended = Some(ended),
                    Err(Ok(panic)) => std::panic::resume_unwind(panic),
                    Err(Err(_)) => std::future::pending().await,
                }
                self.task = None;
            }
            let ended = self.ended.clone().expect("set when the task was awaited");
            ended.map(SearchItem::Done)
        })
    }
}

/// A file with a NUL byte in so many bytes is no text. Git looks at as many.
const BINARY_BYTES: u64 = 8000;

fn build_matcher(query: &SearchQuery) -> Result<RegexMatcher, FileReason> {
    let (Pattern::Regex(text) | Pattern::Literal(text)) = &query.pattern;
    check_pattern_bytes([text])?;
    let mut builder = RegexMatcherBuilder::new();
    builder
        // The end of a line that ends in CR LF is before both. What ends it is LF all the same.
        .multi_line(true)
        .crlf(true)
        .line_terminator(Some(b'\n'))
        .word(query.word)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES / 4)
        .case_insensitive(query.case == CaseSensitivity::Insensitive)
        .case_smart(query.case == CaseSensitivity::Smart);
    let built = match &query.pattern {
        Pattern::Regex(pattern) => builder.build(pattern),
        Pattern::Literal(text) => builder.fixed_strings(true).build_literals(&[text]),
    };
    built.map_err(bad_pattern)
}

/// The search on its thread.
struct SearchWorker {
    policy: CallPolicy,
    query: SearchQuery,
    matcher: RegexMatcher,
    lines: mpsc::Sender<FileLines>,
    cancel: CancelFlag,
    summary: SearchSummary,
}

impl SearchWorker {
    fn run(mut self, walk: ignore::Walk) -> SearchSummary {
        let (before, after) = self.context_lines();
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .before_context(before)
            .after_context(after)
            .build();
        for entry in walk {
            if self.cancel.is_set() || self.summary.truncated {
                break;
            }
            match entry {
                Ok(entry) => {
                    // The root itself may be a link; below it the walk has followed links if it was asked to.
                    let is_file = match entry.depth() {
                        0 => entry.path().is_file(),
                        _ => entry.file_type().is_some_and(|kind| kind.is_file()),
                    };
                    if is_file {
                        self.search_file(&mut searcher, entry.path(), entry.depth() == 0);
                    }
                }
                Err(error) => {
                    self.record_problem(walk_error(error, &self.query.root));
                }
            }
        }
        self.summary
    }

    fn context_lines(&self) -> (usize, usize) {
        let lines = |asked: u32| asked.min(SEARCH_CONTEXT_LINES) as usize;
        (lines(self.query.before_lines), lines(self.query.after_lines))
    }

    /// `is_named`: it was asked for by its own name, and did not turn up in a directory.
    fn search_file(&mut self, searcher: &mut Searcher, path: &Path, is_named: bool) {
        let (file, stat) = match open_regular(&self.policy, path, LinkPolicy::Follow, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(reason) => return self.record_problem(FileError::new(FileVerb::Search, path, reason)),
        };
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if self.query.max_file_bytes.is_some_and(|max| size_bytes > max) {
            return;
        }
        self.summary.files += 1;
        let left = self.query.max_matches - self.summary.matches;
        let (before, after) = self.context_lines();
        let limit_bytes = SEARCH_WINDOW_BYTES / (1 + before + after);
        let cuts = RefCell::default();
        let mut sink = FileSink {
            path: path.to_owned(),
            cuts: &cuts,
            cut_bytes: 0,
            matcher: &self.matcher,
            lines: &self.lines,
            max_line_bytes: self.query.max_line_bytes,
            // One match more than may be reported tells that the search was truncated.
            left,
            left_in_file: self.query.max_matches_per_file.unwrap_or(u64::MAX),
            matches: 0,
            truncated: false,
            before: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            nul_at: None,
        };
        let file = CancellableFile { file: File::from(file), cancel: &self.cancel };
        let mut lines = BoundedLines::new(file, limit_bytes, &cuts);
        let searched = searcher.search_reader(&self.matcher, &mut lines, &mut sink);
        let (matches, truncated, nul_at) = (sink.matches, sink.truncated, sink.nul_at);
        self.summary.matches += matches;
        self.summary.files_matched += u64::from(matches > 0);
        self.summary.truncated |= truncated;
        if let Err(error) = searched
            && !self.cancel.is_set()
        {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            self.record_problem(FileError::new(FileVerb::Search, path, FileReason::Os(errno)));
        } else if lines.has_cut {
            self.record_problem(FileError::new(FileVerb::Search, path, FileReason::LineTooLong { limit_bytes }));
        }
        // A tree may have very many files that are no text from their beginning on, and nobody wants to hear of each.
        if let Some(offset) = nul_at.filter(|offset| is_named || matches > 0 || *offset >= BINARY_BYTES) {
            self.record_problem(FileError::new(FileVerb::Search, path, FileReason::BinaryBehind { offset }));
        }
    }

    fn record_problem(&mut self, problem: FileError) {
        // The walk also goes through directories that are only on the way to something. What else is there has no name.
        if self.policy.is_restricted() && look_at(&self.policy, &problem.path) == Err(Errno::NOENT) {
            return;
        }
        self.summary.problem_count += 1;
        if self.summary.problems.len() < SEARCH_PROBLEMS {
            self.summary.problems.push(problem);
        }
    }
}

/// A file whose reading ends when the search is cancelled.
struct CancellableFile<'a> {
    file: File,
    cancel: &'a CancelFlag,
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_set() {
            return Err(io::Error::other("nobody waits for this search any more"));
        }
        self.file.read(buffer)
    }
}

/// A file in which no line is longer than a limit: the rest of a longer one is left out. Without it, the engine would hold
/// the longest line in memory, and a file may be one line of many gigabytes.
struct BoundedLines<'a, R> {
    file: R,
    limit_bytes: usize,
    /// Bytes of the current line that were read.
    line_bytes: usize,
    /// Bytes that were handed on.
    kept_bytes: u64,
    utf16: Option<bool>,
    has_cut: bool,
    ended: bool,
    cuts: &'a RefCell<VecDeque<LineCut>>,
}

/// Bytes that were left out, and after how many others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineCut {
    after_bytes: u64,
    left_out: u64,
}

/// Lines of one file that may be cut. A file with more is not searched further.
const CUT_LINES: usize = 1 << 16;

impl<'a, R: Read> BoundedLines<'a, R> {
    fn new(file: R, limit_bytes: usize, cuts: &'a RefCell<VecDeque<LineCut>>) -> Self {
        Self { file, limit_bytes, line_bytes: 0, kept_bytes: 0, utf16: None, has_cut: false, ended: false, cuts }
    }

    /// Moves what is kept to the front of `bytes` and returns its length.
    fn keep(&mut self, bytes: &mut [u8]) -> usize {
        let mut kept = 0;
        let mut at = 0;
        while at < bytes.len() && !self.ended {
            let newline = bytes[at..].iter().position(|byte| *byte == b'\n');
            let line = newline.unwrap_or(bytes.len() - at);
            let taken = line.min(self.limit_bytes - self.line_bytes);
            bytes.copy_within(at..at + taken, kept);
            kept += taken;
            self.line_bytes += taken;
            if taken < line {
                self.cut(self.kept_bytes + kept as u64, (line - taken) as u64);
            }
            if newline.is_some() && !self.ended {
                bytes[kept] = b'\n';
                kept += 1;
                self.line_bytes = 0;
            }
            at += line + usize::from(newline.is_some());
        }
        self.kept_bytes += kept as u64;
        kept
    }

    fn cut(&mut self, after_bytes: u64, left_out: u64) {
        self.has_cut = true;
        let mut cuts = self.cuts.borrow_mut();
        match cuts.back_mut().filter(|last| last.after_bytes == after_bytes) {
            Some(last) => last.left_out += left_out,
            None => cuts.push_back(LineCut { after_bytes, left_out }),
        }
        // Where a character has two bytes, what is left out could tear one, and everything behind it would be read wrongly.
        self.ended = self.utf16 == Some(true) || cuts.len() > CUT_LINES;
    }
}

impl<R: Read> Read for BoundedLines<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.ended {
            let got = self.file.read(buffer)?;
            if got == 0 {
                break;
            }
            let bytes = &mut buffer[..got];
            self.utf16.get_or_insert_with(|| bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff"));
            let kept = self.keep(bytes);
            if kept > 0 {
                return Ok(kept);
            }
        }
        Ok(0)
    }
}

/// Receives the lines of one file from the engine, and sends them to the reader in batches.
struct FileSink<'a> {
    path: PathBuf,
    /// What was left out of lines that are not searched yet.
    cuts: &'a RefCell<VecDeque<LineCut>>,
    /// What was left out before.
    cut_bytes: u64,
    matcher: &'a RegexMatcher,
    lines: &'a mpsc::Sender<FileLines>,
    max_line_bytes: usize,
    left: u64,
    left_in_file: u64,
    matches: u64,
    truncated: bool,
    /// Context of the next match. The engine tells it first, and nobody wants it if that match is one too many.
    before: Vec<SearchLine>,
    batch: Vec<SearchLine>,
    batch_bytes: usize,
    /// Where the search has ended because of a NUL byte.
    nul_at: Option<u64>,
}

impl FileSink<'_> {
    /// A line as it is reported.
    fn line(&mut self, number: Option<u64>, kept_before: u64, line: &[u8], is_match: bool) -> SearchLine {
        let (offset, is_whole) = self.position(kept_before, line.len());
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = &line[..line.len().min(self.max_line_bytes)];
        let (mut spans, mut all_spans) = (Vec::new(), true);
        if is_match {
            // A match beyond the cut is not reported, but its line counts.
            let _never_fails = self.matcher.find_iter(line, |found| {
                all_spans = spans.len() < SEARCH_SPANS;
                let shown = found.end() <= text.len() && all_spans;
                if shown {
                    let position = |at| u32::try_from(at).unwrap_or(u32::MAX);
                    spans.push((position(found.start()), position(found.end())));
                }
                shown
            });
        }
        SearchLine {
            number: number.unwrap_or(0),
            offset,
            text: Bytes::copy_from_slice(text),
            cut: text.len() < line.len() || !is_whole || !all_spans,
            spans,
        }
    }

    /// Returns whether to go on.
    fn add(&mut self, line: SearchLine) -> bool {
        self.batch_bytes += line.text.len() + size_of::<SearchLine>() + line.spans.len() * 8;
        self.batch.push(line);
        self.batch_bytes < SEARCH_BATCH_BYTES || self.send_batch()
    }

    /// Where a line really begins, and whether nothing of it was left out.
    fn position(&mut self, kept_before: u64, line_bytes: usize) -> (u64, bool) {
        let mut cuts = self.cuts.borrow_mut();
        while let Some(cut) = cuts.front().filter(|cut| cut.after_bytes <= kept_before) {
            self.cut_bytes += cut.left_out;
            cuts.pop_front();
        }
        let end = kept_before + line_bytes as u64;
        (kept_before + self.cut_bytes, cuts.front().is_none_or(|cut| cut.after_bytes > end))
    }

    fn send_batch(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        self.batch_bytes = 0;
        let lines = FileLines { path: self.path.clone(), lines: std::mem::take(&mut self.batch) };
        self.lines.blocking_send(lines).is_ok()
    }
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.matches >= self.left {
            self.truncated = true;
            return Ok(false);
        }
        if self.matches >= self.left_in_file {
            return Ok(false);
        }
        self.matches += 1;
        let line = self.line(found.line_number(), found.absolute_byte_offset(), found.bytes(), true);
        let before = std::mem::take(&mut self.before);
        Ok(before.into_iter().chain([line]).all(|line| self.add(line)))
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        let told = self.line(line.line_number(), line.absolute_byte_offset(), line.bytes(), false);
        if *line.kind() == SinkContextKind::Before {
            self.before.push(told);
            return Ok(true);
        }
        Ok(self.add(told))
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.nul_at = finish.binary_byte_offset();
        self.send_batch();
        Ok(())
    }
}

fn walk_error(error: ignore::Error, root: &Path) -> FileError {
    let path = path_of(&error).unwrap_or(root).to_owned();
    let reason = match error.io_error() {
        Some(error) => FileReason::Os(errno_of(error)),
        // Symbolic links that form a loop, or an ignore file with a line that does not parse.
        None if is_loop(&error) => os(Errno::LOOP),
        None => bad_pattern(error),
    };
    FileError::new(FileVerb::Search, path, reason)
}

/// The walk wraps what the kernel said in errors that have no number of their own.
fn errno_of(error: &io::Error) -> i32 {
    let mut causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    let errno = causes.find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
    errno.unwrap_or(Errno::IO.raw_os_error())
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::Loop { child, .. } => Some(child),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        _ => None,
    }
}

fn is_loop(error: &ignore::Error) -> bool {
    match error {
        ignore::Error::Loop { .. } => true,
        ignore::Error::WithPath { err, .. }
        | ignore::Error::WithDepth { err, .. }
        | ignore::Error::WithLineNumber { err, .. } => is_loop(err),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a text that is read in pieces of `piece` bytes, and what was left out.
    fn bounded(text: &[u8], limit_bytes: usize, piece: usize) -> (Vec<u8>, Vec<LineCut>) {
        let cuts = RefCell::default();
        let mut lines = BoundedLines::new(text, limit_bytes, &cuts);
        let mut kept = Vec::new();
        let mut buffer = vec![0; piece];
        loop {
            match lines.read(&mut buffer).expect("memory can be read") {
                0 => return (kept, cuts.take().into()),
                got => kept.extend_from_slice(&buffer[..got]),
            }
        }
    }

    #[test]
    fn a_line_at_the_bound_is_whole_and_a_longer_one_loses_its_end() {
        let text = b"abcd\nabcdef\n\nabcd";
        let cut = LineCut { after_bytes: 9, left_out: 2 };
        for piece in 1..text.len() + 1 {
            assert_eq!(bounded(text, 4, piece), (b"abcd\nabcd\n\nabcd".to_vec(), vec![cut]), "{piece}");
        }
    }

    #[test]
    fn a_text_of_two_bytes_a_character_ends_at_a_line_that_is_too_long() {
        let text = b"\xff\xfea\0b\0c\0d\0\n\0a\0";
        assert_eq!(bounded(text, 6, 64).0, b"\xff\xfea\0b\0");
    }
}
