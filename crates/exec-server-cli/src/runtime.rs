//! What commands need of the process: an async runtime, the clock, randomness.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::BrokenPipe;
use crate::{exit_code, messages};

/// Runs a command to its exit code. An error is printed, and becomes `failure_code`; a closed stdout needs no message.
pub(crate) fn run(command: impl Future<Output = anyhow::Result<u8>>, failure_code: u8) -> ExitCode {
    let done = start().context("cannot start the runtime").and_then(|runtime| runtime.block_on(command));
    match done {
        Ok(code) => code.into(),
        Err(error) if error.is::<BrokenPipe>() => exit_code::BROKEN_PIPE.into(),
        Err(error) => {
            messages::print_note(messages::error_chain(&error));
            failure_code.into()
        }
    }
}

fn start() -> std::io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    survive_file_size_limit()?;
    drop(entered);
    Ok(runtime)
}

/// A write beyond RLIMIT_FSIZE (`ulimit -f`) shall be an error, like one to a full disk, and not our end: temporary files would
/// stay, and nobody would say why. Having a handler suffices, and unlike a signal that is ignored it is not inherited by the
/// programs that we start.
fn survive_file_size_limit() -> std::io::Result<()> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// Our own program, to start it again. One that was replaced since we were started has no path any more, but the kernel still
/// has it.
pub(crate) fn own_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if path.exists() { path } else { PathBuf::from("/proc/self/exe") })
}

/// Runs a server to its end. An error is printed.
pub(crate) fn run_server(server: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = match start() {
        Ok(runtime) => runtime,
        Err(error) => {
            messages::print_note(format_args!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let served = runtime.block_on(server);
    // A thread that is blocked in a read of stdin must not keep us from exiting.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            messages::print_note(messages::error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// The seed of the standard library's hash maps: random enough that two runs do not choose the same name.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
