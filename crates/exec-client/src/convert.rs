//! The customs office: the domain's words to the wire's and back. Nothing is decided here, and no error code is known.

mod files;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use exec_core::environ::Variables;
use exec_core::{
    ExitCause, Command, EnvPolicy, Exit, Head, Inherit, Io, Overflow, ProcessId, Signal, TerminalSize, ExitStatus, Stream, ResourceUsage,
};
use exec_env::process::{ProcessInfo, WaitCondition, Waited};
use exec_env::{MachineInfo, Shell};
use exec_wire::base64::Base64;
use exec_wire::environment::EnvironmentInfo;
use exec_wire::process as wire;
use exec_wire::{PathUri, text::OsText};

pub(crate) use files::{
    changes, copied, directory_entry, found_lines, http_params, metadata, nanoseconds, search_params, search_summary,
    walk, walk_options,
};

/// Something that a local environment could be told and the wire cannot say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be sent: it is not UTF-8")]
pub(crate) struct NotEncodable {
    what: String,
}

/// A command as `process/start` asks for it.
pub(crate) fn start_params(id: &ProcessId, command: &Command) -> Result<wire::StartParams, NotEncodable> {
    let (tty, pipe_stdin, size) = match command.io {
        Io::Pipes { stdin } => (false, stdin, None),
        Io::Pty(size) => (true, false, Some(wire_size(size))),
    };
    let limit = command.time_limit.and_then(|limit| Some((millis(limit.after)?, limit.grace)));
    let cwd = PathUri::from_path(&command.cwd).map_err(|relative| NotEncodable { what: relative.to_string() })?;
    Ok(wire::StartParams {
        process_id: id.as_str().to_owned(),
        metadata: None,
        argv: command.argv.iter().map(|word| word.clone().into()).collect(),
        cwd,
        env_policy: command.environ.policy.as_ref().map(env_policy).transpose()?,
        env: variables(&command.environ.vars, |value| Ok(OsText::from(value)))?,
        tty,
        pipe_stdin,
        arg0: command.arg0.clone().map(OsText::from),
        shell_snapshot: None,
        sandbox: None,
        enforce_managed_network: false,
        managed_network: None,
        network_proxy: None,
        size,
        timeout_ms: limit.map(|(after_ms, _)| after_ms),
        grace_ms: limit.and_then(|(_, grace)| millis(grace)),
        overflow: match command.overflow {
            Overflow::DropOldest => None,
            Overflow::Block => Some(wire::Overflow::Block),
        },
        spool_bytes: command.spool_bytes,
        label: (!command.label.is_empty()).then(|| Base64::from(command.label.clone())),
    })
}

fn env_policy(policy: &EnvPolicy) -> Result<wire::EnvPolicy, NotEncodable> {
    Ok(wire::EnvPolicy {
        inherit: match policy.inherit {
            Inherit::All => wire::EnvInherit::All,
            Inherit::Core => wire::EnvInherit::Core,
            Inherit::None => wire::EnvInherit::None,
        },
        ignore_default_excludes: policy.ignore_default_excludes,
        exclude: policy.exclude.clone(),
        set: variables(&policy.set, |value| utf8(value, "the value of an environment variable"))?,
        include_only: policy.include_only.clone(),
    })
}

fn variables<T>(
    variables: &Variables,
    value_of: impl Fn(&OsStr) -> Result<T, NotEncodable>,
) -> Result<BTreeMap<String, T>, NotEncodable> {
    let pairs = variables.iter();
    pairs.map(|(name, value)| Ok((utf8(name, "the name of an environment variable")?, value_of(value)?))).collect()
}

fn utf8(word: &OsStr, what: &str) -> Result<String, NotEncodable> {
    match word.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(NotEncodable { what: format!("{what}, {word:?},") }),
    }
}

/// Whole milliseconds, rounded up; `None` if there is no number for so many, which means for ever.
pub(crate) fn millis(time: Duration) -> Option<u64> {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).ok().filter(|ms| i64::try_from(*ms).is_ok())
}

pub(crate) fn wire_size(size: TerminalSize) -> wire::Size {
    wire::Size { rows: size.rows, cols: size.cols }
}

pub(crate) fn stream(stream: wire::Stream) -> Stream {
    match stream {
        wire::Stream::Stdout => Stream::Stdout,
        wire::Stream::Stderr => Stream::Stderr,
        wire::Stream::Pty => Stream::Pty,
    }
}

pub(crate) fn wire_signal(signal: Signal) -> wire::ProcessSignal {
    match signal {
        Signal::Hangup => wire::ProcessSignal::Hangup,
        Signal::Interrupt => wire::ProcessSignal::Interrupt,
        Signal::Quit => wire::ProcessSignal::Quit,
        Signal::Kill => wire::ProcessSignal::Kill,
        Signal::User1 => wire::ProcessSignal::User1,
        Signal::User2 => wire::ProcessSignal::User2,
        Signal::Terminate => wire::ProcessSignal::Terminate,
        Signal::Continue => wire::ProcessSignal::Continue,
        Signal::Stop => wire::ProcessSignal::Stop,
        Signal::WindowChange => wire::ProcessSignal::WindowChange,
    }
}

/// An end as our server tells it.
pub(crate) fn exit(exit: wire::Exit) -> Exit {
    let status = match (exit.code, exit.signal) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(number)) => ExitStatus::Signal { number, core_dumped: exit.core_dumped },
        (None, None) => ExitStatus::Lost,
    };
    let cause = match exit.kind {
        wire::ExitKind::TimedOut => ExitCause::TimedOut,
        wire::ExitKind::Terminated => ExitCause::Terminated,
        wire::ExitKind::OutOfMemory => ExitCause::OutOfMemory,
        wire::ExitKind::Exited | wire::ExitKind::Signalled | wire::ExitKind::SpawnFailed | wire::ExitKind::Lost => {
            ExitCause::Own
        }
    };
    let usage = ResourceUsage {
        user: Duration::from_millis(exit.user_ms),
        system: Duration::from_millis(exit.system_ms),
        max_rss_bytes: exit.max_rss_bytes,
    };
    Exit { status, cause, usage }
}

/// An end of which only the code is told. 128+n may be a signal or the child's own number; it is not guessed.
pub(crate) fn exit_of_code(code: Option<i32>) -> Exit {
    match code {
        None | Some(-1) => Exit::LOST,
        Some(code) => Exit { status: ExitStatus::Code(code), ..Exit::LOST },
    }
}

/// A process as `process/list` tells it; `None` if its id is one we could not use.
pub(crate) fn process_info(info: wire::ProcessInfo) -> Option<ProcessInfo> {
    let exit = info.exit.map(exit);
    Some(ProcessInfo {
        id: ProcessId::new(&info.process_id).ok()?,
        pid: info.pid,
        argv: info.argv.into_iter().map(|word| word.0).collect(),
        cwd: native(&info.cwd),
        tty: info.tty,
        stdin_open: info.stdin_open,
        started: SystemTime::UNIX_EPOCH + Duration::from_millis(info.started_at_ms),
        head: Head {
            first_seq: info.first_seq,
            next_seq: info.next_seq,
            held_bytes: info.held_bytes,
            dropped_bytes: info.dropped_bytes,
            exit: info.exit_seq.zip(exit),
            closed: info.state == wire::ProcessState::Closed,
            stalled: info.stalled,
        },
        label: info.label.map(|label| label.0.to_vec()).unwrap_or_default(),
    })
}

/// What a place tells about itself.
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

/// A path of that machine. One that only Windows could have stays what it is, for people to read.
fn native(uri: &PathUri) -> PathBuf {
    uri.to_path().unwrap_or_else(|foreign| PathBuf::from(foreign.uri.as_str()))
}

pub(crate) fn wire_until(until: WaitCondition) -> wire::Until {
    match until {
        WaitCondition::Exited => wire::Until::Exited,
        WaitCondition::Closed => wire::Until::Closed,
        WaitCondition::Output { regex, after } => wire::Until::Output { regex, after_seq: after },
        WaitCondition::Silence(quiet) => wire::Until::Silence { silent_ms: millis(quiet).unwrap_or(i64::MAX as u64) },
        WaitCondition::Port(port) => wire::Until::Port { port },
    }
}

/// How waiting ended; the end of the process is an error of the domain and comes back as it is.
pub(crate) fn waited(outcome: wire::WaitOutcome) -> Result<Waited, Exit> {
    Ok(match outcome {
        wire::WaitOutcome::Exited { exit: how } => Waited::Exited(exit(how)),
        wire::WaitOutcome::Closed { exit: how } => Waited::Closed(exit(how)),
        wire::WaitOutcome::Matched { seq, text, .. } => Waited::Matched { seq, text: text.0 },
        wire::WaitOutcome::Silent => Waited::Silent,
        wire::WaitOutcome::Listening { port } => Waited::Listening { port },
        wire::WaitOutcome::TimedOut => Waited::DeadlinePassed,
        wire::WaitOutcome::Ended { exit: how } => return Err(exit(how)),
    })
}
