//! The conformance suite on every environment there is (a new environment is one more line), and what lies beyond one
//! environment's waist: death of owner and keeper, volume, hostile disks.

mod compat;
mod durability;
mod environments;
mod hostile;
mod volume;

use exec_testkit::conformance;

conformance!(keeper_as_thread, environments::keeper_as_thread());
conformance!(keeper_as_process, environments::keeper_as_process());
conformance!(keeper_that_outlives, environments::keeper_that_outlives());
conformance!(without_cgroups, environments::without_cgroups());
