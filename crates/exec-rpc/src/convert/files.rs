//! The part of [`convert`](super) for files and HTTP.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use exec_env::files::search::CaseSensitivity;
use exec_env::files::{
    Change, ChangeBatch, Copied, DirectoryEntry, DirectoryPage, FileError, FileKind, FileLines, FileTimes, GlobMatches,
    GlobQuery, LinkPolicy, Metadata, OpenMode, Pattern, SearchQuery, SearchSummary, WalkEntry, WalkItem, WalkKind,
    WalkListing, WalkOptions, WalkPage, WalkPosition, limits,
};
use exec_env::http;
use exec_wire::base64::Base64;
use exec_wire::fs::{self as wire, nanoseconds_of, time_of};
use exec_wire::http as wire_http;
use exec_wire::limits::{MESSAGE_BYTES, MESSAGE_VALUES, WALK_REPLY_BYTES};
use exec_wire::path_uri::ForeignPath;
use exec_wire::text::OsText;

use super::{root, uri};
use crate::limits::{FOUND_VALUES, LISTING_BYTES, WALK_ENTRY_BYTES};
use crate::reply;

pub(crate) fn links(follow: Option<bool>) -> LinkPolicy {
    match follow {
        Some(false) => LinkPolicy::Refuse,
        Some(true) | None => LinkPolicy::Follow,
    }
}

pub(crate) fn open_mode(mode: wire::OpenMode) -> OpenMode {
    match mode {
        wire::OpenMode::Read => OpenMode::Read,
        wire::OpenMode::Replace => OpenMode::Replace,
        wire::OpenMode::Append => OpenMode::Append,
    }
}

pub(crate) fn metadata(found: &Metadata) -> wire::GetMetadataResult {
    wire::GetMetadataResult {
        is_directory: found.kind == FileKind::Directory,
        is_file: found.kind == FileKind::File,
        is_symlink: found.is_symlink,
        size: found.size_bytes,
        created_at_ms: found.created.map_or(0, |time| nanoseconds_of(time) / 1_000_000),
        modified_at_ms: nanoseconds_of(found.modified) / 1_000_000,
        kind: Some(kind(found.kind)),
        mode: Some(found.mode),
        uid: Some(found.uid),
        gid: Some(found.gid),
        inode: Some(found.inode),
        device: Some(found.device),
        nlink: Some(found.nlink),
        created_ns: found.created.map(nanoseconds_of),
        modified_ns: Some(nanoseconds_of(found.modified)),
        accessed_ns: Some(nanoseconds_of(found.accessed)),
        changed_ns: Some(nanoseconds_of(found.changed)),
    }
}

fn kind(kind: FileKind) -> wire::FileKind {
    match kind {
        FileKind::File => wire::FileKind::File,
        FileKind::Directory => wire::FileKind::Directory,
        FileKind::Symlink => wire::FileKind::Symlink,
        FileKind::Special => wire::FileKind::Special,
    }
}

pub(crate) fn times(accessed_ns: i64, modified_ns: i64) -> FileTimes {
    FileTimes { accessed: time_of(accessed_ns), modified: time_of(modified_ns) }
}

/// An entry as Codex's server reports it, and what that leaves out: the path byte for byte, and whether it is a symlink,
/// even one whose target does not exist.
fn directory_entry(parent: &Path, entry: DirectoryEntry) -> wire::DirectoryEntry {
    wire::DirectoryEntry {
        path: uri(&parent.join(&entry.name)),
        file_name: entry.name.to_string_lossy().into_owned(),
        is_directory: entry.kind == FileKind::Directory,
        is_file: entry.kind == FileKind::File,
        is_symlink: Some(entry.is_symlink),
    }
}

/// A whole directory, or `None` if that does not fit a message. Where the values would be too many, what is ours is left out.
pub(crate) fn whole_listing(parent: &Path, entries: Vec<DirectoryEntry>) -> Option<wire::ReadDirectoryResult> {
    let is_plain = ENVELOPE_VALUES + entries.len() * DIRECTORY_ENTRY_VALUES > MESSAGE_VALUES;
    let mut result = wire::ReadDirectoryResult { entries: Vec::with_capacity(entries.len()), next_cursor: None };
    let mut bytes = 0;
    for entry in entries {
        let mut entry = directory_entry(parent, entry);
        if is_plain {
            (entry.path, entry.is_symlink) = (None, None);
        }
        bytes += entry_bytes(&entry);
        if bytes > MESSAGE_BYTES {
            return None;
        }
        result.entries.push(entry);
    }
    Some(result)
}

/// A page of a directory, or as much of it as it may have in bytes.
pub(crate) fn directory_page(parent: &Path, page: DirectoryPage) -> wire::ReadDirectoryResult {
    let mut result = wire::ReadDirectoryResult { entries: Vec::new(), next_cursor: None };
    let (mut bytes, mut last): (usize, Option<OsString>) = (0, None);
    let cursor = |name: OsString| Some(name.into_vec().into());
    for entry in page.entries {
        let name = entry.name.clone();
        let entry = directory_entry(parent, entry);
        bytes += entry_bytes(&entry);
        if bytes > LISTING_BYTES
            && let Some(last) = last
        {
            result.next_cursor = cursor(last);
            return result;
        }
        last = Some(name);
        result.entries.push(entry);
    }
    result.next_cursor = page.next.and_then(cursor);
    result
}

/// What an entry takes in a message, or a little more.
fn entry_bytes(entry: &wire::DirectoryEntry) -> usize {
    // The name may have characters that JSON escapes; a URI has none.
    let names = entry.file_name.len() * 6 + entry.path.as_ref().map_or(0, |path| path.as_str().len());
    names + DIRECTORY_ENTRY_BYTES
}

/// What an entry of a directory takes beside its two names.
const DIRECTORY_ENTRY_BYTES: usize = 96;

// JSON values: an object and its members.
const ENVELOPE_VALUES: usize = 8;
const DIRECTORY_ENTRY_VALUES: usize = 6;
const WALK_ENTRY_VALUES: usize = 4;
const WALK_ERROR_VALUES: usize = 9;
const FOUND_LINE_VALUES: usize = 8;
const SPAN_VALUES: usize = 3;

pub(crate) fn walk_options(options: wire::WalkOptions) -> WalkOptions {
    WalkOptions {
        max_depth: options.max_depth,
        max_directories: options.max_directories,
        max_entries: options.max_entries,
        follow_directory_symlinks: options.follow_directory_symlinks,
        prune_hidden_directories: options.prune_hidden_directories,
    }
}

/// No more of a walk than fits.
pub(crate) fn walk(walk: WalkListing) -> wire::WalkResult {
    let (mut result, cut) = walk_items(walk.items);
    result.truncated = walk.truncated || cut.is_some();
    result
}

pub(crate) fn walk_page(page: WalkPage) -> wire::WalkResult {
    let (mut result, cut) = walk_items(page.items);
    let next = cut.or(page.next);
    result.truncated = next.is_some();
    result.next_cursor = next.as_ref().map(walk_cursor);
    result
}

/// As many items as fit [`WALK_REPLY_BYTES`], where each counts its URI and [`WALK_ENTRY_BYTES`], and [`MESSAGE_VALUES`]; and
/// the position of the last of them, if others are left.
fn walk_items(items: Vec<WalkItem>) -> (wire::WalkResult, Option<WalkPosition>) {
    let mut result = wire::WalkResult { entries: Vec::new(), errors: Vec::new(), truncated: false, next_cursor: None };
    let (mut uri_bytes, mut values) = (0, ENVELOPE_VALUES);
    let mut last = None;
    for item in items {
        let Some(path) = uri(item.path()) else { continue };
        uri_bytes += path.as_str().len() + WALK_ENTRY_BYTES;
        values += match &item {
            WalkItem::Entry(_) => WALK_ENTRY_VALUES,
            WalkItem::Unreadable(_) => WALK_ERROR_VALUES,
        };
        if uri_bytes > WALK_REPLY_BYTES || values > MESSAGE_VALUES {
            return (result, last);
        }
        last = Some(item.position());
        match item {
            WalkItem::Entry(WalkEntry { kind, is_symlink, .. }) => {
                let kind = match kind {
                    WalkKind::File => wire::WalkEntryKind::File,
                    WalkKind::Directory => wire::WalkEntryKind::Directory,
                };
                result.entries.push(wire::WalkEntry { path, kind, is_symlink });
            }
            WalkItem::Unreadable(error) => result.errors.push(problem(&error)),
        }
    }
    (result, None)
}

/// A position as a cursor: whether what is below the path is done, and the path.
fn walk_cursor(position: &WalkPosition) -> Base64 {
    let mut bytes = vec![if position.whole { b'+' } else { b'-' }];
    bytes.extend_from_slice(position.path.as_os_str().as_bytes());
    bytes.into()
}

/// The position that a cursor stands for; none for the first page.
pub(crate) fn walk_position(cursor: &Base64) -> Result<Option<WalkPosition>, ()> {
    let position = |whole, path: &[u8]| Some(WalkPosition { path: OsStr::from_bytes(path).into(), whole });
    match cursor.0.split_first() {
        None => Ok(None),
        Some((b'+', path)) => Ok(position(true, path)),
        Some((b'-', path)) => Ok(position(false, path)),
        Some(_) => Err(()),
    }
}

pub(crate) fn problem(error: &FileError) -> wire::PathProblem {
    wire::PathProblem {
        path: uri(&error.path).unwrap_or_else(root),
        message: reply::file_message(error),
        data: Some(reply::file_data(error)),
    }
}

pub(crate) fn copied(copied: &Copied) -> wire::Copied {
    wire::Copied {
        files: copied.files,
        directories: copied.directories,
        symlinks: copied.symlinks,
        bytes: copied.bytes,
        skipped: copied.skipped,
    }
}

pub(crate) fn changes(batch: ChangeBatch) -> (Vec<wire::Change>, Option<exec_wire::PathUri>) {
    let changes = batch.changes.into_iter().filter_map(|change| {
        Some(match change {
            Change::Created(path) => wire::Change::Created { path: uri(&path)? },
            Change::Modified(path) => wire::Change::Modified { path: uri(&path)? },
            Change::Removed(path) => wire::Change::Removed { path: uri(&path)? },
            Change::Renamed { from, to } => wire::Change::Renamed { from: uri(&from)?, to: uri(&to)? },
        })
    });
    (changes.collect(), batch.overflow.as_deref().and_then(uri))
}

pub(crate) fn search_query(params: wire::SearchParams) -> Result<SearchQuery, ForeignPath> {
    let pattern = match params.pattern {
        wire::SearchPattern::Regex(regex) => Pattern::Regex(regex),
        wire::SearchPattern::Literal(text) => Pattern::Literal(text),
    };
    let case = match params.case {
        wire::SearchCase::Sensitive => CaseSensitivity::Sensitive,
        wire::SearchCase::Insensitive => CaseSensitivity::Insensitive,
        wire::SearchCase::Smart => CaseSensitivity::Smart,
    };
    Ok(SearchQuery {
        root: params.path.to_path()?,
        pattern,
        case,
        word: params.word,
        globs: params.globs,
        ignore_files: params.ignore_files.unwrap_or(true),
        hidden: params.hidden,
        follow_symlinks: params.follow_symlinks,
        before_lines: params.before_lines,
        after_lines: params.after_lines,
        max_matches: params.max_matches.unwrap_or(limits::SEARCH_MATCHES),
        max_matches_per_file: params.max_matches_per_file,
        max_file_bytes: params.max_file_bytes,
        max_line_bytes: params.max_line_bytes.unwrap_or(limits::SEARCH_LINE_BYTES),
    })
}

/// The lines in pieces that fit a message each.
pub(crate) fn found_lines(found: FileLines) -> Vec<wire::FoundLines> {
    let Some(path) = uri(&found.path) else { return Vec::new() };
    let mut pieces = Vec::new();
    let mut piece = wire::FoundLines { path: path.clone(), lines: Vec::new() };
    let mut values = 0;
    for mut line in found.lines {
        let cut = line.cut || line.spans.len() > limits::SEARCH_SPANS;
        line.spans.truncate(limits::SEARCH_SPANS);
        values += FOUND_LINE_VALUES + line.spans.len() * SPAN_VALUES;
        piece.lines.push(wire::FoundLine {
            number: line.number,
            offset: line.offset,
            text: OsText(std::ffi::OsString::from_vec(line.text.into())),
            cut,
            spans: line.spans,
        });
        if values >= FOUND_VALUES {
            values = 0;
            let full = std::mem::replace(&mut piece, wire::FoundLines { path: path.clone(), lines: Vec::new() });
            pieces.push(full);
        }
    }
    if !piece.lines.is_empty() {
        pieces.push(piece);
    }
    pieces
}

pub(crate) fn search_summary(summary: &SearchSummary) -> wire::SearchSummary {
    wire::SearchSummary {
        files: summary.files,
        files_matched: summary.files_matched,
        matches: summary.matches,
        truncated: summary.truncated,
        problems: summary.problems.iter().map(problem).collect(),
        problem_count: summary.problem_count,
    }
}

pub(crate) fn glob_query(params: wire::GlobParams) -> Result<GlobQuery, ForeignPath> {
    Ok(GlobQuery {
        root: params.path.to_path()?,
        patterns: params.patterns,
        ignore_files: params.ignore_files.unwrap_or(true),
        hidden: params.hidden.unwrap_or(true),
        max_paths: params.max_paths.unwrap_or(limits::GLOB_PATHS),
    })
}

/// No more paths than fit [`WALK_REPLY_BYTES`], where each counts its URI and [`WALK_ENTRY_BYTES`]; their values fit then, too.
pub(crate) fn glob_matches(found: &GlobMatches) -> wire::GlobResult {
    let mut result = wire::GlobResult { paths: Vec::new(), truncated: found.truncated };
    let mut bytes = 0;
    for path in found.paths.iter().filter_map(|path| uri(path)) {
        bytes += path.as_str().len() + WALK_ENTRY_BYTES;
        if bytes > WALK_REPLY_BYTES {
            result.truncated = true;
            break;
        }
        result.paths.push(path);
    }
    result
}

pub(crate) fn http_request(params: wire_http::RequestParams) -> http::HttpRequest {
    let header = |header: wire_http::Header| http::RequestHeader {
        name: header.name,
        value: header.value,
        value_env_var: header.value_env_var,
    };
    http::HttpRequest {
        method: params.method,
        url: params.url,
        headers: params.headers.into_iter().map(header).collect(),
        body: params.body_base64.map(|body| body.0),
        timeout: params.timeout_ms.map(Duration::from_millis),
        redirects: match params.redirect_policy {
            wire_http::RedirectPolicy::Follow => http::Redirects::Follow,
            wire_http::RedirectPolicy::Stop => http::Redirects::Stop,
        },
    }
}

pub(crate) fn http_response(
    status: u16,
    headers: Vec<(String, String)>,
    body: impl Into<Base64>,
) -> wire_http::RequestResult {
    let header = |(name, value)| wire_http::Header { name, value, value_env_var: None };
    wire_http::RequestResult { status, headers: headers.into_iter().map(header).collect(), body_base64: body.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_cut_where_its_uris_and_64_bytes_each_exceed_the_limit() {
        // A space is one byte of a path and three of a URI.
        let path = format!("/{}", " ".repeat(1000));
        let weight = "file:///".len() + 3 * 1000 + 64;
        let items = |count| {
            let entry = WalkEntry { path: path.clone().into(), kind: WalkKind::File, is_symlink: false };
            WalkListing { items: vec![WalkItem::Entry(entry); count], truncated: false }
        };
        let fits = WALK_REPLY_BYTES / weight;
        let at_the_limit = walk(items(fits));
        assert_eq!((at_the_limit.entries.len(), at_the_limit.truncated), (fits, false));
        let beyond = walk(items(fits + 1));
        assert_eq!((beyond.entries.len(), beyond.truncated), (fits, true));
    }

    /// Whether our own reader accepts it as the result of a response.
    fn is_readable(result: &impl serde::Serialize) -> bool {
        use exec_wire::envelope;
        let mut out = Vec::new();
        envelope::write_response(&mut out, &envelope::RequestId::Number(i64::MAX), result, true);
        out.len() <= MESSAGE_BYTES && envelope::decode(std::str::from_utf8(&out).expect("JSON is text")).is_ok()
    }

    #[test]
    fn a_walk_of_nothing_but_errors_can_be_read() {
        for (name_bytes, count) in [(1, 30_000), (4000, 1_500)] {
            let path = format!("/{}", "\u{1}".repeat(name_bytes));
            let error = FileError::new(exec_env::files::FileVerb::Walk, path, exec_env::files::FileReason::Os(13));
            let listing = WalkListing { items: vec![WalkItem::Unreadable(error); count], truncated: false };
            let result = walk(listing);
            assert!(result.truncated && is_readable(&result), "{name_bytes}: {} errors", result.errors.len());
        }
    }

    #[test]
    fn the_paths_of_a_glob_are_cut_where_they_exceed_the_limit_and_can_be_read() {
        let fits = WALK_REPLY_BYTES / ("file:///x".len() + WALK_ENTRY_BYTES);
        let found = |count| glob_matches(&GlobMatches { paths: vec!["/x".into(); count], truncated: false });
        let (as_many, more) = (found(fits), found(fits + 1));
        assert_eq!((as_many.paths.len(), as_many.truncated), (fits, false));
        assert_eq!((more.paths.len(), more.truncated), (fits, true));
        assert!(is_readable(&more));
    }

    #[test]
    fn lines_with_very_many_matches_come_in_pieces_that_can_be_read() {
        let line = |number, spans| exec_env::files::SearchLine {
            number,
            offset: 0,
            text: "x".into(),
            cut: false,
            spans: vec![(0, 1); spans],
        };
        let lines = vec![
            line(1, limits::SEARCH_SPANS),
            line(2, limits::SEARCH_SPANS + 1),
            line(3, 1),
            line(4, limits::SEARCH_SPANS),
        ];
        let pieces = found_lines(FileLines { path: "/x".into(), lines });
        assert!(pieces.iter().all(is_readable));
        let told: Vec<_> = pieces.iter().flat_map(|piece| &piece.lines).map(|line| (line.number, line.cut)).collect();
        assert_eq!((told, pieces.len()), (vec![(1, false), (2, true), (3, false), (4, false)], 2));
    }
}
