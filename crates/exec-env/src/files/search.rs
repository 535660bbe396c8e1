//! Search in contents: what is asked, and what is found, line by line.

use std::path::PathBuf;

use bytes::Bytes;

use super::{FileError, FileFuture, limits};

/// What to search for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// A directory, or one file.
    pub root: PathBuf,
    /// What to look for.
    pub pattern: Pattern,
    /// Whether case matters.
    pub case: CaseSensitivity,
    /// Only where it stands as a word of its own.
    pub word: bool,
    /// Which files: `*.rs` takes, `!*.min.js` leaves out, the last that matches decides. Empty: all.
    pub globs: Vec<String>,
    /// Leave out what `.gitignore`, `.ignore` and Git's own excludes say.
    pub ignore_files: bool,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Follow links below the root.
    pub follow_symlinks: bool,
    /// Lines to show before each match.
    pub before_lines: u32,
    /// Lines to show after each match.
    pub after_lines: u32,
    /// Stop after this many matching lines.
    pub max_matches: u64,
    /// Matching lines of one file.
    pub max_matches_per_file: Option<u64>,
    /// Leave out larger files.
    pub max_file_bytes: Option<u64>,
    /// Longer lines are cut.
    pub max_line_bytes: usize,
}

impl SearchQuery {
    /// `pattern` in every file below `root` that ignore files let through.
    pub fn new(root: impl Into<PathBuf>, pattern: Pattern) -> Self {
        Self {
            root: root.into(),
            pattern,
            case: CaseSensitivity::Sensitive,
            word: false,
            globs: Vec::new(),
            ignore_files: true,
            hidden: false,
            follow_symlinks: false,
            before_lines: 0,
            after_lines: 0,
            max_matches: limits::SEARCH_MATCHES,
            max_matches_per_file: None,
            max_file_bytes: None,
            max_line_bytes: limits::SEARCH_LINE_BYTES,
        }
    }
}

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// A regular expression over one line.
    Regex(String),
    /// These very characters.
    Literal(String),
}

/// Whether case matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaseSensitivity {
    /// It does.
    #[default]
    Sensitive,
    /// It does not.
    Insensitive,
    /// Only if the pattern has a capital letter.
    Smart,
}

/// A search that goes on as long as its handle; dropping it stops the search.
pub trait SearchResults: Send {
    /// The next lines, in order: files by path, lines by number. After `Done` it answers `Done` again.
    fn next(&mut self) -> FileFuture<'_, SearchItem>;
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchItem {
    /// Lines of one file.
    Lines(FileLines),
    /// That was all.
    Done(SearchSummary),
}

/// Lines of one file; a file with much to show comes in several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLines {
    /// The file.
    pub path: PathBuf,
    /// Its lines, ascending.
    pub lines: Vec<SearchLine>,
}

/// A line that matches, or stands beside one that does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchLine {
    /// From 1.
    pub number: u64,
    /// Where the line begins in the file. In a file of another encoding than UTF-8: in its UTF-8 form.
    pub offset: u64,
    /// The line without its end.
    pub text: Bytes,
    /// Whether `text` is only the line's beginning.
    pub cut: bool,
    /// The matches: begin and end within `text`. Empty for a line of context.
    pub spans: Vec<(u32, u32)>,
}

/// How a search went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchSummary {
    /// Files looked into.
    pub files: u64,
    /// Files with a match.
    pub files_matched: u64,
    /// Matching lines.
    pub matches: u64,
    /// It ended at `max_matches`.
    pub truncated: bool,
    /// What could not be read; the first ones.
    pub problems: Vec<FileError>,
    /// How much could not be read.
    pub problem_count: u64,
}
