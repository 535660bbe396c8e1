//! `grep`: lines that match, by file; or only the files, or only how many.
//!
//! The search runs where the files are; this bounds what comes back, and stops it as soon as enough is known.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use exec_env::files::limits::{SEARCH_CONTEXT_LINES, SEARCH_LINE_BYTES};
use exec_env::files::search::CaseSensitivity;
use exec_env::files::{FileError, FileLines, Pattern, SearchItem, SearchLine, SearchQuery};

use super::limits::{
    GREP_BEFORE_BYTES, GREP_COUNT, GREP_FILES, GREP_LINE_BYTES, GREP_MATCHES, GREP_MATCHES_MAX, GREP_PROBLEMS,
    GREP_TEXT_BYTES,
};
use super::paths::shown;
use super::patterns::glob_below;
use super::{FileToolError, FileTools};

/// What to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrepRequest {
    /// A directory, or one file.
    pub path: PathBuf,
    /// What a line must contain.
    pub pattern: Pattern,
    /// How upper and lower case are compared.
    pub case: CaseSensitivity,
    /// Which files: `*.rs` includes, `!*.min.js` excludes, the last that matches decides. Empty: all. They are relative to the
    /// directory, and may begin with its path.
    pub globs: Vec<String>,
    /// Leave out what `.gitignore`, `.ignore` and Git's own excludes say.
    pub ignore_files: bool,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Lines to show before each match.
    pub before_lines: u32,
    /// Lines to show after each match.
    pub after_lines: u32,
    /// What to return.
    pub mode: GrepMode,
    /// How many matching lines at most; with [`GrepMode::Files`] and [`GrepMode::Count`], how many files.
    pub max_results: u64,
}

/// What a grep returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrepMode {
    /// The lines.
    #[default]
    Content,
    /// The files that have a matching line.
    Files,
    /// How many matching lines each file has.
    Count,
}

impl GrepRequest {
    /// A regular expression in every file below `path` that ignore files let through.
    pub fn new(path: impl Into<PathBuf>, regex: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            pattern: Pattern::Regex(regex.into()),
            case: CaseSensitivity::Sensitive,
            globs: Vec::new(),
            ignore_files: true,
            hidden: false,
            before_lines: 0,
            after_lines: 0,
            mode: GrepMode::Content,
            max_results: GREP_MATCHES,
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grepped {
    /// Where was searched: absolute.
    pub root: PathBuf,
    /// As asked for.
    pub mode: GrepMode,
    /// In the order of their paths.
    pub files: Vec<GreppedFile>,
    /// How many matching lines were counted.
    pub matches: u64,
    /// Files that were searched; `None` if the search was ended before all were.
    pub searched_files: Option<u64>,
    /// Whether there may be more.
    pub truncated: bool,
    /// Files that could not be read, or not whole.
    pub unreadable_files: u64,
    /// The first [`GREP_PROBLEMS`] of them, and why.
    pub problems: Vec<FileError>,
    /// No file was searched, because none matches the globs.
    pub globs_match_nothing: bool,
}

/// The matches of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GreppedFile {
    /// Below the root; the root itself if that is a file.
    pub path: PathBuf,
    /// Matching lines.
    pub matches: u64,
    /// With [`GrepMode::Content`]: the lines and their context.
    pub lines: Vec<GreppedLine>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GreppedLine {
    /// From 1.
    pub number: u64,
    /// Without its end; what is no UTF-8 is shown as U+FFFD.
    pub text: String,
    /// Whether only a part of it is shown: that around its first match, or its beginning.
    pub cut: bool,
    /// Whether it matches; otherwise it is context.
    pub matches: bool,
}

impl Grepped {
    /// For a model: lines below their files, matches with `:` behind the number, context with `-`.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for file in &self.files {
            match self.mode {
                GrepMode::Content => file.write_to(&mut out),
                GrepMode::Files => drop(writeln!(out, "{}", shown(&file.path))),
                GrepMode::Count => drop(writeln!(out, "{}: {}", shown(&file.path), file.matches)),
            }
        }
        let _ = write!(out, "[{} matching lines in {} files", self.matches, self.files.len());
        if let Some(searched) = self.searched_files {
            let _ = write!(out, ", {searched} searched");
        }
        if self.truncated {
            out.push_str("; there may be more: narrow the pattern, the files or the directory, or ask for more");
        }
        if self.unreadable_files > 0 {
            let _ = write!(out, "; {} could not be read whole: search it with a command", self.unreadable_files);
        }
        if self.globs_match_nothing {
            out.push_str(
                "; no file there matches `globs`, which are relative to `path`: `*.c` is every such file, `src/**` all in src",
            );
        }
        out.push_str("]\n");
        for problem in &self.problems {
            let _ = writeln!(out, "  {}: {}", shown(&below(&self.root, &problem.path)), problem.reason);
        }
        let named = self.problems.len() as u64;
        if named > 0 && self.unreadable_files > named {
            let _ = writeln!(out, "  and {} more", self.unreadable_files - named);
        }
        out
    }
}

/// As paths of results are given: below the root, or the root itself.
fn below(root: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(root) {
        Ok(below) if !below.as_os_str().is_empty() => below.to_owned(),
        _ => path.to_owned(),
    }
}

impl GreppedFile {
    fn write_to(&self, out: &mut String) {
        let _ = writeln!(out, "{}", shown(&self.path));
        let mut last = None;
        for line in &self.lines {
            if last.is_some_and(|last| line.number > last + 1) {
                out.push_str("  --\n");
            }
            last = Some(line.number);
            let mark = if line.matches { ':' } else { '-' };
            let cut = if line.cut { " [...]" } else { "" };
            let _ = writeln!(out, "{:>6}{mark}{}{cut}", line.number, line.text);
        }
    }
}

impl FileTools {
    /// Searches in contents.
    pub async fn grep(&self, request: GrepRequest) -> Result<Grepped, FileToolError> {
        if request.max_results == 0
            || request.before_lines > SEARCH_CONTEXT_LINES
            || request.after_lines > SEARCH_CONTEXT_LINES
        {
            let what = format!("a search has at least one result, and at most {SEARCH_CONTEXT_LINES} lines of context");
            return Err(FileToolError::BadRequest { what });
        }
        let root = self.resolve(&request.path)?;
        let query = query(&request, root.clone())?;
        let chooses = query.globs.iter().any(|glob| !glob.starts_with('!'));
        let mut results = self.files.search(query).await?;
        let mut collected = Collected::new(&request, root);
        loop {
            match results.next().await? {
                SearchItem::Lines(lines) => {
                    // What is dropped with the results is the search.
                    if !collected.add(lines) {
                        collected.found.truncated = true;
                        return Ok(collected.found);
                    }
                }
                SearchItem::Done(summary) => {
                    let mut found = collected.found;
                    found.searched_files = Some(summary.files);
                    found.truncated |= summary.truncated;
                    found.unreadable_files = summary.problem_count;
                    found.problems = summary.problems;
                    found.problems.truncate(GREP_PROBLEMS);
                    found.globs_match_nothing = chooses && summary.files == 0 && summary.problem_count == 0;
                    return Ok(found);
                }
            }
        }
    }
}

fn query(request: &GrepRequest, root: PathBuf) -> Result<SearchQuery, FileToolError> {
    let content = request.mode == GrepMode::Content;
    let globs = request.globs.iter().map(|glob| glob_below(&root, glob)).collect::<Result<_, _>>()?;
    Ok(SearchQuery {
        case: request.case,
        globs,
        ignore_files: request.ignore_files,
        hidden: request.hidden,
        before_lines: if content { request.before_lines } else { 0 },
        after_lines: if content { request.after_lines } else { 0 },
        max_matches: if content { request.max_results.min(GREP_MATCHES_MAX) } else { GREP_COUNT },
        max_matches_per_file: (request.mode == GrepMode::Files).then_some(1),
        max_line_bytes: if content { SEARCH_LINE_BYTES } else { 1 },
        ..SearchQuery::new(root, request.pattern.clone())
    })
}

/// What has come so far.
struct Collected {
    found: Grepped,
    max_files: usize,
    text_bytes: usize,
    /// Whether lines that do not match come, too.
    has_context: bool,
}

impl Collected {
    fn new(request: &GrepRequest, root: PathBuf) -> Self {
        let max_files = match request.mode {
            GrepMode::Content => GREP_FILES,
            GrepMode::Files | GrepMode::Count => {
                usize::try_from(request.max_results).unwrap_or(GREP_FILES).min(GREP_FILES)
            }
        };
        let mode = request.mode;
        let found = Grepped {
            root,
            mode,
            files: Vec::new(),
            matches: 0,
            searched_files: None,
            truncated: false,
            unreadable_files: 0,
            problems: Vec::new(),
            globs_match_nothing: false,
        };
        let has_context = mode == GrepMode::Content && request.before_lines + request.after_lines > 0;
        Self { found, max_files, text_bytes: 0, has_context }
    }

    /// Whether there is room for more.
    fn add(&mut self, lines: FileLines) -> bool {
        let below = below(&self.found.root, &lines.path);
        if self.found.files.last().is_none_or(|file| file.path != below) {
            if self.found.files.len() >= self.max_files {
                return false;
            }
            self.found.files.push(GreppedFile { path: below, ..GreppedFile::default() });
        }
        let content = self.found.mode == GrepMode::Content;
        let file = self.found.files.last_mut().expect("one was pushed, or was there");
        for line in lines.lines {
            // Behind the cut of a very long line there may be a match that has no span.
            let matches = !line.spans.is_empty() || !self.has_context;
            let (text, cut) = around_match(&line);
            if content && self.text_bytes + text.len() > GREP_TEXT_BYTES {
                return false;
            }
            file.matches += u64::from(matches);
            self.found.matches += u64::from(matches);
            if content {
                self.text_bytes += text.len();
                file.lines.push(GreppedLine { number: line.number, text, cut, matches });
            }
        }
        true
    }
}

/// The part of a line that is shown, and whether that is not all of it.
fn around_match(line: &SearchLine) -> (String, bool) {
    let text = String::from_utf8_lossy(&line.text);
    if text.len() <= GREP_LINE_BYTES {
        return (text.into_owned(), line.cut);
    }
    let first = line.spans.first().map_or(0, |(begin, _)| *begin as usize);
    let begin = text.floor_char_boundary(first.saturating_sub(GREP_BEFORE_BYTES));
    let end = text.floor_char_boundary(begin + GREP_LINE_BYTES);
    (text[begin..end].to_owned(), true)
}
