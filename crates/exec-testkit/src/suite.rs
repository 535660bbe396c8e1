//! The conformance suite: what every environment must do with processes. A file is an area, a `pub async fn` a
//! behaviour.
//!
//! The functions use [`exec_env`] and nothing below it. [`conformance!`](crate::conformance) turns them into tests:
//!
//! ```ignore
//! exec_testkit::conformance!(local, local_environment());
//! ```
//!
//! makes a module `local` with one `#[test]` for each behaviour, in a test environment of its own, which
//! `local_environment().await` gives. `build.rs` finds the functions, so a new behaviour is written once.
//! Behaviours wait for events; where the kernel sends none they poll, and every test has one overall deadline.
//!
//! Deliberately absent: what is not visible through [`exec_env`] (memory, kill -9 of an owner, speed).

pub mod crowd;
pub mod exit;
pub mod follow;
pub mod limit;
pub mod list;
pub mod log;
pub mod network;
pub mod overflow;
pub mod refusal;
pub mod resource_limits;
pub mod run_as;
pub mod sandbox;
pub mod screen;
pub mod signal;
pub mod start;
pub mod stdin;
pub mod streams;
pub mod terminal;
pub mod terminate;
pub mod view;
pub mod wait;

use std::path::Path;
use std::time::Duration;

use exec_core::{Exit, ExitStatus, Stream};

use crate::TestEnvironment;
use crate::checked_log::CheckedLog;
use crate::test_data::SeededBytes;

/// Makes one test of each behaviour for one more environment.
///
/// `conformance!(name, setup)`: `setup` is an expression that gives a future of a
/// [`TestEnvironment`](crate::TestEnvironment); it is evaluated once per test, inside the test's runtime.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $setup:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            // A long name, because it would hide a function of the same name in `$setup`.
            async fn test_environment_for_one_behaviour() -> $crate::TestEnvironment {
                $setup.await
            }

            $crate::process_behaviours!();
        }
    };
}

/// One test of each behaviour of a suite; a detail of both conformance macros.
#[doc(hidden)]
#[macro_export]
macro_rules! behaviour_tests {
    ($suite:ident: $($area:ident: $($name:ident),+;)+) => {
        $(mod $area {
            $(#[test]
            fn $name() {
                let test = async {
                    let env = super::test_environment_for_one_behaviour().await;
                    $crate::$suite::$area::$name(&env).await;
                    $crate::$suite::finish(env).await;
                };
                let name = concat!(stringify!($area), "::", stringify!($name));
                $crate::runner::run_test(name, $crate::$suite::deadline(), Box::pin(test));
            })+
        })+
    };
}

/// Longest time one behaviour may take, on a loaded machine with two cores. A test that needs it has failed.
#[doc(hidden)]
pub const fn deadline() -> Duration {
    Duration::from_secs(60)
}

/// The environment is dropped here, inside the runtime, because it may have tasks to stop.
#[doc(hidden)]
pub async fn finish(env: TestEnvironment) {
    env.forget_all().await;
}

/// The signal that ended it, if one did; whether a core was dumped is the machine's own affair.
fn signal_of(exit: Exit) -> Option<i32> {
    match exit.status {
        ExitStatus::Signal { number, .. } => Some(number),
        ExitStatus::Code(_) | ExitStatus::Lost => None,
    }
}

/// Asserts that a stream consists of the first `length` bytes of `expected`, and says where it differs.
pub fn assert_stream(log: &CheckedLog, stream: Stream, expected: SeededBytes, length: usize) {
    let found = log.bytes(stream);
    let difference = expected.first_difference(0, &found);
    assert_eq!(difference, None, "{stream:?} differs at this offset");
    assert_eq!(found.len(), length, "bytes of {stream:?}");
}

fn make_program(path: &Path, content: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, content).expect("the scratch directory is ours");
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("the file is ours");
}
