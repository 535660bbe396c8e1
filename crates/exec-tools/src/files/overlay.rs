//! Several changes on paper: the files as they will be, over the files as they are.
//!
//! Changes are made one after the other, each on what the ones before left, and nothing of it is on the disk. At the end
//! [`Overlay::change_set`] is the difference, each file with the expectation that it still is what was read. The environment
//! makes that all or none.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use exec_env::files::{ChangeAction, ChangeSet, ExpectedFile, FileChange, FileError, FileKind, FileReason, LinkPolicy};

use super::limits::{MANY_BYTES, MANY_FILES};
use super::paths::shown;
use super::text_file::{LoadedFile, hash_of};
use super::write::{FileStamp, Guard};
use super::{FileToolError, FileTools};

/// What `edit_many` or `apply_patch` changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedFiles {
    /// In the order of their paths.
    pub files: Vec<ChangedFile>,
}

/// One file that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Absolute.
    pub path: PathBuf,
    /// How.
    pub kind: FileChangeKind,
    /// What it was; `None` if there was none, or it was a link.
    pub before: Option<FileStamp>,
    /// What it is now; `None` if it is gone, or was only renamed.
    pub after: Option<FileStamp>,
}

/// How a file was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChangeKind {
    /// It is new.
    Added,
    /// It has other contents.
    Modified,
    /// It is gone.
    Removed,
    /// It has another name, and is otherwise the same.
    Renamed {
        /// The new name.
        to: PathBuf,
    },
}

impl ChangedFiles {
    /// For a model: a letter and a path for each file, as Codex has it, and the hash that guards the next change.
    pub fn text(&self) -> String {
        if self.files.is_empty() {
            return "Success. Nothing had to be changed.\n".to_owned();
        }
        let mut out = "Success. Updated the following files:\n".to_owned();
        for file in &self.files {
            let path = shown(&file.path);
            let _ = match &file.kind {
                FileChangeKind::Added => write!(out, "A {path}"),
                FileChangeKind::Modified => write!(out, "M {path}"),
                FileChangeKind::Removed => write!(out, "D {path}"),
                FileChangeKind::Renamed { to } => write!(out, "R {path} -> {}", shown(to)),
            };
            if let Some(after) = &file.after {
                let _ = write!(out, " (hash {})", after.hash);
            }
            out.push('\n');
        }
        out
    }
}

/// The files as they will be.
pub(super) struct Overlay<'a> {
    tools: &'a FileTools,
    files: BTreeMap<PathBuf, OverlayFile>,
    make_directories: bool,
}

struct OverlayFile {
    before: Before,
    now: Now,
    /// Permission bits of a file that is new.
    mode: Option<u32>,
    /// Somebody was promised that it is what was found on the disk.
    guarded: bool,
}

/// What is on the disk.
enum Before {
    Absent,
    File {
        stamp: FileStamp,
        mode: u32,
    },
    /// A link to something: it can only go as a whole.
    Link,
    /// A link that leads nowhere: it can go as a whole, too, and what is written goes where it leads.
    LinkToNothing,
}

/// What will be there.
enum Now {
    AsBefore,
    Contents(Bytes),
    Gone,
    /// It gets that name.
    RenamedTo(PathBuf),
    /// It is what has that name now.
    RenamedFrom(PathBuf),
}

impl<'a> Overlay<'a> {
    pub(super) fn new(tools: &'a FileTools, make_directories: bool) -> Self {
        Self { tools, files: BTreeMap::new(), make_directories }
    }

    /// The path that a file is known by: without links, so that a link and what it leads to are one file.
    async fn key(&self, path: &Path) -> Result<PathBuf, FileToolError> {
        if self.files.contains_key(path) {
            return Ok(path.to_owned());
        }
        match self.tools.files.canonicalize(path).await {
            Ok(real) => Ok(real),
            Err(error) if error.is_not_found() || self.is_link(path).await => Ok(path.to_owned()),
            Err(error) => Err(error.into()),
        }
    }

    async fn is_link(&self, path: &Path) -> bool {
        self.tools.files.read_link(path, LinkPolicy::Follow).await.is_ok()
    }

    /// Looks at what is on the disk, once for each file.
    async fn look(&mut self, key: &Path) -> Result<&mut OverlayFile, FileToolError> {
        if !self.files.contains_key(key) {
            let before = match self.tools.files.metadata(key, LinkPolicy::Follow).await {
                // A link itself is no directory, even if it leads to one.
                Ok(found) if found.is_symlink => Before::Link,
                Ok(found) if found.kind == FileKind::Directory => {
                    return Err(FileToolError::IsDirectory { path: key.to_owned() });
                }
                Ok(found) if found.kind == FileKind::File => match self.tools.stamp(key).await? {
                    Some(stamp) => Before::File { stamp, mode: found.mode },
                    None => Before::Absent,
                },
                Ok(_) => return Err(FileToolError::NotAFile { path: key.to_owned() }),
                // To nothing, in a circle, or through what is no directory: the link is there.
                Err(_) if self.is_link(key).await => Before::LinkToNothing,
                Err(error) if error.is_not_found() => Before::Absent,
                Err(error) => return Err(error.into()),
            };
            self.files.insert(key.to_owned(), OverlayFile { before, now: Now::AsBefore, mode: None, guarded: false });
        }
        Ok(self.files.get_mut(key).expect("it was there, or was inserted"))
    }

    /// What the file contains by now.
    pub(super) async fn contents(&mut self, path: &Path) -> Result<LoadedFile, FileToolError> {
        let key = self.key(path).await?;
        let tools = self.tools;
        let file = self.look(&key).await?;
        let source = match (&file.now, &file.before) {
            (Now::Contents(bytes), _) => {
                return Ok(LoadedFile { hash: hash_of(bytes), bytes: bytes.clone() });
            }
            (Now::RenamedFrom(source), _) => source.clone(),
            (Now::AsBefore, Before::File { stamp, mode }) => {
                let loaded = tools.load(&key).await?;
                // Somebody has changed it since it was looked at. What was read is what is changed and expected.
                if loaded.hash != stamp.hash {
                    if file.guarded {
                        return Err(FileToolError::Changed { path: key, present: Some(loaded.hash) });
                    }
                    file.before = Before::File { stamp: FileStamp::of(&loaded.bytes), mode: *mode };
                }
                return Ok(loaded);
            }
            (Now::AsBefore, Before::Absent | Before::Link | Before::LinkToNothing)
            | (Now::Gone | Now::RenamedTo(_), _) => {
                return Err(missing(path));
            }
        };
        tools.load(&source).await
    }

    /// Whether a file is there by now.
    async fn exists(&mut self, key: &Path) -> Result<bool, FileToolError> {
        let file = self.look(key).await?;
        Ok(match (&file.now, &file.before) {
            (Now::AsBefore, Before::Absent) | (Now::Gone | Now::RenamedTo(_), _) => false,
            (Now::AsBefore, _) | (Now::Contents(_) | Now::RenamedFrom(_), _) => true,
        })
    }

    /// Fails unless the file on the disk is what the caller thinks it is.
    pub(super) async fn require(&mut self, path: &Path, guard: Guard) -> Result<(), FileToolError> {
        // Where nothing is required, nothing is looked at: of a link, only its caller knows whether it is meant itself.
        if guard == Guard::Anything {
            return Ok(());
        }
        let key = self.key(path).await?;
        let file = self.look(&key).await?;
        let present = match &file.before {
            Before::File { stamp, .. } => Some(stamp.hash),
            Before::Absent | Before::Link | Before::LinkToNothing => None,
        };
        file.guarded = true;
        let path = path.to_owned();
        match (guard, present) {
            (Guard::Anything, _) | (Guard::Absent, None) => Ok(()),
            (Guard::Hash(wanted), Some(present)) if wanted == present => Ok(()),
            (Guard::Hash(_), present) => Err(FileToolError::Changed { path, present }),
            (Guard::Absent, Some(present)) => Err(FileToolError::Exists { path, present }),
        }
    }

    /// The file will have these contents.
    pub(super) async fn write(&mut self, path: &Path, contents: Bytes) -> Result<(), FileToolError> {
        let key = self.key(path).await?;
        // What was to be renamed is now removed and written.
        if let Now::RenamedFrom(source) = &self.look(&key).await?.now {
            let source = source.clone();
            self.look(&source).await?.now = Now::Gone;
        }
        self.make_room(&key).await?;
        let file = self.look(&key).await?;
        file.now = Now::Contents(contents);
        Ok(())
    }

    /// What had the name and was given another, or was removed, keeps to that when something else gets the name.
    async fn make_room(&mut self, key: &Path) -> Result<(), FileToolError> {
        let file = self.look(key).await?;
        let is_link = matches!(file.before, Before::Link | Before::LinkToNothing);
        // One change set does one thing to a name. What is written to a link goes where it leads.
        if is_link && matches!(file.now, Now::Gone | Now::RenamedTo(_)) {
            let why = format!("{key:?} is a link: remove or rename it in a call before, then write a file there");
            return Err(FileToolError::Conflict { why });
        }
        if let Now::RenamedTo(to) = &file.now {
            let to = to.clone();
            let moved = self.tools.load(key).await?.bytes;
            self.inherit_mode(key, &to).await?;
            self.look(&to).await?.now = Now::Contents(moved);
        }
        Ok(())
    }

    /// Permission bits for a file that is new: those of the one that it was made from.
    pub(super) async fn inherit_mode(&mut self, from: &Path, to: &Path) -> Result<(), FileToolError> {
        let (from, to) = (self.key(from).await?, self.key(to).await?);
        let source = self.look(&from).await?;
        let mode = match &source.before {
            Before::File { mode, .. } => Some(*mode),
            Before::Absent | Before::Link | Before::LinkToNothing => source.mode,
        };
        self.look(&to).await?.mode = mode;
        Ok(())
    }

    /// The file will be gone; of a link, the link.
    pub(super) async fn remove(&mut self, path: &Path) -> Result<(), FileToolError> {
        if !self.exists(path).await? {
            return Err(missing(path));
        }
        if let Now::RenamedFrom(source) = &self.look(path).await?.now {
            let source = source.clone();
            self.look(&source).await?.now = Now::Gone;
        }
        let file = self.look(path).await?;
        file.now = if matches!(file.before, Before::Absent) { Now::AsBefore } else { Now::Gone };
        Ok(())
    }

    /// The file will have another name, which nothing has.
    pub(super) async fn rename(&mut self, from: &Path, to: &Path) -> Result<(), FileToolError> {
        if !self.exists(from).await? {
            return Err(missing(from));
        }
        if from == to || self.exists(to).await? {
            let why =
                format!("{from:?} cannot get the name {to:?}, because there is a file already: remove that first");
            return Err(FileToolError::Conflict { why });
        }
        let untouched = matches!(self.look(from).await?.now, Now::AsBefore);
        let free = {
            let file = self.look(to).await?;
            matches!((&file.before, &file.now), (Before::Absent, Now::AsBefore))
        };
        if untouched && free {
            self.look(from).await?.now = Now::RenamedTo(to.to_owned());
            self.look(to).await?.now = Now::RenamedFrom(from.to_owned());
            return Ok(());
        }
        if untouched && matches!(self.look(from).await?.before, Before::LinkToNothing) {
            let why =
                format!("{from:?} is a link that leads nowhere: make the other changes of {to:?} in a call before");
            return Err(FileToolError::Conflict { why });
        }
        let contents = self.contents(from).await?.bytes;
        self.inherit_mode(from, to).await?;
        self.remove(from).await?;
        self.write(to, contents).await
    }

    /// Makes all of it real, or nothing. `None`: a file is not what was read any more.
    pub(super) async fn commit(self) -> Result<Option<ChangedFiles>, FileToolError> {
        let (changes, changed) = self.difference();
        let bytes: usize = changes.iter().map(new_bytes).sum();
        if changes.len() > MANY_FILES || bytes > MANY_BYTES {
            let what = format!(
                "{} files and {bytes} bytes at once are too many: at most {MANY_FILES} files and {MANY_BYTES} bytes; make \
                 several calls",
                changes.len()
            );
            return Err(FileToolError::BadRequest { what });
        }
        if changes.is_empty() {
            return Ok(Some(changed));
        }
        let set = ChangeSet { changes, make_directories: self.make_directories };
        match self.tools.files.change_set(set).await {
            Ok(()) => Ok(Some(changed)),
            Err(error) if matches!(error.reason, FileReason::Changed { .. }) => Ok(None),
            // It is told of the file that is renamed, which is there; what is not there is where it should go.
            Err(error) if error.is_not_found() => match self.files.get(&error.path).map(|file| &file.now) {
                Some(Now::RenamedTo(to)) => Err(FileError { path: to.clone(), ..error }.into()),
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn difference(&self) -> (Vec<FileChange>, ChangedFiles) {
        let (mut changes, mut changed) = (Vec::new(), ChangedFiles::default());
        for (path, file) in &self.files {
            let expect = file.expectation();
            let before = file.before.stamp();
            let (kind, after, action) = match &file.now {
                Now::AsBefore | Now::RenamedFrom(_) => continue,
                Now::Contents(bytes) => {
                    let after = FileStamp::of(bytes);
                    if before.is_some_and(|before| before.hash == after.hash) {
                        continue;
                    }
                    let kind = match before {
                        None => FileChangeKind::Added,
                        Some(_) => FileChangeKind::Modified,
                    };
                    let mode = file.mode.filter(|_| before.is_none());
                    (kind, Some(after), ChangeAction::Write { bytes: bytes.clone(), mode })
                }
                Now::Gone => (FileChangeKind::Removed, None, ChangeAction::Remove),
                Now::RenamedTo(to) => {
                    (FileChangeKind::Renamed { to: to.clone() }, None, ChangeAction::Rename { to: to.clone() })
                }
            };
            changes.push(FileChange { path: path.clone(), expect, action });
            changed.files.push(ChangedFile { path: path.clone(), kind, before, after });
        }
        (changes, changed)
    }
}

impl OverlayFile {
    fn expectation(&self) -> ExpectedFile {
        match (&self.before, &self.now) {
            (Before::File { stamp, .. }, _) => ExpectedFile::Content(stamp.hash),
            // Somebody may have made by now what the link leads to.
            (Before::Absent, _) | (Before::LinkToNothing, Now::Contents(_)) => ExpectedFile::Absent,
            (Before::Link | Before::LinkToNothing, _) => ExpectedFile::Anything,
        }
    }
}

impl Before {
    fn stamp(&self) -> Option<FileStamp> {
        match self {
            Self::File { stamp, .. } => Some(*stamp),
            Self::Absent | Self::Link | Self::LinkToNothing => None,
        }
    }
}

fn new_bytes(change: &FileChange) -> usize {
    match &change.action {
        ChangeAction::Write { bytes, .. } => bytes.len(),
        ChangeAction::Remove | ChangeAction::Rename { .. } => 0,
    }
}

fn missing(path: &Path) -> FileToolError {
    FileToolError::Changed { path: path.to_owned(), present: None }
}

/// Somebody else was faster [`CHANGE_ATTEMPTS`](super::limits::CHANGE_ATTEMPTS) times.
pub(super) fn always_changed() -> FileToolError {
    let why = "the files are changed by somebody else all the time, and were not touched: try again later";
    FileToolError::Conflict { why: why.to_owned() }
}
