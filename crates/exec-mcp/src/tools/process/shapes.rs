//! Arguments and results of the tools over commands, as JSON. Doc comments are what models read in the schemas.

use std::collections::BTreeMap;

use exec_core::exit::{ExitCause, ExitStatus};
use exec_core::{Stream, signal};
use exec_tools::shell::{Look, SessionNumber, SessionState, SessionSummary, input_failed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::state_words;
use crate::tools::WIDENED_BY;
use exec_core::timestamp::rfc3339;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ExecArguments {
    /// The command line, for the shell.
    pub(super) cmd: String,
    /// Where to run it; relative to the project's directory, which is the default.
    #[serde(default)]
    pub(super) workdir: Option<String>,
    /// Path of the shell; the account's own by default.
    #[serde(default)]
    pub(super) shell: Option<String>,
    /// Whether it is a login shell (-l).
    #[serde(default = "yes")]
    pub(super) login: bool,
    /// Give it a terminal: for REPLs, editors, prompts.
    #[serde(default)]
    pub(super) tty: bool,
    /// Keep its stdin open as a pipe, for write_stdin.
    #[serde(default)]
    pub(super) stdin: bool,
    /// How long to wait for its end before it becomes a session: 250 to 30000, default 10000.
    #[serde(default)]
    pub(super) yield_time_ms: Option<u64>,
    /// Most output to return, default 10000; head and tail are kept, and what is left out can be read later.
    #[serde(default)]
    pub(super) max_output_tokens: Option<usize>,
    /// Further environment variables.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Run it outside the sandbox; the user is asked first. Only if it cannot work within.
    #[serde(default)]
    pub(super) outside_sandbox: bool,
    /// With outside_sandbox: why, in a sentence for the user.
    #[serde(default)]
    pub(super) justification: Option<String>,
    /// Which environment; the default one if absent.
    #[serde(default, alias = "environment")]
    pub(super) environment_id: Option<String>,
}

fn yes() -> bool {
    true
}

/// The number of a session.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub(crate) struct SessionId(u32);

/// The schema asks for a number.
impl JsonSchema for SessionId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        u32::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        u32::json_schema(generator)
    }
}

impl TryFrom<serde_json::Value> for SessionId {
    type Error = String;

    fn try_from(id: serde_json::Value) -> Result<Self, String> {
        let number = id.as_u64().and_then(|number| u32::try_from(number).ok());
        number
            .map(Self)
            .ok_or_else(|| format!("session_id is a number that exec_command or list_sessions tells, and not {id}"))
    }
}

impl SessionId {
    pub(crate) fn number(self) -> SessionNumber {
        SessionNumber(self.0)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WriteArguments {
    /// The session, as exec_command has named it.
    pub(super) session_id: SessionId,
    /// What to type; empty only looks.
    #[serde(default)]
    pub(super) chars: String,
    /// End its input after chars.
    #[serde(default)]
    pub(super) close_stdin: bool,
    /// How long to wait for its end; default 250 after input, 5000 for a look, at most 300000.
    #[serde(default)]
    pub(super) yield_time_ms: Option<u64>,
    /// Most output to return, default 10000.
    #[serde(default)]
    pub(super) max_output_tokens: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WaitArguments {
    /// The session, as exec_command has named it.
    pub(super) session_id: SessionId,
    /// What to wait for.
    #[serde(default)]
    pub(super) until: Until,
    /// With until=pattern: a regular expression that new output must match.
    #[serde(default)]
    pub(super) pattern: Option<String>,
    /// With until=silence: for how long, default 2000.
    #[serde(default)]
    pub(super) silence_ms: Option<u64>,
    /// With until=port: which TCP port; any that it listens on if absent.
    #[serde(default)]
    pub(super) port: Option<u16>,
    /// How long to wait at most: default 30000, at most 300000.
    #[serde(default)]
    pub(super) timeout_ms: Option<u64>,
    /// Most output to return, default 10000.
    #[serde(default)]
    pub(super) max_output_tokens: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Until {
    /// The command has ended.
    #[default]
    Exit,
    /// So has everything it started that could still print.
    Closed,
    /// Its new output matches `pattern`.
    Pattern,
    /// It has printed nothing for `silence_ms`.
    Silence,
    /// It listens on `port`.
    Port,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ReadArguments {
    /// The session, as exec_command has named it.
    pub(super) session_id: SessionId,
    /// The entry to begin with; without it, head and tail of everything.
    #[serde(default)]
    pub(super) from_seq: Option<u64>,
    /// Bytes to skip from there.
    #[serde(default)]
    pub(super) skip_bytes: Option<u64>,
    /// Only the end.
    #[serde(default)]
    pub(super) tail: bool,
    /// Only one stream.
    #[serde(default)]
    pub(super) stream: Option<StreamName>,
    /// Most output to return, default 10000.
    #[serde(default)]
    pub(super) max_output_tokens: Option<usize>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamName {
    Stdout,
    Stderr,
    Pty,
}

impl StreamName {
    pub(crate) fn stream(self) -> Stream {
        match self {
            Self::Stdout => Stream::Stdout,
            Self::Stderr => Stream::Stderr,
            Self::Pty => Stream::Pty,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListArguments {
    /// Only those of this environment.
    #[serde(default, alias = "environment")]
    pub(super) environment_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct KillArguments {
    /// The session, as exec_command has named it.
    pub(super) session_id: SessionId,
    /// How long it may take after TERM before KILL; default 2000, 0 kills at once.
    #[serde(default)]
    pub(super) grace_ms: Option<u64>,
}

/// What a command printed, and whether it runs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommandResult {
    /// What it printed; what is left out is told in place.
    output: String,
    /// By which other tools go on with it or read it later.
    session_id: u32,
    status: CommandStatus,
    /// Its exit code once it has ended; 128 + n if signal n ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// What else there is to know, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Whether it failed and the sandbox seems to be the reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sandbox_denied: bool,
    /// How long the call took.
    wall_time_seconds: f64,
    /// About how many tokens the output would be if nothing were left out.
    original_token_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<LeftOut>,
    environment_id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CommandStatus {
    Running,
    Exited,
}

/// What is not shown: read_output with these shows it.
#[derive(Debug, Serialize, JsonSchema)]
struct LeftOut {
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    from_seq: u64,
    skip_bytes: u64,
}

impl CommandResult {
    pub(crate) fn of(look: &Look) -> Self {
        let status = match look.state {
            SessionState::Running { .. } => CommandStatus::Running,
            SessionState::Exited { .. } => CommandStatus::Exited,
        };
        let output = &look.output;
        Self {
            output: output.text.clone(),
            session_id: look.session.0,
            status,
            exit_code: look.state.exit().map(|exit| exit.shell_code()),
            note: note(look),
            sandbox_denied: look.denied,
            wall_time_seconds: (look.wall_time.as_secs_f64() * 1000.0).round() / 1000.0,
            original_token_count: output.original_tokens(),
            left_out: output.omitted.map(|omitted| LeftOut {
                bytes: omitted.bytes,
                from_seq: omitted.from_seq,
                skip_bytes: omitted.skip_bytes,
            }),
            environment_id: look.environment_id.clone(),
        }
    }

    /// The same in words, for clients that show models only text.
    pub(crate) fn text(&self) -> String {
        let state = match self.exit_code {
            Some(code) => format!("Process exited with code {code}"),
            None => format!("Process running with session ID {}", self.session_id),
        };
        let note = self.note.as_ref().map(|note| format!("Note: {note}\n")).unwrap_or_default();
        format!(
            "Wall time: {:.3} seconds\n{state}\n{note}Original token count: {}\nOutput:\n{}",
            self.wall_time_seconds, self.original_token_count, self.output
        )
    }
}

fn note(look: &Look) -> Option<String> {
    let mut notes = Vec::new();
    match look.state {
        SessionState::Running { stalled: Some(_) } => {
            notes.push("it waits with its output: the disk or its log is full".to_owned());
        }
        SessionState::Running { stalled: None } => {}
        SessionState::Exited { exit, open } => {
            match (exit.cause, exit.status) {
                (ExitCause::OutOfMemory, _) => notes.push("it ran out of memory".to_owned()),
                (ExitCause::TimedOut, _) => notes.push("its time limit ended it".to_owned()),
                (ExitCause::CpuLimit, _) => notes.push("its limit of processor time ended it".to_owned()),
                (_, ExitStatus::Signal { number, .. }) => notes.push(format!("{} ended it", signal::name(number))),
                (_, ExitStatus::Lost) => notes.push("nobody knows how it ended".to_owned()),
                (_, ExitStatus::Code(_)) => {}
            }
            if open {
                let session = look.session;
                notes.push(format!("it left background processes: kill_session {session} ends them"));
            }
        }
    }
    if look.input_waits {
        notes.push("it has not read all of what was typed yet, and gets the rest when it reads".to_owned());
    }
    if let Some(why) = &look.input_failed {
        notes.push(input_failed(why));
    }
    if look.denied {
        notes.push(format!("it ran in a sandbox, which seems to have denied it something: {WIDENED_BY}"));
    }
    if !look.forgotten.is_empty() {
        let forgotten: Vec<String> = look.forgotten.iter().map(ToString::to_string).collect();
        notes
            .push(format!("to make room, the logs of these finished sessions were given up: {}", forgotten.join(", ")));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitResult {
    /// What happened.
    pub(super) waited: String,
    #[serde(flatten)]
    pub(super) command: CommandResult,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KillResult {
    /// What happened.
    #[serde(rename = "killed")]
    pub(super) note: String,
    /// Processes that were ended.
    pub(super) ended: u32,
    /// Processes that could not be ended.
    pub(super) left: u32,
    #[serde(flatten)]
    pub(super) command: CommandResult,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListResult {
    pub(super) sessions: Vec<ListedSession>,
    /// Environments that could not be asked: since when, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) not_listed: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListedSession {
    session_id: u32,
    status: CommandStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    cmd: String,
    workdir: String,
    tty: bool,
    started_at: String,
    output_bytes: u64,
    environment_id: String,
    #[serde(skip)]
    state: String,
}

impl ListedSession {
    pub(super) fn of(session: &SessionSummary) -> Self {
        let exit_code = session.state.exit().map(|exit| exit.shell_code());
        Self {
            session_id: session.session.0,
            status: if exit_code.is_some() { CommandStatus::Exited } else { CommandStatus::Running },
            exit_code,
            cmd: session.command.clone(),
            workdir: session.cwd.clone(),
            tty: session.tty,
            started_at: rfc3339(session.started),
            output_bytes: session.output_bytes,
            environment_id: session.environment_id.clone(),
            state: state_words(&session.state),
        }
    }

    pub(super) fn line(&self, with_environment: bool) -> String {
        let Self { session_id, state, started_at, output_bytes, cmd, environment_id, .. } = self;
        let environment = if with_environment { format!(" in {environment_id}") } else { String::new() };
        format!("{session_id}{environment}: {state}, started {started_at}, {output_bytes} bytes of output: {cmd}")
    }
}
