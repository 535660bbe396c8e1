//! The keeper: the parent of every process, and the second holder of all their descriptors.
//!
//! It is one synchronous loop: no async runtime, no JSON, no memory that grows with output. It has threads that spawn; it
//! reaps, kills trees, keeps time limits, and holds a duplicate of every pipe, terminal and log file. While its owner
//! lives, the owner moves the output, with the code in [`spool`]. When the owner's socket closes, the keeper moves it with
//! the same code, until the next owner connects. It runs as a thread if the library is embedded, or as a process of its own
//! if the daemon serves; the loop is the same.
//!
//! The modules, in the order in which a request and then a byte meets them:
//!
//! ```text
//!   start_keeper   how an owner starts a keeper, or connects to the one that is there
//!   passed_sockets what a service manager passes to the owner    sys/passed_sockets
//!   private_directory    the state directory, which nobody else may touch
//!   channel        messages with descriptors over the socket between them
//!   protocol       which messages there are, and how they are written
//!   lease          who may move output: the owner of this connection, and nobody after it
//!   keeper         the loop: requests, exits, deadlines        keeper/owner, keeper/child
//!   keeper/spawners    threads that spawn, because that may hang    keeper/starts, pending_start
//!   spawn          a child with its pipes or its terminal      sys/clone, sys/confine (its sandbox)
//!   supervisor     changes files for a child that may change none itself      sys/listener
//!   trial          whether a sandbox works on this machine
//!   tree           all descendants of a child, to kill them    tree/cgroup; and to limit them    tree/limits, v1
//!   spool          from the child's output to the log          spool/stream_mover, index_file, index
//!   spool/log_files    from the log to a reader
//!   spool/recovery     going on with a log whose writer was killed
//!   stderr_log     what the keeper says to whoever looks for the cause of something strange
//!   sys            system calls that rustix does not have; all the unsafe
//! ```

pub mod channel;
pub mod keeper;
pub mod lease;
pub mod private_directory;
pub mod protocol;
mod spawn;
pub mod spool;
pub mod start_keeper;
mod stderr_log;
mod supervisor;
mod sys;
mod tree;

pub use keeper::{KeeperConfig, OwnerExitPolicy};
pub use sys::{name_service, passed_sockets, trial};
pub use tree::try_limits;
