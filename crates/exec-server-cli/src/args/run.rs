//! The arguments of `exec-server run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::TargetArgs;
use super::sandbox::SandboxArgs;
use super::values::{EnvArg, LimitArg, bytes, duration, env_arg, limit_arg, process_name};

const LONG: &str = "\
Run a program: here, embedded, with no server; or in another environment.

The program runs in a session of its own. Its stdout and stderr come out of ours, byte for byte and apart; our stdin \
goes in, and so does its end. Signals sent to us (INT, TERM, QUIT, HUP, USR1, USR2) are passed on, and Ctrl-Z stops \
and resumes both. Nothing is left behind: when the program has exited and its output is out, background processes it \
left running are ended, with a note on stderr.

Where: --environment and --connect say so; without them, the default of environments.toml, else EXEC_SERVER_URL, else \
here. Elsewhere it all works the same, over a connection that may break: it is looked for again for 25 seconds (--reconnect-timeout), and \
nothing printed meanwhile is lost. The program sees the variables of the server over there, and --env.

--detach starts the program there, prints its id, and leaves. `exec-server ps`, `logs`, `attach` and `kill` find it \
again, from this account on this machine.";

const AFTER: &str = "\
Exit codes:
  the program's own; 128+n if signal n ended it
  124  the time limit ran out
  125  exec-server itself failed, or output was lost
  126  the program cannot be executed
  127  the program was not found
  141  nobody reads our output any more

Events of --json, one object per line on stdout:
  {\"event\":\"started\",\"pid\":4711}
  {\"event\":\"output\",\"seq\":1,\"stream\":\"stdout\",\"text\":\"...\"}
                                          (\"base64\" instead of \"text\", if it is not UTF-8)
  {\"event\":\"exited\",\"seq\":2,\"exit\":{\"kind\":\"exited\",\"code\":0,...}}
  {\"event\":\"closed\",\"seq\":3}              no output can follow
  {\"event\":\"gap\",\"fromSeq\":1,\"toSeq\":9,\"droppedBytes\":65536}   dropped, see --spool
  {\"event\":\"leftBehind\",\"ended\":1,\"left\":0}   background processes were ended
  {\"event\":\"detached\",\"id\":\"make-x7q2\",...}   instead of all others, with --detach
  {\"event\":\"failed\",\"message\":\"...\",\"exitCode\":127}    there is no child, or we failed

Examples:
  exec-server run -- uname -a
  exec-server run --cwd /srv/app --env PORT=8080 --timeout 5m -- cargo test
  exec-server run --clear-env --env PATH --env HOME -- env
  exec-server run --tty -- vim notes.txt
  tar c src | exec-server run -- sha256sum
  exec-server run --json -- sh -c 'echo out; echo err >&2; exit 3'
  exec-server run --sandbox workspace-write -- make test
  exec-server run --limit memory=512M --limit pids=100 --limit cpu=30s -- make test
  exec-server run --user nobody -- id
  exec-server run --connect ws://127.0.0.1:7000 --tty -- bash
  exec-server run --environment build --detach -- make all";

/// Run a program here, or in another environment
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(long_about = LONG, after_long_help = AFTER, after_help = "`--help` tells more: exit codes, events, examples.")]
pub(crate) struct RunArgs {
    /// Give the program a terminal; ours, if there is one, becomes its screen and keyboard
    ///
    /// stdout and stderr become one. Our terminal is in raw mode meanwhile, so Ctrl-C and Ctrl-Z are for the program;
    /// when it is resized, so is the program's.
    #[arg(short, long)]
    pub(crate) tty: bool,

    /// Leave our stdin alone; the program reads from /dev/null
    ///
    /// For loops such as `while read host; do exec-server run -n ...; done`, whose input would otherwise be eaten.
    #[arg(short, long)]
    pub(crate) no_stdin: bool,

    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Start it there, print its id, and leave it running
    ///
    /// Only the id goes to stdout. Our stdin is left alone; the program's stays open for `exec-server attach`, unless
    /// --no-stdin is given. Its server keeps what it printed, and its exit code, for a day after its end: see --keep.
    #[arg(short, long, help_heading = "Where", conflicts_with = "wait_all")]
    pub(crate) detach: bool,

    /// What to call it, instead of a name that is made up: letters, digits, -, _ and . (at most 64)
    #[arg(long, value_name = "NAME", value_parser = process_name, help_heading = "Where", requires = "detach")]
    pub(crate) name: Option<String>,

    /// How long the output and the exit code of a detached program are kept after its end; its server may allow less
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "24h", help_heading = "Where")]
    pub(crate) keep: Duration,

    /// Folder to start in [default: this one; elsewhere, the one its server was started in]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// Set a variable; NAME alone passes ours on (may be repeated)
    #[arg(short, long = "env", value_name = "NAME[=VALUE]", value_parser = env_arg(), help_heading = "Environment")]
    pub(crate) env: Vec<EnvArg>,

    /// Set the variables of a file, a line each: NAME=VALUE, or NAME to pass ours on; --env wins (may be repeated)
    ///
    /// Lines that begin with # and empty ones are left out, and so are quotes around a value and `export` before a name.
    #[arg(long = "env-file", value_name = "FILE", help_heading = "Environment")]
    pub(crate) env_files: Vec<PathBuf>,

    /// Pass on no variables of ours, only those of --env and --env-file
    #[arg(long, help_heading = "Environment")]
    pub(crate) clear_env: bool,

    /// Run the program as this user, by name or number; only root may choose another than itself
    ///
    /// It gets the user's groups, and HOME, USER, LOGNAME and SHELL of the account unless --env sets them.
    #[arg(short, long, value_name = "NAME", help_heading = "Sandbox")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,

    /// End the program and all it started after this long, with exit code 124
    ///
    /// Durations are written 30s, 1m30s, 500ms, 2h; a plain number is seconds.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Limits")]
    pub(crate) timeout: Option<Duration>,

    /// Limit what the program and all it starts may use: memory=SIZE, pids=COUNT, cpu=TIME, files=COUNT, file-size=SIZE
    /// (may be repeated)
    ///
    /// memory, pids (processes and threads) and cpu (processor time) are of the whole tree where cgroups can be made; files
    /// (open ones) and file-size are of each process. What cannot be enforced is refused; `exec-server doctor` says how
    /// each would be.
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limit_arg, help_heading = "Limits")]
    pub(crate) limits: Vec<LimitArg>,

    /// How long whatever is to be ended may take after TERM, before KILL
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s", help_heading = "Limits")]
    pub(crate) grace: Duration,

    /// Wait until the program's background processes have let go of its output, too
    ///
    /// Without it, they are ended soon after the program itself has exited. With it, --timeout bounds them as well.
    #[arg(long, help_heading = "Limits")]
    pub(crate) wait_all: bool,

    /// Output to hold for whoever reads ours slowly; beyond it the oldest is dropped, and that is told
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "256M", help_heading = "Limits")]
    pub(crate) spool: u64,

    /// Print events as JSON, one object per line, on stdout
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// No notes of our own on stderr, but for failures
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// The program and its arguments, after `--`
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) argv: Vec<OsString>,
}
