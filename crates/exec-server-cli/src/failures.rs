//! Failures of file commands, explained to the user: which path, why, and what to do about it.
//!
//! One line per failure on stderr; with `--json` also one object on stdout, so that programs need not parse messages.

use std::ffi::OsStr;

use exec_env::files::{FileError, FileReason, FileVerb};
use libc::{
    EACCES, EBUSY, EDQUOT, EEXIST, EFBIG, EISDIR, ELOOP, ENOENT, ENOSPC, ENOSYS, ENOTDIR, ENOTEMPTY, EPERM, EROFS,
    ESTALE, EXDEV,
};
use serde::Serialize;

use crate::location::FilePath;
use crate::{exit_code, messages};

/// The failures of one command: printed as they come, and remembered for its exit code.
#[derive(Debug)]
pub(crate) struct Failures {
    json: bool,
    any: bool,
}

#[derive(Debug, Serialize)]
struct FailureJson<'a> {
    event: &'static str,
    reason: &'a str,
    message: &'a str,
}

impl Failures {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, any: false }
    }

    /// Reports an error at or below a path of the command line.
    pub(crate) fn report_file_error(&mut self, file: &FilePath, error: &FileError) -> anyhow::Result<()> {
        self.report(error.reason.name(), &describe(&file.display_path(&error.path), error))
    }

    /// Reports the [`FileError`] of an outcome. Other errors, such as that of a closed stdout, are returned.
    pub(crate) fn report_outcome(&mut self, file: &FilePath, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
        match outcome.map_err(|error| error.downcast::<FileError>()) {
            Ok(()) => Ok(()),
            Err(Ok(error)) => self.report_file_error(file, &error),
            Err(Err(other)) => Err(other),
        }
    }

    /// Reports a failure; `reason` is one word for programs.
    pub(crate) fn report(&mut self, reason: &str, message: &str) -> anyhow::Result<()> {
        self.any = true;
        messages::print_note(message);
        match self.json {
            true => messages::print_json(&FailureJson { event: "failed", reason, message }),
            false => Ok(()),
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        if self.any { exit_code::FAILED } else { 0 }
    }
}

pub(crate) fn describe(path: &OsStr, error: &FileError) -> String {
    format!("cannot {} {path:?}: {}", error.verb, explain(error))
}

/// The reason in words for which nobody needs a manual of the kernel.
fn explain(error: &FileError) -> String {
    let text = match (&error.reason, error.verb) {
        (FileReason::Os(ENOENT), FileVerb::CreateDirectory) => {
            "the folder it should be in does not exist: make that first, or say -p"
        }
        (FileReason::Os(ENOENT), FileVerb::Write | FileVerb::CreateSymlink) => {
            "the folder it should be in does not exist: make it with `exec-server fs mkdir -p`"
        }
        (FileReason::Os(ENOENT), _) => "no such file or directory",
        (FileReason::Os(EPERM | EACCES), _) => "permission denied to the account that works there",
        (FileReason::Os(EEXIST), _) => "there is something of that name already",
        (FileReason::Os(EXDEV), _) => {
            "the two are on different file systems: use `exec-server cp -r`, then `exec-server fs rm -r`"
        }
        (FileReason::Os(ENOTDIR), FileVerb::ReadDirectory) => "it is no directory",
        (FileReason::Os(ENOTDIR), _) => "a part of the path is a file, no directory",
        (FileReason::Os(EISDIR), _) => "it is a directory",
        (FileReason::Os(EBUSY), FileVerb::Remove) => "it is in use, as a root or a mount, and stays",
        (FileReason::Os(ENOTEMPTY), FileVerb::Remove) => {
            "the directory is not empty: say -r to remove it with everything in it"
        }
        (FileReason::Os(ENOTEMPTY), _) => "there is a directory of that name that is not empty",
        (FileReason::Os(ENOSPC), _) => "no space left on that file system",
        (FileReason::Os(EDQUOT), _) => "the account's quota there is used up",
        (FileReason::Os(EFBIG), FileVerb::Write | FileVerb::WriteBlock | FileVerb::Copy) => {
            "files may not become that large there: raise the limit (`ulimit -f`), or use another file system"
        }
        (FileReason::Os(EROFS), _) => "that file system is read-only",
        (FileReason::Os(ENOSYS), _) => "the server there does not know how: it needs a newer exec-server",
        (FileReason::Os(ESTALE), _) => "it became another file meanwhile: try again",
        (FileReason::Os(ELOOP), _) => "it is a symbolic link, or links lead in a circle",
        (FileReason::NotAFile | FileReason::NotRegular, _) => {
            "it is a directory, or a FIFO, socket or device, and no regular file"
        }
        (FileReason::RecursiveRequired, _) => "it is a directory: say -r to copy it with everything in it",
        (FileReason::CopyIntoItself, _) => "a directory cannot be copied into itself",
        (FileReason::CopyOntoItself, _) => "source and destination are the same file",
        (FileReason::CopySpecial, _) => "only files, directories and links can be copied",
        (FileReason::SymlinkInPath, _) => "there is a symbolic link in its path",
        (FileReason::TooManyEntries { .. }, _) => "the directory has more entries than can be listed at once",
        (FileReason::Changed { .. }, _) => "it changed meanwhile: try again",
        _ => return error.reason.to_string(),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_where_why_and_what_to_do() {
        let of = |verb, reason| describe(OsStr::new("far:/x"), &FileError::new(verb, "/x", reason));
        assert_eq!(of(FileVerb::Open, FileReason::Os(ENOENT)), "cannot open \"far:/x\": no such file or directory");
        assert_eq!(
            of(FileVerb::Remove, FileReason::Os(ENOTEMPTY)),
            "cannot remove \"far:/x\": the directory is not empty: say -r to remove it with everything in it"
        );
        let odd = FileReason::BadPattern { why: "unclosed group".to_owned() };
        assert_eq!(of(FileVerb::Search, odd), "cannot search \"far:/x\": bad pattern: unclosed group");
    }
}
