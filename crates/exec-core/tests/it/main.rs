//! The rules under random histories: whatever happens, in whatever order, the promises hold.
//!
//! Each module builds the smallest driver that obeys the rules of its subject, feeds it a random history, and compares
//! it after every step with a model that is too simple to be wrong.

mod flow;
mod history;
mod termination;
mod write_history;
