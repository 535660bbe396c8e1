//! Processes with the comfort of `std::process`, over any environment: this machine or a far one.
//!
//! ```text
//! EnvironmentExt   environment.spawn(Command::new("make").arg("-j")) ─► Process
//!   command          what to run: inherits as std does, ids made for you
//!   process          a started process: wait, output, kill, signal, resize, screen
//!   output           its output as events, or as bytes to read
//!   stdin            its stdin, to write to
//! ```
//!
//! The verbs of [`crate::Processes`] remain beside it and name the same processes: this module only holds the id for you.
//! Its [`Command`] is another type than [`crate::Command`]. That one is the whole request, in which nothing is left to a
//! default that depends on the machine; this one becomes such a request when it is known where it will run.
//!
//! ```
//! # #[cfg(feature = "local")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use exec_server::spawn::{Command, EnvironmentExt};
//!
//! let machine = Arc::new(exec_server::open_local().await?);
//! let output = machine.output(Command::new("sh").arg("-c").arg("echo hello; exit 3")).await?;
//! assert_eq!((&output.stdout[..], output.exit.shell_code()), (&b"hello\n"[..], 3));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "local"))]
//! # fn main() {}
//! ```

mod command;
mod output;
mod process;
mod stdin;

use std::sync::Arc;

pub use command::Command;
pub use output::{Events, Output, OutputReader};
pub use process::Process;
pub use stdin::Stdin;

use crate::process::ProcessError;
use crate::{Environment, ProcessId, SharedEnvironment};

/// What an environment with several owners can do with little to say.
pub trait EnvironmentExt {
    /// Starts a process. It goes on when the [`Process`] is dropped, as with std; its id leads back to it.
    fn spawn(&self, command: Command) -> impl Future<Output = Result<Process, ProcessError>> + Send;

    /// A process that was started earlier, by this program or by another one of the same session.
    fn attach(&self, id: ProcessId) -> impl Future<Output = Result<Process, ProcessError>> + Send;

    /// Runs a process to its end, returns what it printed, and forgets it. If that fails or is cancelled, the process is
    /// still there.
    fn output(&self, command: Command) -> impl Future<Output = Result<Output, ProcessError>> + Send;
}

impl EnvironmentExt for SharedEnvironment {
    fn spawn(&self, command: Command) -> impl Future<Output = Result<Process, ProcessError>> + Send {
        Process::start(Arc::clone(self), command)
    }

    fn attach(&self, id: ProcessId) -> impl Future<Output = Result<Process, ProcessError>> + Send {
        Process::find(Arc::clone(self), id)
    }

    async fn output(&self, command: Command) -> Result<Output, ProcessError> {
        let process = self.spawn(command).await?;
        let output = process.output().await?;
        process.forget().await?;
        Ok(output)
    }
}

impl<E: Environment> EnvironmentExt for Arc<E> {
    async fn spawn(&self, command: Command) -> Result<Process, ProcessError> {
        shared(self).spawn(command).await
    }

    async fn attach(&self, id: ProcessId) -> Result<Process, ProcessError> {
        shared(self).attach(id).await
    }

    async fn output(&self, command: Command) -> Result<Output, ProcessError> {
        shared(self).output(command).await
    }
}

fn shared<E: Environment>(environment: &Arc<E>) -> SharedEnvironment {
    Arc::clone(environment) as SharedEnvironment
}
