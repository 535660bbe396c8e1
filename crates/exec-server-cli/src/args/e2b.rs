//! The arguments of `exec-server e2b`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::remote::TargetArgs;
use super::sandbox::SandboxArgs;

const EXAMPLES: &str = "\
Examples:
  exec-server e2b                                      this machine, for code that was written for E2B
  E2B_DEBUG=true python script.py                      in another terminal: one sandbox, without API and key
  exec-server e2b --sandbox workspace-write            each sandbox can write its own home and /tmp only
  exec-server e2b --connect wss://build:7000           sandboxes on another machine
  exec-server e2b --listen-envd 127.0.0.1:0 --listen-api 127.0.0.1:0
                                                       any free ports; they are printed first

It prints the variables that the SDKs read: E2B_API_URL, E2B_SANDBOX_URL and, unless it comes from a file of yours, E2B_API_KEY.

A sandbox is a session with a home of its own, variables, a policy and a time-out; it is no machine of its own. Sandboxes and
what runs in them outlive this command: the next one finds them again. They are ended by `kill`, or when their time is over.
What is served of E2B, and what is not, is in docs/e2b.md.";

/// Serve what the E2B SDKs call: sandboxes with commands, terminals, files and watches
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct E2bArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Where sandboxes are served: commands, terminals, files
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:49983")]
    pub(crate) listen_envd: SocketAddr,
    /// Where the control API is served: making, listing and ending sandboxes
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:3000")]
    pub(crate) listen_api: SocketAddr,
    /// The file with the API key that clients must send; by default a random one, which is kept and printed
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// No sandbox for debug mode (E2B_DEBUG=true), which needs no key; there is none anyway unless envd is on the loopback
    #[arg(long)]
    pub(crate) no_debug: bool,
    /// A further name by which clients may call this host (guards against DNS rebinding)
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// The domain below which clients reach us: api.DOMAIN and 49983-ID.DOMAIN, by a proxy that ends TLS
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// A name of a template that clients may ask for, besides `base`; all mean the same
    #[arg(long, value_name = "NAME")]
    pub(crate) template: Vec<String>,
    /// Where sandboxes are written down [default: e2b in $EXEC_SERVER_HOME, else in ~/.local/state/exec-server]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Where the homes of sandboxes are made, in their environment [default: below the state folder; in other environments, below
    /// the home of the account there]
    #[arg(long, value_name = "DIR")]
    pub(crate) homes: Option<PathBuf>,
}
