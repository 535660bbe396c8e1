//! Arguments and results of the tools over files, as JSON. Doc comments are what models read in the schemas.

use exec_tools::files::apply_patch::parser::Patch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The arguments that name an environment.
macro_rules! in_an_environment {
    ($($arguments:ident),* $(,)?) => {
        $(impl $arguments {
            pub(super) fn environment_id(&self) -> Option<String> {
                self.environment_id.clone()
            }
        })*
    };
}

in_an_environment!(
    ReadArguments,
    WriteArguments,
    EditArguments,
    EditManyArguments,
    ListArguments,
    FindArguments,
    SearchArguments,
    ViewImageArguments,
);

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ReadArguments {
    /// Absolute, or relative to the project's directory.
    pub(super) path: String,
    /// The first line, from 1.
    #[serde(default)]
    pub(super) from_line: Option<u64>,
    /// Only so many lines at the end.
    #[serde(default)]
    pub(super) last_lines: Option<u64>,
    /// Most lines to show, default 2000.
    #[serde(default)]
    pub(super) max_lines: Option<usize>,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WriteArguments {
    /// Absolute, or relative to the project's directory.
    pub(super) path: String,
    /// The whole new contents.
    pub(super) contents: String,
    /// Only if the file has this hash, as read_file tells it.
    #[serde(default)]
    pub(super) if_hash: Option<String>,
    /// Only if there is no such file.
    #[serde(default)]
    pub(super) if_absent: bool,
    /// Make the directories on the way to it.
    #[serde(default)]
    pub(super) make_directories: bool,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

/// One exact text for another.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Replacement {
    /// Absolute, or relative to the project's directory.
    pub(super) path: String,
    /// The text to replace, exactly as it is in the file, without line numbers.
    pub(super) old: String,
    /// What to put in its place.
    pub(super) new: String,
    /// Replace it wherever it occurs.
    #[serde(default)]
    pub(super) replace_all: bool,
    /// How often it must occur, default 1; every one is replaced.
    #[serde(default)]
    pub(super) occurrences: Option<usize>,
    /// Only if the file has this hash, as read_file tells it.
    #[serde(default)]
    pub(super) if_hash: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct EditArguments {
    #[serde(flatten)]
    pub(super) replacement: Replacement,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct EditManyArguments {
    /// In the order in which they are made; a file may be changed several times.
    pub(super) changes: Vec<FileChange>,
    /// Make the directories that new names need.
    #[serde(default)]
    pub(super) make_directories: bool,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

/// One of several changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum FileChange {
    /// One exact text for another.
    Replace(Replacement),
    /// A whole file.
    Write {
        path: String,
        contents: String,
        /// Only if the file has this hash.
        #[serde(default)]
        if_hash: Option<String>,
        /// Only if there is no such file.
        #[serde(default)]
        if_absent: bool,
    },
    /// The file goes.
    Remove {
        path: String,
        /// Only if the file has this hash.
        #[serde(default)]
        if_hash: Option<String>,
    },
    /// The file gets another name, which nothing has.
    Rename { path: String, to: String },
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ApplyPatchArguments {
    /// From `*** Begin Patch` to `*** End Patch`.
    #[serde(alias = "input")]
    pub(super) patch: String,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

impl ApplyPatchArguments {
    /// A patch may name its environment itself, as Codex's do. What is no patch is told when it is applied.
    pub(super) fn environment_id(&self) -> Option<String> {
        let in_patch = || Patch::parse(&self.patch).ok().and_then(|patch| patch.environment_id);
        self.environment_id.clone().or_else(in_patch)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListArguments {
    /// Which directory; the project's if absent.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// Levels, default 1.
    #[serde(default)]
    pub(super) depth: Option<usize>,
    /// Most entries to show, default 500.
    #[serde(default)]
    pub(super) max_entries: Option<usize>,
    /// Also what .gitignore and the like exclude.
    #[serde(default)]
    pub(super) no_ignore: bool,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FindArguments {
    /// A path must match one of them: `*` within a name, `**` across names, `{a,b}`, `[a-z]`. Relative to `path`.
    pub(super) patterns: Vec<String>,
    /// Where to look; the project's directory if absent.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// Most paths to show, default 500.
    #[serde(default)]
    pub(super) max_paths: Option<usize>,
    /// Also what .gitignore and the like exclude.
    #[serde(default)]
    pub(super) no_ignore: bool,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SearchArguments {
    /// A regular expression over one line.
    pub(super) pattern: String,
    /// The pattern is exactly these characters.
    #[serde(default)]
    pub(super) literal: bool,
    /// A directory or a file; the project's directory if absent.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// Which files: `*.rs` includes, `!*.min.js` excludes, the last that matches decides. Relative to `path`.
    #[serde(default)]
    pub(super) globs: Vec<String>,
    /// Upper and lower case are the same.
    #[serde(default)]
    pub(super) ignore_case: bool,
    /// Also files whose names begin with a dot.
    #[serde(default)]
    pub(super) hidden: bool,
    /// Also what .gitignore and the like exclude.
    #[serde(default)]
    pub(super) no_ignore: bool,
    /// Lines to show around each match.
    #[serde(default)]
    pub(super) context_lines: u32,
    /// What to show.
    #[serde(default)]
    pub(super) show: Mode,
    /// Most matches, or files, to show, default 200.
    #[serde(default)]
    pub(super) max_results: Option<u64>,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// The matching lines.
    #[default]
    Lines,
    /// The files that have one.
    Files,
    /// How many each file has.
    Counts,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ViewImageArguments {
    /// Absolute, or relative to the project's directory.
    pub(super) path: String,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    environment_id: Option<String>,
}

/// A file that was read or written.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileResult {
    /// What a model needs to know.
    pub(super) text: String,
    pub(super) path: String,
    /// Of the whole file; guards a later change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<String>,
    pub(super) size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total_lines: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EditResult {
    /// What a model needs to know: the lines around the change, too.
    pub(super) text: String,
    pub(super) path: String,
    /// Of the whole file now; guards the next change.
    pub(super) hash: String,
    pub(super) replacements: usize,
    /// Where the replacements begin.
    pub(super) lines: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedResult {
    /// What a model needs to know.
    pub(super) text: String,
    pub(super) files: Vec<ChangedFile>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedFile {
    pub(super) path: String,
    /// added, modified, removed or renamed.
    pub(super) change: &'static str,
    /// The new name of a renamed file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    /// Of the whole file now; guards the next change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<String>,
}

/// What was found.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FoundResult {
    /// What a model needs to know.
    pub(super) text: String,
    /// Whether there is more.
    pub(super) truncated: bool,
    /// Entries or paths.
    pub(super) count: u64,
}

/// Where a search has found something, and where it could not look.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SearchResult {
    /// What a model needs to know.
    pub(super) text: String,
    /// Whether there is more.
    pub(super) truncated: bool,
    /// Matching lines.
    pub(super) count: u64,
    /// Files that were not searched, or not whole: they may have more.
    pub(super) unread_count: u64,
    /// The first of them.
    pub(super) unread: Vec<UnreadFile>,
}

/// A file that was not searched whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UnreadFile {
    pub(super) path: String,
    /// Why not.
    pub(super) why: String,
}
