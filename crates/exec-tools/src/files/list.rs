//! `list`: what is in a directory, as deep as asked, without what ignore files exclude.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use exec_env::files::{DirectoryEntry, FileKind, GlobQuery, LinkPolicy};

use super::limits::{LIST_DEPTH, LIST_ENTRIES, LIST_ENTRIES_MAX};
use super::paths::shown;
use super::{FileToolError, FileTools};

/// What to list. `.git` is never listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Which directory.
    pub path: PathBuf,
    /// Levels: 1 lists what is in the directory itself.
    pub depth: usize,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Leave out what `.gitignore`, `.ignore` and Git's own excludes say.
    pub ignore_files: bool,
    /// How many entries at most.
    pub max_entries: usize,
}

impl ListRequest {
    /// One level, with hidden names, without what ignore files exclude.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), depth: 1, hidden: true, ignore_files: true, max_entries: LIST_ENTRIES }
    }
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Absolute.
    pub path: PathBuf,
    /// Sorted by path: a directory, then what is in it.
    pub entries: Vec<ListedEntry>,
    /// Whether there is more than was asked for.
    pub truncated: bool,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// Below the directory that was listed.
    pub path: PathBuf,
    /// What it is, after links are followed; [`FileKind::Symlink`] is a link whose target does not exist.
    pub kind: FileKind,
    /// Whether it is a link.
    pub is_symlink: bool,
}

impl Listed {
    /// For a model: one line an entry, indented by level.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", shown(&self.path));
        for entry in &self.entries {
            let level = entry.path.components().count().saturating_sub(1);
            let name = shown(Path::new(entry.path.file_name().unwrap_or_default()));
            let mark = match (entry.kind, entry.is_symlink) {
                (FileKind::Directory, false) => "/",
                (FileKind::Directory, true) => "/ (link)",
                (FileKind::File, true) => " (link)",
                (FileKind::Symlink, _) => " (link to nothing)",
                (FileKind::Special, _) => " (no regular file)",
                (FileKind::File, false) => "",
            };
            let _ = writeln!(out, "{}{name}{mark}", "  ".repeat(level + 1));
        }
        if self.truncated {
            let shown = self.entries.len();
            let _ = writeln!(out, "[only the first {shown} entries: list a directory below, or ask for more entries]");
        } else if self.entries.is_empty() {
            out.push_str("[nothing is in it, or ignore files exclude all of it]\n");
        }
        out
    }
}

impl FileTools {
    /// Lists a directory.
    pub async fn list(&self, request: ListRequest) -> Result<Listed, FileToolError> {
        if request.depth == 0 || request.depth > LIST_DEPTH || request.max_entries == 0 {
            let what = format!("a listing has 1 to {LIST_DEPTH} levels, and at least one entry");
            return Err(FileToolError::BadRequest { what });
        }
        let path = self.resolve(&request.path)?;
        self.require_directory(&path).await?;
        let max_paths = request.max_entries.min(LIST_ENTRIES_MAX);
        let patterns = (1..=request.depth).map(|depth| vec!["*"; depth].join("/")).collect();
        let (hidden, ignore_files) = (request.hidden, request.ignore_files);
        let query = GlobQuery { root: path.clone(), patterns, ignore_files, hidden, max_paths };
        let found = self.files.glob(query).await?;
        let entries = self.with_kinds(&path, found.paths).await?;
        Ok(Listed { path, entries, truncated: found.truncated })
    }

    async fn require_directory(&self, path: &Path) -> Result<(), FileToolError> {
        match self.files.metadata(path, LinkPolicy::Follow).await?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(FileToolError::BadRequest { what: format!("{path:?} is no directory: read it instead") }),
        }
    }

    /// Each directory is read once for the kinds of its entries. What is gone meanwhile is left out.
    async fn with_kinds(&self, root: &Path, paths: Vec<PathBuf>) -> Result<Vec<ListedEntry>, FileToolError> {
        let mut last_names: BTreeMap<&Path, &OsStr> = BTreeMap::new();
        for path in &paths {
            if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
                last_names.entry(directory).and_modify(|last| *last = name.max(*last)).or_insert(name);
            }
        }
        let mut kinds = HashMap::new();
        for (directory, last) in last_names {
            self.add_kinds(&mut kinds, directory, last).await?;
        }
        let entry = |path: PathBuf| {
            let found: &DirectoryEntry = kinds.get(&path)?;
            let below = path.strip_prefix(root).ok()?.to_owned();
            Some(ListedEntry { path: below, kind: found.kind, is_symlink: found.is_symlink })
        };
        Ok(paths.into_iter().filter_map(entry).collect())
    }

    /// Pages come in the order of names, so that of a huge directory only its beginning is asked for.
    async fn add_kinds(
        &self,
        kinds: &mut HashMap<PathBuf, DirectoryEntry>,
        directory: &Path,
        last: &OsStr,
    ) -> Result<(), FileToolError> {
        let mut after: Option<OsString> = None;
        loop {
            let page = match self.files.read_directory_page(directory, after.as_deref(), LIST_ENTRIES_MAX).await {
                // It is gone, or may not be read any more.
                Err(error) if error.errno().is_some() => return Ok(()),
                page => page?,
            };
            kinds.extend(page.entries.into_iter().map(|entry| (directory.join(&entry.name), entry)));
            match page.next {
                Some(next) if next.as_os_str() < last => after = Some(next),
                _ => return Ok(()),
            }
        }
    }
}
