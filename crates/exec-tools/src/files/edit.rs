//! `edit`: one exact text for another, in one file, and never over somebody else's change.
//!
//! The file is read, changed in memory, and written on the condition that it still is what was read; the environment checks
//! that in the step that replaces the file. Without a guard of the caller's the edit is then made anew on what is there now;
//! with one it fails.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use exec_env::files::{ContentHash, ExpectedFile};
use memchr::memmem;

use super::limits::{CHANGE_ATTEMPTS, EDIT_CONTEXT_LINES, EDIT_SHOWN_LINES, LINE_BYTES, NAMED_PLACES};
use super::paths::shown;
use super::similar::{cut, similar_places};
use super::text_file::LoadedFile;
use super::write::FileStamp;
use super::{FileToolError, FileTools};

/// What to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditRequest {
    /// Which file.
    pub path: PathBuf,
    /// The text to replace, exactly. In a file whose lines end with CR LF, it and `new` may have LF alone, and mix both.
    pub old: String,
    /// What to put there.
    pub new: String,
    /// How often `old` must occur.
    pub occurrences: Occurrences,
    /// Change the file only if this is its hash.
    pub if_hash: Option<ContentHash>,
}

impl EditRequest {
    /// The one place of `old`, in whatever the file is now.
    pub fn new(path: impl Into<PathBuf>, old: impl Into<String>, new: impl Into<String>) -> Self {
        let (old, new) = (old.into(), new.into());
        Self { path: path.into(), old, new, occurrences: Occurrences::Exactly(1), if_hash: None }
    }
}

/// How often a text must occur to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrences {
    /// So often; every one is replaced.
    Exactly(usize),
    /// At least once; every one is replaced.
    All,
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// Absolute.
    pub path: PathBuf,
    /// What the file was.
    pub before: FileStamp,
    /// What it is now.
    pub after: FileStamp,
    /// How often the text was replaced.
    pub replacements: usize,
    /// The lines of the new file at which the replacements begin; the first of them, if they are many.
    pub lines: Vec<u64>,
    /// The new file around the first replacement: numbered lines.
    pub around: Vec<(u64, String)>,
}

impl Edited {
    /// For a model: what happened, the lines around it, and the hash that guards the next change.
    pub fn text(&self) -> String {
        let times = if self.replacements == 1 { "1 place".to_owned() } else { format!("{} places", self.replacements) };
        let lines: Vec<String> = self.lines.iter().map(u64::to_string).collect();
        let mut out = format!("edited {} at {times} (line {}", shown(&self.path), lines.join(", "));
        if self.replacements > self.lines.len() {
            let _ = write!(out, " and {} more", self.replacements - self.lines.len());
        }
        let _ = writeln!(out, "): now {} bytes, hash {}", self.after.size_bytes, self.after.hash);
        for (number, line) in &self.around {
            let _ = writeln!(out, "{number:>6}\t{line}");
        }
        out
    }
}

impl FileTools {
    /// Replaces a text in a file.
    pub async fn edit(&self, request: EditRequest) -> Result<Edited, FileToolError> {
        let path = self.resolve(&request.path)?;
        let replacement = Replacement::of(&path, &request)?;
        for _ in 0..CHANGE_ATTEMPTS {
            let loaded = self.load(&path).await?;
            if request.if_hash.is_some_and(|hash| hash != loaded.hash) {
                return Err(FileToolError::Changed { path, present: Some(loaded.hash) });
            }
            let replaced = replacement.apply(&path, &loaded)?;
            let before = FileStamp { hash: loaded.hash, size_bytes: loaded.bytes.len() as u64 };
            let expect = ExpectedFile::Content(loaded.hash);
            if self.write_expecting(&path, replaced.bytes.clone(), expect).await? {
                return Ok(replaced.report(path, before));
            }
            // Somebody else was faster. Another round sees what is there now.
        }
        Err(FileToolError::Changed { present: self.stamp(&path).await?.map(|stamp| stamp.hash), path })
    }
}

/// One text for another, checked before any file is opened.
pub(super) struct Replacement<'a> {
    old: &'a str,
    new: &'a str,
    occurrences: Occurrences,
}

impl<'a> Replacement<'a> {
    pub(super) fn of(path: &Path, request: &'a EditRequest) -> Result<Self, FileToolError> {
        if request.old.is_empty() {
            return Err(FileToolError::EmptyOld { path: path.to_owned() });
        }
        if request.old == request.new {
            return Err(FileToolError::SameText { path: path.to_owned() });
        }
        if request.occurrences == Occurrences::Exactly(0) {
            return Err(FileToolError::BadRequest { what: "a text to replace must occur at least once".to_owned() });
        }
        Ok(Self { old: &request.old, new: &request.new, occurrences: request.occurrences })
    }

    pub(super) fn apply(&self, path: &Path, file: &LoadedFile) -> Result<Replaced, FileToolError> {
        // A model writes LF, or LF here and CR LF there; the file has CR LF, and keeps it.
        let (old, new) = match !has_only_crlf(self.old) && file.has_crlf() {
            true => (Cow::Owned(with_crlf(self.old)), Cow::Owned(with_crlf(self.new))),
            false => (Cow::Borrowed(self.old), Cow::Borrowed(self.new)),
        };
        if old == new {
            return Err(FileToolError::SameText { path: path.to_owned() });
        }
        let replaced = self.replace(file, old.as_bytes(), new.as_bytes());
        match (self.occurrences, replaced.places) {
            (_, 0) if file.is_binary() => Err(FileToolError::Binary { path: path.to_owned() }),
            (_, 0) => Err(FileToolError::NotFound {
                path: path.to_owned(),
                similar: similar_places(&String::from_utf8_lossy(&file.bytes), self.old),
                hash: file.hash,
                some_crlf: self.old.contains('\n') && !file.has_crlf() && memmem::find(&file.bytes, b"\r\n").is_some(),
            }),
            (Occurrences::Exactly(expected), found) if expected != found => {
                Err(FileToolError::WrongCount { path: path.to_owned(), expected, found, lines: replaced.old_lines })
            }
            _ => Ok(replaced),
        }
    }

    fn replace(&self, file: &LoadedFile, old: &[u8], new: &[u8]) -> Replaced {
        let mut bytes = Vec::with_capacity(file.bytes.len());
        let mut done = 0;
        let mut replaced = Replaced::default();
        let (mut old_line, mut new_line) = (LineCount::default(), LineCount::default());
        for at in memmem::find_iter(&file.bytes, old) {
            bytes.extend_from_slice(&file.bytes[done..at]);
            if replaced.places < NAMED_PLACES {
                replaced.old_lines.push(old_line.at(&file.bytes, at));
                replaced.lines.push(new_line.at(&bytes, bytes.len()));
            }
            if replaced.places == 0 {
                replaced.first = bytes.len()..bytes.len() + new.len();
            }
            replaced.places += 1;
            bytes.extend_from_slice(new);
            done = at + old.len();
        }
        bytes.extend_from_slice(&file.bytes[done..]);
        replaced.bytes = bytes.into();
        replaced
    }
}

/// Whether CR is written in `text`, and before every LF: then its line breaks are meant as they are, and so are those of what
/// comes in its place.
fn has_only_crlf(text: &str) -> bool {
    text.contains('\r') && !text.replace("\r\n", "").contains('\n')
}

/// `text` with CR LF for every line break that it has.
fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Counts lines from one place to the next, so that many places cost one pass.
#[derive(Default)]
struct LineCount {
    counted: usize,
    breaks: u64,
}

impl LineCount {
    /// The number of the line that contains `offset`, from 1.
    fn at(&mut self, bytes: &[u8], offset: usize) -> u64 {
        self.breaks += memchr::memchr_iter(b'\n', &bytes[self.counted..offset]).count() as u64;
        self.counted = offset;
        self.breaks + 1
    }
}

/// A file after its replacements.
#[derive(Default)]
pub(super) struct Replaced {
    pub(super) bytes: Bytes,
    pub(super) places: usize,
    /// Lines of the places in the old file and in the new one; the first of them.
    old_lines: Vec<u64>,
    lines: Vec<u64>,
    /// The first replacement in the new file.
    first: std::ops::Range<usize>,
}

impl Replaced {
    pub(super) fn report(self, path: PathBuf, before: FileStamp) -> Edited {
        let around = self.around();
        let after = FileStamp::of(&self.bytes);
        Edited { path, before, after, replacements: self.places, lines: self.lines, around }
    }

    /// The lines around the first replacement.
    fn around(&self) -> Vec<(u64, String)> {
        let Some(first_line) = self.lines.first().copied() else { return Vec::new() };
        let breaks = memchr::memchr_iter(b'\n', &self.bytes[self.first.clone()]).count();
        let context = EDIT_CONTEXT_LINES as u64;
        let begin_line = first_line.saturating_sub(context).max(1);
        // Backwards over the lines before it.
        let mut begin = self.first.start;
        for _ in begin_line..=first_line {
            begin = memchr::memrchr(b'\n', &self.bytes[..begin]).unwrap_or(0);
        }
        let begin = if begin_line == 1 { 0 } else { begin + 1 };
        let wanted = (usize::try_from(first_line - begin_line).unwrap_or(0) + breaks + 1 + EDIT_CONTEXT_LINES)
            .min(EDIT_SHOWN_LINES);
        let mut rest = &self.bytes[begin..];
        let mut lines = Vec::new();
        while lines.len() < wanted && !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = String::from_utf8_lossy(&rest[..end.min(LINE_BYTES)]);
            lines.push((begin_line + lines.len() as u64, cut(line.trim_end_matches('\r'), LINE_BYTES).to_owned()));
            rest = &rest[(end + 1).min(rest.len())..];
        }
        lines
    }
}
