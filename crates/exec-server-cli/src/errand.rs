//! What the short commands have in common: a runtime, one future, a code.

use std::process::ExitCode;

use anyhow::Context;

use crate::say;

/// Carries it out; a failure is told, and is `failed` to the shell.
pub(crate) fn run(errand: impl Future<Output = anyhow::Result<u8>>, failed: u8) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("cannot start the runtime").and_then(|runtime| runtime.block_on(errand));
    match done {
        Ok(code) => code.into(),
        Err(error) => {
            say::note(say::chain(&error));
            failed.into()
        }
    }
}

/// One line of JSON on stdout.
pub(crate) fn json_line(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(value).context("cannot encode an answer")?;
    line.push(b'\n');
    say::answer(&line).context("cannot write to stdout")
}
