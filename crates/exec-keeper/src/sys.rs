//! The few system calls `rustix` does not offer, each behind a safe or clearly bounded function.
//!
//! This folder is the only place of the crate with `unsafe`.

pub(crate) mod clone;
pub(crate) mod pidfd;
pub(crate) mod schedule;
pub(crate) mod signals;
