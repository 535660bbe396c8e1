//! Shapes of the wire become values of the environment, and back. What has a counterpart in `exec-core` is converted by
//! `exec-wire`.

mod files;
mod screen;
mod view;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use exec_core::Seq;
use exec_env::MachineInfo;
use exec_env::process::{ProcessInfo, WaitCondition, Waited};
use exec_wire::Extension;
use exec_wire::base64::Base64;
use exec_wire::environment::{Capabilities, EnvironmentInfo, ShellInfo};
use exec_wire::path_uri::PathUri;
use exec_wire::process as wire;
use exec_wire::text::OsText;

use crate::limits::{LISTED_ARGV, LISTED_ARGV_BYTES, LISTED_PROCESS_BYTES, LISTED_WORD_BYTES};

pub(crate) use files::{
    changes, copied, directory_page, found_lines, glob_matches, glob_query, http_request, http_response, links,
    metadata, open_mode, search_query, search_summary, times, walk, walk_options, walk_page, walk_position,
    whole_listing,
};

pub(crate) use screen::screen;
pub(crate) use view::{view, view_query};

/// The seq of an entry that a client names. No log ever has half as many entries as a seq can count, so that a larger
/// number means "behind everything". The bound lets the rest of the code add to a seq without overflow.
pub(crate) fn seq(named: u64) -> Seq {
    named.min(Seq::MAX >> 1)
}

pub(crate) fn until(until: wire::Until) -> WaitCondition {
    match until {
        wire::Until::Exited => WaitCondition::Exited,
        wire::Until::Closed => WaitCondition::Closed,
        wire::Until::TreeEnded => WaitCondition::TreeEnded,
        wire::Until::Output { regex, after_seq } => WaitCondition::Output { regex, after: seq(after_seq) },
        wire::Until::Silence { silent_ms } => WaitCondition::Silence(Duration::from_millis(silent_ms)),
        wire::Until::Port { port } => WaitCondition::Port(port),
    }
}

pub(crate) fn waited(waited: Waited) -> wire::WaitOutcome {
    match waited {
        Waited::Exited(end) => wire::WaitOutcome::Exited { exit: end.into() },
        Waited::Closed(end) => wire::WaitOutcome::Closed { exit: end.into() },
        Waited::TreeEnded(end) => wire::WaitOutcome::TreeEnded { exit: end.into() },
        Waited::Matched { seq, text } => wire::WaitOutcome::Matched { seq, text: Base64(text) },
        Waited::Silent => wire::WaitOutcome::Silent,
        Waited::Listening { port } => wire::WaitOutcome::Listening { port },
        Waited::DeadlinePassed => wire::WaitOutcome::TimedOut,
    }
}

pub(crate) fn process_info(wire_id: String, info: ProcessInfo, own_label: Vec<u8>) -> wire::ProcessInfo {
    let head = info.head;
    let (argv, argv_cut) = listed_words(info.argv);
    wire::ProcessInfo {
        process_id: wire_id,
        environment_id: None,
        pid: info.pid,
        argv,
        argv_cut: argv_cut || info.argv_cut,
        cwd: uri(&info.cwd).unwrap_or_else(root),
        tty: info.tty,
        stdin_open: info.stdin_open,
        started_at_ms: crate::session::unix_ms(info.started),
        state: match (head.exit, head.closed) {
            (_, true) => wire::ProcessState::Closed,
            (Some(_), false) => wire::ProcessState::Exited,
            (None, false) => wire::ProcessState::Running,
        },
        exit: head.exit.map(|(_, end)| end.into()),
        exit_seq: head.exit.map(|(seq, _)| seq),
        first_seq: head.first_seq,
        next_seq: head.next_seq,
        held_bytes: head.held_bytes,
        dropped_bytes: head.dropped_bytes,
        stalled: head.stalled.is_some(),
        stalled_by: head.stalled.map(Into::into),
        sandbox: info.sandbox.map(Into::into),
        limits: info.limits.map(Into::into),
        label: (!own_label.is_empty()).then(|| Base64(own_label.into())),
    }
}

/// The first words of a command line, and whether there are more than a list has room for.
fn listed_words(argv: Vec<OsString>) -> (Vec<OsText>, bool) {
    let words = argv.len();
    let mut left_bytes = LISTED_ARGV_BYTES;
    let fits = |word: &OsString| match left_bytes.checked_sub(word.len()) {
        Some(left) => {
            left_bytes = left;
            true
        }
        None => false,
    };
    let listed: Vec<OsText> = argv.into_iter().take(LISTED_ARGV).take_while(fits).map(OsText).collect();
    let cut = listed.len() < words;
    (listed, cut)
}

/// What a listed process takes in a message, or a little more.
pub(crate) fn process_info_bytes(info: &wire::ProcessInfo) -> usize {
    // JSON may need six bytes for one of a text, and base64 four for three.
    let words: usize = info.argv.iter().map(|word| word.0.len() * 6 + LISTED_WORD_BYTES).sum();
    let label = info.label.as_ref().map_or(0, |label| label.0.len() * 4 / 3);
    words + label + info.process_id.len() * 6 + info.cwd.as_str().len() + LISTED_PROCESS_BYTES
}

pub(crate) fn environment_info(info: &MachineInfo) -> EnvironmentInfo {
    EnvironmentInfo {
        shell: ShellInfo { name: info.shell.name.clone(), path: info.shell.path.to_string_lossy().into_owned() },
        executor_version: Some(info.version.clone()),
        provider_id: None,
        cwd: info.cwd.as_deref().and_then(uri),
        user_home_dir: info.home.as_deref().and_then(uri),
        platform_os: Some(info.os.clone()),
        prepend_path_dirs: Vec::new(),
        temporary_directories: Some(info.temporary_directories.iter().filter_map(|directory| uri(directory)).collect()),
        temp_dir: uri(&info.temp_dir),
        capabilities: Capabilities {
            network_proxy_launch: true,
            network_proxy_review_domains: true,
            environment_config_read: true,
            fs_watch_missing: true,
            file_write_streaming: true,
            sandboxed_file_streaming: true,
            capability_discovery_sandbox: true,
            http_header_env_vars: true,
            ..Capabilities::default()
        },
        extensions: extensions(),
    }
}

/// What this server has beyond Codex's.
pub(crate) fn extensions() -> Vec<String> {
    Extension::all().map(|extension| extension.name().to_owned()).collect()
}

pub(crate) fn uri(path: &Path) -> Option<PathUri> {
    PathUri::from_path(path).ok()
}

pub(crate) fn root() -> PathUri {
    PathUri::from_path(Path::new("/")).expect("the root is absolute")
}
