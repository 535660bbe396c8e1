//! What an owner and a keeper owe each other when one of them dies: beyond one environment's waist, so not part of the
//! suite. Real processes are killed here; nothing is imitated.
//!
//! Tests that load the machine have `alone` in their name. `EXEC_SOAK_ROUNDS` and `EXEC_SOAK_SEED` make more of, and
//! other histories for, the kills.

mod doubt;
mod embedded;
mod keeper_death;
mod kills;
mod orphans;
pub(crate) mod parts;
mod state_folder;
pub(crate) mod support;
