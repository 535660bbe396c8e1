//! The keeper as a process, for tests that have no `exec-server` binary at hand. With `--refuse CALL=ERRNO,…` first, the
//! kernel refuses it these system calls.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|first| first == "--refuse").is_some() {
        let calls = args.next().and_then(|calls| calls.into_string().ok());
        exec_testkit::refused_calls::refuse(&calls.expect("--refuse is followed by calls"));
    }
    exec_keeper::start_keeper::main(args)
}
