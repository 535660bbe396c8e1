//! Search in contents: the query, and the matching lines as they are found.

use std::path::PathBuf;

use bytes::Bytes;

use super::{FileError, FileFuture, limits};

/// What to search for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// A directory, or one file.
    pub root: PathBuf,
    /// What a line must contain.
    pub pattern: Pattern,
    /// How upper and lower case are compared.
    pub case: CaseSensitivity,
    /// Only matches that are whole words.
    pub word: bool,
    /// Which files: `*.rs` includes, `!*.min.js` excludes, the last that matches decides. Empty: all.
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
    /// Stop in each file after this many matching lines.
    pub max_matches_per_file: Option<u64>,
    /// Leave out larger files.
    pub max_file_bytes: Option<u64>,
    /// Report no more than this of a line.
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

/// What a line must contain to match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// A regular expression over one line.
    Regex(String),
    /// Exactly these characters.
    Literal(String),
}

/// How upper and lower case are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaseSensitivity {
    /// As different letters.
    #[default]
    Sensitive,
    /// As the same letter.
    Insensitive,
    /// As different letters only if the pattern has a capital letter.
    Smart,
}

/// A search that is running; dropping the handle stops it.
pub trait SearchResults: Send {
    /// The next lines, in order: files by path, lines by number. After `Done` it returns `Done` again.
    fn next(&mut self) -> FileFuture<'_, SearchItem>;
}

/// The next piece of a search's results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchItem {
    /// Lines of one file.
    Lines(FileLines),
    /// There are no more.
    Done(SearchSummary),
}

/// Some lines of one file; a file with many matching lines comes in several of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLines {
    /// The root's path and what is below.
    pub path: PathBuf,
    /// In ascending order.
    pub lines: Vec<SearchLine>,
}

/// A line that matches, or a line of context before or after one that does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchLine {
    /// Counted from 1.
    pub number: u64,
    /// The byte at which the line begins. In a file of another encoding than UTF-8: in its UTF-8 form.
    pub offset: u64,
    /// The line without its end.
    pub text: Bytes,
    /// Whether `text` is only the line's beginning, or `spans` are only the first matches.
    pub cut: bool,
    /// The matches: begin and end within `text`, at most [`SEARCH_SPANS`](super::limits::SEARCH_SPANS). Empty for a
    /// line of context.
    pub spans: Vec<(u32, u32)>,
}

/// How a search went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchSummary {
    /// Files that were searched.
    pub files: u64,
    /// Files with a match.
    pub files_matched: u64,
    /// Matching lines.
    pub matches: u64,
    /// The search ended at `max_matches`.
    pub truncated: bool,
    /// The first [`limits::SEARCH_PROBLEMS`] files that could not be read.
    pub problems: Vec<FileError>,
    /// How many files could not be read.
    pub problem_count: u64,
}
