//! The arguments of `exec-server mcp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::remote::TargetArgs;
use super::sandbox::SandboxArgs;

const EXAMPLES: &str = "\
Examples:
  codex mcp add exec -- exec-server mcp                one line of configuration for Codex
  claude mcp add exec -- exec-server mcp               the same for Claude Code
  exec-server mcp --connect wss://build:7000           the agent is here, its hands are there
  exec-server mcp --environments environments.toml     one agent, hands on every machine of that file
  exec-server mcp --sandbox workspace-write --ask outside-sandbox
                                                       confined to the project; beyond it, you are asked
  exec-server mcp --http 127.0.0.1:8765                for clients that connect to a URL; it is printed first

Where: all environments of environments.toml (see `exec-server env`), or of --environments; if there are several, the tools
take one as `environment_id`. --environment or --connect alone give the agent that one and no other; together with
--environments they say which is the default.

A sandbox is for all tools, those over files included, and for every environment: the workspace is the folder in which this
command runs, and in other environments the one of their server. What an environment cannot enforce is refused.

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
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// When the user is asked first, through the agent's client, which must support elicitation
    #[arg(long, value_name = "WHEN", default_value = "never", help_heading = "Sandbox")]
    pub(crate) ask: AskMode,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AskMode {
    /// Nobody is asked; what would be outside the sandbox is refused
    Never,
    /// Before a command runs, or is typed into, outside the sandbox
    OutsideSandbox,
    /// Before anything is run, typed, ended or changed
    Always,
}
