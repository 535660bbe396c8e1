//! From a policy to its enforcement, and to a report of what is enforced.
//!
//! In the order in which a sandboxed start meets them:
//!
//! - [`path_rules`]: the policy's rules for files, with the links in their paths resolved: which access does a path have?
//! - [`mounts`]: which mounts a process needs, so that it has just that access;
//! - [`landlock`], [`seccomp`]: what the kernel is told besides;
//! - [`supervised`]: where no mounts can be had, what a supervisor may change for a process;
//! - [`mod@plan`]: which of these this host can do, and all of it together.

pub mod landlock;
pub mod mounts;
pub mod path_rules;
pub mod plan;
pub mod seccomp;
pub mod supervised;

pub use mounts::FileFact;
pub use path_rules::{MachinePaths, PathAccess, PathRules};
pub use plan::{HostMeans, MountMeans, PolicyBounds, SandboxPlan, Unenforceable, file_fact, plan, plan_within};
