//! The arguments of `exec-server serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use exec_transport::{AuthMode, ListenUrl};

use super::tls::ServerTlsArgs;
use super::values;

const EXAMPLES: &str = "\
Examples:
  exec-server serve                                    on a free port of the loopback; its URL is printed first
  exec-server serve --listen ws://127.0.0.1:7000 --state-dir ~/.exec-server
                                                       survives its own death: start it again and go on
  exec-server serve --listen unix:///run/user/1000/exec.sock
  exec-server serve --listen wss://0.0.0.0:7000 --tls-self-signed --state-dir ~/.exec-server \
    --ws-auth capability-token --ws-token-file token   encrypted, for other machines; clients pin the fingerprint
  exec-server serve --environments environments.toml    one URL for all machines of that file
  ssh host exec-server serve --listen stdio            one connection, over whatever carries stdin and stdout
  CODEX_EXEC_SERVER_URL=ws://127.0.0.1:7000 codex exec …

Signals: TERM and INT end it and everything it started; USR2 ends it and leaves everything to the next one on the
same state folder. HUP does the same if there is a state folder. So do, with --listen stdio and a state folder, the end
of the connection and TERM.";

/// Serve this machine over WebSocket, a unix socket or stdio
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Where to listen: ws://IP:PORT (0 for any port), wss://IP:PORT, unix://PATH, stdio, or fd:// for the sockets that
    /// systemd passes; may be given several times
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:0")]
    pub(crate) listen: Vec<String>,
    /// Keep sessions, processes and output here; a server started again with it goes on where the last one ended
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Leave the terminal and the session of whoever started us
    #[arg(long, hide = true)]
    pub(crate) own_session: bool,
    /// End when for so long nobody was connected and no process ran or had results kept; sessions stay in the state folder
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "state_dir", conflicts_with = "environments")]
    pub(crate) exit_when_idle: Option<Duration>,
    /// How long a session lives without a connection
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::duration)]
    pub(crate) detached_ttl: Duration,
    /// The longest time without a connection a client may ask for
    #[arg(long, value_name = "TIME", default_value = "168h", value_parser = values::duration)]
    pub(crate) max_detached_ttl: Duration,
    /// The longest time for which a client may have the results of a process kept after its end
    #[arg(long, value_name = "TIME", default_value = "168h", value_parser = values::duration)]
    pub(crate) max_keep: Duration,
    /// Requests of one connection that run at once; control requests are not counted
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrent_requests: u32,
    /// Connections at one time, per listener
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Threads that serve connections; each connection, with what it starts, lives on one [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Output one process may hold, in MiB, before its oldest is dropped (and that told)
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_spool_mib: u64,
    /// Output all processes may hold together, in MiB
    #[arg(long, value_name = "MIB", default_value = "4096", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_total_spool_mib: u64,
    /// A name that clients may use for this server, besides its addresses, localhost and the names this machine knows
    /// itself by (guards against DNS rebinding; with --ws-auth every name will do)
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Listen without --ws-auth and --tls-client-ca where other machines can reach it: whoever does may run programs as this user
    #[arg(long)]
    pub(crate) insecure_no_auth: bool,
    /// Lets session/list and session/close be used on WebSocket connections too
    #[arg(long)]
    pub(crate) operators_everywhere: bool,
    /// Serve the environments of this file (as environments.toml) and be a gateway to them: one URL, many machines.
    /// Requests name one by its id; see PROTOCOL.md, several environments
    #[arg(long, value_name = "FILE")]
    pub(crate) environments: Option<PathBuf>,
    /// Lets clients add and remove environments, which makes this server connect to where they say
    #[arg(long)]
    pub(crate) allow_environment_add: bool,
    /// The most that any client may do, a TOML file: methods, read, write, sandbox, network, processes_per_session,
    /// processes, spool_bytes, total_spool_bytes; see docs/ceiling.md
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) audit: ServeAuditArgs,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) auth: AuthArgs,
    #[command(flatten)]
    pub(crate) tls: ServerTlsArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// What is written down of what clients do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct ServeAuditArgs {
    /// Write down sessions, starts, exits, file changes, requests and refusals, one JSON line each, in a chain of hashes; the
    /// file needs a folder of its own (mode 700), which sandboxes do not show; see docs/audit.md
    #[arg(long = "audit", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Answer a request only when its line is written, and refuse requests while lines cannot be
    #[arg(long = "audit-required", requires = "file")]
    pub(crate) required: bool,
    /// A larger log is rotated: it gets .1 at its end, and the next one goes on with its chain
    #[arg(long = "audit-max-bytes", value_name = "N", default_value_t = 64 << 20, requires = "file", value_parser = clap::value_parser!(u64).range(4096..))]
    pub(crate) max_bytes: u64,
    /// How many rotated logs are kept; the oldest beyond that is removed
    #[arg(long = "audit-keep", value_name = "N", default_value_t = 16, requires = "file")]
    pub(crate) keep: u32,
}

/// Who may connect over WebSocket.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthArgs {
    /// Ask every WebSocket client for a bearer token: capability-token, signed-bearer-token or scoped-token
    #[arg(long, value_name = "MODE", value_parser = auth_mode)]
    pub(crate) ws_auth: Option<AuthMode>,
    /// File with the capability token
    #[arg(long, value_name = "PATH")]
    pub(crate) ws_token_file: Option<PathBuf>,
    /// SHA-256 of the capability token, in hex, instead of the token itself
    #[arg(long, value_name = "HEX")]
    pub(crate) ws_token_sha256: Option<String>,
    /// File with the secret that signs bearer tokens (JWT, HS256); at least 32 bytes
    #[arg(long, value_name = "PATH")]
    pub(crate) ws_shared_secret_file: Option<PathBuf>,
    /// File with the public key that scoped tokens are signed by, from `exec-server token keygen`
    #[arg(long, value_name = "PATH")]
    pub(crate) ws_public_key: Option<PathBuf>,
    /// Issuer that signed tokens must name
    #[arg(long, value_name = "NAME")]
    pub(crate) ws_issuer: Option<String>,
    /// Audience that signed tokens must name
    #[arg(long, value_name = "NAME")]
    pub(crate) ws_audience: Option<String>,
    /// How far the clocks of signer and server may differ
    #[arg(long, value_name = "N")]
    pub(crate) ws_max_clock_skew_seconds: Option<u64>,
}

fn auth_mode(word: &str) -> Result<AuthMode, String> {
    match word {
        "capability-token" => Ok(AuthMode::CapabilityToken),
        "signed-bearer-token" => Ok(AuthMode::SignedBearerToken),
        "scoped-token" => Ok(AuthMode::ScopedToken),
        _ => Err("expected `capability-token`, `signed-bearer-token` or `scoped-token`".to_owned()),
    }
}

/// What stands for the sockets that a service manager passes, as it does for other servers.
const PASSED: &str = "fd://";

/// One `--listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenPlace {
    Url(ListenUrl),
    /// Every socket that was passed to us.
    Passed,
}

impl ServeArgs {
    /// Parsed here and not by clap, so that the error is the one that Codex prints.
    pub(crate) fn places(&self) -> anyhow::Result<Vec<ListenPlace>> {
        let parse = |text: &String| match text.as_str() {
            PASSED => Ok(ListenPlace::Passed),
            text => text.parse().map(ListenPlace::Url),
        };
        self.listen.iter().map(|text| parse(text).map_err(anyhow::Error::from)).collect()
    }
}
