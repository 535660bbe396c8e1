//! The arguments of the commands on detached processes (`ps`, `attach`, `logs`, `kill`) and on environments (`env`).

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use exec_client::bootstrap::BootstrapTarget;
use exec_core::Signal;
use exec_transport::ConnectUrl;

use super::tls::ConnectArgs;
use super::values::{duration, signal};

/// The choice of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct TargetArgs {
    /// An environment of environments.toml, by its id; `local` is this machine. With --connect, one behind that server
    #[arg(long, value_name = "ID", help_heading = "Where")]
    pub(crate) environment: Option<String>,

    /// A server, by its URL: ws://HOST:PORT, wss://HOST:PORT or unix://PATH; or a machine that exec-server is brought to:
    /// ssh://[USER@]HOST[:PORT], docker://NAME, podman://NAME, kubectl://POD[/CONTAINER]
    #[arg(long, value_name = "URL", value_parser = server_url, help_heading = "Where")]
    pub(crate) connect: Option<String>,

    /// The binary that is brought there, from `ssh --binary`.
    #[arg(skip)]
    pub(crate) binary: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) connection: ConnectArgs,
}

const FOUND_AGAIN: &str = "\
Processes are found by notes that `run --detach` leaves in $EXEC_SERVER_HOME/detached, else in \
~/.local/state/exec-server/detached: one small file each, with the environment, the session and the id. An id may be \
shortened as long as it fits one process only. A process without a note, such as one that an agent has started, is found \
by ps, attach, logs and wait at the server that their --connect or --environment names, as SESSION/ID or ID: see `ps \
--all`; screen and kill need a note. One client at a time drives a session: ps, logs, screen, wait and `attach --observe` \
only look on, attach asks before it takes the drive from another, `kill --signal` fails then, and kill without it takes the \
drive. Whom to trust over wss:// is not in the notes: set \
EXEC_SERVER_TLS_CA or EXEC_SERVER_TLS_FINGERPRINT.";

/// List the processes that `run --detach` has left somewhere
#[derive(Debug, Args)]
#[command(after_long_help = FOUND_AGAIN)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Every session that we may see with its processes, also those of agents, and who drives it; of the environment that is
    /// named, or of all there are
    #[arg(short, long)]
    pub(crate) all: bool,
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
    /// Look over the shoulder of whoever drives it: nothing of ours reaches it, and Ctrl-C only leaves
    #[arg(long, conflicts_with_all = ["take_over", "no_stdin"])]
    pub(crate) observe: bool,
    /// Take it from whoever drives it now, without asking
    #[arg(long, visible_aliases = ["force", "yes"])]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
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
    /// Only what was printed within this time, as 5m or 90s
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "json")]
    pub(crate) since: Option<Duration>,
    /// Only the last lines; with --grep, the last ones that match
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub(crate) tail: Option<u64>,
    /// Only lines that match this regular expression; the server searches
    #[arg(long, value_name = "RE", conflicts_with = "json")]
    pub(crate) grep: Option<String>,
    /// Lines to show around each match
    #[arg(short = 'C', long, value_name = "N", default_value_t = 0, requires = "grep")]
    pub(crate) context: u32,
    /// Upper and lower case are the same to --grep
    #[arg(short, long, requires = "grep")]
    pub(crate) ignore_case: bool,
    /// Without escape sequences; of a progress bar, only its last state
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Take it from whoever drives it now; needed only where the server knows no observers
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Print events as JSON, one object per line; as `run --json` does
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print what is to be seen on the terminal of a process (`run --tty --detach`)
#[derive(Debug, Args)]
#[command(after_long_help = FOUND_AGAIN)]
pub(crate) struct ScreenArgs {
    /// Which, as `exec-server ps` calls it
    pub(crate) id: String,
    /// As it was after this entry (the `seq` of `logs --json`); as it is now if not given
    #[arg(long, value_name = "N")]
    pub(crate) seq: Option<u64>,
    /// With colours and attributes
    #[arg(long)]
    pub(crate) colors: bool,
    /// Take it from whoever drives it now; needed only where the server knows no observers
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Rows, cursor, size and title as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Wait until processes have ended; the exit code is the last one's own, and 124 if the time ran out
#[derive(Debug, Args)]
#[command(after_long_help = FOUND_AGAIN)]
pub(crate) struct WaitArgs {
    /// Which, as `exec-server ps` calls them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// How long, for all of them together; for ever without it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Also until their background processes have let go of their output
    #[arg(long)]
    pub(crate) wait_all: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// One JSON object per process
    #[arg(long)]
    pub(crate) json: bool,
}

/// End a process and everything it started, or send it a signal
#[derive(Debug, Args)]
#[command(after_long_help = FOUND_AGAIN)]
pub(crate) struct KillArgs {
    /// Which, as `exec-server ps` calls them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// How long they may take after TERM, before KILL; 0 kills at once
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    pub(crate) grace: Duration,
    /// Send this signal to the program instead of ending it: HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP or WINCH; -HUP
    /// and -9 mean the same
    #[arg(short, long, value_name = "SIGNAL", value_parser = signal, conflicts_with_all = ["grace", "forget"])]
    pub(crate) signal: Option<Signal>,
    /// With --signal: also if somebody is attached to it, who is disconnected then
    #[arg(long, requires = "signal")]
    pub(crate) take_over: bool,
    /// Let go of its output and its exit code, too; it is no longer listed, not even if its server cannot be reached
    #[arg(long)]
    pub(crate) forget: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

const ENVIRONMENTS: &str = "\
Environments come from environments.toml, in $EXEC_SERVER_HOME, else in ~/.config/exec-server and in Codex's folder
($CODEX_HOME or ~/.codex); if there is no such file, from EXEC_SERVER_URL, else CODEX_EXEC_SERVER_URL; else there is this machine alone, `local`.";

/// List environments, check that they answer, or say which a gateway has
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
    Status(StatusArgs),
    Add(AddArgs),
    Remove(RemoveArgs),
}

/// The server that has several environments
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// The gateway, by its URL: ws://HOST:PORT, wss://HOST:PORT or unix://PATH
    #[arg(long, value_name = "URL", value_parser = server_url, help_heading = "Where")]
    pub(crate) connect: String,
    #[command(flatten)]
    pub(crate) connection: ConnectArgs,
}

/// Tell whether the environments behind a gateway can be reached, without trying; the exit code is 1 if one is away
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Which; all of them without any
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Have a gateway know one more environment, as long as it runs; it must permit that
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Its id: up to 64 letters, digits, - and _
    pub(crate) id: String,
    /// Its server: ws://HOST:PORT or wss://HOST:PORT
    pub(crate) url: String,
    /// File with the token that its server asks for; readable for nobody else
    #[arg(long, value_name = "FILE")]
    pub(crate) its_token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}

/// Have a gateway forget an environment; what runs there goes on
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Which
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}

/// List them, with where each comes from and which is the default
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Those behind this server instead
    #[arg(long, value_name = "URL", value_parser = server_url, help_heading = "Where")]
    pub(crate) connect: Option<String>,
    #[command(flatten)]
    pub(crate) connection: ConnectArgs,
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
    if BootstrapTarget::is_meant_by(text) {
        return text.parse::<BootstrapTarget>().map(|_| text.to_owned()).map_err(|error| error.to_string());
    }
    text.parse::<ConnectUrl>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}
