//! The sentences of Codex's server, which clients compare: of the kernel's refusals, of files and of HTTP.
//!
//! The environment has words of its own, for people. What Codex's server has no sentence for, its words say here, too.

use exec_env::files::{FileError, FileReason, limits};
use exec_env::http::HttpError;
use exec_wire::error::errno_text;

pub(super) const SANDBOX_UNAVAILABLE: &str = "sandbox intent cannot be enforced on this executor";

/// What to do about a listing that is too large. Codex's server has no pages, and does not say it.
pub(super) const READ_IN_PAGES: &str = "read it in pages (maxEntries, and nextCursor as the next cursor)";

pub(super) fn file_error(error: &FileError) -> String {
    let block = limits::BLOCK_BYTES;
    let sentence = match &error.reason {
        FileReason::Os(number) => return errno_text(*number),
        FileReason::NotAFile => return format!("path `{}` is not a file", error.path.display()),
        FileReason::TooLarge { limit_bytes } => {
            return format!("file is too large to read: limit is {limit_bytes} bytes");
        }
        FileReason::TooManyEntries { found } => {
            let limit = limits::DIRECTORY_ENTRIES;
            return format!("fs/readDirectory returned {found} entries; limit is {limit}: {READ_IN_PAGES}");
        }
        FileReason::WalkLimitsTooLarge => {
            return format!(
                "filesystem walk limits exceed maximums: depth={}, directories={}, entries={}",
                limits::WALK_DEPTH,
                limits::WALK_DIRECTORIES,
                limits::WALK_ENTRIES
            );
        }
        FileReason::ReadBlockLength => return format!("file read block length must be between 1 and {block}"),
        FileReason::WriteBlockLength => return format!("file write block length must be between 1 and {block}"),
        FileReason::Changed { .. } => return format!("file {}", error.reason.to_string().trim_start_matches("it ")),
        FileReason::NotRegular => "path is not a regular file",
        FileReason::SymlinkInPath => "path contains a symbolic link",
        FileReason::RecursiveNoFollow => "recursive no-follow removal is unsupported",
        FileReason::RecursiveRequired => "fs/copy requires recursive: true when sourcePath is a directory",
        FileReason::CopyIntoItself => "fs/copy cannot copy a directory to itself or one of its descendants",
        FileReason::CopyOntoItself => "fs/copy cannot copy a file onto itself",
        FileReason::CopySpecial => "fs/copy only supports regular files, directories, and symlinks",
        FileReason::WalkLimitsZero => "filesystem walk limits must be greater than zero",
        FileReason::WriteRange => "file write range exceeds the signed 64-bit file offset limit",
        FileReason::LineTooLong { .. }
        | FileReason::BinaryBehind { .. }
        | FileReason::WatchLimit(_)
        | FileReason::TooManyOpenFiles { .. }
        | FileReason::BadPattern { .. }
        | FileReason::Forbidden { .. }
        | FileReason::UserUnavailable { .. }
        | FileReason::Unsupported { .. }
        | FileReason::Unreachable { .. } => return error.reason.to_string(),
    };
    sentence.to_owned()
}

pub(super) fn http_error(error: &HttpError) -> String {
    match error {
        HttpError::BadMethod { why } => format!("http/request method is invalid: {why}"),
        HttpError::BadUrl { why } => format!("http/request url is invalid: {why}"),
        HttpError::BadScheme { scheme } => format!("http/request only supports http and https URLs, got {scheme}"),
        HttpError::BadHeaderName { why } => format!("http/request header name is invalid: {why}"),
        HttpError::BadHeaderValue { name, why } => format!("http/request header value is invalid for {name}: {why}"),
        HttpError::VariableMissing { name, variable } => {
            format!("http/request header {name} requires executor environment variable {variable}")
        }
        HttpError::VariableEmpty { name, variable } => {
            format!("http/request header {name} requires a non-empty executor environment variable {variable}")
        }
        HttpError::VariableRefused { name, variable } => {
            format!("http/request header {name} cannot use executor environment variable {variable}")
        }
        HttpError::Body { why } => format!("failed to read http/request response body: {why}"),
        HttpError::Unreachable(unreachable) => unreachable.to_string(),
        failed => format!("http/request failed: {}", http_failure(failed)),
    }
}

/// Why a request has no response, without saying that it failed.
pub(super) fn http_failure(error: &HttpError) -> String {
    match error {
        HttpError::NoTimeLeft => "route-aware request timed out".to_owned(),
        HttpError::TooManyRedirects => "too many redirects".to_owned(),
        HttpError::RedirectedTo { scheme } => format!("redirect target uses unsupported URL scheme: {scheme}"),
        HttpError::TimedOut { why } | HttpError::Failed { why, .. } => why.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use exec_env::files::{ContentHash, FileVerb};

    use super::*;

    #[test]
    fn sentences_about_files_are_those_that_clients_know() {
        let hash = ContentHash([7; 32].into());
        for (reason, sentence) in [
            (FileReason::NotAFile, "path `/w/x` is not a file"),
            (FileReason::NotRegular, "path is not a regular file"),
            (FileReason::TooLarge { limit_bytes: 7 }, "file is too large to read: limit is 7 bytes"),
            (FileReason::SymlinkInPath, "path contains a symbolic link"),
            (FileReason::RecursiveNoFollow, "recursive no-follow removal is unsupported"),
            (FileReason::RecursiveRequired, "fs/copy requires recursive: true when sourcePath is a directory"),
            (FileReason::CopyIntoItself, "fs/copy cannot copy a directory to itself or one of its descendants"),
            (FileReason::CopyOntoItself, "fs/copy cannot copy a file onto itself"),
            (FileReason::CopySpecial, "fs/copy only supports regular files, directories, and symlinks"),
            (
                FileReason::TooManyEntries { found: 50_002 },
                "fs/readDirectory returned 50002 entries; limit is 50000: read it in pages (maxEntries, and nextCursor as \
                 the next cursor)",
            ),
            (
                FileReason::WalkLimitsTooLarge,
                "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000",
            ),
            (FileReason::WalkLimitsZero, "filesystem walk limits must be greater than zero"),
            (FileReason::ReadBlockLength, "file read block length must be between 1 and 1048576"),
            (FileReason::WriteBlockLength, "file write block length must be between 1 and 1048576"),
            (FileReason::WriteRange, "file write range exceeds the signed 64-bit file offset limit"),
            (FileReason::Changed { present: None }, "file is not what was expected: it does not exist; look again"),
            (
                FileReason::Changed { present: Some(hash) },
                "file is not what was expected: its content hash is \
                 0707070707070707070707070707070707070707070707070707070707070707; read it again",
            ),
            (FileReason::BadPattern { why: "why".into() }, "bad pattern: why"),
            (FileReason::Unsupported { why: "why".into() }, "why"),
            (FileReason::Unreachable { why: "why".into() }, "the environment cannot be reached: why"),
        ] {
            assert_eq!(file_error(&FileError::new(FileVerb::Copy, "/w/x", reason)), sentence);
        }
    }

    #[test]
    fn sentences_about_http_are_those_that_clients_know() {
        let (why, name, variable) = (|| "why".to_owned(), || "name".to_owned(), || "V".to_owned());
        for (error, sentence) in [
            (HttpError::BadMethod { why: why() }, "http/request method is invalid: why"),
            (HttpError::BadUrl { why: why() }, "http/request url is invalid: why"),
            (HttpError::BadScheme { scheme: "ftp".into() }, "http/request only supports http and https URLs, got ftp"),
            (HttpError::BadHeaderName { why: why() }, "http/request header name is invalid: why"),
            (
                HttpError::BadHeaderValue { name: name(), why: why() },
                "http/request header value is invalid for name: why",
            ),
            (
                HttpError::VariableMissing { name: name(), variable: variable() },
                "http/request header name requires executor environment variable V",
            ),
            (
                HttpError::VariableEmpty { name: name(), variable: variable() },
                "http/request header name requires a non-empty executor environment variable V",
            ),
            (
                HttpError::VariableRefused { name: name(), variable: variable() },
                "http/request header name cannot use executor environment variable V",
            ),
            (HttpError::TimedOut { why: why() }, "http/request failed: why"),
            (HttpError::NoTimeLeft, "http/request failed: route-aware request timed out"),
            (HttpError::TooManyRedirects, "http/request failed: too many redirects"),
            (
                HttpError::RedirectedTo { scheme: "ftp".into() },
                "http/request failed: redirect target uses unsupported URL scheme: ftp",
            ),
            (HttpError::Failed { why: why(), causes: "because".into() }, "http/request failed: why"),
            (HttpError::Body { why: why() }, "failed to read http/request response body: why"),
        ] {
            assert_eq!(http_error(&error), sentence);
        }
    }
}
