//! Search: contents by `fs/search`, names by `fs/glob`. Both are ours.
//!
//! `fs/search` answers as soon as the query is known to be good. What is found comes by `fs/found`, files by path and
//! lines by number; the last one carries the summary. A search belongs to the connection and waits for a slow reader.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tree::PathProblem;
use crate::empty::empty_results;
use crate::error::RpcError;
use crate::initialize::is_false;
use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;
use crate::shape::{Nullable, shapes};
use crate::text::OsText;

shapes! {
    /// Searches file contents.
    pub struct SearchParams {
        /// The id that the client gives the search; at most 64 bytes.
        pub search_id: String,
        /// A directory, or one file.
        pub path: PathUri,
        pub pattern: SearchPattern,
        #[serde(default)]
        pub case: SearchCase,
        /// Only where it stands as a word of its own.
        #[serde(default, skip_serializing_if = "is_false")]
        pub word: bool,
        /// Which files: `*.rs` takes, `!*.min.js` leaves out, the last that matches decides.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub globs: Vec<String>,
        /// Leave out what ignore files say; true if absent.
        pub ignore_files: Option<bool>,
        /// Also names that begin with a dot.
        #[serde(default, skip_serializing_if = "is_false")]
        pub hidden: bool,
        /// Follow links below the path.
        #[serde(default, skip_serializing_if = "is_false")]
        pub follow_symlinks: bool,
        /// Lines to show before each match.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub before_lines: u32,
        /// Lines to show after each match.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub after_lines: u32,
        /// Stop after this many matching lines.
        pub max_matches: Option<u64>,
        /// Matching lines of one file.
        pub max_matches_per_file: Option<u64>,
        /// Leave out larger files.
        pub max_file_bytes: Option<u64>,
        /// Cut longer lines.
        pub max_line_bytes: Option<usize>,
        /// Report only what comes after this line; the summary still counts everything. So a search that a lost connection
        /// interrupted can continue.
        pub after: Option<SearchPlace>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// A line of a file.
    pub struct SearchPlace {
        pub path: PathUri,
        /// Its line, from 1.
        pub line: u64,
    }

    #[derive(Default)]
    pub enum SearchCase {
        /// Upper and lower case differ.
        #[default]
        Sensitive,
        /// Upper and lower case match each other.
        Insensitive,
        /// Only if the pattern has a capital letter.
        Smart,
    }

    pub struct SearchResult {
        /// The id that the client gave.
        pub search_id: String,
    }

    pub struct FoundParams {
        pub search_id: String,
        /// 1, 2, 3 …
        pub seq: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub files: Vec<FoundLines>,
        /// The search is complete.
        pub done: Option<SearchSummary>,
        /// The search failed.
        pub error: Option<RpcError>,
    }

    /// Lines of one file; a file with much to show comes more than once.
    pub struct FoundLines {
        pub path: PathUri,
        /// Its lines, ascending.
        pub lines: Vec<FoundLine>,
    }

    /// A line that matches, or stands beside one that does.
    pub struct FoundLine {
        /// From 1.
        pub number: u64,
        /// Where the line begins in the file.
        pub offset: u64,
        /// The line without its end.
        pub text: OsText,
        /// Whether `text` is only the line's beginning, or `spans` are only the first 16,384.
        #[serde(default, skip_serializing_if = "is_false")]
        pub cut: bool,
        /// The matches: begin and end in bytes of `text`. Empty for a line of context.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub spans: Vec<(u32, u32)>,
    }

    #[derive(Default)]
    pub struct SearchSummary {
        /// Files looked into.
        pub files: u64,
        /// Files with a match.
        pub files_matched: u64,
        /// Matching lines.
        pub matches: u64,
        /// Whether it ended at `maxMatches`.
        pub truncated: bool,
        /// The first paths that could not be read.
        pub problems: Vec<PathProblem>,
        /// How many paths could not be read.
        pub problem_count: u64,
    }

    /// Ends a search. No notification follows the answer.
    pub struct CancelSearchParams {
        pub search_id: String,
    }

    /// Finds paths by name.
    pub struct GlobParams {
        /// The directory to begin at.
        pub path: PathUri,
        /// What a path below it must match: `*` within a name, `**` across, `{a,b}`, `[a-z]`. One is enough.
        pub patterns: Vec<String>,
        /// Leave out what ignore files say; true if absent.
        pub ignore_files: Option<bool>,
        /// Also names that begin with a dot; true if absent.
        pub hidden: Option<bool>,
        /// Stop after this many paths.
        pub max_paths: Option<usize>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    #[derive(Default)]
    pub struct GlobResult {
        /// Each directory's names in bytewise order.
        pub paths: Vec<PathUri>,
        /// Whether there are more.
        pub truncated: bool,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SearchPattern {
    /// A regular expression over one line.
    Regex(String),
    /// Exactly these characters.
    Literal(String),
}

empty_results! {
    /// The search is over, or never was.
    CancelSearchResult,
}

fn is_zero(lines: &u32) -> bool {
    *lines == 0
}
