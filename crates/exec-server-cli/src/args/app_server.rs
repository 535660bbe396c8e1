//! The arguments of `exec-server app-server`.

use clap::Args;
use exec_transport::ListenUrl;

use super::serve::AuthArgs;
use super::tls::ServerTlsArgs;
use super::{LogFormat, TargetArgs};

const EXAMPLES: &str = "\
Examples:
  exec-server app-server                              on stdin and stdout, one JSON message a line
  exec-server app-server --listen ws://127.0.0.1:0    over WebSocket; the URL is printed first
  exec-server app-server --connect ws://HOST:PORT     commands and files are those of another machine

It speaks the part of Codex's app-server protocol that concerns execution: initialize, command/exec, process/spawn, fs and
environment methods. What differs from Codex's is in docs/app-server.md. Processes end with their connection.";

/// Serve execution as Codex's app-server does: command/exec, process/spawn, fs, environment
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AppServerArgs {
    /// Where to listen: stdio://, ws://IP:PORT (0 for any port), wss://IP:PORT or unix://PATH
    #[arg(long, value_name = "URL", default_value = "stdio://")]
    pub(crate) listen: String,
    /// The same as --listen stdio://
    #[arg(long, conflicts_with = "listen")]
    pub(crate) stdio: bool,
    /// Connections at one time
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// A name that clients may use for this server, besides its addresses, localhost and the names this machine knows
    /// itself by (guards against DNS rebinding; with --ws-auth every name will do)
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Listen without --ws-auth and --tls-client-ca where other machines can reach it: whoever does may run programs as this user
    #[arg(long)]
    pub(crate) insecure_no_auth: bool,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) auth: AuthArgs,
    #[command(flatten)]
    pub(crate) tls: ServerTlsArgs,
}

impl AppServerArgs {
    /// Parsed here and not by clap, as that of `serve`.
    pub(crate) fn url(&self) -> anyhow::Result<ListenUrl> {
        Ok(self.listen.parse()?)
    }
}
