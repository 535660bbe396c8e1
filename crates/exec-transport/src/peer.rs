//! The other end of a connection, for logs and for the few decisions that depend on the transport.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The other end of a connection. `Display` gives its name for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A WebSocket over TCP, with or without TLS.
    WebSocket(SocketAddr),
    /// A unix socket, WebSocket or lines.
    Unix {
        /// The path that was listened on or connected to.
        path: PathBuf,
        /// The other process, if the kernel tells it.
        pid: Option<i32>,
        /// The user it runs as.
        uid: u32,
    },
    /// Our own stdin and stdout.
    Stdio,
    /// A program that we started and are connected to by its stdin and stdout.
    Program {
        program: String,
        /// Its process id, also its process group.
        pid: u32,
    },
    /// The other half of a memory pair.
    Memory,
}

/// The kind of transport that a peer is reached by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerKind {
    WebSocket,
    Unix,
    /// Standard input and output, ours or a child's.
    Stdio,
    /// Channels within this process.
    Memory,
}

impl Peer {
    pub fn kind(&self) -> PeerKind {
        match self {
            Self::WebSocket(_) => PeerKind::WebSocket,
            Self::Unix { .. } => PeerKind::Unix,
            Self::Stdio | Self::Program { .. } => PeerKind::Stdio,
            Self::Memory => PeerKind::Memory,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WebSocket(address) => write!(f, "{address}"),
            Self::Unix { path, pid: Some(pid), .. } => write!(f, "unix:{} (pid {pid})", path.display()),
            Self::Unix { path, pid: None, .. } => write!(f, "unix:{}", path.display()),
            Self::Stdio => write!(f, "stdio"),
            Self::Program { program, pid } => write!(f, "stdio of {program} (pid {pid})"),
            Self::Memory => write!(f, "memory"),
        }
    }
}
