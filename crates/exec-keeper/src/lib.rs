//! The keeper: parent of every process, and second holder of everything it touches.
//!
//! A single-threaded loop on a socket: no async runtime, no JSON, no memory that grows with output. It starts and
//! reaps, ends trees, keeps time limits, and holds a duplicate of every pipe, terminal and file of a log. While its
//! owner lives, the owner moves the bytes itself, with the code in [`spool`]; when the owner's socket closes, the
//! keeper moves them, with the same code, until an owner comes back. A thread carries it when the library is embedded,
//! a process of its own when the daemon serves; it does not know which.
//!
//! Reading order: what is said ([`protocol`], [`channel`]), the loop ([`keeper`]), how a child is made (`spawn`,
//! `sys/clone`), how its tree is found and ended (`tree`), how its output is kept ([`spool`]), and how an owner gets a
//! keeper ([`start_keeper`]).

pub mod channel;
pub mod codec;
pub mod keeper;
pub mod protocol;
mod spawn;
pub mod spool;
pub mod start_keeper;
mod sys;
mod tree;

pub use keeper::{KeeperConfig, OwnerExitPolicy};
