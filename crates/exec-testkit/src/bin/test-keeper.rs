//! The keeper as a process, for tests that have no `exec-server` binary at hand.

use std::process::ExitCode;

fn main() -> ExitCode {
    exec_keeper::start_keeper::main(std::env::args_os().skip(1))
}
