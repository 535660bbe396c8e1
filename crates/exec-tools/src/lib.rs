//! What a model does with a machine, as one call each, over any environment.
//!
//! In the order in which a call meets them:
//!
//! - [`environments`]: which environment a call means;
//! - [`shell`]: commands that run, yield and go on: start, write, wait, read, list, kill;
//! - [`files`]: reading, writing, editing and finding files, and patches.
//!
//! Deliberately absent: JSON, schemas and protocols, which belong to the front that offers the tools.

#![warn(missing_docs)]

pub mod environments;
pub mod files;
pub mod shell;
