//! The part of [`convert`](super) that speaks of files and HTTP.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use exec_env::files::search::CaseSensitivity;
use exec_env::files::{
    Change, Copied, DirectoryEntry, FileError, FileKind, SearchLine, FileLines, Metadata, Pattern, FileReason, SearchQuery,
    SearchSummary, FileVerb, WalkListing, WalkEntry, WalkKind, WalkOptions,
};
use exec_env::http;
use exec_wire::PathUri;
use exec_wire::base64::Base64;
use exec_wire::fs as wire;
use exec_wire::http as wire_http;

use super::millis;
use crate::error;

pub(crate) fn metadata(found: &wire::GetMetadataResult) -> Metadata {
    let told = match found.kind {
        Some(wire::FileKind::File) => FileKind::File,
        Some(wire::FileKind::Directory) => FileKind::Directory,
        Some(wire::FileKind::Symlink) => FileKind::Symlink,
        Some(wire::FileKind::Special) => FileKind::Special,
        None => kind(found.is_directory, found.is_file, false),
    };
    let exact = |ns: Option<i64>, ms: i64| time(ns.unwrap_or_else(|| ms.saturating_mul(1_000_000)));
    let modified = exact(found.modified_ns, found.modified_at_ms);
    let created = match (found.created_ns, found.created_at_ms) {
        (Some(ns), _) => Some(time(ns)),
        (None, 0) => None,
        // Ours leaves it out where the file system does not know it.
        (None, _) if found.kind.is_some() => None,
        (None, ms) => Some(exact(None, ms)),
    };
    Metadata {
        kind: told,
        is_symlink: found.is_symlink,
        size_bytes: found.size,
        created,
        modified,
        accessed: found.accessed_ns.map_or(modified, time),
        changed: found.changed_ns.map_or(modified, time),
        mode: found.mode.unwrap_or(0),
        uid: found.uid.unwrap_or(0),
        gid: found.gid.unwrap_or(0),
        inode: found.inode.unwrap_or(0),
        device: found.device.unwrap_or(0),
        nlink: found.nlink.unwrap_or(0),
    }
}

fn kind(is_directory: bool, is_file: bool, is_symlink: bool) -> FileKind {
    match (is_directory, is_file, is_symlink) {
        (true, _, _) => FileKind::Directory,
        (_, true, _) => FileKind::File,
        // A link to neither: one that leads nowhere, most likely.
        (_, _, true) => FileKind::Symlink,
        _ => FileKind::Special,
    }
}

fn time(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    let time = if ns < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
    time.unwrap_or(UNIX_EPOCH)
}

/// Since 1970; earlier times are negative. Two hundred and ninety years fit on either side.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanoseconds| -nanoseconds),
    }
}

pub(crate) fn directory_entry(entry: wire::DirectoryEntry) -> DirectoryEntry {
    let exact = entry.path.as_ref().and_then(|path| path.to_path().ok());
    let is_symlink = entry.is_symlink.unwrap_or(false);
    DirectoryEntry {
        name: exact.and_then(|path| path.file_name().map(Into::into)).unwrap_or_else(|| entry.file_name.into()),
        kind: kind(entry.is_directory, entry.is_file, is_symlink),
        is_symlink,
    }
}

pub(crate) fn walk_options(options: WalkOptions) -> wire::WalkOptions {
    wire::WalkOptions {
        max_depth: options.max_depth,
        max_directories: options.max_directories,
        max_entries: options.max_entries,
        follow_directory_symlinks: options.follow_directory_symlinks,
        prune_hidden_directories: options.prune_hidden_directories,
    }
}

pub(crate) fn walk(walk: wire::WalkResult) -> WalkListing {
    let entry = |entry: wire::WalkEntry| {
        let kind = match entry.kind {
            wire::WalkEntryKind::File => WalkKind::File,
            wire::WalkEntryKind::Directory => WalkKind::Directory,
        };
        Some(WalkEntry { path: entry.path.to_path().ok()?, kind, is_symlink: entry.is_symlink })
    };
    WalkListing {
        entries: walk.entries.into_iter().filter_map(entry).collect(),
        errors: walk.errors.into_iter().map(|problem_told| problem(FileVerb::Walk, problem_told)).collect(),
        truncated: walk.truncated,
    }
}

fn problem(verb: FileVerb, problem: wire::PathProblem) -> FileError {
    let reason = problem.data.as_ref().and_then(error::reason_of);
    let reason = reason.unwrap_or(FileReason::Unreachable { why: problem.message });
    FileError::new(verb, problem.path.to_path().unwrap_or_default(), reason)
}

pub(crate) fn copied(copied: wire::Copied) -> Copied {
    Copied {
        files: copied.files,
        directories: copied.directories,
        symlinks: copied.symlinks,
        bytes: copied.bytes,
        skipped: copied.skipped,
    }
}

pub(crate) fn changes(changed: wire::ChangedParams) -> (Vec<Change>, Option<PathBuf>) {
    let native = |path: PathUri| path.to_path().ok();
    let changes = changed.changes.into_iter().filter_map(|change| {
        Some(match change {
            wire::Change::Created { path } => Change::Created(native(path)?),
            wire::Change::Modified { path } => Change::Modified(native(path)?),
            wire::Change::Removed { path } => Change::Removed(native(path)?),
            wire::Change::Renamed { from, to } => Change::Renamed { from: native(from)?, to: native(to)? },
        })
    });
    (changes.collect(), changed.overflow.and_then(native))
}

pub(crate) fn search_params(
    search_id: String,
    path: PathUri,
    query: &SearchQuery,
    after: Option<wire::SearchPlace>,
) -> wire::SearchParams {
    wire::SearchParams {
        search_id,
        path,
        pattern: match &query.pattern {
            Pattern::Regex(regex) => wire::SearchPattern::Regex(regex.clone()),
            Pattern::Literal(text) => wire::SearchPattern::Literal(text.clone()),
        },
        case: match query.case {
            CaseSensitivity::Sensitive => wire::SearchCase::Sensitive,
            CaseSensitivity::Insensitive => wire::SearchCase::Insensitive,
            CaseSensitivity::Smart => wire::SearchCase::Smart,
        },
        word: query.word,
        globs: query.globs.clone(),
        ignore_files: Some(query.ignore_files),
        hidden: query.hidden,
        follow_symlinks: query.follow_symlinks,
        before_lines: query.before_lines,
        after_lines: query.after_lines,
        max_matches: Some(query.max_matches),
        max_matches_per_file: query.max_matches_per_file,
        max_file_bytes: query.max_file_bytes,
        max_line_bytes: Some(query.max_line_bytes),
        after,
        sandbox: None,
    }
}

pub(crate) fn found_lines(found: wire::FoundLines) -> Option<FileLines> {
    let line = |line: wire::FoundLine| SearchLine {
        number: line.number,
        offset: line.offset,
        text: line.text.0.into_vec().into(),
        cut: line.cut,
        spans: line.spans,
    };
    Some(FileLines { path: found.path.to_path().ok()?, lines: found.lines.into_iter().map(line).collect() })
}

pub(crate) fn search_summary(summary: wire::SearchSummary) -> SearchSummary {
    SearchSummary {
        files: summary.files,
        files_matched: summary.files_matched,
        matches: summary.matches,
        truncated: summary.truncated,
        problems: summary.problems.into_iter().map(|told| problem(FileVerb::Search, told)).collect(),
        problem_count: summary.problem_count,
    }
}

pub(crate) fn http_params(request: http::HttpRequest, request_id: String) -> wire_http::RequestParams {
    let header = |header: http::RequestHeader| wire_http::Header {
        name: header.name,
        value: header.value,
        value_env_var: header.value_env_var,
    };
    wire_http::RequestParams {
        method: request.method,
        url: request.url,
        headers: request.headers.into_iter().map(header).collect(),
        body_base64: request.body.map(Base64),
        timeout_ms: request.timeout.and_then(millis),
        redirect_policy: match request.redirects {
            http::Redirects::Follow => wire_http::RedirectPolicy::Follow,
            http::Redirects::Stop => wire_http::RedirectPolicy::Stop,
        },
        request_id,
        stream_response: true,
    }
}
