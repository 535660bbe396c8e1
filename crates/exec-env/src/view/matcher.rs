//! An expression, and what it finds in a piece of output.
//!
//! Most of the work of a search is done per byte: to look for the expression, for what is not shown as it was printed, and for
//! line ends. It needs to know nothing about what comes before or behind, so it may be done for several pieces at once
//! ([`LineSearch::search`]); the engine is then told the pieces in order, with what was found
//! ([`push_searched`](super::ViewEngine::push_searched)). Deliberately absent: threads, which belong to whoever reads the log.

use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

use super::plain::plain_prefix;
use super::{Grep, PATTERN_BYTES, REGEX_BYTES};

/// Most bytes that are looked at in one go. Less than a line may have, so that no line within a piece is too long.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Most lines that are found in one piece, so that what is known about it takes less memory than the piece. What comes behind
/// the last of them is left to the engine.
const FOUND_LINES: usize = 4096;

/// An expression, and whether it may run over several lines at once.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    pub(super) regex: Regex,
    /// It says the same of a line whether that line is alone or among others.
    pub(super) is_line_wise: bool,
}

impl Matcher {
    pub(super) fn new(grep: &Grep) -> Result<Self, String> {
        if grep.regex.len() > PATTERN_BYTES {
            return Err(format!("it has {} bytes, and may have {PATTERN_BYTES}", grep.regex.len()));
        }
        // A terminal ends its lines in CR LF, and `$` shall match before both.
        let regex = RegexBuilder::new(&grep.regex)
            .multi_line(true)
            .crlf(true)
            .case_insensitive(grep.ignore_case)
            .size_limit(REGEX_BYTES)
            .dfa_size_limit(REGEX_BYTES / 4)
            .build()
            .map_err(|error| error.to_string())?;
        let is_line_wise = is_line_wise(&grep.regex);
        Ok(Self { regex, is_line_wise })
    }

    pub(super) fn is_match(&self, line: &[u8]) -> bool {
        self.regex.is_match(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Where the first line begins that may match; `lines` begins with a line and ends with a line end.
    pub(super) fn next_candidate(&self, lines: &[u8]) -> Option<usize> {
        let found = self.regex.find(lines)?;
        let start = memchr::memrchr(b'\n', &lines[..found.start()]).map_or(0, |before| before + 1);
        // An expression that matches a line end itself finds it where no line is left.
        (start < lines.len()).then_some(start)
    }
}

/// Searches pieces of output for an engine, in any order. Each thread needs its own.
#[derive(Debug)]
pub struct LineSearch {
    pub(super) matcher: Arc<Matcher>,
    /// All output is shown as it was printed, so there is no need to look for what is not.
    pub(super) shows_all: bool,
}

/// What was found in a piece of output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundLines {
    /// Where the lines begin that were searched. They are whole, and all of them are as they are shown.
    pub(super) start: usize,
    /// Behind the last of them.
    pub(super) end: usize,
    /// How many they are.
    pub(super) lines: u64,
    /// Those that match.
    pub(super) matches: Vec<FoundLine>,
}

/// A line that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundLine {
    pub(super) start: u32,
    /// Where its line end is.
    pub(super) end: u32,
    /// How many of the lines that were searched come before it.
    pub(super) lines_before: u32,
}

/// The first one has the engine's expression, because one thread drives both. Another has its own: an expression has memory that
/// one thread at a time may use, and others would wait for it.
impl Clone for LineSearch {
    fn clone(&self) -> Self {
        Self { matcher: Arc::new(Matcher::clone(&self.matcher)), shows_all: self.shows_all }
    }
}

impl LineSearch {
    /// Searches the lines that begin and end in `piece`. Whether its first line begins there is not known here, so that one is
    /// left out, and so is what follows a line that is not shown as it was printed.
    pub fn search(&self, piece: &[u8]) -> FoundLines {
        let mut found = FoundLines::default();
        let Some(first_end) = memchr::memchr(b'\n', piece) else { return found };
        let start = first_end + 1;
        let plain = (!self.shows_all).then(|| plain_prefix(&piece[start..]));
        let shown = plain.map_or(piece.len(), |plain| start + plain.bytes);
        let Some(last_end) = memchr::memrchr(b'\n', &piece[start..shown]) else { return found };
        if piece.len() > PIECE_BYTES {
            return found;
        }
        let (mut at, end) = (start, start + last_end + 1);
        found.start = start;
        found.end = end;
        while let Some(skipped) = self.matcher.next_candidate(&piece[at..end]) {
            found.lines += count_lines(&piece[at..at + skipped]);
            let line = at + skipped;
            let len = memchr::memchr(b'\n', &piece[line..end]).unwrap_or(end - line);
            if self.matcher.is_match(&piece[line..line + len]) {
                let lines_before = found.lines as u32;
                found.matches.push(FoundLine { start: line as u32, end: (line + len) as u32, lines_before });
            }
            found.lines += 1;
            at = line + len + 1;
            if found.matches.len() == FOUND_LINES {
                found.end = at;
                return found;
            }
        }
        // Whoever has looked for what is not shown has counted them too.
        found.lines = plain.map_or_else(|| found.lines + count_lines(&piece[at..end]), |plain| plain.lines);
        found
    }
}

pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// `\A` and `\z` mean the ends of what is searched, and so do `^` and `$` if the expression takes that flag away.
fn is_line_wise(pattern: &str) -> bool {
    let takes_flags_away = pattern.split("(?").skip(1).any(|rest| {
        let flags = rest.split([':', ')', '<']).next().unwrap_or_default();
        flags.contains('-')
    });
    !pattern.contains("\\A") && !pattern.contains("\\z") && !takes_flags_away
}
