//! The conformance suite on every environment there is. A new environment is one more line.

mod environments;

use exec_testkit::conformance;

conformance!(keeper_as_thread, environments::keeper_as_thread());
conformance!(keeper_as_process, environments::keeper_as_process());
conformance!(keeper_that_outlives, environments::keeper_that_outlives());
conformance!(without_cgroups, environments::without_cgroups());
