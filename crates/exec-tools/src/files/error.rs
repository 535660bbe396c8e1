//! How the tools fail, in sentences that a model can act on: what happened, and what to do next.

use std::fmt;
use std::path::PathBuf;

use exec_env::files::{ContentHash, FileError, FileReason, FileVerb};

use super::similar::SimilarPlace;

/// Why a tool did nothing. None of them leaves something half done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileToolError {
    /// The environment refused.
    Files(FileError),
    /// The path is empty.
    EmptyPath,
    /// A working directory is not absolute.
    RelativeDirectory {
        /// As it was given.
        path: PathBuf,
    },
    /// The request cannot be meant like this.
    BadRequest {
        /// Which, and what it may be.
        what: String,
    },
    /// A directory where a file is needed.
    IsDirectory {
        /// Where.
        path: PathBuf,
    },
    /// A FIFO, socket or device where a file is needed.
    NotAFile {
        /// Where.
        path: PathBuf,
    },
    /// There is a file already, and the request was to make a new one.
    Exists {
        /// Where.
        path: PathBuf,
        /// What it contains.
        present: ContentHash,
    },
    /// The file is not what the request was made for.
    Changed {
        /// Where.
        path: PathBuf,
        /// What it contains now; `None` if it is gone.
        present: Option<ContentHash>,
    },
    /// The contents, the file or the patch are larger than the tool takes.
    TooLarge {
        /// Where; empty for a patch.
        path: PathBuf,
        /// How large.
        size_bytes: u64,
        /// How large it may be.
        limit_bytes: u64,
    },
    /// The file is no text.
    Binary {
        /// Where.
        path: PathBuf,
    },
    /// The text to replace is empty.
    EmptyOld {
        /// Where.
        path: PathBuf,
    },
    /// The text to replace and its replacement are the same.
    SameText {
        /// Where.
        path: PathBuf,
    },
    /// The text to replace does not occur.
    NotFound {
        /// Where.
        path: PathBuf,
        /// What resembles it most, best first.
        similar: Vec<SimilarPlace>,
        /// The hash of the file that was looked through.
        hash: ContentHash,
        /// Some lines of the file end with CR LF and others do not, so that nobody sees which line break is meant.
        some_crlf: bool,
    },
    /// The text to replace does not occur as often as expected.
    WrongCount {
        /// Where.
        path: PathBuf,
        /// How often it should.
        expected: usize,
        /// How often it does.
        found: usize,
        /// The lines at which it begins; the first of them, if they are many.
        lines: Vec<u64>,
    },
    /// A patch cannot be read.
    BadPatch {
        /// The line of the patch, from 1; `None` if it is about the whole.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// The lines that a patch changes are not in the file.
    PatchMismatch {
        /// Where.
        path: PathBuf,
        /// The lines that were looked for.
        expected: String,
        /// What resembles them most, best first.
        similar: Vec<SimilarPlace>,
        /// They would be, but for the byte order mark that the file begins with.
        hidden_mark: bool,
    },
    /// The changes contradict each other.
    Conflict {
        /// How.
        why: String,
    },
    /// The file is no image that a model can be shown.
    NotAnImage {
        /// Where.
        path: PathBuf,
        /// What it is, as far as its first bytes tell.
        what: &'static str,
    },
}

impl std::error::Error for FileToolError {}

impl From<FileError> for FileToolError {
    fn from(error: FileError) -> Self {
        match error.reason {
            FileReason::Os(21) => Self::IsDirectory { path: error.path },
            FileReason::NotAFile | FileReason::NotRegular => Self::NotAFile { path: error.path },
            FileReason::Changed { present } => Self::Changed { path: error.path, present },
            _ => Self::Files(error),
        }
    }
}

impl fmt::Display for FileToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(error) => explain(f, error),
            Self::EmptyPath => write!(f, "the path is empty: give the path of a file or directory"),
            Self::RelativeDirectory { path } => {
                write!(f, "the working directory {path:?} is relative: give an absolute one")
            }
            Self::BadRequest { what } | Self::Conflict { why: what } => f.write_str(what),
            Self::IsDirectory { path } => {
                write!(f, "{path:?} is a directory: list it, or give the path of a file in it")
            }
            Self::NotAFile { path } => {
                write!(f, "{path:?} is a FIFO, socket or device, or a directory: this works on regular files only")
            }
            Self::Exists { path, present } => write!(
                f,
                "{path:?} exists already (hash {present}) and was not touched: read it first, then edit it, or write it \
                 with that hash as guard"
            ),
            Self::Changed { path, present: Some(present) } => write!(
                f,
                "{path:?} has changed since it was read (its hash is now {present}) and was not touched: read it again, \
                 then repeat the change on what is there now"
            ),
            Self::Changed { path, present: None } => {
                write!(f, "{path:?} does not exist (any more): look where it is, or write it as a new file")
            }
            Self::TooLarge { path, size_bytes, limit_bytes } => write!(
                f,
                "{path:?} has {size_bytes} bytes, and this takes at most {limit_bytes}: work on a part of it with a command"
            ),
            Self::Binary { path } => {
                write!(f, "{path:?} is no text (it has NUL bytes): use a command that knows its format")
            }
            Self::EmptyOld { path } => write!(
                f,
                "the text to replace in {path:?} is empty: give the exact text, or write the whole file instead"
            ),
            Self::SameText { path } => {
                write!(f, "the text to replace in {path:?} and its replacement are the same: nothing to do")
            }
            Self::NotFound { path, similar, some_crlf, .. } => {
                write!(f, "the text to replace does not occur in {path:?}, exactly, with its spaces and line breaks")?;
                write_similar(f, similar)?;
                match some_crlf {
                    true => write!(
                        f,
                        " (some of its lines end with CR LF: replace text within one line, or write \\r\\n there)"
                    ),
                    false => Ok(()),
                }
            }
            Self::WrongCount { path, expected, found, lines } => {
                write!(f, "the text to replace occurs {found} times in {path:?}, not {expected}, at lines ")?;
                let numbers: Vec<String> = lines.iter().map(u64::to_string).collect();
                f.write_str(&numbers.join(", "))?;
                if *found > lines.len() {
                    write!(f, " and {} more", found - lines.len())?;
                }
                write!(f, ": add lines around it to make it unique, or expect {found}, or replace all")
            }
            Self::BadPatch { line: Some(line), why } => write!(f, "the patch cannot be read, line {line}: {why}"),
            Self::BadPatch { line: None, why } => write!(f, "the patch cannot be read: {why}"),
            Self::PatchMismatch { path, expected, similar, hidden_mark } => {
                write!(f, "no change was made: these lines of the patch are not in {path:?}:\n{expected}")?;
                match hidden_mark {
                    true => write!(
                        f,
                        "\nthe file begins with a byte order mark (U+FEFF), which belongs to its first line: edit a text \
                         within that line, or begin the line with the mark in the patch, too"
                    ),
                    false => write_similar(f, similar),
                }
            }
            Self::NotAnImage { path, what } => write!(
                f,
                "{path:?} is {what}, no image that can be shown: PNG, JPEG, GIF and WebP can, whatever the name ends with"
            ),
        }
    }
}

fn write_similar(f: &mut fmt::Formatter<'_>, similar: &[SimilarPlace]) -> fmt::Result {
    if similar.is_empty() {
        return write!(f, "; nothing there resembles it: read the file, or search for a part of it");
    }
    write!(f, "\nmost similar there:")?;
    for place in similar {
        for (number, line) in (place.line..).zip(&place.text) {
            write!(f, "\n{number:>6}\t{line}")?;
        }
        write!(f, "\n     --")?;
    }
    write!(f, "\ncopy the text exactly from there, or read the file again")
}

/// The usual refusals of a kernel, with what to do about them.
fn explain(f: &mut fmt::Formatter<'_>, error: &FileError) -> fmt::Result {
    let path = &error.path;
    match &error.reason {
        FileReason::Os(2) => match error.verb {
            FileVerb::Write | FileVerb::ChangeSet => write!(
                f,
                "the directory of {path:?} does not exist: check the path, or ask for missing directories to be made"
            ),
            _ => write!(f, "{path:?} does not exist: check the path, or list its directory"),
        },
        FileReason::Os(1 | 13) => write!(
            f,
            "permission denied: {} {path:?} is not allowed here: use another place, or ask the user",
            error.verb
        ),
        FileReason::Os(30) => {
            write!(f, "{path:?} may only be read here: write below a writable directory, or ask the user")
        }
        FileReason::Os(20) => write!(f, "a part of {path:?} is a file, not a directory: check the path"),
        FileReason::Os(28 | 122) => write!(f, "cannot {} {path:?}: the disk is full: free some space", error.verb),
        FileReason::Os(40) | FileReason::SymlinkInPath => {
            write!(f, "{path:?} leads through symbolic links in a circle, or one was just put there: look at it again")
        }
        FileReason::BadPattern { why } => write!(f, "the pattern cannot be read: {why}"),
        _ => write!(f, "{error}"),
    }
}
