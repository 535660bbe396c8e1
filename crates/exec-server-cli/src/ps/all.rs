//! `ps --all`: every session that we may see, of agents as well, with its processes and whoever drives it.

use exec_env::process::ProcessInfo;
use exec_wire::session::{Attachment, SessionInfo};
use serde::Serialize;

use super::{KnownJson, describe_state};
use crate::args::PsArgs;
use crate::detached_store::DetachedStore;
use crate::find_process::{self, SeenSession};
use crate::{exit_code, messages, runtime, table};

/// The exit code is 1 if a server could not be asked.
pub(super) async fn run(args: &PsArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    let servers = find_process::all_servers(&store, &args.target)?;
    if servers.is_empty() {
        messages::print_note("there is no server to ask: name one with --connect or --environment");
        return Ok(0);
    }
    let (mut rows, mut code) = (Vec::new(), 0);
    for remote in &servers {
        let at = remote.address.to_string();
        match find_process::sessions(remote).await {
            Ok(sessions) if args.json => {
                for session in &sessions {
                    messages::print_json(&session_json(&at, session))?;
                }
            }
            Ok(sessions) => rows.extend(sessions.iter().flat_map(|session| session_rows(&at, session))),
            Err(error) => {
                messages::print_note(format_args!("cannot ask {at}: {}", messages::error_chain(&error)));
                code = exit_code::FAILED;
            }
        }
    }
    if !rows.is_empty() {
        table::print(["ID", "WHERE", "DRIVER", "STATE", "PID", "STARTED", "COMMAND"], rows)?;
    } else if !args.json && code == 0 {
        messages::print_note("no sessions but our own");
    }
    Ok(code)
}

/// One row for each process, or one for a session without any.
fn session_rows(at: &str, session: &SeenSession) -> Vec<[String; 7]> {
    let now_ms = runtime::now_ms();
    let (driver, short) = (driver_text(&session.info), find_process::short(&session.info.session_id));
    let unknown = || "-".to_owned();
    let processes = session.processes.as_deref().unwrap_or_default();
    if processes.is_empty() {
        let state = if session.processes.is_some() { "no processes" } else { "gone" };
        let opened = table::ago(session.info.opened_at_ms, now_ms);
        return vec![[short.to_owned(), at.to_owned(), driver, state.to_owned(), unknown(), opened, unknown()]];
    }
    let row = |process: &ProcessInfo| {
        let argv: Vec<String> = process.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let id = table::one_line(&[format!("{short}/{}", process.id)]);
        let started = table::ago(started_ms(process), now_ms);
        let (state, pid) = (describe_state(process), process.pid.to_string());
        [id, at.to_owned(), driver.clone(), state, pid, started, table::one_line(&argv)]
    };
    processes.iter().map(row).collect()
}

/// Who drives the session, and how many look on.
fn driver_text(session: &SessionInfo) -> String {
    let driver = match (&session.driver, &session.attachment) {
        (Some(driver), _) => table::one_line(std::slice::from_ref(&driver.client_name)),
        (None, Attachment::Detached { expires_in_ms }) => format!("nobody, ends in {}s", expires_in_ms / 1000),
        (None, Attachment::Attached { .. }) => table::one_line(std::slice::from_ref(&session.client_name)),
    };
    // We are among those that look on, for this moment, but not yet when the list was made.
    match session.observers.unwrap_or(0) {
        0 => driver,
        1 => format!("{driver} (1 looks on)"),
        count => format!("{driver} ({count} look on)"),
    }
}

fn started_ms(process: &ProcessInfo) -> u64 {
    process.started.duration_since(std::time::SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionJson<'a> {
    at: &'a str,
    #[serde(flatten)]
    session: &'a SessionInfo,
    /// Beside their number, because a session may have more by now.
    #[serde(rename = "processList")]
    processes: Vec<SeenProcessJson<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SeenProcessJson<'a> {
    id: &'a str,
    argv: Vec<String>,
    tty: bool,
    started_ms: u64,
    #[serde(flatten)]
    known: KnownJson,
}

fn session_json<'a>(at: &'a str, session: &'a SeenSession) -> SessionJson<'a> {
    let process = |process: &'a ProcessInfo| SeenProcessJson {
        id: process.id.as_str(),
        argv: process.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        tty: process.tty,
        started_ms: started_ms(process),
        known: KnownJson::of(process),
    };
    let processes = session.processes.as_deref().unwrap_or_default();
    SessionJson { at, session: &session.info, processes: processes.iter().map(process).collect() }
}
