//! Files: every `fs/*` method.
//!
//! Reading order: contents ([`content`]), names and trees ([`tree`]), permissions,
//! times and links ([`attributes`]), what goes on for longer ([`watch`], [`search`]).
//! Every method takes a `sandbox` as Codex's server has it. Members marked as ours are named in
//! [`Extension`](crate::Extension).

pub mod attributes;
pub mod content;
pub mod search;
pub mod tree;
pub mod watch;

pub use attributes::*;
pub use content::*;
pub use search::*;
pub use tree::*;
pub use watch::*;
