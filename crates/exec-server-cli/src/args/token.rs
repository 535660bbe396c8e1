//! The arguments of `exec-server token`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use exec_transport::token::{MethodPattern, Root, WeakestSandbox};
use exec_wire::method::Method;

use super::values::duration;

const EXAMPLES: &str = "\
Examples:
  exec-server token new --file token            a token that may do everything; for
  exec-server serve --listen wss://0.0.0.0:7000 --tls-self-signed --ws-auth capability-token --ws-token-file token

  exec-server token keygen --file signer        makes signer, which stays with you, and signer.pub, for servers
  exec-server serve --listen wss://0.0.0.0:7000 --tls-self-signed --ws-auth scoped-token --ws-public-key signer.pub
  exec-server token new --scoped --key signer --subject alice --expires 8h --methods 'process/*,fs/read*' --file alice
  exec-server token new --scoped --key signer --subject bob --expires 8h --methods 'process/*,fs/*' --file bob \\
    --roots /work,system-files --weakest-sandbox workspace-write

Clients have their token in environments.toml (auth_bearer_token) or name its file with --token-file.";

/// Make tokens and keys for those who may connect, and look at them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    New(Box<NewTokenArgs>),
    Keygen(KeygenArgs),
    Inspect(InspectArgs),
}

/// Make a token, in a file that only you can read; its path is printed, never the token
#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    /// The file to make; there must be none of that name [default: `token` in the folder of our state]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Print the token instead of writing a file
    #[arg(long, conflicts_with = "file")]
    pub(crate) print: bool,
    /// Make a signed token for some methods and some time, instead of a random one for everything
    #[arg(long, requires_all = ["key", "subject", "expires", "methods"])]
    pub(crate) scoped: bool,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

/// What a scoped token says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scoped tokens")]
pub(crate) struct ScopeArgs {
    /// The private key to sign with, from `token keygen`
    #[arg(long, value_name = "FILE", requires = "scoped")]
    pub(crate) key: Option<PathBuf>,
    /// For whom it is; a session belongs to the subject that opened it
    #[arg(long, value_name = "NAME", requires = "scoped")]
    pub(crate) subject: Option<String>,
    /// How long it counts; its connections end with it
    #[arg(long, value_name = "TIME", requires = "scoped", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
    /// The methods that it permits, with * for all that begin so; see the list in PROTOCOL.md
    #[arg(long, value_name = "NAME", requires = "scoped", value_delimiter = ',', value_parser = method_pattern)]
    pub(crate) methods: Vec<MethodPattern>,
    /// The servers that it is for, by what they have as --ws-audience; without it those that have none
    #[arg(long, value_name = "NAME", requires = "scoped", value_delimiter = ',')]
    pub(crate) environments: Vec<String>,
    /// Who signs it, for servers with --ws-issuer
    #[arg(long, value_name = "NAME", requires = "scoped")]
    pub(crate) issuer: Option<String>,
    /// Only files below these folders, and processes only in a sandbox that stays below them; `system-files` for what
    /// programs need to run
    #[arg(long, value_name = "PATH", requires = "scoped", value_delimiter = ',')]
    pub(crate) roots: Vec<Root>,
    /// At least this sandbox: workspace-write (nothing outside the roots is written) or read-only (nothing is)
    #[arg(long, value_name = "MODE", requires = "scoped")]
    pub(crate) weakest_sandbox: Option<WeakestSandbox>,
}

/// Make a key pair for scoped tokens: FILE signs and stays with you, FILE.pub is for servers
#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The file of the private key; the public one gets `.pub` at its end
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Tell what is known of a token, without printing it
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The file of the token
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Check that this key has signed it; without it, what the token says is not proven
    #[arg(long, value_name = "FILE")]
    pub(crate) public_key: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A pattern that fits no method is a mistake, and would be found late.
fn method_pattern(text: &str) -> Result<MethodPattern, String> {
    let pattern: MethodPattern =
        text.parse().map_err(|error: exec_transport::token::MethodPatternError| error.to_string())?;
    match Method::ALL.iter().any(|method| pattern.matches(method.name())) {
        true => Ok(pattern),
        false => Err("there is no such method".to_owned()),
    }
}
