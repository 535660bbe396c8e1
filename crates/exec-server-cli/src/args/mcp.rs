//! The arguments of `exec-server mcp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::remote::TargetArgs;

const EXAMPLES: &str = "\
Examples:
  codex mcp add exec -- exec-server mcp                one line of configuration for Codex
  claude mcp add exec -- exec-server mcp               the same for Claude Code
  exec-server mcp --connect wss://build:7000           the agent is here, its hands are there
  exec-server mcp --environments environments.toml     one agent, hands on every machine of that file
  exec-server mcp --http 127.0.0.1:8765                for clients that connect to a URL; it is printed first

Where: all environments of environments.toml (see `exec-server env`), or of --environments; if there are several, the tools
take one as `environment_id`. --environment or --connect alone give the agent that one and no other; together with
--environments they say which is the default.

This machine is reached through a server of your account in the background, which is started if there is none, and keeps
commands, their output and their exit codes in $EXEC_SERVER_HOME, else ~/.local/state/exec-server: they outlive the agent,
this command, and that server itself.";

/// Give agents commands on a machine, by the Model Context Protocol
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Give the agent all environments of this file, which is written as environments.toml
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub(crate) environments: Option<PathBuf>,
    /// Serve HTTP there, at /mcp, instead of stdin and stdout
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// With --http: clients must send the token in this file; needed for other addresses than those of the loopback
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) http_token_file: Option<PathBuf>,
    /// With --http: a further name by which clients may call this host
    #[arg(long, value_name = "NAME", requires = "http")]
    pub(crate) http_allow_host: Vec<String>,
}
