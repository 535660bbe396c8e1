//! The arguments of `exec-server ssh`, and of `relay`, which it runs at the far end.

use std::path::PathBuf;

use clap::Args;

use super::RunArgs;

const LONG: &str = "\
Run a program on another machine, or open a login shell there. Nothing has to be set up but ssh.

exec-server is brought there if it is not there yet: this very binary, verified, in ~/.cache/exec-server. It starts a \
server for your account, which outlives the connection, and ends by itself when nobody has needed it for ten minutes. \
When ssh dies, the network is away or the laptop sleeps, the connection is made again and nothing is lost; also when that \
server was killed. What `run` can do, this can: --detach, --tty, --timeout, --json and the rest.

The same machine is ssh://HOST to --connect of every other command, and to environments.toml; --save writes it there.";

const AFTER: &str = "\
HOST is what ssh calls it, an alias of ~/.ssh/config as well; [USER@]HOST[:PORT]; or a container that runs:
  docker:NAME  podman:NAME  kubectl:POD[/CONTAINER]

Examples:
  exec-server ssh build                            a login shell that survives the network
  exec-server ssh build -- make -j8
  exec-server ssh build --detach -- make all       then ps, logs, attach, kill
  exec-server ssh build --save build -- true       from now on: --environment build, and cp src build:
  exec-server ssh docker:web -- ps aux
  exec-server cp --connect ssh://build notes.txt :/tmp/

Keys, users and hosts are ssh's business. It asks for a password or about a host key only if there is a terminal, and only
when it first connects. Exit codes are those of `run`.";

/// Run a program, or a login shell, on another machine by ssh; or in a container
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(long_about = LONG, after_long_help = AFTER, after_help = "`--help` tells more: containers, examples.")]
#[command(mut_arg("argv", |argv| argv.required(false).help("The program and its arguments, after `--`; a login shell without")))]
#[command(mut_arg("connect", |connect| connect.hide(true)), mut_arg("environment", |environment| environment.hide(true)))]
#[command(mut_arg("token_file", |token| token.hide(true)), mut_arg("tls_ca", |tls| tls.hide(true)))]
#[command(mut_arg("tls_fingerprint", |tls| tls.hide(true)), mut_arg("tls_client_cert", |tls| tls.hide(true)))]
#[command(mut_arg("tls_client_key", |tls| tls.hide(true)))]
pub(crate) struct SshArgs {
    /// Which machine, as ssh calls it; or docker:NAME, podman:NAME, kubectl:POD[/CONTAINER]
    pub(crate) host: String,

    /// The binary to bring there instead of this one: for a machine of another architecture, or an older system
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub(crate) binary: Option<PathBuf>,

    /// Write it into environments.toml under this id, once it has answered
    #[arg(long, value_name = "ID", help_heading = "Where")]
    pub(crate) save: Option<String>,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Pass stdin and stdout on to the server of this account, which is started if there is none
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct RelayArgs {
    /// Begins the line that says when the stream is the server's
    pub(crate) mark: String,
}
