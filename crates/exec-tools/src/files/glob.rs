//! `glob`: paths by pattern.

use std::fmt::Write;
use std::path::PathBuf;

use exec_env::files::GlobQuery;
use exec_env::files::limits::GLOB_PATHS as MOST_PATHS;

use super::limits::GLOB_PATHS;
use super::paths::shown;
use super::patterns::pattern_below;
use super::{FileToolError, FileTools};

/// What to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobRequest {
    /// The directory to look in.
    pub path: PathBuf,
    /// A path below it must match one of them: `*` within a name, `**` across names, `{a,b}`, `[a-z]`. They are relative to the
    /// directory, and may begin with its path.
    pub patterns: Vec<String>,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Leave out what `.gitignore`, `.ignore` and Git's own excludes say.
    pub ignore_files: bool,
    /// How many paths at most.
    pub max_paths: usize,
}

impl GlobRequest {
    /// One pattern, with hidden names, without what ignore files exclude.
    pub fn new(path: impl Into<PathBuf>, pattern: impl Into<String>) -> Self {
        let patterns = vec![pattern.into()];
        Self { path: path.into(), patterns, hidden: true, ignore_files: true, max_paths: GLOB_PATHS }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Globbed {
    /// Where was looked: absolute.
    pub root: PathBuf,
    /// Below the root, sorted.
    pub paths: Vec<PathBuf>,
    /// Whether there are more than were asked for.
    pub truncated: bool,
}

impl Globbed {
    /// For a model: one path a line.
    pub fn text(&self) -> String {
        let mut out = format!("{} paths in {}\n", self.paths.len(), shown(&self.root));
        for path in &self.paths {
            let _ = writeln!(out, "{}", shown(path));
        }
        if self.truncated {
            out.push_str("[there are more: give a narrower pattern, or ask for more paths]\n");
        }
        out
    }
}

impl FileTools {
    /// Finds paths by pattern.
    pub async fn glob(&self, request: GlobRequest) -> Result<Globbed, FileToolError> {
        if request.max_paths == 0 || request.patterns.is_empty() {
            let what = "give at least one pattern, and room for at least one path".to_owned();
            return Err(FileToolError::BadRequest { what });
        }
        let root = self.resolve(&request.path)?;
        let patterns = request.patterns.iter().map(|pattern| pattern_below(&root, pattern));
        let query = GlobQuery {
            root: root.clone(),
            patterns: patterns.collect::<Result<_, _>>()?,
            ignore_files: request.ignore_files,
            hidden: request.hidden,
            max_paths: request.max_paths.min(MOST_PATHS),
        };
        let found = self.files.glob(query).await?;
        let below = |path: PathBuf| path.strip_prefix(&root).map(ToOwned::to_owned).unwrap_or(path);
        let paths = found.paths.into_iter().map(below).collect();
        Ok(Globbed { paths, truncated: found.truncated, root })
    }
}
