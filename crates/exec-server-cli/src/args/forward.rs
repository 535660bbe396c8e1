//! The arguments of `forward`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use exec_env::streams::StreamAddress;

use super::remote::TargetArgs;
use super::values::duration;

const FORWARD: &str = "\
Connections to an address here are carried to one there, as if the program there listened here; with -R the other way.

An address is a port, HOST:PORT, [IPV6]:PORT or the path of a unix socket. Without a host, connections are made to `localhost` \
and accepted on 127.0.0.1; `*` accepts them from everywhere. To listen on port 0 is to take any free port, which is then told. \
A port alone is the same port on both sides.

A connection to the server that breaks and comes back keeps what is forwarded; if it cannot (the server was restarted, or was \
away for too long), both ends see a reset, and you are told.";

const EXAMPLES: &str = "\
Examples:
  exec-server forward build: 8080:3000               port 3000 of `build`, as 127.0.0.1:8080
  exec-server forward --connect ws://HOST:7000 3000 5432:db.internal:5432
  exec-server forward build: /tmp/pg.sock:/run/postgresql/.s.PGSQL.5432
  exec-server forward build: -R 9000:localhost:9000  what `build` connects to at its port 9000 comes here
  exec-server forward build: --open 3000             wait until port 3000 answers there, and print a URL for it
  exec-server forward build: --preview 127.0.0.1:8000
                                                     http://127.0.0.1:8000/preview/PORT/ is whatever serves HTTP there";

/// Carry connections to ports and sockets of an environment, or from there to here
#[derive(Debug, Args)]
#[command(long_about = FORWARD, after_help = EXAMPLES)]
pub(crate) struct ForwardArgs {
    /// What to forward; before it may stand `ENV:`, an environment of environments.toml
    #[arg(value_name = "LOCAL:REMOTE", value_parser = forward_word)]
    pub(crate) words: Vec<ForwardWord>,
    /// Listen there, and connect here
    #[arg(short = 'R', long = "reverse", value_name = "REMOTE:LOCAL", value_parser = address_pair)]
    pub(crate) reverse: Vec<AddressPair>,
    /// Wait until this port answers there, forward it, and print its URL here
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) open: Vec<u16>,
    /// How long --open waits
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub(crate) wait: Duration,
    /// Serve whatever speaks HTTP there, at http://ADDRESS/preview/PORT/; a loopback address
    #[arg(long, value_name = "ADDRESS", value_parser = loopback_address)]
    pub(crate) preview: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// One JSON object per line on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// No notes about single connections
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// A word of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForwardWord {
    Environment(String),
    Pair(AddressPair),
}

/// Where to listen, and where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressPair {
    pub(crate) listen: StreamAddress,
    pub(crate) connect: StreamAddress,
}

fn forward_word(text: &str) -> Result<ForwardWord, String> {
    match text.strip_suffix(':') {
        Some(id) if !id.is_empty() && !id.contains([':', '/']) => Ok(ForwardWord::Environment(id.to_owned())),
        _ => address_pair(text).map(ForwardWord::Pair),
    }
}

fn loopback_address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "write it as 127.0.0.1:8000".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => {
            Err("it must be an address of the loopback, such as 127.0.0.1:8000: it asks nobody for a token".to_owned())
        }
    }
}

/// The part of an address before the next colon that stands in no brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    Path(&'a str),
    Port(u16),
    Host(&'a str),
}

fn address_pair(text: &str) -> Result<AddressPair, String> {
    let parts = split(text)?;
    let tcp = |host: &str, port| StreamAddress::Tcp { host: host.to_owned(), port };
    let (listen, rest) = match parts.as_slice() {
        [Part::Port(port)] => (tcp(LISTEN_HOST, *port), &parts[..]),
        [Part::Path(path), rest @ ..] if !rest.is_empty() => (socket(path)?, rest),
        // As in ssh, a port may be followed by a host that is connected to.
        [Part::Port(port), rest @ ..] => (tcp(LISTEN_HOST, *port), rest),
        [Part::Host(host), Part::Port(port), rest @ ..] if !rest.is_empty() => {
            (tcp(if *host == "*" { "0.0.0.0" } else { host }, *port), rest)
        }
        _ => return Err(HOW_TO_WRITE.to_owned()),
    };
    let connect = match rest {
        [Part::Path(path)] => socket(path)?,
        [Part::Port(port)] => tcp(CONNECT_HOST, *port),
        [Part::Host(host), Part::Port(port)] if *host != "*" => tcp(host, *port),
        _ => return Err(HOW_TO_WRITE.to_owned()),
    };
    match connect {
        StreamAddress::Tcp { port: 0, .. } => Err("nobody can be connected to at port 0".to_owned()),
        connect => Ok(AddressPair { listen, connect }),
    }
}

const HOW_TO_WRITE: &str = "write it as 8080:3000, 127.0.0.1:8080:localhost:3000 or /tmp/here.sock:/tmp/there.sock";

/// Where connections are accepted if no host is named.
const LISTEN_HOST: &str = "127.0.0.1";
/// Where they are made: on the loopback, by whichever of its addresses a program has chosen.
const CONNECT_HOST: &str = "localhost";

fn split(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (part, behind) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (host, behind) = bracketed.split_once(']').ok_or("a bracket is not closed")?;
                let behind = match behind.strip_prefix(':') {
                    Some(behind) => Some(behind),
                    None if behind.is_empty() => None,
                    None => return Err("behind a bracket stands a colon".to_owned()),
                };
                (Part::Host(host), behind)
            }
            None => {
                let (part, behind) = text.split_once(':').map_or((text, None), |(part, behind)| (part, Some(behind)));
                let part = match part {
                    "" => return Err(HOW_TO_WRITE.to_owned()),
                    path if path.contains('/') => Part::Path(path),
                    digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                        let port = digits.parse().map_err(|_| format!("{digits} is no port: the last is 65535"))?;
                        Part::Port(port)
                    }
                    host => Part::Host(host),
                };
                (part, behind)
            }
        };
        parts.push(part);
        rest = behind;
    }
    Ok(parts)
}

fn socket(path: &str) -> Result<StreamAddress, String> {
    let path = PathBuf::from(path);
    match path.is_absolute() {
        true => Ok(StreamAddress::Unix { path }),
        false => Err(format!("{path:?}: write the full path of a socket")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> String {
        address_pair(text).map_or_else(|error| error, |pair| format!("{} -> {}", pair.listen, pair.connect))
    }

    #[test]
    fn addresses_are_written_as_for_ssh() {
        for (text, expected) in [
            ("8080:3000", "127.0.0.1:8080 -> localhost:3000"),
            ("3000", "127.0.0.1:3000 -> localhost:3000"),
            ("0:3000", "127.0.0.1:0 -> localhost:3000"),
            ("8080:db:5432", "127.0.0.1:8080 -> db:5432"),
            ("127.0.0.1:8080:localhost:3000", "127.0.0.1:8080 -> localhost:3000"),
            ("localhost:8080:3000", "localhost:8080 -> localhost:3000"),
            ("*:8080:3000", "0.0.0.0:8080 -> localhost:3000"),
            ("[::1]:8080:[fe80::1]:3000", "[::1]:8080 -> [fe80::1]:3000"),
            ("/tmp/a:/tmp/b", "/tmp/a -> /tmp/b"),
            ("8080:/tmp/b", "127.0.0.1:8080 -> /tmp/b"),
            ("/tmp/a:3000", "/tmp/a -> localhost:3000"),
            ("/tmp/a:db:3000", "/tmp/a -> db:3000"),
        ] {
            assert_eq!(pair(text), expected, "{text}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in [
            "",
            ":",
            "x",
            "x:y",
            "8080:",
            ":3000",
            "8080:3000:",
            "1:2:3:4:5",
            "8080:*:3000",
            "[::1:80:80",
            "[::1]x:80:80",
        ] {
            assert!(address_pair(text).is_err(), "{text}");
        }
        assert_eq!(pair("70000:80"), "70000 is no port: the last is 65535");
        assert_eq!(pair("8080:0"), "nobody can be connected to at port 0");
        assert_eq!(pair("a/b:80"), "\"a/b\": write the full path of a socket");
        assert!(loopback_address("0.0.0.0:80").is_err() && loopback_address("[::1]:80").is_ok());
    }

    #[test]
    fn a_name_with_a_colon_is_an_environment() {
        assert_eq!(forward_word("build:"), Ok(ForwardWord::Environment("build".to_owned())));
        assert!(matches!(forward_word("8080:3000"), Ok(ForwardWord::Pair(_))));
    }
}
