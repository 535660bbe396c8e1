//! The narrow waist: what a place with processes and files can do.
//!
//! The server serves *an* [`Environment`], the client *is* one, this machine *is* one, and one conformance suite
//! (`exec-testkit`) judges them all. A new verb is first a question: is it a function *over* these?
//!
//! Deliberately absent: connections, sessions, JSON, error codes.

#![warn(missing_docs)]

pub mod errno;
pub mod files;
pub mod http;
pub mod process;

use std::sync::Arc;

pub use files::Files;
pub use futures_util::future::BoxFuture;
pub use http::Http;
pub use process::Processes;

/// A place with processes and files.
pub trait Environment: Send + Sync + 'static {
    /// What it runs.
    fn processes(&self) -> &dyn Processes;

    /// What it keeps.
    fn files(&self) -> &dyn Files;

    /// Requests from there.
    fn http(&self) -> &dyn Http;

    /// What it is.
    fn info(&self) -> &MachineInfo;
}

/// An environment somebody shares.
pub type SharedEnvironment = Arc<dyn Environment>;

/// What a place tells about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineInfo {
    /// The account's login shell: `bash`, `/bin/bash`.
    pub shell: Shell,
    /// Where its server was started.
    pub cwd: Option<std::path::PathBuf>,
    /// The account's home.
    pub home: Option<std::path::PathBuf>,
    /// Where temporary files go.
    pub temp_dir: std::path::PathBuf,
    /// `TMPDIR`, if it is set.
    pub temporary_directories: Vec<std::path::PathBuf>,
    /// `linux`, …
    pub os: String,
    /// Its name on the network.
    pub hostname: Option<String>,
    /// Version of the software that serves it.
    pub version: String,
}

/// A shell by name and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// `bash`, `zsh`, `sh` …
    pub name: String,
    /// Its program.
    pub path: std::path::PathBuf,
}
