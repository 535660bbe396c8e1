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

use crate::args::{PsArgs, WhereArgs};
use crate::attend::view::ExitLine;
use crate::notebook::{Note, Notebook};
use crate::place::{self, Place, There};
use crate::visit::{NoVisit, visit};
use crate::{errand, exit_code, say, table};

/// Visits at one time: enough to hide the way there and back, few enough not to be a flood.
const AT_ONCE: usize = 8;

/// Lists them.
pub(crate) fn main(args: &PsArgs) -> ExitCode {
    errand::run(ps(args), exit_code::FAILED)
}

/// A process and what came of asking for it.
struct Found {
    note: Note,
    state: State,
}

enum State {
    Seen(Box<ProcessInfo>),
    Attached,
    Unreachable(String),
}

async fn ps(args: &PsArgs) -> anyhow::Result<u8> {
    let there = match &args.place {
        WhereArgs { environment: None, connect: None } => None,
        named => match place::choose(named)? {
            Place::There(there) => Some(there),
            Place::Here => anyhow::bail!("nothing is left running here without a server: see `exec-server run --help`"),
        },
    };
    let notebook = Notebook::open()?;
    let mut notes = notebook.all()?;
    if let Some(there) = &there {
        notes.retain(|note| note.at == there.address);
    }
    let ours: HashSet<String> = notes.iter().map(|note| note.session.clone()).collect();
    let asked = notes.into_iter().map(|note| ask(&notebook, note));
    let found: Vec<Option<Found>> = futures_util::stream::iter(asked).buffered(AT_ONCE).collect().await;
    let found: Vec<Found> = found.into_iter().flatten().collect();
    let others = match &there {
        Some(there) => sessions(there, &ours).await?,
        None => Vec::new(),
    };
    match args.json {
        true => print_json(&found, &others)?,
        false => print_tables(&found, &others)?,
    }
    Ok(0)
}

/// `None` if it is gone, which is told.
async fn ask(notebook: &Notebook, note: Note) -> Option<Found> {
    let looked = match visit(notebook, note.clone(), false).await {
        Ok(visit) => {
            let looked = visit.look(notebook).await;
            visit.leave().await;
            looked
        }
        Err(none) => Err(none),
    };
    let state = match looked {
        Ok(info) => State::Seen(Box::new(info)),
        Err(NoVisit::Busy { .. }) => State::Attached,
        Err(gone @ NoVisit::Gone { .. }) => {
            say::note(gone);
            return None;
        }
        Err(other) => State::Unreachable(other.to_string()),
    };
    Some(Found { note, state })
}

/// The sessions of others; none where we may not ask.
async fn sessions(there: &There, ours: &HashSet<String>) -> anyhow::Result<Vec<SessionInfo>> {
    let connected = there.connect(Options::default()).await;
    let environment = connected.map_err(|failure| anyhow::Error::msg(there.failure(&failure)))?;
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
    let is_other = |id: &String| Some(id) != own.as_ref() && !ours.contains(id);
    Ok(listed.into_iter().filter(|session| is_other(&session.session_id)).collect())
}

fn print_tables(found: &[Found], others: &[SessionInfo]) -> anyhow::Result<()> {
    if found.is_empty() && others.is_empty() {
        say::note("no detached processes: `exec-server run --detach` leaves one");
        return Ok(());
    }
    let now_ms = say::now_ms();
    if !found.is_empty() {
        let head = ["ID", "WHERE", "STATE", "PID", "STARTED", "OUTPUT", "COMMAND"];
        table::print(head, found.iter().map(|found| row(found, now_ms)).collect())?;
    }
    for found in found {
        if let State::Unreachable(why) = &found.state {
            say::note(format_args!("cannot ask for {}: {why}", found.note.id));
        }
    }
    if !others.is_empty() {
        let rows = others.iter().map(|session| {
            let state = match &session.attachment {
                Attachment::Attached { peer } => format!("attached ({peer})"),
                Attachment::Detached { expires_in_ms } => format!("detached, ends in {}s", expires_in_ms / 1000),
            };
            let opened = table::ago(session.opened_at_ms, now_ms);
            let client = table::words(std::slice::from_ref(&session.client_name));
            [session.session_id.clone(), client, state, opened, session.processes.to_string()]
        });
        if !found.is_empty() {
            say::answer(b"\n")?;
        }
        table::print(["SESSION", "CLIENT", "STATE", "OPENED", "PROCESSES"], rows.collect())?;
    }
    Ok(())
}

fn row(found: &Found, now_ms: u64) -> [String; 7] {
    let note = &found.note;
    let unknown = || "-".to_owned();
    let (state, pid, output) = match &found.state {
        State::Seen(info) => {
            let output = info.head.held_bytes + info.head.dropped_bytes;
            (state_words(info), info.pid.to_string(), table::size(output))
        }
        State::Attached => ("attached".to_owned(), unknown(), unknown()),
        State::Unreachable(_) => ("unreachable".to_owned(), unknown(), unknown()),
    };
    let started = table::ago(note.started_ms, now_ms);
    [note.id.clone(), note.at.to_string(), state, pid, started, output, table::words(&note.argv)]
}

fn state_words(info: &ProcessInfo) -> String {
    match info.head.exit.map(|(_, exit)| exit.status) {
        None => "running".to_owned(),
        Some(ExitStatus::Code(code)) => format!("exited {code}"),
        Some(ExitStatus::Signal { number, .. }) => format!("ended by {}", signal::name(number)),
        Some(ExitStatus::Lost) => "lost".to_owned(),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessLine<'a> {
    id: &'a str,
    at: &'a place::Address,
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

fn print_json(found: &[Found], others: &[SessionInfo]) -> anyhow::Result<()> {
    for Found { note, state } in found {
        let (state, info, message) = match state {
            State::Seen(info) if info.head.exit.is_some() => ("exited", Some(info), None),
            State::Seen(info) => ("running", Some(info), None),
            State::Attached => ("attached", None, None),
            State::Unreachable(why) => ("unreachable", None, Some(why.as_str())),
        };
        errand::json_line(&ProcessLine {
            id: &note.id,
            at: &note.at,
            session: &note.session,
            argv: &note.argv,
            tty: note.tty,
            started_ms: note.started_ms,
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
        errand::json_line(&serde_json::json!({ "otherSession": session }))?;
    }
    Ok(())
}
