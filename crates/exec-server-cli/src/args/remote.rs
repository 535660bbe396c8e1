//! The arguments of the commands on detached processes (`ps`, `attach`, `logs`, `kill`) and on environments (`env`).

use std::time::Duration;

use clap::{Args, Subcommand};
use exec_transport::ConnectUrl;

use super::tls::ConnectArgs;
use super::values::duration;

/// The choice of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct TargetArgs {
    /// An environment of environments.toml, by its id; `local` is this machine
    #[arg(long, value_name = "ID", conflicts_with = "connect", help_heading = "Where")]
    pub(crate) environment: Option<String>,

    /// A server, by its URL: ws://HOST:PORT, wss://HOST:PORT or unix://PATH
    #[arg(long, value_name = "URL", value_parser = server_url, help_heading = "Where")]
    pub(crate) connect: Option<String>,

    #[command(flatten)]
    pub(crate) connection: ConnectArgs,
}

const FOUND_AGAIN: &str = "\
Processes are found by notes that `run --detach` leaves in $EXEC_SERVER_HOME/detached, else in
~/.local/state/exec-server/detached: one small file each, with the environment, the session and the id. An id may be
shortened as long as it fits one process only. A session has one client at a time: while a process is attached in
one place, ps only says so, attach and logs ask for --take-over, and kill takes it. Whom to trust over wss:// is not
in the notes: set EXEC_SERVER_TLS_CA or EXEC_SERVER_TLS_FINGERPRINT.";

/// List the processes that `run --detach` has left somewhere
#[derive(Debug, Args)]
#[command(after_long_help = FOUND_AGAIN)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

const ATTACH: &str = "\
Show what a process has printed, go on with what it prints, and pass our stdin and signals on to it.

The exit code is the process's own, once it ends; 125 means that we failed. Leaving keeps it running: Ctrl-\\ d on a \
process with a terminal (Ctrl-\\ twice is for the process), Ctrl-\\ alone on one without, or a terminal that hangs up.";

/// Go on with a process: its output, our input; Ctrl-\ d leaves
#[derive(Debug, Args)]
#[command(long_about = ATTACH, after_long_help = FOUND_AGAIN)]
pub(crate) struct AttachArgs {
    /// Which, as `exec-server ps` calls it
    pub(crate) id: String,
    /// Show only what came after this entry (the `seq` of --json)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) since_seq: u64,
    /// Look only; leave our stdin and its stdin alone
    #[arg(short, long)]
    pub(crate) no_stdin: bool,
    /// Take it from whoever is attached to it now
    #[arg(long)]
    pub(crate) take_over: bool,
    /// After its end, wait until its background processes have let go of its output, too
    #[arg(long)]
    pub(crate) wait_all: bool,
    /// Print events as JSON, one object per line, on stdout; as `run --json` does
    #[arg(long)]
    pub(crate) json: bool,
    /// No notes of our own on stderr, but for failures
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Print what a process has printed; stdout and stderr stay apart
#[derive(Debug, Args)]
#[command(after_long_help = FOUND_AGAIN)]
pub(crate) struct LogsArgs {
    /// Which, as `exec-server ps` calls it
    pub(crate) id: String,
    /// Go on until its output ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what came after this entry (the `seq` of --json)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) since_seq: u64,
    /// Take it from whoever is attached to it now
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print events as JSON, one object per line; as `run --json` does
    #[arg(long)]
    pub(crate) json: bool,
}

/// End a process and everything it started
#[derive(Debug, Args)]
#[command(after_long_help = FOUND_AGAIN)]
pub(crate) struct KillArgs {
    /// Which, as `exec-server ps` calls them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// How long they may take after TERM, before KILL; 0 kills at once
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    pub(crate) grace: Duration,
    /// Let go of its output and its exit code, too; it is no longer listed
    #[arg(long)]
    pub(crate) forget: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

const ENVIRONMENTS: &str = "\
Environments come from environments.toml, in $EXEC_SERVER_HOME, else $CODEX_HOME, else ~/.codex; if there is no such
file, from EXEC_SERVER_URL, else CODEX_EXEC_SERVER_URL; else there is this machine alone, `local`.";

/// List environments, or check that they answer
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENTS)]
pub(crate) struct EnvArgs {
    #[command(subcommand)]
    pub(crate) command: EnvCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvCommand {
    List(ListArgs),
    Check(CheckArgs),
}

/// List them, with where each comes from and which is the default
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Connect to them and tell what is there; the exit code is 1 if one does not answer
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Which: ids of environments, or URLs; all of them without any
    #[arg(value_name = "ID|URL")]
    pub(crate) which: Vec<String>,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Checked here, but kept as it was written.
fn server_url(text: &str) -> Result<String, String> {
    text.parse::<ConnectUrl>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}
