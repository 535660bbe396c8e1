//! For tests only: the child they start, and the suite that judges every environment.
//!
//! - the binary `actor` performs a program of verbs (its own `//!` lists them by module);
//! - [`suite`] holds the behaviours every [`exec_env::Environment`] must show, as functions over a [`Bench`];
//!   [`conformance!`](crate::conformance) makes one test of each for one more environment;
//! - [`mod@bench`], [`process`] and [`transcript`] are how a behaviour is written down: start an actor, read its log with
//!   every promise of the log checked on the way, look at it;
//! - [`gate`] and [`witness`] are how a test and an actor meet without sleeping, and how a test knows who is gone;
//! - [`pattern`] is what floods are made of;
//! - [`faulty`] is a transport that cuts, delays, freezes and repeats;
//! - [`binaries`] and [`codex`] find the programs that are compared: our server, and the one it stands in for;
//! - [`model`] is what the real Codex CLI talks to instead of a model, and [`proxy`] what cuts its connection.
//!
//! Deliberately absent: any environment. The tests that name one live with the list of environments.

pub mod bench;
pub mod binaries;
pub mod codex;
pub mod faulty;
pub mod gate;
pub mod model;
pub mod pattern;
pub mod process;
pub mod proxy;
pub mod suite;
pub mod suite_files;
pub mod transcript;
pub mod witness;

pub use bench::Bench;
