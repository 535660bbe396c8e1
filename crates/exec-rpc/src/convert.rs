//! Shapes of the wire become values of the domain, and back. Nothing else knows both vocabularies.

mod files;

use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_core::command::BadCommand;
use exec_core::{
    Command, EnvPolicy, Environ, Exit, ExitCause, ExitStatus, Head, Inherit, Io, Overflow, Seq, Signal, Stall,
    TerminalSize, TimeLimit,
};
use exec_env::MachineInfo;
use exec_env::process::{ProcessInfo, WaitCondition, Waited};
use exec_wire::Extension;
use exec_wire::base64::Base64;
use exec_wire::environment::{Capabilities, EnvironmentInfo, ShellInfo};
use exec_wire::path_uri::PathUri;
use exec_wire::process::{self as wire, ExitKind};
use exec_wire::text::OsText;

pub(crate) use files::{
    changes, copied, directory_entry, found_lines, glob_query, http_request, http_response, links, metadata, open_mode,
    search_query, search_summary, times, walk, walk_options,
};

/// The seq of an entry that a client names. No log ever has half as many entries as a seq can count, so that a larger
/// number means "behind everything". The bound lets the rest of the code add to a seq without overflow.
pub(crate) fn seq(named: u64) -> Seq {
    named.min(Seq::MAX >> 1)
}

pub(crate) fn stream(stream: exec_core::Stream) -> wire::Stream {
    match stream {
        exec_core::Stream::Stdout => wire::Stream::Stdout,
        exec_core::Stream::Stderr => wire::Stream::Stderr,
        exec_core::Stream::Pty => wire::Stream::Pty,
    }
}

pub(crate) fn exit(exit: &Exit) -> wire::Exit {
    let (code, signal, core_dumped) = match exit.status {
        ExitStatus::Code(code) => (Some(code), None, false),
        ExitStatus::Signal { number, core_dumped } => (None, Some(number), core_dumped),
        ExitStatus::Lost => (None, None, false),
    };
    let kind = match (exit.cause, exit.status) {
        (_, ExitStatus::Lost) => ExitKind::Lost,
        (ExitCause::TimedOut, _) => ExitKind::TimedOut,
        (ExitCause::Terminated, _) => ExitKind::Terminated,
        (ExitCause::OutOfMemory, _) => ExitKind::OutOfMemory,
        (ExitCause::Own, ExitStatus::Signal { .. }) => ExitKind::Signalled,
        (ExitCause::Own, ExitStatus::Code(_)) => ExitKind::Exited,
    };
    wire::Exit {
        kind,
        code,
        signal,
        core_dumped,
        user_ms: millis(exit.usage.user),
        system_ms: millis(exit.usage.system),
        max_rss_bytes: exit.usage.max_rss_bytes,
    }
}

/// The command of a start. The caller has converted `cwd`, because that error has a message of its own.
pub(crate) fn command(params: wire::StartParams, cwd: PathBuf, label: Vec<u8>) -> Result<Command, BadCommand> {
    let io = if params.tty {
        Io::Pty(params.size.map_or(TerminalSize::default(), |size| TerminalSize { rows: size.rows, cols: size.cols }))
    } else {
        Io::Pipes { stdin: params.pipe_stdin }
    };
    let grace = Duration::from_millis(params.grace_ms.unwrap_or(0));
    let command = Command {
        argv: params.argv.into_iter().map(|argument| argument.0).collect(),
        arg0: params.arg0.map(|arg0| arg0.0),
        cwd,
        environ: Environ {
            policy: params.env_policy.map(policy),
            vars: params.env.into_iter().map(|(name, value)| (name.into(), value.0)).collect(),
        },
        io,
        time_limit: params.timeout_ms.map(|after| TimeLimit { after: Duration::from_millis(after), grace }),
        overflow: match params.overflow {
            Some(wire::Overflow::Block) => Overflow::Block,
            Some(wire::Overflow::DropOldest) | None => Overflow::DropOldest,
        },
        spool_bytes: params.spool_bytes,
        keep: params.keep_ms.map(Duration::from_millis),
        label,
    };
    command.check()?;
    Ok(command)
}

fn policy(policy: wire::EnvPolicy) -> EnvPolicy {
    EnvPolicy {
        inherit: match policy.inherit {
            wire::EnvInherit::All => Inherit::All,
            wire::EnvInherit::Core => Inherit::Core,
            wire::EnvInherit::None => Inherit::None,
        },
        ignore_default_excludes: policy.ignore_default_excludes,
        exclude: policy.exclude,
        set: policy.set.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        include_only: policy.include_only,
    }
}

pub(crate) fn signal(signal: wire::ProcessSignal) -> Signal {
    match signal {
        wire::ProcessSignal::Hangup => Signal::Hangup,
        wire::ProcessSignal::Interrupt => Signal::Interrupt,
        wire::ProcessSignal::Quit => Signal::Quit,
        wire::ProcessSignal::Kill => Signal::Kill,
        wire::ProcessSignal::User1 => Signal::User1,
        wire::ProcessSignal::User2 => Signal::User2,
        wire::ProcessSignal::Terminate => Signal::Terminate,
        wire::ProcessSignal::Stop => Signal::Stop,
        wire::ProcessSignal::Continue => Signal::Continue,
        wire::ProcessSignal::WindowChange => Signal::WindowChange,
    }
}

pub(crate) fn until(until: wire::Until) -> WaitCondition {
    match until {
        wire::Until::Exited => WaitCondition::Exited,
        wire::Until::Closed => WaitCondition::Closed,
        wire::Until::Output { regex, after_seq } => WaitCondition::Output { regex, after: seq(after_seq) },
        wire::Until::Silence { silent_ms } => WaitCondition::Silence(Duration::from_millis(silent_ms)),
        wire::Until::Port { port } => WaitCondition::Port(port),
    }
}

pub(crate) fn waited(waited: Waited) -> wire::WaitOutcome {
    match waited {
        Waited::Exited(end) => wire::WaitOutcome::Exited { exit: exit(&end) },
        Waited::Closed(end) => wire::WaitOutcome::Closed { exit: exit(&end) },
        Waited::Matched { seq, text } => wire::WaitOutcome::Matched { seq, stream: None, text: Base64(text) },
        Waited::Silent => wire::WaitOutcome::Silent,
        Waited::Listening { port } => wire::WaitOutcome::Listening { port },
        Waited::DeadlinePassed => wire::WaitOutcome::TimedOut,
    }
}

pub(crate) fn log_head(head: &Head) -> wire::LogHead {
    wire::LogHead {
        first_seq: head.first_seq,
        next_seq: head.next_seq,
        held_bytes: head.held_bytes,
        dropped_bytes: head.dropped_bytes,
        exit_seq: head.exit.map(|(seq, _)| seq),
        closed: head.closed,
        stalled: head.stalled.is_some(),
        stalled_by: head.stalled.map(stall_reason),
    }
}

fn stall_reason(stall: Stall) -> wire::StallReason {
    match stall {
        Stall::Disk => wire::StallReason::DiskFull,
        Stall::Spool => wire::StallReason::SpoolFull,
        Stall::Reader => wire::StallReason::Reader,
    }
}

pub(crate) fn process_info(wire_id: String, info: ProcessInfo, own_label: Vec<u8>) -> wire::ProcessInfo {
    let head = info.head;
    wire::ProcessInfo {
        process_id: wire_id,
        pid: info.pid,
        argv: info.argv.into_iter().map(OsText).collect(),
        cwd: uri(&info.cwd).unwrap_or_else(root),
        tty: info.tty,
        stdin_open: info.stdin_open,
        started_at_ms: crate::session::unix_ms(info.started),
        state: match (head.exit, head.closed) {
            (_, true) => wire::ProcessState::Closed,
            (Some(_), false) => wire::ProcessState::Exited,
            (None, false) => wire::ProcessState::Running,
        },
        exit: head.exit.map(|(_, end)| exit(&end)),
        exit_seq: head.exit.map(|(seq, _)| seq),
        first_seq: head.first_seq,
        next_seq: head.next_seq,
        held_bytes: head.held_bytes,
        dropped_bytes: head.dropped_bytes,
        stalled: head.stalled.is_some(),
        stalled_by: head.stalled.map(stall_reason),
        label: (!own_label.is_empty()).then(|| Base64(own_label.into())),
    }
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
            environment_config_read: true,
            fs_watch_missing: true,
            file_write_streaming: true,
            http_header_env_vars: true,
            ..Capabilities::default()
        },
        extensions: Extension::all().map(|extension| extension.name().to_owned()).collect(),
    }
}

pub(crate) fn uri(path: &Path) -> Option<PathUri> {
    PathUri::from_path(path).ok()
}

pub(crate) fn root() -> PathUri {
    PathUri::from_path(Path::new("/")).expect("the root is absolute")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
