//! `exec-server ps`: lists detached processes, each with the state that its server reports.
//!
//! If an environment is named and permits it, the sessions of other clients are listed, too; with `--all` those of every
//! environment, each with its processes and whoever drives it ([`all`]).

mod all;

use std::collections::HashSet;

use exec_client::Options;
use exec_core::{ExitStatus, Stall, signal};
use exec_env::process::ProcessInfo;
use exec_wire::Method;
use exec_wire::session::{Attachment, ListParams, SessionInfo};
use futures_util::StreamExt;
use serde::Serialize;

use crate::args::{ConnectArgs, PsArgs, TargetArgs};
use crate::detached_session::{DetachedSession, ResumeError};
use crate::detached_store::{DetachedProcess, DetachedStore};
use crate::target::{self, RemoteTarget, Target};
use crate::{messages, runtime, table};

/// Concurrent connections: enough to hide their latency, few enough not to burden a server.
const AT_ONCE: usize = 8;

struct ListedProcess {
    process: DetachedProcess,
    state: ListedState,
}

enum ListedState {
    Known {
        info: Box<ProcessInfo>,
        driver: Option<String>,
    },
    /// In the hands of another command, at a server that knows no observers.
    Attached,
    Unreachable(String),
}

pub(crate) async fn run(args: &PsArgs) -> anyhow::Result<u8> {
    if args.all {
        return all::run(args).await;
    }
    let remote = match &args.target {
        TargetArgs { environment: None, connect: None, .. } => None,
        named => match target::choose(named)? {
            Target::Remote(remote) => Some(remote),
            Target::Local => RemoteTarget::of_this_account_if_used()?.map(Box::new),
        },
    };
    let store = DetachedStore::open()?;
    let mut processes = store.all()?;
    if let Some(remote) = &remote {
        processes.retain(|process| process.at.is_at(&remote.address));
    }
    let own_sessions: HashSet<String> = processes.iter().map(|process| process.session.clone()).collect();
    let queries = processes.into_iter().map(|process| query(&store, process, &args.target.connection));
    let found: Vec<Option<ListedProcess>> = futures_util::stream::iter(queries).buffered(AT_ONCE).collect().await;
    let found: Vec<ListedProcess> = found.into_iter().flatten().collect();
    let others = match &remote {
        Some(remote) => other_sessions(remote, &own_sessions).await?,
        None => Vec::new(),
    };
    match args.json {
        true => print_json(&found, &others)?,
        false => print_tables(&found, &others)?,
    }
    Ok(0)
}

/// `None` if it is gone, which is reported.
async fn query(store: &DetachedStore, process: DetachedProcess, connection: &ConnectArgs) -> Option<ListedProcess> {
    let remote = match RemoteTarget::from_address(&process.at, connection) {
        Ok(remote) => remote,
        Err(error) => return Some(ListedProcess { process, state: ListedState::Unreachable(error.to_string()) }),
    };
    let state = match DetachedSession::observe(store, process.clone(), &remote, false).await {
        Ok(session) => {
            let info = Box::new(session.info.clone());
            let driver = session.other_driver().map(|driver| driver.client_name);
            session.close().await;
            ListedState::Known { info, driver }
        }
        Err(ResumeError::Busy { .. }) => ListedState::Attached,
        Err(gone @ ResumeError::Gone { .. }) => {
            messages::print_note(gone);
            return None;
        }
        Err(other) => ListedState::Unreachable(other.to_string()),
    };
    Some(ListedProcess { process, state })
}

/// The sessions of other clients; none if we may not list them.
async fn other_sessions(remote: &RemoteTarget, own_sessions: &HashSet<String>) -> anyhow::Result<Vec<SessionInfo>> {
    let environment = remote.connect(Options::default()).await?;
    let own = environment.session_id();
    let listed = match environment.link().has(Method::SessionList) {
        true => environment.link().call(ListParams {}).await.map(|listed| listed.sessions),
        false => Ok(Vec::new()),
    };
    target::end_session(environment).await;
    let listed = listed.unwrap_or_else(|error| {
        tracing::debug!(%error, "we may not list the sessions of other clients");
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
        ListedState::Known { info, driver } => {
            let output = info.head.held_bytes + info.head.dropped_bytes;
            let state = match driver {
                Some(driver) => {
                    format!("{}, driven by {}", describe_state(info), table::one_line(std::slice::from_ref(driver)))
                }
                None => describe_state(info),
            };
            (state, info.pid.to_string(), table::size(output))
        }
        ListedState::Attached => ("attached".to_owned(), unknown(), unknown()),
        ListedState::Unreachable(_) => ("unreachable".to_owned(), unknown(), unknown()),
    };
    let started = table::ago(process.started_ms, now_ms);
    [process.id.clone(), process.at.to_string(), state, pid, started, output, table::one_line(&process.argv)]
}

fn describe_state(info: &ProcessInfo) -> String {
    match info.head.exit.map(|(_, exit)| exit.status) {
        None => info.head.stalled.map_or("running".to_owned(), |stall| format!("stalled: {}", describe_stall(stall))),
        Some(ExitStatus::Code(code)) => format!("exited {code}"),
        Some(ExitStatus::Signal { number, .. }) => format!("ended by {}", signal::name(number)),
        Some(ExitStatus::Lost) => "lost".to_owned(),
    }
}

/// Why a program waits with its output.
pub(crate) fn describe_stall(stall: Stall) -> &'static str {
    match stall {
        Stall::Disk => "disk full",
        Stall::Spool => "spool full",
        Stall::Reader => "waits for its reader",
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessJson<'a> {
    #[serde(flatten)]
    process: &'a DetachedProcess,
    state: &'static str,
    #[serde(flatten)]
    known: Option<KnownJson>,
    /// Who drives it just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// What the server knows of the process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KnownJson {
    pid: u32,
    next_seq: u64,
    held_bytes: u64,
    dropped_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<exec_wire::process::Exit>,
}

impl KnownJson {
    fn of(info: &ProcessInfo) -> Self {
        Self {
            pid: info.pid,
            next_seq: info.head.next_seq,
            held_bytes: info.head.held_bytes,
            dropped_bytes: info.head.dropped_bytes,
            stalled: info.head.stalled.map(describe_stall),
            exit: info.head.exit.map(|(_, exit)| exit.into()),
        }
    }
}

fn print_json(found: &[ListedProcess], others: &[SessionInfo]) -> anyhow::Result<()> {
    for ListedProcess { process, state } in found {
        let driver = match state {
            ListedState::Known { driver, .. } => driver.as_deref(),
            ListedState::Attached | ListedState::Unreachable(_) => None,
        };
        let (state, info, message) = match state {
            ListedState::Known { info, .. } if info.head.exit.is_some() => ("exited", Some(info), None),
            ListedState::Known { info, .. } => ("running", Some(info), None),
            ListedState::Attached => ("attached", None, None),
            ListedState::Unreachable(why) => ("unreachable", None, Some(why.as_str())),
        };
        messages::print_json(&ProcessJson {
            process,
            state,
            known: info.map(|info| KnownJson::of(info)),
            driver,
            message,
        })?;
    }
    for session in others {
        messages::print_json(&serde_json::json!({ "otherSession": session }))?;
    }
    Ok(())
}
