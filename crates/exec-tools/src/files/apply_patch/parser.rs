//! Reads a patch in Codex's format.
//!
//! ```text
//! *** Begin Patch
//! *** Environment ID: ID           at most once, right behind the beginning
//! *** Add File: PATH
//! +LINE
//! *** Delete File: PATH
//! *** Update File: PATH
//! *** Move to: PATH
//! @@ LINE BEFORE                   or @@ alone; may be missing before the first chunk
//!  CONTEXT
//! -OLD
//! +NEW
//! *** End of File
//! *** End Patch
//! ```
//!
//! As lenient as Codex's: space around the markers, a here-document around the whole, lines that end with CR LF.

use std::path::PathBuf;

use super::super::FileToolError;

/// A patch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// The environment that it is for, if it says so.
    pub environment_id: Option<String>,
    /// At least one.
    pub hunks: Vec<Hunk>,
}

/// What happens to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hunk {
    /// A file with these contents, whether there was one or not.
    #[allow(missing_docs, reason = "their names say it")]
    Add { path: PathBuf, contents: String },
    /// No such file any more.
    #[allow(missing_docs, reason = "its name says it")]
    Delete { path: PathBuf },
    /// Other lines, and perhaps another name.
    #[allow(missing_docs, reason = "their names say it")]
    Update { path: PathBuf, move_to: Option<PathBuf>, chunks: Vec<Chunk> },
}

/// Lines that follow each other in a file, and what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// A line somewhere before them.
    pub after: Option<String>,
    /// The lines.
    pub lines: Vec<ChunkLine>,
    /// They are the last ones of the file.
    pub at_end: bool,
}

/// A line of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkLine {
    /// It stays.
    Context(String),
    /// It goes.
    Old(String),
    /// It comes.
    New(String),
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ENVIRONMENT: &str = "*** Environment ID:";
const END_OF_FILE: &str = "*** End of File";

impl Patch {
    /// Reads a patch.
    pub fn parse(text: &str) -> Result<Self, FileToolError> {
        let lines: Vec<&str> = text.trim().lines().collect();
        let lines = without_here_document(&lines);
        let whole = |why: &str| FileToolError::BadPatch { line: None, why: why.to_owned() };
        if lines.first().is_none_or(|line| line.trim() != BEGIN) {
            return Err(whole("its first line must be '*** Begin Patch'"));
        }
        if lines.len() < 2 || lines.last().is_none_or(|line| line.trim() != END) {
            return Err(whole("its last line must be '*** End Patch'"));
        }
        let mut reader = Reader { lines: &lines[1..lines.len() - 1], at: 0 };
        let environment_id = reader.environment_id()?;
        let mut hunks = Vec::new();
        while let Some(line) = reader.peek() {
            if line.trim() == END {
                // Only the same may follow.
                if reader.lines[reader.at..].iter().any(|line| line.trim() != END) {
                    return Err(whole("its last line must be '*** End Patch'"));
                }
                break;
            }
            hunks.push(reader.hunk()?);
        }
        if hunks.is_empty() {
            return Err(whole("it changes no file"));
        }
        Ok(Self { environment_id, hunks })
    }
}

/// What is between `<<EOF` and `EOF`, if that is around all of it.
fn without_here_document<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    match lines {
        ["<<EOF" | "<<'EOF'" | "<<\"EOF\"", inner @ .., last] if last.ends_with("EOF") && lines.len() >= 4 => inner,
        _ => lines,
    }
}

/// The lines between the first and the last.
struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    /// About the next line; the first line of the patch is 1.
    fn error(&self, why: impl Into<String>) -> FileToolError {
        FileToolError::BadPatch { line: Some(self.at + 2), why: why.into() }
    }

    fn environment_id(&mut self) -> Result<Option<String>, FileToolError> {
        let Some(id) = self.peek().and_then(|line| line.trim().strip_prefix(ENVIRONMENT)) else { return Ok(None) };
        if id.trim().is_empty() {
            return Err(self.error("the environment id is empty"));
        }
        self.at += 1;
        if self.peek().is_some_and(|line| line.trim().starts_with(ENVIRONMENT)) {
            return Err(self.error("there is a second environment id"));
        }
        Ok(Some(id.trim().to_owned()))
    }

    fn hunk(&mut self) -> Result<Hunk, FileToolError> {
        let header = self.peek().unwrap_or_default().trim();
        if let Some(path) = header.strip_prefix("*** Add File: ") {
            self.at += 1;
            let mut contents = String::new();
            while let Some(line) = self.peek().and_then(|line| line.strip_prefix('+')) {
                contents.push_str(line);
                contents.push('\n');
                self.at += 1;
            }
            return Ok(Hunk::Add { path: path.into(), contents });
        }
        if let Some(path) = header.strip_prefix("*** Delete File: ") {
            self.at += 1;
            return Ok(Hunk::Delete { path: path.into() });
        }
        let Some(path) = header.strip_prefix("*** Update File: ") else {
            return Err(self.error(format!(
                "'{header}' does not begin a part: it must be '*** Add File: PATH', '*** Delete File: PATH' or \
                 '*** Update File: PATH'"
            )));
        };
        self.update(path)
    }

    fn update(&mut self, path: &str) -> Result<Hunk, FileToolError> {
        let header = self.at;
        self.at += 1;
        let move_to = self.peek().and_then(|line| line.strip_prefix("*** Move to: ")).map(PathBuf::from);
        self.at += usize::from(move_to.is_some());
        let mut chunks = Vec::new();
        while let Some(line) = self.peek() {
            if line.is_empty() {
                self.at += 1;
                continue;
            }
            if line.starts_with("***") {
                break;
            }
            chunks.push(self.chunk(chunks.is_empty())?);
        }
        if chunks.is_empty() {
            self.at = header;
            return Err(self.error(format!("the update of '{path}' has no lines")));
        }
        Ok(Hunk::Update { path: path.into(), move_to, chunks })
    }

    fn chunk(&mut self, is_first: bool) -> Result<Chunk, FileToolError> {
        let mut chunk = Chunk::default();
        let line = self.peek().unwrap_or_default();
        if line.trim_end() == "@@" {
            self.at += 1;
        } else if let Some(after) = line.strip_prefix("@@ ") {
            chunk.after = Some(after.to_owned());
            self.at += 1;
        } else if !is_first {
            return Err(self.error(format!("lines of an update begin with '@@', ' ', '+' or '-', not '{line}'")));
        }
        while let Some(line) = self.peek() {
            if line == END_OF_FILE && !chunk.lines.is_empty() {
                chunk.at_end = true;
                self.at += 1;
                break;
            }
            let mut letters = line.chars();
            let parsed = match letters.next() {
                None => ChunkLine::Context(String::new()),
                Some(' ') => ChunkLine::Context(letters.as_str().to_owned()),
                Some('-') => ChunkLine::Old(letters.as_str().to_owned()),
                Some('+') => ChunkLine::New(letters.as_str().to_owned()),
                Some(_) => break,
            };
            chunk.lines.push(parsed);
            self.at += 1;
        }
        if chunk.lines.is_empty() {
            return Err(self.error("a chunk has no lines: each begins with ' ', '+' or '-'"));
        }
        Ok(chunk)
    }
}
