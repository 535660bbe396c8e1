//! The shapes of processes become values of the domain, and back. Both directions stand side by side, because a server
//! reads what a client wrote, and the other way round.
//!
//! Deliberately absent: what `exec-env` has (outcomes, errors, files), which this crate does not know; each end
//! converts those for itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use exec_core::command::BadCommand;
use exec_core::environ::Variables;
use exec_core::sandbox::SandboxMeans;
use exec_core::{
    self as core, Command, Environ, ExitCause, ExitStatus, Io, LimitMeans, ProcessId, ResourceUsage, TimeLimit,
};

use super::{
    EnvInherit, EnvPolicy, Exit, ExitKind, LimitReport, Limits, LimitsReached, LogHead, Overflow, ProcessSignal, RunAs,
    SandboxReport, Size, StallReason, StartParams, Stream,
};
use crate::base64::Base64;
use crate::path_uri::{PathUri, RelativePath};
use crate::sandbox::SandboxContext;
use crate::text::OsText;

/// Two enums with the same variants.
macro_rules! same_variants {
    ($($wire:ident = $domain:path { $($variant:ident),* })*) => {$(
        impl From<$domain> for $wire {
            fn from(domain: $domain) -> Self {
                use $domain as Domain;
                match domain {
                    $(Domain::$variant => Self::$variant,)*
                }
            }
        }

        impl From<$wire> for $domain {
            fn from(wire: $wire) -> Self {
                match wire {
                    $($wire::$variant => Self::$variant,)*
                }
            }
        }
    )*};
}

same_variants! {
    Stream = core::Stream { Stdout, Stderr, Pty }
    Overflow = core::Overflow { DropOldest, Block }
    EnvInherit = core::Inherit { All, Core, None }
    ProcessSignal = core::Signal {
        Hangup, Interrupt, Quit, Kill, User1, User2, Terminate, Continue, Stop, WindowChange
    }
}

impl From<core::TerminalSize> for Size {
    fn from(size: core::TerminalSize) -> Self {
        Self { rows: size.rows, cols: size.cols }
    }
}

impl From<Size> for core::TerminalSize {
    fn from(size: Size) -> Self {
        Self { rows: size.rows, cols: size.cols }
    }
}

impl From<core::Exit> for Exit {
    fn from(exit: core::Exit) -> Self {
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
            (ExitCause::CpuLimit, _) => ExitKind::CpuLimit,
            (ExitCause::FileSizeLimit, _) => ExitKind::FileSizeLimit,
            (ExitCause::Own, ExitStatus::Signal { .. }) => ExitKind::Signalled,
            (ExitCause::Own, ExitStatus::Code(_)) => ExitKind::Exited,
        };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            kind,
            code,
            signal,
            core_dumped,
            user_ms: millis(exit.usage.user),
            system_ms: millis(exit.usage.system),
            max_rss_bytes: exit.usage.max_rss_bytes,
            denial: None,
            limits_reached: LimitsReached(exit.limits_reached),
        }
    }
}

impl From<Exit> for core::Exit {
    fn from(exit: Exit) -> Self {
        let status = match (exit.code, exit.signal) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(number)) => ExitStatus::Signal { number, core_dumped: exit.core_dumped },
            (None, None) => ExitStatus::Lost,
        };
        let cause = match exit.kind {
            ExitKind::TimedOut => ExitCause::TimedOut,
            ExitKind::Terminated => ExitCause::Terminated,
            ExitKind::OutOfMemory => ExitCause::OutOfMemory,
            ExitKind::CpuLimit => ExitCause::CpuLimit,
            ExitKind::FileSizeLimit => ExitCause::FileSizeLimit,
            ExitKind::Exited | ExitKind::Signalled | ExitKind::SpawnFailed | ExitKind::Lost => ExitCause::Own,
        };
        let usage = ResourceUsage {
            user: Duration::from_millis(exit.user_ms),
            system: Duration::from_millis(exit.system_ms),
            max_rss_bytes: exit.max_rss_bytes,
        };
        Self { status, cause, usage, limits_reached: exit.limits_reached.0 }
    }
}

impl From<&core::Head> for LogHead {
    fn from(head: &core::Head) -> Self {
        Self {
            first_seq: head.first_seq,
            next_seq: head.next_seq,
            held_bytes: head.held_bytes,
            dropped_bytes: head.dropped_bytes,
            exit_seq: head.exit.map(|(seq, _)| seq),
            closed: head.closed,
            stalled: head.stalled.is_some(),
            stalled_by: head.stalled.map(Into::into),
        }
    }
}

impl From<core::Stall> for StallReason {
    fn from(stall: core::Stall) -> Self {
        match stall {
            core::Stall::Disk => Self::DiskFull,
            core::Stall::Spool => Self::SpoolFull,
            core::Stall::Reader => Self::Reader,
        }
    }
}

/// Why a child waits, of what two members say. A server that does not say why has told of its disk and its spool only.
pub fn stall(stalled: bool, reason: Option<StallReason>) -> Option<core::Stall> {
    stalled.then_some(match reason {
        Some(StallReason::DiskFull) => core::Stall::Disk,
        Some(StallReason::SpoolFull) | None => core::Stall::Spool,
        Some(StallReason::Reader) => core::Stall::Reader,
    })
}

/// A command that this machine could run and the wire cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSendable {
    #[error(transparent)]
    RelativeCwd(#[from] RelativePath),
    #[error("{what}, {word:?}, cannot be sent: it is not UTF-8")]
    NotUtf8 { what: &'static str, word: std::ffi::OsString },
}

impl StartParams {
    /// The request to start `command` under that id.
    pub fn new(id: &ProcessId, command: &Command) -> Result<Self, NotSendable> {
        let (tty, pipe_stdin, size) = match command.io {
            Io::Pipes { stdin } => (false, stdin, None),
            Io::Pty(size) => (true, false, Some(size.into())),
        };
        let limit = command.time_limit.and_then(|limit| Some((round_up_to_millis(limit.after)?, limit.grace)));
        Ok(Self {
            process_id: id.as_str().to_owned(),
            metadata: None,
            argv: command.argv.iter().map(|word| word.clone().into()).collect(),
            cwd: PathUri::from_path(&command.cwd)?,
            env_policy: command.environ.policy.as_ref().map(EnvPolicy::try_from).transpose()?,
            env: variables(&command.environ.vars, |value| Ok(OsText::from(value)))?,
            tty,
            pipe_stdin,
            arg0: command.arg0.clone().map(OsText::from),
            shell_snapshot: None,
            sandbox: command.sandbox.as_ref().map(SandboxContext::of_policy).transpose()?,
            enforce_managed_network: command
                .sandbox
                .as_ref()
                .is_some_and(|policy| policy.network == core::sandbox::NetworkPolicy::ProxyOnly),
            managed_network: None,
            network_proxy: command.network_proxy.as_ref().map(Into::into),
            size,
            timeout_ms: limit.map(|(after_ms, _)| after_ms),
            grace_ms: limit.and_then(|(_, grace)| round_up_to_millis(grace)),
            // What is the default is not said, because Codex's server does not know the member.
            overflow: (command.overflow != core::Overflow::default()).then(|| command.overflow.into()),
            spool_bytes: command.spool_bytes,
            keep_ms: command.keep.and_then(round_up_to_millis),
            limits: (!command.limits.is_empty()).then(|| command.limits.into()),
            run_as: command.run_as.as_ref().map(|core::RunAs { user }| RunAs { user: user.clone() }),
            label: (!command.label.is_empty()).then(|| Base64::from(command.label.clone())),
        })
    }

    /// The command that the request asks for, checked. The caller has converted `cwd` and `sandbox`, because those errors
    /// have messages of their own, and chosen the label.
    pub fn into_command(
        self,
        cwd: PathBuf,
        sandbox: Option<core::SandboxPolicy>,
        label: Vec<u8>,
    ) -> Result<Command, BadCommand> {
        let grace = Duration::from_millis(self.grace_ms.unwrap_or(0));
        let command = Command {
            argv: self.argv.into_iter().map(|argument| argument.0).collect(),
            arg0: self.arg0.map(|arg0| arg0.0),
            cwd,
            environ: Environ {
                policy: self.env_policy.map(Into::into),
                vars: self.env.into_iter().map(|(name, value)| (name.into(), value.0)).collect(),
            },
            io: match self.tty {
                true => Io::Pty(self.size.map(Into::into).unwrap_or_default()),
                false => Io::Pipes { stdin: self.pipe_stdin },
            },
            time_limit: self.timeout_ms.map(|after| TimeLimit { after: Duration::from_millis(after), grace }),
            limits: self.limits.map(Into::into).unwrap_or_default(),
            run_as: self.run_as.map(|RunAs { user }| core::RunAs { user }),
            overflow: self.overflow.unwrap_or_default().into(),
            spool_bytes: self.spool_bytes,
            keep: self.keep_ms.map(Duration::from_millis),
            sandbox,
            network_proxy: self.network_proxy.map(Into::into),
            ceilings: Vec::new(),
            label,
        };
        command.check()?;
        Ok(command)
    }
}

impl From<core::sandbox::SandboxReport> for SandboxReport {
    fn from(report: core::sandbox::SandboxReport) -> Self {
        Self { means: report.means.into_iter().map(SandboxMeans::name).collect() }
    }
}

impl From<SandboxReport> for core::sandbox::SandboxReport {
    /// Means that we do not know are left out.
    fn from(report: SandboxReport) -> Self {
        Self { means: report.means.iter().filter_map(|name| SandboxMeans::from_name(name)).collect() }
    }
}

impl From<core::ResourceLimits> for Limits {
    fn from(limits: core::ResourceLimits) -> Self {
        let core::ResourceLimits { memory_bytes, pids, cpu_seconds, open_files, file_bytes } = limits;
        Self { memory_bytes, pids, cpu_seconds, open_files, file_bytes }
    }
}

impl From<Limits> for core::ResourceLimits {
    fn from(limits: Limits) -> Self {
        let Limits { memory_bytes, pids, cpu_seconds, open_files, file_bytes } = limits;
        Self { memory_bytes, pids, cpu_seconds, open_files, file_bytes }
    }
}

impl From<core::LimitReport> for LimitReport {
    fn from(report: core::LimitReport) -> Self {
        let name = |means: Option<LimitMeans>| means.map(|means| means.name().to_owned());
        Self {
            memory_bytes: name(report.memory_bytes),
            pids: name(report.pids),
            cpu_seconds: name(report.cpu_seconds),
            open_files: name(report.open_files),
            file_bytes: name(report.file_bytes),
        }
    }
}

impl From<LimitReport> for core::LimitReport {
    /// Means that we do not know are left out.
    fn from(report: LimitReport) -> Self {
        let means = |name: Option<String>| LimitMeans::from_name(&name?);
        Self {
            memory_bytes: means(report.memory_bytes),
            pids: means(report.pids),
            cpu_seconds: means(report.cpu_seconds),
            open_files: means(report.open_files),
            file_bytes: means(report.file_bytes),
        }
    }
}

impl TryFrom<&core::EnvPolicy> for EnvPolicy {
    type Error = NotSendable;

    fn try_from(policy: &core::EnvPolicy) -> Result<Self, NotSendable> {
        Ok(Self {
            inherit: policy.inherit.into(),
            ignore_default_excludes: policy.ignore_default_excludes,
            exclude: policy.exclude.clone(),
            set: variables(&policy.set, |value| utf8(value, "the value of an environment variable"))?,
            include_only: policy.include_only.clone(),
        })
    }
}

impl From<EnvPolicy> for core::EnvPolicy {
    fn from(policy: EnvPolicy) -> Self {
        Self {
            inherit: policy.inherit.into(),
            ignore_default_excludes: policy.ignore_default_excludes,
            exclude: policy.exclude,
            set: policy.set.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            include_only: policy.include_only,
        }
    }
}

fn variables<T>(
    variables: &Variables,
    value_of: impl Fn(&OsStr) -> Result<T, NotSendable>,
) -> Result<BTreeMap<String, T>, NotSendable> {
    let pairs = variables.iter();
    pairs.map(|(name, value)| Ok((utf8(name, "the name of an environment variable")?, value_of(value)?))).collect()
}

fn utf8(word: &OsStr, what: &'static str) -> Result<String, NotSendable> {
    match word.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(NotSendable::NotUtf8 { what, word: word.to_owned() }),
    }
}

/// Whole milliseconds, rounded up; `None` if the number is too large for the wire, which then means for ever.
pub fn round_up_to_millis(time: Duration) -> Option<u64> {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).ok().filter(|ms| i64::try_from(*ms).is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn refusal(command: &Command) -> String {
        let id = ProcessId::new("p").expect("a short id");
        StartParams::new(&id, command).expect_err("it cannot be sent").to_string()
    }

    #[test]
    fn a_command_that_cannot_be_sent_is_refused_for_what_is_wrong_with_it() {
        let relative = Command::new(["true"], "here");
        assert_eq!(refusal(&relative), r#"path "here" is not absolute: give a full path"#);
        let mut odd = Command::new(["true"], "/");
        odd.environ = Environ::exactly([(std::ffi::OsString::from_vec(b"\xff".to_vec()), "x")]);
        assert_eq!(refusal(&odd), r#"the name of an environment variable, "\xFF", cannot be sent: it is not UTF-8"#);
    }

    #[test]
    fn a_command_arrives_as_it_was_sent() {
        let mut command = Command::new(["a", "b"], "/w");
        command.io = Io::Pty(core::TerminalSize { rows: 3, cols: 4 });
        command.environ = Environ::inherit_and([("N", "v")]);
        command.time_limit = Some(TimeLimit { after: Duration::from_secs(2), grace: Duration::from_millis(7) });
        command.overflow = core::Overflow::Block;
        command.limits = core::ResourceLimits {
            memory_bytes: Some(1 << 30),
            pids: Some(2),
            cpu_seconds: Some(3),
            open_files: Some(4),
            file_bytes: Some(5),
        };
        command.run_as = Some(core::RunAs { user: "nobody".into() });
        command.label = b"mine".to_vec();
        let id = ProcessId::new("p").expect("a short id");
        let params = StartParams::new(&id, &command).expect("it can be sent");
        assert_eq!(params.into_command("/w".into(), None, b"mine".to_vec()), Ok(command));
    }

    #[test]
    fn an_exit_arrives_as_it_was_sent() {
        let usage =
            ResourceUsage { user: Duration::from_millis(1), system: Duration::from_millis(2), max_rss_bytes: 3 };
        let statuses = [ExitStatus::Code(7), ExitStatus::Signal { number: 9, core_dumped: true }];
        let causes = ExitCause::ALL;
        let limits_reached = [core::Limit::Pids].into_iter().collect();
        for exit in statuses
            .into_iter()
            .flat_map(|status| causes.map(|cause| core::Exit { status, cause, usage, limits_reached }))
        {
            assert_eq!(core::Exit::from(Exit::from(exit)), exit);
        }
        assert_eq!(core::Exit::from(Exit::from(core::Exit::LOST)), core::Exit::LOST);
    }
}
