//! The request to run something, checked once.
//!
//! After [`Command::check`] nobody asks again whether argv is empty or a string hides a NUL byte. Whether the program
//! or the folder exists is a fact about the world and is learnt by starting it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::environ::Environ;
use crate::limits::{ARGUMENT_BYTES, SPOOL_MIN_BYTES};

/// What to run, where, and how it is wired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments; never empty once checked.
    pub argv: Vec<OsString>,
    /// What the child sees as its own name, if not `argv[0]`.
    pub arg0: Option<OsString>,
    /// Folder to start in; absolute.
    pub cwd: PathBuf,
    /// Which variables the child gets; resolved on the machine that runs it.
    pub environ: Environ,
    /// Pipes or a terminal.
    pub io: Io,
    /// When to end it, if it does not end by itself.
    pub time_limit: Option<TimeLimit>,
    /// What a full spool does.
    pub overflow: Overflow,
    /// How much output to hold; the environment's default if `None`.
    pub spool_bytes: Option<u64>,
    /// Opaque to everybody but the owner, who finds it again in `list`.
    pub label: Vec<u8>,
}

/// How a child is wired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// stdout and stderr apart; stdin a pipe, or `/dev/null`.
    Pipes {
        /// Whether stdin is a pipe that can be written.
        stdin: bool,
    },
    /// All three on a pseudo terminal that controls the child's session.
    Pty(TerminalSize),
}

/// Rows and columns of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters per line.
    pub cols: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// A time limit and how it is enforced: TERM to the tree, the grace, KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// From the start.
    pub after: Duration,
    /// Between TERM and KILL; zero means KILL at once.
    pub grace: Duration,
}

/// What happens when a spool is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// Forget the oldest output, and say so.
    #[default]
    DropOldest,
    /// Let the child wait until somebody makes room.
    Block,
}

/// Why a command cannot even be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// Nothing to run.
    #[error("argv must not be empty: name the program to run")]
    EmptyArgv,
    /// A program without a name.
    #[error("argv[0] is empty: name the program to run")]
    EmptyProgram,
    /// The kernel ends strings at NUL, so this one cannot be passed.
    #[error("{field} contains a NUL byte, which no program can receive")]
    Nul {
        /// Which string.
        field: CommandField,
    },
    /// A relative folder has no meaning for a daemon.
    #[error("working directory {cwd:?} is not absolute: give a full path")]
    RelativeCwd {
        /// The folder as it came.
        cwd: PathBuf,
    },
    /// Larger than any kernel takes.
    #[error(
        "arguments and environment take {found_bytes} bytes, more than {limit_bytes}: pass large data by file or stdin"
    )]
    TooLarge {
        /// What came.
        found_bytes: usize,
        /// What is allowed.
        limit_bytes: usize,
    },
    /// A terminal without room for a character.
    #[error("terminal size {rows}x{cols} has no cells: rows and cols must be at least 1")]
    NoCells {
        /// Lines asked for.
        rows: u16,
        /// Columns asked for.
        cols: u16,
    },
    /// Single entries would not fit.
    #[error("spool of {found_bytes} bytes is too small: ask for at least {limit_bytes}")]
    SmallSpool {
        /// What was asked.
        found_bytes: u64,
        /// The least there is.
        limit_bytes: u64,
    },
}

/// Where a NUL byte was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandField {
    /// An argument, by index.
    Argument(usize),
    /// The name given as `arg0`.
    Arg0,
    /// The working directory.
    Cwd,
    /// A variable's name or value.
    Environment,
}

impl std::fmt::Display for CommandField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(index) => write!(f, "argument {index}"),
            Self::Arg0 => f.write_str("arg0"),
            Self::Cwd => f.write_str("the working directory"),
            Self::Environment => f.write_str("the environment"),
        }
    }
}

/// The steps of starting a command, in their order; a failed start names the one that failed. The numbers are what the
/// keeper's protocol carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SpawnStep {
    /// Making the spool.
    Spool = 1,
    /// Making the pipes.
    Pipe = 2,
    /// Making the pseudo terminal.
    Pty = 3,
    /// Making the process itself.
    Clone = 4,
    /// Making it the leader of a session of its own.
    Session = 5,
    /// Entering the working directory.
    Cwd = 6,
    /// Executing the program.
    Exec = 7,
}

impl SpawnStep {
    pub const ALL: [SpawnStep; 7] =
        [Self::Spool, Self::Pipe, Self::Pty, Self::Clone, Self::Session, Self::Cwd, Self::Exec];
}

impl Command {
    /// A command with pipes, no stdin, the caller's choice of folder and nothing else out of the ordinary.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            arg0: None,
            cwd: cwd.into(),
            environ: Environ::default(),
            io: Io::Pipes { stdin: false },
            time_limit: None,
            overflow: Overflow::default(),
            spool_bytes: None,
            label: Vec::new(),
        }
    }

    /// Refuses what no kernel could run, before anything is spent on it.
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
        self.environ.check()?;
        let found_bytes = self.argv.iter().map(|argument| argument.len() + 1).sum::<usize>() + self.environ.bytes();
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
