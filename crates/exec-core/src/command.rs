//! The request to run something, checked once, and the steps of starting it.
//!
//! After [`Command::check`] nobody asks again whether argv is empty or a string contains a NUL byte. Whether the
//! program or the working directory exists is a fact about the machine and is learnt by starting the program.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::environ::Environ;
use crate::limits::{ARGUMENT_BYTES, SPOOL_MIN_BYTES, USER_NAME_BYTES};
use crate::network::{BadProxy, NetworkProxy, ProxyRules};
use crate::resource_limits::{Limit, ResourceLimits};
use crate::sandbox::{FileCeiling, NetworkPolicy, SandboxPolicy};

/// What to run, where, and with which standard streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments; never empty once checked.
    pub argv: Vec<OsString>,
    /// What the child sees as its own name, if not `argv[0]`.
    pub arg0: Option<OsString>,
    /// Absolute.
    pub cwd: PathBuf,
    /// Which variables the child gets; resolved on the machine that runs it.
    pub environ: Environ,
    pub io: Io,
    /// When to end it, if it does not end by itself.
    pub time_limit: Option<TimeLimit>,
    /// What it and all that it starts may use. What the machine cannot enforce is refused.
    pub limits: ResourceLimits,
    /// Whose rights it has; those of the environment's own user, if `None`.
    pub run_as: Option<RunAs>,
    pub overflow: Overflow,
    /// How much output the spool may hold; the environment's default if `None`.
    pub spool_bytes: Option<u64>,
    /// How long a server keeps its output and its exit after its end, unless the server allows less; `None` for the
    /// server's usual time. Where there is no server, it is kept until it is forgotten.
    pub keep: Option<Duration>,
    /// What it may reach; everything that its account may, if `None`.
    pub sandbox: Option<SandboxPolicy>,
    /// The proxy that it is given, and told of by variables.
    pub network_proxy: Option<NetworkProxy>,
    /// What its sandbox may allow at most. If there is any, a command without a sandbox, or with one that allows more, is
    /// refused; nothing is changed in it.
    pub ceilings: Vec<FileCeiling>,
    /// Opaque to everybody but the owner, who finds it again in `list`.
    pub label: Vec<u8>,
}

/// Whose rights a process has. Only root may choose; others may name themselves.
///
/// The process gets the user's id, primary group and supplementary groups, and `HOME`, `USER`, `LOGNAME` and `SHELL` of
/// the account unless the command sets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    /// A name, or a number if no user has it as a name.
    pub user: String,
}

/// What a child's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// stdout and stderr are two pipes; stdin is a pipe that can be written, or `/dev/null`.
    Pipes { stdin: bool },
    /// All three are one pseudo terminal, which controls the child's session.
    Pty(TerminalSize),
}

/// In characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// A time limit. When it is over, the process tree gets SIGTERM, and after the grace SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// Counted from the start.
    pub after: Duration,
    /// Between SIGTERM and SIGKILL; zero means SIGKILL at once.
    pub grace: Duration,
}

/// What happens when a spool is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// The oldest output is dropped, and readers are told how much.
    #[default]
    DropOldest,
    /// The child waits until somebody frees space.
    Block,
}

/// Why a command cannot even be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    #[error("argv must not be empty: name the program to run")]
    EmptyArgv,
    #[error("argv[0] is empty: name the program to run")]
    EmptyProgram,
    /// The kernel ends strings at NUL, so this one cannot be passed.
    #[error("{field} contains a NUL byte, which no program can receive")]
    Nul { field: CommandField },
    /// A daemon's own working directory means nothing to its clients, so a relative path cannot be resolved.
    #[error("working directory {cwd:?} is not absolute: give a full path")]
    RelativeCwd { cwd: PathBuf },
    #[error(
        "arguments and environment take {found_bytes} bytes, more than {limit_bytes}: pass large data by file or stdin"
    )]
    TooLarge { found_bytes: usize, limit_bytes: usize },
    #[error("terminal size {rows}x{cols} has no cells: rows and cols must be at least 1")]
    NoCells { rows: u16, cols: u16 },
    /// Not even single entries would fit.
    #[error("spool of {found_bytes} bytes is too small: ask for at least {limit_bytes}")]
    SmallSpool { found_bytes: u64, limit_bytes: u64 },
    #[error(transparent)]
    Proxy(#[from] BadProxy),
    /// Nothing would be in its reach, and programs would wait for it in vain.
    #[error("a sandbox whose only network is its proxy needs a proxy")]
    NoProxy,
    #[error("a limit of 0 {}: nothing could run within it", limit.name())]
    ZeroLimit { limit: Limit },
    #[error("no user is named: give a name or a number")]
    NoUser,
    #[error("a user name of {found_bytes} bytes is too long: at most {limit_bytes} are allowed")]
    LongUserName { found_bytes: usize, limit_bytes: usize },
}

/// Where a NUL byte was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandField {
    /// By index.
    Argument(usize),
    Arg0,
    Cwd,
    /// The name or the value of a variable.
    Environment,
    User,
}

impl std::fmt::Display for CommandField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(index) => write!(f, "argument {index}"),
            Self::Arg0 => f.write_str("arg0"),
            Self::Cwd => f.write_str("the working directory"),
            Self::Environment => f.write_str("the environment"),
            Self::User => f.write_str("the user name"),
        }
    }
}

/// The steps of starting a command, in their order; a failed start names the one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnStep {
    Spool,
    Pipe,
    Pty,
    Clone,
    /// Making the child the leader of a session of its own.
    Session,
    /// Putting the child under its limits.
    Limits,
    /// Confining the child, if it has a sandbox.
    Sandbox,
    /// Giving the child the rights of its user, if they are not ours.
    User,
    Cwd,
    Exec,
}

impl SpawnStep {
    pub const ALL: [SpawnStep; 10] = [
        Self::Spool,
        Self::Pipe,
        Self::Pty,
        Self::Clone,
        Self::Session,
        Self::Limits,
        Self::Sandbox,
        Self::User,
        Self::Cwd,
        Self::Exec,
    ];

    /// One word for programs to compare.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spool => "spool",
            Self::Pipe => "pipe",
            Self::Pty => "pty",
            Self::Clone => "clone",
            Self::Session => "session",
            Self::Limits => "limits",
            Self::Sandbox => "sandbox",
            Self::User => "user",
            Self::Cwd => "cwd",
            Self::Exec => "exec",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }
}

impl Command {
    /// A command with pipes, without stdin, and with the default of everything else.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            arg0: None,
            cwd: cwd.into(),
            environ: Environ::default(),
            io: Io::Pipes { stdin: false },
            time_limit: None,
            limits: ResourceLimits::default(),
            run_as: None,
            overflow: Overflow::default(),
            spool_bytes: None,
            keep: None,
            sandbox: None,
            network_proxy: None,
            ceilings: Vec::new(),
            label: Vec::new(),
        }
    }

    /// Refuses what no kernel could run, before any resource is used for it.
    pub fn check(&self) -> Result<(), BadCommand> {
        let program = self.argv.first().ok_or(BadCommand::EmptyArgv)?;
        for (index, argument) in self.argv.iter().enumerate() {
            no_nul(argument.as_bytes(), CommandField::Argument(index))?;
        }
        if program.is_empty() {
            return Err(BadCommand::EmptyProgram);
        }
        if let Some(arg0) = &self.arg0 {
            no_nul(arg0.as_bytes(), CommandField::Arg0)?;
        }
        no_nul(self.cwd.as_os_str().as_bytes(), CommandField::Cwd)?;
        if !self.cwd.is_absolute() {
            return Err(BadCommand::RelativeCwd { cwd: self.cwd.clone() });
        }
        if let Io::Pty(TerminalSize { rows, cols }) = self.io
            && (rows == 0 || cols == 0)
        {
            return Err(BadCommand::NoCells { rows, cols });
        }
        if let Some(found_bytes) = self.spool_bytes
            && found_bytes < SPOOL_MIN_BYTES
        {
            return Err(BadCommand::SmallSpool { found_bytes, limit_bytes: SPOOL_MIN_BYTES });
        }
        match &self.network_proxy {
            Some(proxy) => drop(ProxyRules::new(proxy)?),
            None if self.sandbox.as_ref().is_some_and(|policy| policy.network == NetworkPolicy::ProxyOnly) => {
                return Err(BadCommand::NoProxy);
            }
            None => {}
        }
        // A file of no bytes can still be made, and everything else can run.
        let zero = |(limit, value): (Limit, u64)| (value == 0 && limit != Limit::FileBytes).then_some(limit);
        if let Some(limit) = self.limits.iter().find_map(zero) {
            return Err(BadCommand::ZeroLimit { limit });
        }
        if let Some(RunAs { user }) = &self.run_as {
            no_nul(user.as_bytes(), CommandField::User)?;
            if user.is_empty() {
                return Err(BadCommand::NoUser);
            }
            if user.len() > USER_NAME_BYTES {
                return Err(BadCommand::LongUserName { found_bytes: user.len(), limit_bytes: USER_NAME_BYTES });
            }
        }
        self.environ.check()?;
        // All that is sent to the keeper or kept with the process, so that nothing of it can be without bound.
        let strings = self.argv.iter().chain(&self.arg0).map(|string| string.len() + 1).sum::<usize>();
        let proxy = self.network_proxy.as_ref().map_or(0, NetworkProxy::bytes);
        let found_bytes = strings + self.cwd.as_os_str().len() + self.label.len() + self.environ.bytes() + proxy;
        if found_bytes > ARGUMENT_BYTES {
            return Err(BadCommand::TooLarge { found_bytes, limit_bytes: ARGUMENT_BYTES });
        }
        Ok(())
    }
}

pub(crate) fn no_nul(text: &[u8], field: CommandField) -> Result<(), BadCommand> {
    if text.contains(&0) {
        return Err(BadCommand::Nul { field });
    }
    Ok(())
}
