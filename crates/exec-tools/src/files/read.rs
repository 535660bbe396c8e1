//! `read`: lines of a text with their numbers, what else there is, and the hash that guards a later change.
//!
//! The file goes by in blocks and is hashed on the way, so that a file of any size takes the memory of what is shown. Lines
//! and hash are of the same bytes: a change that expects the hash changes what was shown, or fails.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;

use exec_env::files::limits::BLOCK_BYTES;
use exec_env::files::{ContentHash, LinkPolicy, OpenFile, OpenMode};

use super::limits::{LINE_BYTES, READ_LINES, READ_LINES_MAX, READ_TEXT_BYTES, READ_TEXT_BYTES_MAX, UNSIZED_BYTES};
use super::paths::shown;
use super::text_file::is_binary;
use super::view_image::ImageFormat;
use super::{FileToolError, FileTools};

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Which file.
    pub path: PathBuf,
    /// The first line.
    pub start: Start,
    /// How many lines at most.
    pub max_lines: usize,
    /// How many bytes of text at most.
    pub max_bytes: usize,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this line, from 1.
    Line(u64),
    /// So many lines before the end, so that at most so many are shown.
    FromEnd(u64),
}

impl ReadRequest {
    /// The file from its beginning, as far as the usual bounds go.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), start: Start::Line(1), max_lines: READ_LINES, max_bytes: READ_TEXT_BYTES }
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewed {
    /// Absolute.
    pub path: PathBuf,
    /// How many bytes were hashed: the whole file.
    pub size_bytes: u64,
    /// Of the whole file, whatever is shown of it.
    pub hash: ContentHash,
    /// What it contains.
    pub content: ViewedContent,
}

/// What a file contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewedContent {
    /// Text, or nothing.
    Text(ViewedText),
    /// No text.
    Binary {
        /// If it is an image that can be viewed, which.
        image: Option<ImageFormat>,
    },
}

/// Lines of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewedText {
    /// Consecutive.
    pub lines: Vec<ViewedLine>,
    /// How many lines there are. A last line without an end counts.
    pub total_lines: u64,
    /// Whether the last line has an end.
    pub ends_with_newline: bool,
    /// Whether lines that are shown end with CR and LF. The CR is not shown.
    pub crlf: bool,
    /// How many of the lines that are shown are no UTF-8; what is wrong in them is shown as U+FFFD.
    pub invalid_lines: usize,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewedLine {
    /// From 1.
    pub number: u64,
    /// Without its end, and cut if it is very long.
    pub text: String,
    /// How many bytes at its end are not shown.
    pub cut_bytes: u64,
}

impl Viewed {
    /// For a model: numbered lines, and what is not shown with the way to see it.
    pub fn text(&self) -> String {
        let mut out = format!("{} ({} bytes, hash {})\n", shown(&self.path), self.size_bytes, self.hash);
        match &self.content {
            ViewedContent::Binary { image: Some(image) } => {
                let _ = writeln!(out, "[no text: an image of type {}; view it as an image]", image.media_type());
            }
            ViewedContent::Binary { image: None } => {
                let _ = writeln!(out, "[no text: it has NUL bytes; use a command that knows its format]");
            }
            ViewedContent::Text(text) => text.write_to(&mut out),
        }
        out
    }
}

impl ViewedText {
    fn write_to(&self, out: &mut String) {
        if self.total_lines == 0 {
            out.push_str("[the file is empty]\n");
            return;
        }
        let (Some(first), Some(last)) = (self.lines.first(), self.lines.last()) else {
            let _ = writeln!(out, "[no line there: the file has {} lines]", self.total_lines);
            return;
        };
        if first.number > 1 {
            let _ = writeln!(out, "[{} lines before: read from an earlier line]", first.number - 1);
        }
        for line in &self.lines {
            let _ = write!(out, "{:>6}\t{}", line.number, line.text);
            if line.cut_bytes > 0 {
                let _ = write!(out, " [... {} more bytes in this line]", line.cut_bytes);
            }
            out.push('\n');
        }
        if last.number < self.total_lines {
            let (left, next) = (self.total_lines - last.number, last.number + 1);
            let _ = writeln!(out, "[{left} more lines of {}: read on from line {next}]", self.total_lines);
        } else if !self.ends_with_newline {
            out.push_str("[the last line has no line break at its end]\n");
        }
        if self.crlf {
            out.push_str("[lines end with CR LF]\n");
        }
        if self.invalid_lines > 0 {
            let _ =
                writeln!(out, "[{} of these lines are no UTF-8; bad bytes are shown as U+FFFD]", self.invalid_lines);
        }
    }
}

impl FileTools {
    /// Lines of a file.
    pub async fn read(&self, request: ReadRequest) -> Result<Viewed, FileToolError> {
        let window = Window::of(&request)?;
        let path = self.resolve(&request.path)?;
        let metadata = self.metadata_of_file(&path).await?;
        let file = self.files.open(&path, OpenMode::Read, LinkPolicy::Follow).await?;
        // What is appended from now on is not read, so that this ends.
        let size_bytes = match file.size_bytes().max(metadata.size_bytes) {
            0 => UNSIZED_BYTES,
            size_bytes => size_bytes,
        };
        let mut scan = Scan::new(window);
        let scanned = scan.read(&*file, size_bytes).await;
        // An error of closing a file that was only read says nothing.
        let _closed = file.close().await;
        scanned?;
        Ok(scan.finish(path))
    }
}

/// Which lines are kept.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: Start,
    max_lines: usize,
    max_bytes: usize,
}

impl Window {
    fn of(request: &ReadRequest) -> Result<Self, FileToolError> {
        let check = |name: &str, value: usize, most: usize| match value {
            0 => Err(FileToolError::BadRequest { what: format!("{name} must be at least 1") }),
            value => Ok(value.min(most)),
        };
        if matches!(request.start, Start::Line(0) | Start::FromEnd(0)) {
            return Err(FileToolError::BadRequest { what: "lines are counted from 1, from either end".to_owned() });
        }
        let mut max_lines = check("the number of lines", request.max_lines, READ_LINES_MAX)?;
        if let Start::FromEnd(lines) = request.start {
            max_lines = usize::try_from(lines).unwrap_or(usize::MAX).min(max_lines);
        }
        Ok(Self {
            start: request.start,
            max_lines,
            max_bytes: check("the number of bytes", request.max_bytes, READ_TEXT_BYTES_MAX)?,
        })
    }
}

/// One pass over a file.
struct Scan {
    window: Window,
    hasher: blake3::Hasher,
    size_bytes: u64,
    /// Whether its beginning is no text.
    binary: bool,
    image: Option<ImageFormat>,
    lines: VecDeque<RawLine>,
    kept_bytes: usize,
    /// The window from the beginning is full, so that later lines are only counted.
    full: bool,
    /// The line under way.
    number: u64,
    line: Vec<u8>,
    line_bytes: u64,
    last_byte: Option<u8>,
}

struct RawLine {
    number: u64,
    bytes: Vec<u8>,
    cut_bytes: u64,
    crlf: bool,
}

impl Scan {
    fn new(window: Window) -> Self {
        Self {
            window,
            hasher: blake3::Hasher::new(),
            size_bytes: 0,
            binary: false,
            image: None,
            lines: VecDeque::new(),
            kept_bytes: 0,
            full: false,
            number: 1,
            line: Vec::new(),
            line_bytes: 0,
            last_byte: None,
        }
    }

    async fn read(&mut self, file: &dyn OpenFile, size_bytes: u64) -> Result<(), FileToolError> {
        while self.size_bytes < size_bytes {
            let len = usize::try_from(size_bytes - self.size_bytes).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
            let block = file.read_block(self.size_bytes, len).await?;
            self.add(&block.bytes);
            if block.eof || block.bytes.is_empty() {
                break;
            }
        }
        if self.line_bytes > 0 {
            self.end_line(false);
        }
        Ok(())
    }

    fn add(&mut self, block: &[u8]) {
        self.hasher.update(block);
        if self.size_bytes == 0 {
            self.binary = is_binary(block);
            self.image = ImageFormat::of(block);
        }
        self.size_bytes += block.len() as u64;
        self.last_byte = block.last().copied().or(self.last_byte);
        if self.binary {
            return;
        }
        let mut rest = block;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.extend_line(&rest[..end]);
            self.end_line(true);
            rest = &rest[end + 1..];
        }
        self.extend_line(rest);
    }

    fn extend_line(&mut self, piece: &[u8]) {
        self.line_bytes += piece.len() as u64;
        if self.is_kept() {
            // One byte more than is shown tells whether a CR is the last one.
            let room = (LINE_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }

    fn is_kept(&self) -> bool {
        match self.window.start {
            Start::Line(first) => self.number >= first && !self.full,
            Start::FromEnd(_) => true,
        }
    }

    fn end_line(&mut self, ended: bool) {
        let whole_bytes = std::mem::take(&mut self.line_bytes);
        if self.is_kept() {
            self.keep(whole_bytes, ended);
        }
        self.line.clear();
        self.number += 1;
    }

    fn keep(&mut self, whole_bytes: u64, ended: bool) {
        let crlf = ended && self.line.last() == Some(&b'\r') && self.line.len() as u64 == whole_bytes;
        let text_bytes = whole_bytes - u64::from(crlf);
        let mut shown = self.line.len().min(LINE_BYTES) - usize::from(crlf && self.line.len() <= LINE_BYTES);
        if (shown as u64) < text_bytes {
            // The cut must not go through a character.
            shown = match std::str::from_utf8(&self.line[..shown]) {
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                _ => shown,
            };
        }
        let bytes = self.line[..shown].to_vec();
        let cut_bytes = text_bytes - shown as u64;
        // A line takes its number, too.
        let cost = shown + 8;
        let from_start = matches!(self.window.start, Start::Line(_));
        if from_start && !self.lines.is_empty() && self.kept_bytes + cost > self.window.max_bytes {
            self.full = true;
            return;
        }
        self.kept_bytes += cost;
        self.lines.push_back(RawLine { number: self.number, bytes, cut_bytes, crlf });
        if from_start {
            self.full = self.lines.len() >= self.window.max_lines;
            return;
        }
        while self.lines.len() > self.window.max_lines
            || (self.lines.len() > 1 && self.kept_bytes > self.window.max_bytes)
        {
            let gone = self.lines.pop_front().map_or(0, |line| line.bytes.len() + 8);
            self.kept_bytes -= gone;
        }
    }

    fn finish(self, path: PathBuf) -> Viewed {
        let content = if self.binary {
            ViewedContent::Binary { image: self.image }
        } else {
            let invalid = self.lines.iter().filter(|line| std::str::from_utf8(&line.bytes).is_err()).count();
            let crlf = self.lines.iter().any(|line| line.crlf);
            let lines = self.lines.into_iter().map(|line| ViewedLine {
                number: line.number,
                text: String::from_utf8_lossy(&line.bytes).into_owned(),
                cut_bytes: line.cut_bytes,
            });
            ViewedContent::Text(ViewedText {
                lines: lines.collect(),
                total_lines: self.number - 1,
                ends_with_newline: self.last_byte == Some(b'\n'),
                crlf,
                invalid_lines: invalid,
            })
        };
        Viewed { path, size_bytes: self.size_bytes, hash: ContentHash(self.hasher.finalize()), content }
    }
}
