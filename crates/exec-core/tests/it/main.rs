//! The rules under random histories: whatever happens, in whatever order, the promises hold.
//!
//! Each module builds the smallest driver that obeys the rules of its subject, feeds it a random history, and compares
//! it after every step with a model that is too simple to be wrong.

mod command;
mod environ;
mod flow;
mod history;
mod lifecycle;
mod log;
mod names;
mod termination;
mod write_history;
