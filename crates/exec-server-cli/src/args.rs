//! The command line and its help.
//!
//! Values are parsed here, once: a command gets durations and numbers of bytes, not strings. Doc comments on arguments and
//! commands are their help texts.

mod app_server;
mod audit;
mod classic;
mod e2b;
mod files;
mod forward;
mod mcp;
mod mode;
mod remote;
mod run;
mod sandbox;
mod serve;
mod ssh;
mod tls;
mod token;
mod values;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use app_server::AppServerArgs;
pub(crate) use audit::{AuditArgs, AuditCommand, AuditTailArgs, AuditVerifyArgs};
pub(crate) use classic::spelled_out;
pub(crate) use e2b::E2bArgs;
pub(crate) use files::{
    CatArgs, ChmodArgs, CommonArgs, CpArgs, FindArgs, FindKind, FsArgs, FsCommand, GrepArgs, HeadArgs, LsArgs,
    MkdirArgs, MvArgs, RmArgs, StatArgs, WatchArgs, WriteArgs,
};
pub(crate) use forward::{AddressPair, ForwardArgs, ForwardWord};
pub(crate) use mcp::{AskMode, McpArgs};
pub(crate) use remote::{
    AddArgs, AttachArgs, CheckArgs, EnvArgs, EnvCommand, GatewayArgs, KillArgs, ListArgs, LogsArgs, PsArgs, RemoveArgs,
    ScreenArgs, StatusArgs, TargetArgs, WaitArgs,
};
pub(crate) use run::RunArgs;
pub(crate) use sandbox::{DoctorArgs, SandboxArgs, SandboxMode, TrySandboxArgs};
pub(crate) use serve::{AuthArgs, ListenPlace, LogFormat, ServeArgs, ServeAuditArgs};
pub(crate) use ssh::{RelayArgs, SshArgs};
pub(crate) use tls::ConnectArgs;
pub(crate) use token::{InspectArgs, KeygenArgs, NewTokenArgs, ScopeArgs, TokenArgs, TokenCommand};
pub(crate) use values::LimitArg;

const EXAMPLES: &str = "\
Examples:
  exec-server run -- uname -a                  run a program; its output and exit code are yours
  exec-server run --timeout 30s -- make test   after 30 seconds, end it and all that it started
  exec-server run --tty -- bash                a shell on a terminal of its own
  exec-server run --json -- ls /               one JSON object per event, for programs
  exec-server ssh build -- make                run it on another machine, where nothing is set up
  exec-server serve --listen unix:///tmp/x.sock          this machine, for others to use
  exec-server app-server                       execution as Codex's app-server serves it, on stdio
  exec-server run --connect unix:///tmp/x.sock -- ls    the same, on a machine that is served
  exec-server run --detach --environment build -- make  start it there and leave; then ps, logs, attach, kill
  exec-server env check                        which environments there are, and whether they answer
  exec-server fs ls build:/srv                 files there; also cat, stat, rm, mkdir, mv, find, grep, watch
  exec-server cp -r src build:/srv/app         copy files there, back, or between environments
  exec-server forward build: 8080:3000         its port 3000, as 127.0.0.1:8080
  exec-server run --sandbox workspace-write -- make     confined to its folder, without network
  exec-server doctor                           which sandboxes this machine can enforce
  exec-server mcp                              commands for agents, by the Model Context Protocol
  exec-server e2b                              sandboxes for code that was written for E2B
  exec-server token new                        a token for those who may connect
  exec-server audit verify LOG                 whether the audit log of a server was changed
  exec-server completions bash                 what bash needs to complete our options
  exec-server man run | man -l -               the manual of a command

`exec-server COMMAND --help` explains a command. RUST_LOG=debug shows what happens inside.";

/// Gives a coding agent hands on a machine: starts processes, keeps every byte they print, and ends whole trees.
#[derive(Debug, Parser)]
#[command(name = "exec-server", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Run(Box<RunArgs>),
    Ssh(Box<SshArgs>),
    Serve(Box<ServeArgs>),
    AppServer(Box<AppServerArgs>),
    Ps(PsArgs),
    Attach(AttachArgs),
    Logs(LogsArgs),
    Screen(ScreenArgs),
    Wait(WaitArgs),
    Kill(KillArgs),
    Env(EnvArgs),
    Fs(FsArgs),
    Cp(CpArgs),
    Forward(ForwardArgs),
    Mcp(McpArgs),
    E2b(Box<E2bArgs>),
    Sandbox(TrySandboxArgs),
    Doctor(DoctorArgs),
    Token(TokenArgs),
    Audit(AuditArgs),
    Relay(RelayArgs),
    /// Print the JSON Schema of the wire
    Schema,
    /// Print the completion script of a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Print the manual page, in the format of man(1)
    Man {
        /// The manual of one command, such as `run` or `fs ls`; of the whole without it
        command: Vec<String>,
    },
}

/// What the completion script of a shell asks
#[derive(Debug, clap::Args)]
pub(crate) struct CompleteArgs {
    /// The place of the word that is completed; our own name is at 0
    pub(crate) index: usize,
    /// All words, our own name first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<std::ffi::OsString>,
}

impl CliCommand {
    /// Only servers have an option for it.
    pub(crate) fn log_format(&self) -> LogFormat {
        match self {
            CliCommand::Serve(args) => args.log_format,
            CliCommand::AppServer(args) => args.log_format,
            _ => LogFormat::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    #[test]
    fn the_command_line_is_consistent_in_itself() {
        Args::command().debug_assert();
    }
}
