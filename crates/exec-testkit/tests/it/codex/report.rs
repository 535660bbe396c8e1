//! What Codex reports of a command to the model (WIRE 9): a few lines about it, then what it has printed.

use serde_json::Value;

/// One answer of `exec_command` or `write_stdin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) state: CommandState,
    /// What it has printed since the last report, as the model sees it.
    pub(crate) output: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandState {
    /// With this exit code.
    Exited(i32),
    /// Under this session id for `write_stdin`.
    Running(u64),
}

impl Report {
    /// Reads an answer; one that is no report fails the test, which shows it.
    pub(crate) fn of(output: &Value) -> Self {
        let text = output.as_str().unwrap_or_else(|| panic!("commands answer with a text, not {output}"));
        let (head, output) = text.split_once("\nOutput:\n").unwrap_or_else(|| panic!("not a report: {text:?}"));
        let number = |beginning: &str| head.lines().find_map(|line| line.strip_prefix(beginning));
        let exited = number("Process exited with code ").and_then(|code| code.parse().ok()).map(CommandState::Exited);
        let running =
            || number("Process running with session ID ").and_then(|id| id.parse().ok()).map(CommandState::Running);
        let state = exited.or_else(running).unwrap_or_else(|| panic!("it must have ended or go on: {head:?}"));
        Self { state, output: output.to_owned() }
    }

    /// The session id of a command that must be running.
    pub(crate) fn session(&self) -> u64 {
        match self.state {
            CommandState::Running(session) => session,
            CommandState::Exited(_) => panic!("it should go on: {self:?}"),
        }
    }

    /// How many bytes the client left out because they were too many to keep.
    pub(crate) fn omitted_bytes(&self) -> u64 {
        let line = self.output.lines().find_map(|line| line.strip_prefix("... ")?.strip_suffix(" bytes omitted ..."));
        line.and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// An ended command that printed this.
pub(crate) fn exited(code: i32, output: &str) -> Report {
    Report { state: CommandState::Exited(code), output: output.to_owned() }
}
