//! Logs and screens as resources: `exec://session/NUMBER/log`, `exec://session/NUMBER/screen`.

use exec_env::screen::ScreenQuery;
use exec_tools::shell::{SessionNumber, Shell};
use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};

use crate::limits::RESULT_TOKENS;
use crate::tools::process::{state_words, whole_output};

const LOG: &str = "exec://session/{session_id}/log";
const SCREEN: &str = "exec://session/{session_id}/screen";

pub(crate) async fn list(shell: &Shell) -> Result<ListResourcesResult, ErrorData> {
    let listed = shell.list(None).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let resources = listed.sessions.iter().flat_map(|session| {
        let (number, tty) = (session.session, session.tty);
        let what = format!("{} ({})", session.command, state_words(&session.state));
        let named = |part: &str| {
            Resource::new(format!("exec://session/{number}/{part}"), format!("{part} of session {number}"))
                .with_description(what.clone())
                .with_mime_type("text/plain")
        };
        let screen = tty.then(|| named("screen"));
        std::iter::once(named("log").with_size(session.output_bytes)).chain(screen)
    });
    Ok(ListResourcesResult::with_all_items(resources.collect()))
}

pub(crate) fn templates() -> ListResourceTemplatesResult {
    let log = ResourceTemplate::new(LOG, "log of a session")
        .with_description("What a session has printed: head and tail; read_output shows any other part")
        .with_mime_type("text/plain");
    let screen = ResourceTemplate::new(SCREEN, "screen of a session")
        .with_description("What the terminal of a session shows now")
        .with_mime_type("text/plain");
    ListResourceTemplatesResult::with_all_items(vec![log, screen])
}

pub(crate) async fn read(shell: &Shell, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let unknown = |why: &str| ErrorData::resource_not_found(format!("no resource {uri}: {why}"), None);
    let parts = uri.strip_prefix("exec://session/").and_then(|rest| rest.split_once('/'));
    let parts = parts.and_then(|(number, part)| Some((SessionNumber(number.parse().ok()?), part)));
    let text = match parts {
        Some((number, "log")) => whole_output(shell, number, RESULT_TOKENS).await.map(|look| look.output.text),
        Some((number, "screen")) => shell.screen(number, ScreenQuery::default()).await.map(|screen| {
            let rows: Vec<&str> = screen.rows.iter().map(|row| row.text.as_str()).collect();
            rows.join("\n")
        }),
        _ => return Err(unknown(&format!("there are {LOG} and {SCREEN}"))),
    };
    let text = text.map_err(|error| unknown(&error.to_string()))?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri)]))
}
