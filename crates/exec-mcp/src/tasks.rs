//! The Tasks extension: a command that goes on after its call is a task, and its id is the id of its process.
//!
//! So a task needs no memory here. It is found by whoever serves the same environment: after the client has left, after
//! this server was killed, after the daemon was killed. `tasks/get` reads the log, `tasks/update` writes stdin (the key
//! `stdin`), `tasks/cancel` ends the process tree with a grace.

use std::time::SystemTime;

use exec_core::exit::ExitCause;
use exec_tools::shell::limits::KEEP;
use exec_tools::shell::{Look, ReadFrom, ReadRequest, SessionNumber, SessionState, Shell, WriteRequest, input_failed};
use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, DetailedTask, GetTaskResult, JsonObject, Task, TaskPayload, TaskStatus};
use serde_json::Value;

use crate::limits::{RESULT_TOKENS, STATUS_TOKENS, TASK_POLL_INTERVAL, TASK_START_TIMEOUT};
use crate::tools::process::{command_result, session_of, whole_output};
use exec_core::timestamp::rfc3339;

/// The key of `tasks/update` under which input comes.
const STDIN: &str = "stdin";

/// The task of a command that runs.
pub(crate) async fn created(shell: &Shell, look: &Look) -> CreateTaskResult {
    // When it began is what the environment says, from now on and whoever asks. If that is away just now, we know it well enough,
    // and whoever waits for the id of what already runs has to get it.
    let about = || SystemTime::now().checked_sub(look.wall_time).unwrap_or_else(SystemTime::now);
    let started = tokio::time::timeout(TASK_START_TIMEOUT, started(shell, look.session)).await;
    let started = started.ok().and_then(Result::ok).unwrap_or_else(about);
    CreateTaskResult::new(task(look, TaskStatus::Working, started))
}

pub(crate) async fn get(shell: &Shell, id: &str) -> Result<GetTaskResult, ErrorData> {
    let session = find(shell, id).await?;
    let tail = ReadRequest { from: ReadFrom::Tail, max_output_tokens: Some(STATUS_TOKENS), ..ReadRequest::default() };
    let look = shell.read(session, tail).await.map_err(internal)?;
    // What tasks/update could not tell any more. A task may be asked for any number of times, so this is no look that takes it.
    let input_failed = shell.failed_input(session).await.map_err(internal)?;
    let look = Look { input_failed, ..look };
    let started = started(shell, session).await?;
    let (status, payload) = match look.state {
        SessionState::Running { .. } => (TaskStatus::Working, TaskPayload::Working),
        SessionState::Exited { exit, .. } if exit.cause == ExitCause::Terminated => {
            (TaskStatus::Cancelled, TaskPayload::Cancelled)
        }
        SessionState::Exited { .. } => {
            let whole = whole_output(shell, session, RESULT_TOKENS).await;
            let whole = whole.map(|whole| Look { input_failed: look.input_failed.clone(), ..whole });
            (TaskStatus::Completed, TaskPayload::Completed { result: as_object(&command_result(whole))? })
        }
    };
    Ok(GetTaskResult::new(DetailedTask::new(task(&look, status, started), payload)))
}

/// Writes the input under [`STDIN`]: a string, or an answer to an elicitation whose content is one string.
pub(crate) async fn update(
    shell: &Shell,
    id: &str,
    responses: impl IntoIterator<Item = (String, Value)>,
) -> Result<(), ErrorData> {
    let session = find(shell, id).await?;
    for (key, response) in responses {
        let Some(chars) = (key == STDIN).then(|| input(&response)).flatten() else {
            let what = format!("task {id} takes input as {{\"{STDIN}\": \"text\"}} only, and got {key:?}");
            return Err(ErrorData::invalid_params(what, None));
        };
        let request = WriteRequest { chars, ..WriteRequest::default() };
        shell.input(session, request).await.map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
    }
    Ok(())
}

/// Ends it, with the usual grace. One that has ended stays as it is.
pub(crate) async fn cancel(shell: &Shell, id: &str) -> Result<(), ErrorData> {
    let session = find(shell, id).await?;
    shell.kill(session, None).await.map(drop).map_err(internal)
}

async fn find(shell: &Shell, id: &str) -> Result<SessionNumber, ErrorData> {
    session_of(shell, id).await.map_err(|why| ErrorData::invalid_params(format!("no task {id}: {why}"), None))
}

fn task(look: &Look, status: TaskStatus, started: SystemTime) -> Task {
    let words = crate::tools::process::state_words(&look.state);
    let failed = look.input_failed.as_ref().map(|why| format!("; {}", input_failed(why))).unwrap_or_default();
    let message = format!("{words}; session_id {}{failed}; last output: {}", look.session, look.output.text.trim_end());
    Task::new(look.process.as_str(), status, rfc3339(started), rfc3339(SystemTime::now()))
        .with_status_message(message)
        .with_ttl_ms(KEEP.as_millis() as u64)
        .with_poll_interval_ms(TASK_POLL_INTERVAL.as_millis() as u64)
}

async fn started(shell: &Shell, session: SessionNumber) -> Result<SystemTime, ErrorData> {
    shell.summary(session).await.map(|summary| summary.started).map_err(internal)
}

fn input(response: &Value) -> Option<String> {
    match response {
        Value::String(chars) => Some(chars.clone()),
        Value::Object(answer) => {
            let content = answer.get("content")?.as_object()?;
            content.values().find_map(|value| value.as_str().map(str::to_owned))
        }
        _ => None,
    }
}

fn as_object(result: &impl serde::Serialize) -> Result<JsonObject, ErrorData> {
    match serde_json::to_value(result) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(ErrorData::internal_error("a result that is no object", None)),
    }
}

fn internal(error: impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::input;

    #[test]
    fn input_is_a_string_or_the_content_of_an_answer() {
        assert_eq!(input(&json!("y\n")), Some("y\n".into()));
        assert_eq!(input(&json!({"action": "accept", "content": {"chars": "y\n"}})), Some("y\n".into()));
        assert_eq!(input(&json!({"action": "decline"})), None);
        assert_eq!(input(&json!(7)), None);
    }
}
