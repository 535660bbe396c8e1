//! From a policy to its enforcement, and to a report of what is enforced.
//!
//! In the order in which a sandboxed start meets them:
//!
//! - [`path_rules`]: the policy's rules for files, with the links in their paths resolved: which access does a path have?

pub mod path_rules;

pub use path_rules::{MachinePaths, PathAccess, PathRules};
