//! What survives when an owner or a keeper is killed. That is more than one environment can show, so it is not part of
//! the suite. Real processes are killed here; nothing is imitated.
//!
//! Tests that load the machine have `alone` in their name. `EXEC_SOAK_ROUNDS` asks for more kills, and
//! `EXEC_SOAK_SEED` for kills at other moments.

mod embedded;
mod keeper_death;
mod kills;
mod limits;
mod orphans;
pub(crate) mod printing_children;
mod screens;
mod state_directory;
mod stdin_writes;
pub(crate) mod support;
