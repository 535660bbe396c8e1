//! How a connection is made, again and again: to a URL, to a program, or to something within this process.

use std::time::Duration;

use exec_env::BoxFuture;
use exec_transport::{ConnectError, ConnectOptions, Connection, Target};

use crate::limits::{GIVE_UP_NETWORK, GIVE_UP_PROGRAM};

/// Makes connections to one server.
pub trait Dial: Send + Sync + 'static {
    /// Makes a new connection.
    fn dial(&self) -> BoxFuture<'_, Result<Connection, ConnectError>>;

    /// How long a session that was live is tried for, unless the caller says otherwise.
    fn give_up(&self) -> Duration {
        GIVE_UP_NETWORK
    }
}

/// Connects to a URL, or starts a program and connects to its stdio.
#[derive(Debug, Clone)]
pub struct TargetDial {
    target: Target,
    options: ConnectOptions,
}

impl TargetDial {
    /// Dials `target`, with these options each time.
    pub fn new(target: Target, options: ConnectOptions) -> Self {
        Self { target, options }
    }
}

impl Dial for TargetDial {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, ConnectError>> {
        Box::pin(exec_transport::connect(&self.target, &self.options))
    }

    fn give_up(&self) -> Duration {
        match self.target {
            Target::Url(_) => GIVE_UP_NETWORK,
            Target::Program(_) => GIVE_UP_PROGRAM,
        }
    }
}

/// A function that makes connections, for example to a server within this process.
impl<F> Dial for F
where
    F: Fn() -> BoxFuture<'static, Result<Connection, ConnectError>> + Send + Sync + 'static,
{
    fn dial(&self) -> BoxFuture<'_, Result<Connection, ConnectError>> {
        self()
    }
}
