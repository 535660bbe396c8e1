//! Conversions between the words of the environment and those of the wire, in both directions: processes and machines
//! first, then files and HTTP. What both have from `exec-core`, `exec-wire` converts. Nothing is decided here, and no
//! error code is known.

mod screen;
mod view;

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use exec_core::{Exit, ExitStatus, Head, ProcessId};
use exec_env::files::search::CaseSensitivity;
use exec_env::files::{
    Change, ChangeBatch, Copied, DirectoryEntry, FileError, FileKind, FileLines, FileReason, FileVerb, Metadata,
    Pattern, SearchLine, SearchQuery, SearchSummary, WalkEntry, WalkItem, WalkKind, WalkListing, WalkOptions, WalkPage,
    WalkPosition,
};
use exec_env::process::{ProcessInfo, WaitCondition, Waited};
use exec_env::{MachineInfo, Shell, http};
use exec_wire::base64::Base64;
use exec_wire::environment::EnvironmentInfo;
use exec_wire::fs::time_of;
use exec_wire::process::round_up_to_millis;
use exec_wire::sandbox::SandboxContext;
use exec_wire::{PathUri, fs, http as wire_http, process as wire};

use crate::error;

pub(crate) use screen::screen;
pub(crate) use view::{view, view_params};

/// The exit as a server reports it that tells the code only. 128+n may be a signal or the child's own code, so it is not
/// interpreted.
pub(crate) fn exit_of_code(code: Option<i32>) -> Exit {
    match code {
        None | Some(-1) => Exit::LOST,
        Some(code) => Exit { status: ExitStatus::Code(code), ..Exit::LOST },
    }
}

/// `None` if the id is one we could not use.
pub(crate) fn process_info(info: wire::ProcessInfo) -> Option<ProcessInfo> {
    let exit = info.exit.map(Into::into);
    Some(ProcessInfo {
        id: ProcessId::new(&info.process_id).ok()?,
        pid: info.pid,
        argv: info.argv.into_iter().map(|word| word.0).collect(),
        argv_cut: info.argv_cut,
        cwd: native(&info.cwd),
        tty: info.tty,
        stdin_open: info.stdin_open,
        started: UNIX_EPOCH + Duration::from_millis(info.started_at_ms),
        head: Head {
            first_seq: info.first_seq,
            next_seq: info.next_seq,
            held_bytes: info.held_bytes,
            dropped_bytes: info.dropped_bytes,
            exit: info.exit_seq.zip(exit),
            closed: info.state == wire::ProcessState::Closed,
            stalled: wire::stall(info.stalled, info.stalled_by),
        },
        sandbox: info.sandbox.map(Into::into),
        limits: info.limits.map(Into::into),
        label: info.label.map(|label| label.0.to_vec()).unwrap_or_default(),
    })
}

pub(crate) fn info(info: EnvironmentInfo) -> MachineInfo {
    MachineInfo {
        shell: Shell { name: info.shell.name, path: info.shell.path.into() },
        cwd: info.cwd.as_ref().map(native),
        home: info.user_home_dir.as_ref().map(native),
        temp_dir: info.temp_dir.as_ref().map_or_else(|| PathBuf::from("/tmp"), native),
        temporary_directories: info.temporary_directories.unwrap_or_default().iter().map(native).collect(),
        os: info.platform_os.unwrap_or_default(),
        hostname: None,
        version: info.executor_version.unwrap_or_default(),
    }
}

/// A path of the server's machine. One of another operating system stays a URI, for people to read.
fn native(uri: &PathUri) -> PathBuf {
    uri.to_path().unwrap_or_else(|foreign| PathBuf::from(foreign.uri.as_str()))
}

pub(crate) fn wire_until(until: WaitCondition) -> wire::Until {
    match until {
        WaitCondition::Exited => wire::Until::Exited,
        WaitCondition::Closed => wire::Until::Closed,
        WaitCondition::TreeEnded => wire::Until::TreeEnded,
        WaitCondition::Output { regex, after } => wire::Until::Output { regex, after_seq: after },
        WaitCondition::Silence(quiet) => {
            wire::Until::Silence { silent_ms: round_up_to_millis(quiet).unwrap_or(i64::MAX as u64) }
        }
        WaitCondition::Port(port) => wire::Until::Port { port },
    }
}

/// `Err` is the exit of a process that ended before what was waited for.
pub(crate) fn waited(outcome: wire::WaitOutcome) -> Result<Waited, Exit> {
    Ok(match outcome {
        wire::WaitOutcome::Exited { exit: how } => Waited::Exited(how.into()),
        wire::WaitOutcome::Closed { exit: how } => Waited::Closed(how.into()),
        wire::WaitOutcome::TreeEnded { exit: how } => Waited::TreeEnded(how.into()),
        wire::WaitOutcome::Matched { seq, text } => Waited::Matched { seq, text: text.0 },
        wire::WaitOutcome::Silent => Waited::Silent,
        wire::WaitOutcome::Listening { port } => Waited::Listening { port },
        wire::WaitOutcome::TimedOut => Waited::DeadlinePassed,
        wire::WaitOutcome::Ended { exit: how } => return Err(how.into()),
    })
}

pub(crate) fn metadata(found: &fs::GetMetadataResult) -> Metadata {
    let kind = match found.kind {
        Some(fs::FileKind::File) => FileKind::File,
        Some(fs::FileKind::Directory) => FileKind::Directory,
        Some(fs::FileKind::Symlink) => FileKind::Symlink,
        Some(fs::FileKind::Special) => FileKind::Special,
        None => kind_of_flags(found.is_directory, found.is_file, false),
    };
    let exact = |ns: Option<i64>, ms: i64| time_of(ns.unwrap_or_else(|| ms.saturating_mul(1_000_000)));
    let modified = exact(found.modified_ns, found.modified_at_ms);
    let created = match (found.created_ns, found.created_at_ms) {
        (Some(ns), _) => Some(time_of(ns)),
        (None, 0) => None,
        // Our server leaves it out if the file system does not know it; another one then sends 0.
        (None, _) if found.kind.is_some() => None,
        (None, ms) => Some(exact(None, ms)),
    };
    Metadata {
        kind,
        is_symlink: found.is_symlink,
        size_bytes: found.size,
        created,
        modified,
        accessed: found.accessed_ns.map_or(modified, time_of),
        changed: found.changed_ns.map_or(modified, time_of),
        mode: found.mode.unwrap_or(0),
        uid: found.uid.unwrap_or(0),
        gid: found.gid.unwrap_or(0),
        inode: found.inode.unwrap_or(0),
        device: found.device.unwrap_or(0),
        nlink: found.nlink.unwrap_or(0),
    }
}

fn kind_of_flags(is_directory: bool, is_file: bool, is_symlink: bool) -> FileKind {
    match (is_directory, is_file, is_symlink) {
        (true, _, _) => FileKind::Directory,
        (_, true, _) => FileKind::File,
        // A link to neither a file nor a directory most likely leads nowhere.
        (_, _, true) => FileKind::Symlink,
        _ => FileKind::Special,
    }
}

pub(crate) fn directory_entry(entry: fs::DirectoryEntry) -> DirectoryEntry {
    let exact = entry.path.as_ref().and_then(|path| path.to_path().ok());
    let is_symlink = entry.is_symlink.unwrap_or(false);
    DirectoryEntry {
        name: exact.and_then(|path| path.file_name().map(Into::into)).unwrap_or_else(|| entry.file_name.into()),
        kind: kind_of_flags(entry.is_directory, entry.is_file, is_symlink),
        is_symlink,
    }
}

pub(crate) fn walk_options(options: WalkOptions) -> fs::WalkOptions {
    fs::WalkOptions {
        max_depth: options.max_depth,
        max_directories: options.max_directories,
        max_entries: options.max_entries,
        follow_directory_symlinks: options.follow_directory_symlinks,
        prune_hidden_directories: options.prune_hidden_directories,
    }
}

pub(crate) fn walk(walk: fs::WalkResult) -> WalkListing {
    WalkListing { truncated: walk.truncated, items: walk_items(walk) }
}

/// A page of a walk. Where the next one begins is the server's word, and of use to nobody else.
pub(crate) fn walk_page(walk: fs::WalkResult) -> WalkPage {
    let next = walk.next_cursor.as_ref().and_then(|cursor| {
        let (whole, path) = cursor.0.split_first()?;
        Some(WalkPosition { path: OsStr::from_bytes(path).into(), whole: *whole == b'+' })
    });
    WalkPage { items: walk_items(walk), next }
}

pub(crate) fn walk_cursor(after: Option<&WalkPosition>) -> Base64 {
    let bytes = after.map(|after| {
        let whole: &[u8] = if after.whole { b"+" } else { b"-" };
        [whole, after.path.as_os_str().as_bytes()].concat()
    });
    bytes.unwrap_or_default().into()
}

fn walk_items(walk: fs::WalkResult) -> Vec<WalkItem> {
    let entry = |entry: fs::WalkEntry| {
        let kind = match entry.kind {
            fs::WalkEntryKind::File => WalkKind::File,
            fs::WalkEntryKind::Directory => WalkKind::Directory,
        };
        Some(WalkItem::Entry(WalkEntry { path: entry.path.to_path().ok()?, kind, is_symlink: entry.is_symlink }))
    };
    let errors = walk.errors.into_iter().map(|found| WalkItem::Unreadable(problem(FileVerb::Walk, found)));
    walk.entries.into_iter().filter_map(entry).chain(errors).collect()
}

fn problem(verb: FileVerb, problem: fs::PathProblem) -> FileError {
    let reason = problem.data.as_ref().and_then(error::reason_of);
    let reason = reason.unwrap_or(FileReason::Unreachable { why: problem.message });
    FileError::new(verb, problem.path.to_path().unwrap_or_default(), reason)
}

pub(crate) fn copied(copied: fs::Copied) -> Copied {
    Copied {
        files: copied.files,
        directories: copied.directories,
        symlinks: copied.symlinks,
        bytes: copied.bytes,
        skipped: copied.skipped,
    }
}

/// Paths that this machine cannot name are left out.
pub(crate) fn change_batch(changed: fs::ChangedParams) -> ChangeBatch {
    let native = |path: PathUri| path.to_path().ok();
    let changes = changed.changes.into_iter().filter_map(|change| {
        Some(match change {
            fs::Change::Created { path } => Change::Created(native(path)?),
            fs::Change::Modified { path } => Change::Modified(native(path)?),
            fs::Change::Removed { path } => Change::Removed(native(path)?),
            fs::Change::Renamed { from, to } => Change::Renamed { from: native(from)?, to: native(to)? },
        })
    });
    ChangeBatch { changes: changes.collect(), overflow: changed.overflow.and_then(native) }
}

pub(crate) fn search_params(
    search_id: String,
    path: PathUri,
    query: &SearchQuery,
    after: Option<fs::SearchPlace>,
    sandbox: Option<SandboxContext>,
) -> fs::SearchParams {
    fs::SearchParams {
        search_id,
        path,
        pattern: match &query.pattern {
            Pattern::Regex(regex) => fs::SearchPattern::Regex(regex.clone()),
            Pattern::Literal(text) => fs::SearchPattern::Literal(text.clone()),
        },
        case: match query.case {
            CaseSensitivity::Sensitive => fs::SearchCase::Sensitive,
            CaseSensitivity::Insensitive => fs::SearchCase::Insensitive,
            CaseSensitivity::Smart => fs::SearchCase::Smart,
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
        sandbox,
    }
}

pub(crate) fn found_lines(found: fs::FoundLines) -> Option<FileLines> {
    let line = |line: fs::FoundLine| SearchLine {
        number: line.number,
        offset: line.offset,
        text: line.text.0.into_vec().into(),
        cut: line.cut,
        spans: line.spans,
    };
    Some(FileLines { path: found.path.to_path().ok()?, lines: found.lines.into_iter().map(line).collect() })
}

pub(crate) fn search_summary(summary: fs::SearchSummary) -> SearchSummary {
    SearchSummary {
        files: summary.files,
        files_matched: summary.files_matched,
        matches: summary.matches,
        truncated: summary.truncated,
        problems: summary.problems.into_iter().map(|found| problem(FileVerb::Search, found)).collect(),
        problem_count: summary.problem_count,
    }
}

pub(crate) fn http_params(
    request: http::HttpRequest,
    request_id: String,
    body_window_bytes: Option<u64>,
) -> wire_http::RequestParams {
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
        timeout_ms: request.timeout.and_then(round_up_to_millis),
        redirect_policy: match request.redirects {
            http::Redirects::Follow => wire_http::RedirectPolicy::Follow,
            http::Redirects::Stop => wire_http::RedirectPolicy::Stop,
        },
        request_id,
        stream_response: true,
        body_window_bytes,
    }
}
