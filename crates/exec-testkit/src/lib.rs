//! For tests only: the child that they start, and the suites that judge every environment.
//!
//! In the order in which a test of the suite meets them:
//!
//! - [`suite`] and [`suite_files`]: the behaviours that every [`exec_env::Environment`] must show, one function each;
//!   [`conformance!`](crate::conformance) and [`files_conformance!`](crate::files_conformance) make one test of each;
//! - [`runner`]: the runtime and the deadline of such a test;
//! - [`test_environment`]: the environment under test, with a scratch directory and the actor;
//! - the binary `actor`: the child, which runs a program of verbs (its `main.rs` lists them by module);
//! - [`process`]: a started process, and a reader of its log; [`checked_log`]: what was read, with every promise of the
//!   log checked;
//! - [`semaphore`]: lets an actor wait for the test without sleeping;
//! - [`os_process`]: asks the kernel whether a process is gone; [`proc_status`]: how much memory it uses;
//! - [`mount`]: a small or read-only file system; [`refused_calls`]: a kernel that refuses system calls;
//! - [`test_data`]: pseudo-random bytes that can be computed again from any offset;
//! - the binary `prober`: tries to get out of a sandbox, and runs programs on hosts that lack something. Its sources are
//!   beside those of `exec-sandbox`, where raw system calls may be made.
//!
//! For tests of connections and comparisons:
//!
//! - [`faulty_transport`]: a connection that breaks, delays, freezes and repeats; [`proxy`]: a TCP proxy that cuts;
//! - [`far`]: a machine behind ssh, with a real sshd;
//! - [`hostile_server`]: a server that means harm to its client;
//! - [`observers`]: clients that look on and cost little, and the echo that they must not delay;
//! - [`binaries`] and [`codex`]: find the programs that are compared, our server and Codex; [`packages`]: clients of others;
//! - [`fake_model`]: the model server that the real Codex CLI and the real Claude Code talk to in a test.
//!
//! Deliberately absent: any environment. The tests that name one are in `tests/it`.

pub mod binaries;
pub mod checked_log;
pub mod codex;
pub mod fake_model;
pub mod far;
pub mod faulty_transport;
pub mod hostile_server;
pub mod mount;
pub mod observers;
pub mod origin;
pub mod os_process;
pub mod packages;
pub mod proc_status;
pub mod process;
pub mod proxied;
pub mod proxy;
pub mod refused_calls;
pub mod runner;
pub mod semaphore;
pub mod suite;
pub mod suite_files;
pub mod test_data;
pub mod test_environment;

pub use test_environment::TestEnvironment;

/// On how many threads the servers of the tests serve; `EXEC_TEST_WORKERS` gives another number than two.
pub fn worker_count() -> std::num::NonZeroUsize {
    let asked = std::env::var("EXEC_TEST_WORKERS").unwrap_or_else(|_| "2".to_owned());
    asked.parse().expect("EXEC_TEST_WORKERS is a number, and not 0")
}

// The names of all behaviours, collected by build.rs.
include!(concat!(env!("OUT_DIR"), "/behaviours.rs"));

#[cfg(test)]
mod tests {
    /// Counted differently than build.rs does it. A behaviour that is not listed would never be tried.
    #[test]
    fn every_behaviour_is_listed() {
        let lists = include_str!(concat!(env!("OUT_DIR"), "/behaviours.rs"));
        let listed =
            lists.lines().filter(|line| line.contains(": ")).map(|line| line.split(',').count()).sum::<usize>();
        let mut written = 0;
        for directory in ["src/suite", "src/suite_files"] {
            for file in std::fs::read_dir(format!("{}/{directory}", env!("CARGO_MANIFEST_DIR"))).expect("it is there") {
                let source = std::fs::read_to_string(file.expect("it is there").path()).expect("sources are text");
                written += source.lines().filter(|line| line.starts_with("pub async fn ")).count();
            }
        }
        assert_eq!(listed, written);
        assert!(listed > 250, "only {listed} were found");
    }
}
