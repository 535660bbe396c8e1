//! The arguments that say what a program may reach, and of the commands that are about that.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What the program may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct SandboxArgs {
    /// Confine the program: to reading, or to writing in its folder and in temporary ones
    ///
    /// Without --network it has no network. What this machine cannot enforce is refused; `exec-server doctor` says why.
    #[arg(long, value_name = "MODE", help_heading = "Sandbox")]
    pub(crate) sandbox: Option<SandboxMode>,

    /// Confine the program by a policy in a JSON file, in the shape that Codex uses (`permissions`, or a whole context)
    #[arg(long, value_name = "FILE", help_heading = "Sandbox", conflicts_with = "sandbox")]
    pub(crate) policy: Option<PathBuf>,

    /// With --sandbox: let it use the network
    #[arg(long, help_heading = "Sandbox", requires = "sandbox")]
    pub(crate) network: bool,

    /// With --sandbox workspace-write: one more folder to write in (may be repeated)
    #[arg(long, value_name = "DIR", help_heading = "Sandbox", requires = "sandbox")]
    pub(crate) writable: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxMode {
    /// All files can be read, none written
    ReadOnly,
    /// Files can be written in its working folder (but not in .git, .agents, .codex, .aws), in /tmp and in TMPDIR
    WorkspaceWrite,
}

/// Say what sandboxes and limits this machine can enforce, and what to do about the rest
///
/// Exits with 1 if one of the usual sandboxes cannot be enforced.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a program in a sandbox, here: a short way to write `run --sandbox`, to try a policy by hand
///
/// Without an option it can read all files and write none, and has no network.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct TrySandboxArgs {
    /// All files can be read, none written; this is the default
    #[arg(long, group = "mode")]
    pub(crate) read_only: bool,

    /// Files can be written in this folder, but not in its .git, .agents, .codex, .aws; and in /tmp and TMPDIR
    #[arg(long, group = "mode")]
    pub(crate) workspace_write: bool,

    /// A policy in a JSON file; see `run --policy`
    #[arg(long, value_name = "FILE", group = "mode")]
    pub(crate) policy: Option<PathBuf>,

    /// Let it use the network
    #[arg(long, conflicts_with = "policy")]
    pub(crate) network: bool,

    /// Give it a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,

    /// The program and its arguments, after `--`
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) argv: Vec<OsString>,
}

impl TrySandboxArgs {
    /// The same as arguments of `run`.
    pub(crate) fn as_run(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["exec-server".into(), "run".into()];
        match &self.policy {
            Some(file) => words.extend(["--policy".into(), file.into()]),
            None => {
                let mode = if self.workspace_write { "workspace-write" } else { "read-only" };
                words.extend(["--sandbox".into(), mode.into()]);
            }
        }
        words.extend(self.network.then(|| "--network".into()));
        words.extend(self.tty.then(|| "--tty".into()));
        words.push("--".into());
        words.extend(self.argv.iter().cloned());
        words
    }
}
