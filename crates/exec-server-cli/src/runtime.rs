//! What the short commands have in common: a runtime, one future, a code.

use std::process::ExitCode;

use anyhow::Context;

use crate::messages;

/// Carries it out; a failure is told, and is `failed` to the shell.
pub(crate) fn run(command: impl Future<Output = anyhow::Result<u8>>, failure_code: u8) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("cannot start the runtime").and_then(|runtime| runtime.block_on(command));
    match done {
        Ok(code) => code.into(),
        Err(error) => {
            messages::print_note(messages::error_chain(&error));
            failure_code.into()
        }
    }
}

/// Milliseconds since 1970, by our clock.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// The standard library's own randomness: enough that two runs of ours do not choose the same name.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
