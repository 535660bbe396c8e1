//! What may be listened on, and how it is written: `ws://IP:PORT`, `unix://PATH`, `stdio`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenUrl {
    /// WebSocket over TCP. Port 0 lets the system choose.
    WebSocket(SocketAddr),
    /// A unix socket, WebSocket or lines as the client likes.
    Unix(PathBuf),
    /// Our own stdin and stdout; one connection.
    Stdio,
}

/// Why a listen URL was refused. The texts are Codex's, with `unix://` added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenUrlError {
    /// No scheme we know.
    #[error("unsupported --listen URL `{0}`; expected `ws://IP:PORT`, `unix://PATH` or `stdio`")]
    Unsupported(String),
    /// `ws://` without a literal address and a port.
    #[error("invalid websocket --listen URL `{0}`; expected `ws://IP:PORT`")]
    InvalidWebSocket(String),
    /// `unix://` without a path.
    #[error("invalid unix --listen URL `{0}`; expected `unix://PATH`")]
    InvalidUnix(String),
}

impl FromStr for ListenUrl {
    type Err = ListenUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if matches!(text, "stdio" | "stdio://") {
            return Ok(Self::Stdio);
        }
        if let Some(path) = text.strip_prefix("unix://") {
            return match path {
                "" => Err(ListenUrlError::InvalidUnix(text.to_owned())),
                path => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        match text.strip_prefix("ws://") {
            Some(address) => match address.parse() {
                Ok(address) => Ok(Self::WebSocket(address)),
                Err(_) => Err(ListenUrlError::InvalidWebSocket(text.to_owned())),
            },
            None => Err(ListenUrlError::Unsupported(text.to_owned())),
        }
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WebSocket(address) => write!(f, "ws://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Stdio => write!(f, "stdio"),
        }
    }
}
