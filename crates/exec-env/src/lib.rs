//! The narrow waist: what a machine with processes and files can do, whether it is this one or a remote one.
//!
//! ```text
//!   Environment ─┬─ processes()  process  start, read, follow, view, write, signal, terminate, wait, list ...
//!                │                view     what to show of a log, and the engine that makes it
//!                │                screen   what a person would see on a terminal
//!                │                network  who decides what the proxies of processes leave open
//!                ├─ files()      files    read, open, write, copy, walk, watch, search ...
//!                ├─ http()       http     requests that the machine makes
//!                ├─ streams()    streams  connections that the machine makes and accepts
//!                └─ info()                what the machine is
//!
//!   EnvironmentRegistry ── get(id)  registry  several of them, each by its id
//! ```
//!
//! The server serves *an* [`Environment`], the client *is* one, this machine *is* one, and one conformance suite
//! (`exec-testkit`) judges them all. Before a verb is added here, see whether it can be a function *over* these.
//!
//! Every failure keeps the kernel's number, so that a remote machine fails as this one does.
//!
//! Deliberately absent: connections, sessions, JSON, error codes, and the sentences of any protocol.

#![warn(missing_docs)]

pub mod files;
pub mod http;
pub mod network;
pub mod process;
pub mod registry;
pub mod screen;
pub mod streams;
pub mod view;

use std::path::PathBuf;
use std::sync::Arc;

pub use files::Files;
pub use futures_util::future::BoxFuture;
pub use http::Http;
pub use network::NetworkDecider;
pub use process::Processes;
pub use registry::EnvironmentRegistry;
pub use streams::Streams;

/// A machine with processes and files.
pub trait Environment: Send + Sync + 'static {
    /// Starting processes, and the verbs over those that were started.
    fn processes(&self) -> &dyn Processes;

    /// The machine's files.
    fn files(&self) -> &dyn Files;

    /// The same files for one of several callers, which waits for its own calls and not for those of the others: not for
    /// their searches, and not for files of theirs that hang.
    fn files_for_caller(&self) -> Arc<dyn Files>;

    /// HTTP requests that the machine makes.
    fn http(&self) -> &dyn Http;

    /// Connections that the machine makes and accepts.
    fn streams(&self) -> &dyn Streams;

    /// What the machine is. Known since the environment was opened, so this never waits. One that connects when it is
    /// first used says [`MachineInfo::unknown`] until then; [`EnvironmentRegistry::info`] connects.
    fn info(&self) -> &MachineInfo;
}

/// An environment with several owners.
pub type SharedEnvironment = Arc<dyn Environment>;

/// What an environment tells about its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineInfo {
    /// The login shell of the account that the server runs as.
    pub shell: Shell,
    /// Where the server was started.
    pub cwd: Option<PathBuf>,
    /// The home directory of that account.
    pub home: Option<PathBuf>,
    /// Where temporary files go.
    pub temp_dir: PathBuf,
    /// `TMPDIR`, if it is set.
    pub temporary_directories: Vec<PathBuf>,
    /// `linux`, …
    pub os: String,
    /// The machine's name on the network.
    pub hostname: Option<String>,
    /// Version of exec-server there.
    pub version: String,
}

impl MachineInfo {
    /// What is said of a machine that nobody has reached yet: a Unix with a shell.
    pub fn unknown() -> Self {
        Self {
            shell: Shell { name: "sh".to_owned(), path: PathBuf::from("/bin/sh") },
            cwd: None,
            home: None,
            temp_dir: PathBuf::from("/tmp"),
            temporary_directories: Vec::new(),
            os: String::new(),
            hostname: None,
            version: String::new(),
        }
    }
}

/// A shell by name and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// `bash`, `zsh`, `sh` …
    pub name: String,
    /// `/bin/bash`, …
    pub path: PathBuf,
}
