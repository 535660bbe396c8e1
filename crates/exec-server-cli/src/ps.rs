//! `exec-server ps`: the processes that `run --detach` left somewhere, each as its server sees it now.
//!
//! Where an environment is named and lets us, the sessions of others are listed, too.

use std::collections::HashSet;
use std::process::ExitCode;

use exec_client::Options;
use exec_core::{ExitStatus, signal};
use exec_env::process::ProcessInfo;
use exec_wire::session::{Attachment, ListParams, SessionInfo};
use futures_util::StreamExt;
use serde::Serialize;

use crate::args::{PsArgs, TargetArgs};
use crate::detached_session::{DetachedSession, ResumeError};
use crate::detached_store::{DetachedProcess, DetachedStore};
use crate::interactive::formatter::ExitLine;
use crate::target::{self, RemoteTarget, Target};
use crate::{exit_code, messages, runtime, table};

/// Visits at one time: enough to hide the way there and back, few enough not to be a flood.
const AT_ONCE: usize = 8;

/// Lists them.
pub(crate) fn main(args: &PsArgs) -> ExitCode {
    runtime::run(ps(args), exit_code::FAILED)
}

/// A process and what came of asking for it.
struct ListedProcess {
    process: DetachedProcess,
    state: ListedState,
}

enum ListedState {
    Known(Box<ProcessInfo>),
    Attached,
    Unreachable(String),
}

async fn ps(args: &PsArgs) -> anyhow::Result<u8> {
    let remote = match &args.target {
        TargetArgs { environment: None, connect: None } => None,
        named => match target::choose(named)? {
            Target::Remote(remote) => Some(remote),
            Target::Local => {
                anyhow::bail!("nothing is left running here without a server: see `exec-server run --help`")
            }
        },
    };
    let store = DetachedStore::open()?;
    let mut processes = store.all()?;
    if let Some(remote) = &remote {
        processes.retain(|process| process.at == remote.address);
    }
    let own_sessions: HashSet<String> = processes.iter().map(|process| process.session.clone()).collect();
    let queries = processes.into_iter().map(|process| query(&store, process));
    let found: Vec<Option<ListedProcess>> = futures_util::stream::iter(queries).buffered(AT_ONCE).collect().await;
    let found: Vec<ListedProcess> = found.into_iter().flatten().collect();
    let others = match &remote {
        Some(remote) => sessions(remote, &own_sessions).await?,
        None => Vec::new(),
    };
    match args.json {
        true => print_json(&found, &others)?,
        false => print_tables(&found, &others)?,
    }
    Ok(0)
}

/// `None` if it is gone, which is told.
async fn query(store: &DetachedStore, process: DetachedProcess) -> Option<ListedProcess> {
    let queried = match DetachedSession::resume(store, process.clone(), false).await {
        Ok(session) => {
            let queried = session.process_info(store).await;
            session.close().await;
            queried
        }
        Err(none) => Err(none),
    };
    let state = match queried {
        Ok(info) => ListedState::Known(Box::new(info)),
        Err(ResumeError::Busy { .. }) => ListedState::Attached,
        Err(gone @ ResumeError::Gone { .. }) => {
            messages::print_note(gone);
            return None;
        }
        Err(other) => ListedState::Unreachable(other.to_string()),
    };
    Some(ListedProcess { process, state })
}

/// The sessions of others; none where we may not ask.
async fn sessions(remote: &RemoteTarget, own_sessions: &HashSet<String>) -> anyhow::Result<Vec<SessionInfo>> {
    let connected = remote.connect(Options::default()).await;
    let environment = connected.map_err(|failure| anyhow::Error::msg(remote.explain(&failure)))?;
    let own = environment.session_id();
    let listed = match environment.link().has("session/list") {
        true => environment.link().call(ListParams {}).await.map(|listed| listed.sessions),
        false => Ok(Vec::new()),
    };
    if let Err(error) = environment.end().await {
        tracing::debug!(%error, "the session ends by itself");
    }
    let listed = listed.unwrap_or_else(|error| {
        tracing::debug!(%error, "the sessions of others are not for us to see");
        Vec::new()
    });
    let is_other = |id: &String| Some(id) != own.as_ref() && !own_sessions.contains(id);
    Ok(listed.into_iter().filter(|session| is_other(&session.session_id)).collect())
}

fn print_tables(found: &[ListedProcess], others: &[SessionInfo]) -> anyhow::Result<()> {
    if found.is_empty() && others.is_empty() {
        messages::print_note("no detached processes: `exec-server run --detach` leaves one");
        return Ok(());
    }
    let now_ms = runtime::now_ms();
    if !found.is_empty() {
        let head = ["ID", "WHERE", "STATE", "PID", "STARTED", "OUTPUT", "COMMAND"];
        table::print(head, found.iter().map(|found| row(found, now_ms)).collect())?;
    }
    for found in found {
        if let ListedState::Unreachable(why) = &found.state {
            messages::print_note(format_args!("cannot ask for {}: {why}", found.process.id));
        }
    }
    if !others.is_empty() {
        let rows = others.iter().map(|session| {
            let state = match &session.attachment {
                Attachment::Attached { peer } => format!("attached ({peer})"),
                Attachment::Detached { expires_in_ms } => format!("detached, ends in {}s", expires_in_ms / 1000),
            };
            let opened = table::ago(session.opened_at_ms, now_ms);
            let client = table::one_line(std::slice::from_ref(&session.client_name));
            [session.session_id.clone(), client, state, opened, session.processes.to_string()]
        });
        if !found.is_empty() {
            messages::print_stdout(b"\n")?;
        }
        table::print(["SESSION", "CLIENT", "STATE", "OPENED", "PROCESSES"], rows.collect())?;
    }
    Ok(())
}

fn row(found: &ListedProcess, now_ms: u64) -> [String; 7] {
    let process = &found.process;
    let unknown = || "-".to_owned();
    let (state, pid, output) = match &found.state {
        ListedState::Known(info) => {
            let output = info.head.held_bytes + info.head.dropped_bytes;
            (describe_state(info), info.pid.to_string(), table::size(output))
        }
        ListedState::Attached => ("attached".to_owned(), unknown(), unknown()),
        ListedState::Unreachable(_) => ("unreachable".to_owned(), unknown(), unknown()),
    };
    let started = table::ago(process.started_ms, now_ms);
    [process.id.clone(), process.at.to_string(), state, pid, started, output, table::one_line(&process.argv)]
}

fn describe_state(info: &ProcessInfo) -> String {
    match info.head.exit.map(|(_, exit)| exit.status) {
        None => "running".to_owned(),
        Some(ExitStatus::Code(code)) => format!("exited {code}"),
        Some(ExitStatus::Signal { number, .. }) => format!("ended by {}", signal::name(number)),
        Some(ExitStatus::Lost) => "lost".to_owned(),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessJson<'a> {
    id: &'a str,
    at: &'a target::Address,
    session: &'a str,
    argv: &'a [String],
    tty: bool,
    started_ms: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<ExitLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

fn print_json(found: &[ListedProcess], others: &[SessionInfo]) -> anyhow::Result<()> {
    for ListedProcess { process, state } in found {
        let (state, info, message) = match state {
            ListedState::Known(info) if info.head.exit.is_some() => ("exited", Some(info), None),
            ListedState::Known(info) => ("running", Some(info), None),
            ListedState::Attached => ("attached", None, None),
            ListedState::Unreachable(why) => ("unreachable", None, Some(why.as_str())),
        };
        messages::print_json(&ProcessJson {
            id: &process.id,
            at: &process.at,
            session: &process.session,
            argv: &process.argv,
            tty: process.tty,
            started_ms: process.started_ms,
            state,
            pid: info.map(|info| info.pid),
            next_seq: info.map(|info| info.head.next_seq),
            held_bytes: info.map(|info| info.head.held_bytes),
            dropped_bytes: info.map(|info| info.head.dropped_bytes),
            exit: info.and_then(|info| info.head.exit).map(|(_, exit)| ExitLine::of(&exit)),
            message,
        })?;
    }
    for session in others {
        messages::print_json(&serde_json::json!({ "otherSession": session }))?;
    }
    Ok(())
}
