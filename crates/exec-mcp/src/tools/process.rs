//! The tools over commands: exec_command, write_stdin, wait_for, read_output, list_sessions, kill_session.
//!
//! Arguments are named as models know them from Codex. Here words become [`exec_tools::shell`] requests and its looks
//! become results; what happens is decided there.

pub(super) mod shapes;

use std::time::Duration;

use exec_core::ProcessId;
use exec_env::process::Waited;
use exec_tools::environments::TargetEnvironment;
use exec_tools::shell::limits::{OUTPUT_TOKENS_DEFAULT, YIELD_DEFAULT};
use exec_tools::shell::{
    ExecRequest, Look, ReadFrom, ReadRequest, SessionNumber, SessionState, Shell, ShellError, WaitFor, WriteRequest,
};
use rmcp::model::{CallToolResponse, CallToolResult};

use super::{Hints, ToolEntry, ToolOutcome, failed, structured, tool};
use crate::approval::{Ask, quoted};
use crate::call::Call;
use crate::server::Tools;
use crate::tasks;
pub(crate) use shapes::CommandResult;
use shapes::{
    ExecArguments, KillArguments, KillResult, ListArguments, ListResult, ListedSession, ReadArguments, StreamName,
    Until, WaitArguments, WaitResult, WriteArguments,
};

/// A look that changes nothing.
const LOOKS: Hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };

pub(crate) fn tools() -> Vec<ToolEntry> {
    let acts = Hints { read_only: false, destructive: true, idempotent: false, open_world: true };
    vec![
        ToolEntry {
            tool: tool::<ExecArguments, CommandResult>(
                "exec_command",
                "Run a command",
                "Runs a shell command. Returns its output and exit code, or, if it still runs after yield_time_ms, the output \
                 so far and a session_id to go on with (write_stdin, wait_for, read_output, kill_session). It keeps running \
                 whatever happens to this client.",
                acts,
            ),
            run: |tools, call| Box::pin(exec_command(tools, call)),
        },
        ToolEntry {
            tool: tool::<WriteArguments, CommandResult>(
                "write_stdin",
                "Type into a command, or look at it",
                "Writes chars to a session and returns what it printed since the last look. Empty chars only look. \"\\u0003\" \
                 interrupts. Needs tty=true or stdin=true at the start for anything else.",
                acts,
            ),
            run: |tools, call| Box::pin(write_stdin(tools, call)),
        },
        ToolEntry {
            tool: tool::<WaitArguments, WaitResult>(
                "wait_for",
                "Wait for a command",
                "Waits until a session exits, prints a pattern, falls silent or listens on a port; returns what it printed \
                 since the last look.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(wait_for(tools, call)),
        },
        ToolEntry {
            tool: tool::<ReadArguments, CommandResult>(
                "read_output",
                "Read the output of a command",
                "Shows any part of what a session has printed, also after its end: from an entry, the tail, one stream. Does \
                 not count as a look.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(read_output(tools, call)),
        },
        ToolEntry {
            tool: tool::<ListArguments, ListResult>(
                "list_sessions",
                "List commands",
                "Lists all sessions, running and finished, those of earlier clients included.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(list_sessions(tools, call)),
        },
        ToolEntry {
            tool: tool::<KillArguments, KillResult>(
                "kill_session",
                "End a command",
                "Ends a session and everything it started: TERM, and after a grace KILL.",
                Hints { read_only: false, destructive: true, idempotent: true, open_world: false },
            ),
            run: |tools, call| Box::pin(kill_session(tools, call)),
        },
    ]
}

async fn exec_command(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: ExecArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    let target = match tools.shell.environments().find(arguments.environment_id.as_deref()).await {
        Ok(target) => target,
        Err(error) => return Ok(failed(error).into()),
    };
    let is_outside = arguments.outside_sandbox && target.sandbox.is_some();
    if let Err(outcome) = tools.approvals.permit(call, is_outside, || exec_question(&arguments, &target)).await {
        return outcome;
    }
    // A person or a model types into a terminal, so it needs the session and not a task.
    let may_be_task = call.client_knows_tasks() && !arguments.tty;
    let request = ExecRequest::from(arguments);
    let looked = call.attend(tools.shell.exec_command(request)).await?;
    match looked {
        Ok(look) if may_be_task && look.state.exit().is_none() => {
            Ok(CallToolResponse::Task(tasks::created(&tools.shell, &look).await))
        }
        looked => Ok(command_result(looked).into()),
    }
}

async fn write_stdin(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: WriteArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    let session = arguments.session_id.number();
    let is_input = !arguments.chars.is_empty() || arguments.close_stdin;
    let mut outside_sandbox = false;
    if is_input {
        outside_sandbox = match tools.shell.is_outside_sandbox(session).await {
            Ok(is_outside) => is_outside,
            Err(error) => return Ok(failed(error).into()),
        };
        let question = |command: &str| input_question(&arguments, command, outside_sandbox);
        if let Err(outcome) = permit_for_session(tools, call, session, outside_sandbox, question).await {
            return outcome;
        }
    }
    let request = WriteRequest {
        outside_sandbox,
        chars: arguments.chars,
        close_stdin: arguments.close_stdin,
        yield_time: arguments.yield_time_ms.map(Duration::from_millis),
        max_output_tokens: arguments.max_output_tokens,
    };
    Ok(command_result(call.attend(tools.shell.write_stdin(session, request)).await?).into())
}

async fn wait_for(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: WaitArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    let until = match until(&arguments) {
        Ok(until) => until,
        Err(why) => return Ok(failed(why).into()),
    };
    let (session, tokens) = (arguments.session_id.number(), arguments.max_output_tokens);
    let deadline = arguments.timeout_ms.map(Duration::from_millis);
    let waited = match call.attend(tools.shell.wait(session, until, deadline, tokens)).await? {
        Ok(waited) => waited,
        Err(error) => return Ok(failed(error).into()),
    };
    let happened = match &waited.waited {
        None => "the session ended first".to_owned(),
        Some(Waited::Exited(_) | Waited::Closed(_) | Waited::TreeEnded(_)) => "exited".to_owned(),
        Some(Waited::Matched { text, .. }) => format!("matched {:?}", String::from_utf8_lossy(text)),
        Some(Waited::Silent) => "silent".to_owned(),
        Some(Waited::Listening { port }) => format!("listening on port {port}"),
        Some(Waited::DeadlinePassed) => "the timeout passed first; call again to wait on".to_owned(),
    };
    let command = CommandResult::of(&waited.look);
    let text = format!("Waited: {happened}\n{}", command.text());
    Ok(structured(text, &WaitResult { waited: happened, command }).into())
}

async fn read_output(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: ReadArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    let from = match (arguments.from_seq, arguments.skip_bytes, arguments.tail) {
        (None, None, false) => ReadFrom::Both,
        (None, None, true) => ReadFrom::Tail,
        (seq, skip, _) => ReadFrom::Entry { seq: seq.unwrap_or(1), skip_bytes: skip.unwrap_or(0) },
    };
    let stream = arguments.stream.map(StreamName::stream);
    let request = ReadRequest { from, stream, max_output_tokens: arguments.max_output_tokens };
    Ok(command_result(call.attend(tools.shell.read(arguments.session_id.number(), request)).await?).into())
}

async fn list_sessions(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: ListArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    let listed = match call.attend(tools.shell.list(arguments.environment_id.as_deref())).await? {
        Ok(listed) => listed,
        Err(error) => return Ok(failed(error).into()),
    };
    let name_environments = tools.has_several_environments();
    let sessions: Vec<ListedSession> = listed.sessions.iter().map(ListedSession::of).collect();
    let lines = sessions.iter().map(|session| session.line(name_environments));
    let not_listed: Vec<String> = listed.failures.iter().map(ToString::to_string).collect();
    let failures = not_listed.iter().map(|why| format!("Not listed: {why}"));
    let lines: Vec<String> = lines.chain(failures).collect();
    let text = if lines.is_empty() { "no sessions".to_owned() } else { lines.join("\n") };
    Ok(structured(text, &ListResult { sessions, not_listed }).into())
}

async fn kill_session(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: KillArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    let session = arguments.session_id.number();
    let question = |command: &str| format!("End session {session} and all that it started?\n\n{command}");
    if let Err(outcome) = permit_for_session(tools, call, session, false, question).await {
        return outcome;
    }
    let grace = arguments.grace_ms.map(Duration::from_millis);
    let (terminated, look) = match call.attend(tools.shell.kill(session, grace)).await? {
        Ok(killed) => killed,
        Err(error) => return Ok(failed(error).into()),
    };
    let command = CommandResult::of(&look);
    let note = match (terminated.was_running, terminated.left) {
        (_, left @ 1..) => format!("{left} processes could not be ended"),
        (true, 0) => format!("ended, with all it had started ({} processes)", terminated.ended),
        (false, 0) => format!("it had exited before; {} processes that it left behind were ended", terminated.ended),
    };
    let text = format!("{note}\n{}", command.text());
    let (ended, left) = (terminated.ended, terminated.left);
    Ok(structured(text, &KillResult { note, ended, left, command }).into())
}

/// Whether something may be done to a session. The question is made of a description of its command, which is looked for only
/// if somebody is asked.
async fn permit_for_session(
    tools: &Tools,
    call: &Call,
    session: SessionNumber,
    outside_sandbox: bool,
    question: impl FnOnce(&str) -> String,
) -> Result<(), ToolOutcome> {
    if !outside_sandbox && tools.approvals.ask() != Ask::Always {
        return Ok(());
    }
    let summary = tools.shell.summary(session).await.map_err(|error| Ok(failed(error).into()))?;
    let command = format!("Command:\n{}\nEnvironment: {}", quoted(&summary.command), summary.environment_id);
    tools.approvals.permit(call, outside_sandbox, || question(&command)).await
}

/// What a person is asked before a command runs: all that decides what it does.
fn exec_question(arguments: &ExecArguments, target: &TargetEnvironment) -> String {
    let where_to = if arguments.outside_sandbox && target.sandbox.is_some() { " outside the sandbox" } else { "" };
    let mut question = format!("Run this command{where_to}?\n\n{}\n\n", quoted(&arguments.cmd));
    let workdir = target.resolve(arguments.workdir.as_deref());
    question += &format!("Directory:\n{}\nEnvironment: {}\n", quoted(&workdir.to_string_lossy()), target.id);
    if let Some(shell) = &arguments.shell {
        question += &format!("Shell:\n{}\n", quoted(shell));
    }
    for (name, value) in &arguments.env {
        question += &format!("Variable:\n{}\n", quoted(&format!("{name}={value}")));
    }
    let why = arguments.justification.as_deref().unwrap_or("(the agent gives no reason)");
    question + &format!("Why, says the agent:\n{}", quoted(why))
}

fn input_question(arguments: &WriteArguments, command: &str, outside_sandbox: bool) -> String {
    let session = arguments.session_id.number();
    let where_to = if outside_sandbox { ", which is outside the sandbox" } else { "" };
    let end = if arguments.close_stdin { "and end its input\n\n" } else { "" };
    format!("Type into session {session}{where_to}?\n\n{}\n\n{end}{command}", quoted(&arguments.chars))
}

/// A look, or what went wrong, as a result.
pub(crate) fn command_result(looked: Result<Look, ShellError>) -> CallToolResult {
    match looked {
        Ok(look) => {
            let result = CommandResult::of(&look);
            structured(result.text(), &result)
        }
        Err(error) => failed(error),
    }
}

/// The whole output of a session that has ended, for its task or its resource.
pub(crate) async fn whole_output(shell: &Shell, session: SessionNumber, tokens: usize) -> Result<Look, ShellError> {
    let request = ReadRequest { max_output_tokens: Some(tokens), ..ReadRequest::default() };
    shell.read(session, request).await
}

/// The session of a process, or what is wrong with the id.
pub(crate) async fn session_of(shell: &Shell, process: &str) -> Result<SessionNumber, String> {
    let process = ProcessId::new(process).map_err(|error| error.to_string())?;
    shell.session_of(&process).await.map_err(|error| error.to_string())
}

fn until(arguments: &WaitArguments) -> Result<WaitFor, String> {
    Ok(match arguments.until {
        Until::Exit => WaitFor::Exit,
        Until::Closed => WaitFor::Closed,
        Until::Pattern => match &arguments.pattern {
            Some(pattern) => WaitFor::Pattern(pattern.clone()),
            None => return Err("until=\"pattern\" needs a pattern, a regular expression".to_owned()),
        },
        Until::Silence => WaitFor::Silence(Duration::from_millis(arguments.silence_ms.unwrap_or(2000))),
        Until::Port => WaitFor::Port(arguments.port),
    })
}

impl From<ExecArguments> for ExecRequest {
    fn from(arguments: ExecArguments) -> Self {
        let env = arguments.env.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self {
            cmd: arguments.cmd,
            workdir: arguments.workdir,
            shell: arguments.shell,
            no_login: !arguments.login,
            tty: arguments.tty,
            stdin: arguments.stdin,
            yield_time: arguments.yield_time_ms.map(Duration::from_millis),
            max_output_tokens: arguments.max_output_tokens,
            env: env.collect(),
            outside_sandbox: arguments.outside_sandbox,
            environment_id: arguments.environment_id,
        }
    }
}

/// The defaults that the descriptions name, so that they cannot drift apart.
const _: () = assert!(YIELD_DEFAULT.as_millis() == 10_000 && OUTPUT_TOKENS_DEFAULT == 10_000);

/// `running`, or how it ended.
pub(crate) fn state_words(state: &SessionState) -> String {
    match state {
        SessionState::Running { stalled: None } => "running".to_owned(),
        SessionState::Running { stalled: Some(_) } => "running, but waits with its output".to_owned(),
        SessionState::Exited { exit, .. } => format!("exited with code {}", exit.shell_code()),
    }
}
