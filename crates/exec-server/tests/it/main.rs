//! `spawn`, over this machine and over a far one whose connection is cut.

mod spawn;
mod stage;
