//! `exec-server wait`: waits until detached processes have ended, as an observer: nobody who drives them notices.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use exec_core::{Exit, ExitStatus};
use exec_env::process::{WaitCondition, Waited};
use serde::Serialize;

use crate::args::WaitArgs;
use crate::connection_status::LinkMonitor;
use crate::detached_session::DetachedSession;
use crate::detached_store::DetachedStore;
use crate::{exit_code, find_process, messages};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitedJson<'a> {
    id: &'a str,
    ended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
}

/// The exit code is that of the last one that is named, as with the shell's `wait`.
pub(crate) async fn run(args: &WaitArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    // All are looked up before the first wait: a mistake in one is told at once.
    let mut sessions = Vec::new();
    for id in &args.ids {
        let (process, remote) = find_process::find(&store, &args.target, id).await?;
        sessions.push(DetachedSession::observe(&store, process, &remote, false).await?);
    }
    let deadline = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut code = 0;
    for session in sessions {
        let ended = wait_for(args, &session, deadline).await;
        let id = session.process.id.clone();
        session.close().await;
        code = match ended? {
            Some(exit) if exit.status == ExitStatus::Lost => bail!("nobody saw how {id} ended: its keeper died first"),
            Some(exit) => exit_code::of_exit(&exit),
            None => {
                if args.json {
                    messages::print_json(&WaitedJson { id: &id, ended: false, exit_code: None })?;
                }
                messages::print_note(format_args!("{id} still runs"));
                return Ok(exit_code::TIMED_OUT);
            }
        };
        if args.json {
            messages::print_json(&WaitedJson { id: &id, ended: true, exit_code: Some(code) })?;
        }
    }
    Ok(code)
}

/// `None` if the time ran out first.
async fn wait_for(
    args: &WaitArgs,
    session: &DetachedSession,
    deadline: Option<Instant>,
) -> anyhow::Result<Option<Exit>> {
    let condition = if args.wait_all { WaitCondition::Closed } else { WaitCondition::Exited };
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let mut link = LinkMonitor::new(session.environment.link(), session.process.at.to_string(), None, false);
    let mut waiting = session.processes().wait(&session.id, condition, left);
    // The server keeps the time; a server that is away does not.
    let given_up = async {
        match left {
            Some(left) => tokio::time::sleep(left.saturating_add(SERVER_GRACE)).await,
            None => std::future::pending().await,
        }
    };
    let mut given_up = std::pin::pin!(given_up);
    loop {
        tokio::select! {
            waited = &mut waiting => {
                return Ok(match waited.with_context(|| format!("cannot wait for {}", session.process.id))? {
                    Waited::Exited(exit) | Waited::Closed(exit) => Some(exit),
                    _ => None,
                });
            }
            state = link.changed() => drop(link.report(&state, false)),
            () = &mut given_up => return Ok(None),
        }
    }
}

/// How much longer than asked for a server may take to say that the time has run out.
const SERVER_GRACE: Duration = Duration::from_secs(1);
