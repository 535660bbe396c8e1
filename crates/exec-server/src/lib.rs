//! Processes and files of a machine, for programs that work on it: coding agents, build drivers, test runners.
//!
//! An [`Environment`] is a machine you can use. It starts processes and keeps every byte they print, ends whole
//! process trees, and reads, writes, searches and watches files. There are two kinds, and code that uses one works on
//! the other unchanged:
//!
//! - **embedded**: [`local::LocalEnvironment`] is this machine, used from within your program. No server, no socket.
//! - **remote**: [`client::RemoteEnvironment`] is another machine, or this one from outside, where `exec-server serve`
//!   runs (or a program that uses the module `serve`). The connection may break at any moment; nothing is lost.
//!
//! Linux only, inside a [tokio](https://docs.rs/tokio) runtime.
//!
//! # A first program
//!
//! ```
//! # #[cfg(feature = "local")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use exec_server::process::{ReadQuery, WaitCondition, Waited};
//! use exec_server::{EntryBody, Command, Environment, ProcessId};
//!
//! let machine = exec_server::open_local().await?;
//! let processes = machine.processes();
//!
//! // You choose the id. It names the process in every later call, also from another connection.
//! let id = ProcessId::new("greeting")?;
//! processes.start(&id, Command::new(["/bin/sh", "-c", "echo hello; exit 3"], "/")).await?;
//!
//! // Closed means that nothing more can be printed: the program and all its children are done with stdout and stderr.
//! let Waited::Closed(exit) = processes.wait(&id, WaitCondition::Closed, None).await? else {
//!     return Err("without a deadline, only the end ends the wait".into());
//! };
//! assert_eq!(exit.shell_code(), 3);
//!
//! let page = processes.read(&id, ReadQuery::default()).await?;
//! let EntryBody::Output { bytes, .. } = &page.entries[0].body else { return Err("it printed something".into()) };
//! assert_eq!(&bytes[..], b"hello\n");
//!
//! processes.forget(&id).await?; // lets go of the log, and of the id
//! machine.end().await; // ends whatever still runs
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "local"))]
//! # fn main() {}
//! ```
//!
//! A child gets only the variables that its command names: [`Command::environ`] is empty unless you set it, for
//! instance to [`Environ::inherit_and`].
//!
//! The module [`spawn`] says the same with less: a `Command` that inherits as std's does, and a `Process` with `output()`,
//! readers, `stdin()`, `wait()` and `kill()`, its id made for you.
//!
//! # Embedded or remote
//!
//! Write your code against `&dyn Environment`, and decide at one place what it works on:
//!
//! ```no_run
//! # #[cfg(all(feature = "local", feature = "client"))]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use exec_server::SharedEnvironment;
//!
//! let machine: SharedEnvironment = match std::env::var("MACHINE") {
//!     Ok(url) => Arc::new(exec_server::connect_url(&url).await?), // ws://, wss:// or unix://
//!     Err(_) => Arc::new(exec_server::open_local().await?),
//! };
//! println!("working on {}", machine.info().os);
//! # Ok(())
//! # }
//! ```
//!
//! [`client::connect`] takes options: a bearer token, a program to speak to over its stdio (`ssh`, `docker exec`), time
//! limits. With the feature `serve`, your own program can be the other end: see the module `serve`.
//!
//! # When the connection breaks
//!
//! Processes belong to a **session**, and a session outlives its connections. When a connection breaks, the client
//! dials again, resumes the session, repeats the calls whose answers it never saw (each carries an id, so nothing is
//! done twice) and fetches the output that was printed meanwhile. Your calls only take longer. If the session cannot be
//! found again, because the server stayed away for too long or has forgotten it, calls fail with
//! [`process::Unreachable`] and say why.
//!
//! Dropping a [`client::RemoteEnvironment`] leaves the session and its processes behind; its `end` takes them along.
//! A later program takes over with [`client::Options::resume_session`]:
//!
//! ```no_run
//! # #[cfg(feature = "client")]
//! # async fn example(session_id: String) -> Result<(), Box<dyn std::error::Error>> {
//! use exec_server::client::{self, ConnectOptions};
//!
//! let options = client::Options { resume_session: Some(session_id), ..client::Options::default() };
//! let machine = client::connect("ws://build.example:7000".parse()?, ConnectOptions::default(), options).await?;
//! # drop(machine);
//! # Ok(())
//! # }
//! ```
//!
//! # The log
//!
//! A process writes a log, and everybody else reads it. That one idea replaces callbacks, buffers and replay:
//!
//! - An **entry** ([`Entry`]) is a piece of output, the end of the process (`Exited`), or the end of the log (`Closed`).
//!   A process has exited when its leader was reaped; its children may go on printing. It is closed when nobody is left
//!   who could.
//! - A **seq** ([`Seq`]) numbers entries: 1, 2, 3, without holes, stdout and stderr in one order. "After seq 7" is a
//!   place in the log, and 0 is its beginning. A reader that remembers its last seq can go on from there at any time.
//! - A **page** ([`Page`]) is what one read returns: some entries in order, and the state of the log ([`Head`]).
//! - A **gap** ([`Gap`]) stands in a page for entries that are gone. Logs are bounded ([`Command::spool_bytes`]); a full
//!   one forgets its oldest entries, or makes the child wait ([`Overflow`]). Loss is never silent, and what somebody who
//!   follows the log has yet to read is kept.
//!
//! [`process::Processes::read`] looks at the log once; [`process::Processes::follow`] gives a reader that waits for what
//! comes next. There may be any number of them, each at its own place:
//!
//! ```
//! # #[cfg(feature = "local")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use exec_server::{EntryBody, Command, Environment, ProcessId};
//! # let machine = exec_server::open_local().await?;
//! # let processes = machine.processes();
//! # let id = ProcessId::new("counter")?;
//! processes.start(&id, Command::new(["/bin/sh", "-c", "echo one; echo two >&2"], "/")).await?;
//!
//! let mut follower = processes.follow(&id, 0).await?;
//! let mut last_seq = 0;
//! while let Some(page) = follower.next(64 * 1024).await? {
//!     assert_eq!(page.gap, None);
//!     for entry in page.entries {
//!         assert_eq!(entry.seq, last_seq + 1);
//!         last_seq = entry.seq;
//!         match entry.body {
//!             EntryBody::Output { stream, bytes } => println!("{stream:?}: {}", String::from_utf8_lossy(&bytes)),
//!             EntryBody::Exited(exit) => println!("exited with {}", exit.shell_code()),
//!             EntryBody::Closed => println!("the log is complete"),
//!         }
//!     }
//! }
//! assert_eq!(last_seq, 4); // two pieces of output, Exited, Closed
//! # machine.end().await;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "local"))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! | feature | what it adds | default |
//! |---|---|---|
//! | `local` | the module `local`: the environment of this machine | yes |
//! | `client` | the module `client`: environments at the far end of a connection | yes |
//! | `serve` | the module `serve`: being the far end | no |
//! | `http` | HTTP requests from the local environment | no |
//! | `search` | content search and globs in the local environment | no |
//!
//! The programs in the repository's `examples` directory show each of these at work.

#![warn(missing_docs)]

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "serve")]
pub mod serve;
pub mod spawn;

// What an environment is and can do.
pub use exec_env::{BoxFuture, Environment, Files, Http, MachineInfo, Processes, SharedEnvironment, Shell, Streams};
pub use exec_env::{files, http, process, screen, streams};

// The words of its signatures.
pub use bytes::Bytes;
pub use exec_core::command::BadCommand;
pub use exec_core::id::BadId;
pub use exec_core::{
    Command, Entry, EntryBody, EnvPolicy, Environ, Exit, ExitCause, ExitStatus, Gap, Head, Inherit, Io, Limit,
    LimitSet, Overflow, Page, ProcessId, ResourceLimits, ResourceUsage, RunAs, Seq, Signal, Stream, TerminalSize,
    TimeLimit, WriteId,
};

#[cfg(feature = "client")]
pub use client::connect_url;
#[cfg(feature = "local")]
pub use local::open_local;

/// The snippets of docs/rust.md, which are run with the other ones.
#[cfg(all(doctest, feature = "local", feature = "client"))]
#[doc = include_str!("../../../docs/rust.md")]
struct RustPage;
