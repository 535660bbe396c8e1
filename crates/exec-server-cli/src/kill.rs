//! `exec-server kill`: ends detached processes, with all they started, or sends them a signal.

use std::time::Duration;

use anyhow::Context;
use exec_client::AttachedClient;
use exec_core::Signal;
use exec_env::process::{Signalled, Terminated};
use exec_wire::Extension;
use serde::Serialize;

use crate::args::KillArgs;
use crate::detached_session::{DetachedSession, ResumeError};
use crate::detached_store::{DetachedProcess, DetachedStore};
use crate::{exit_code, messages};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TerminatedJson<'a> {
    id: &'a str,
    was_running: bool,
    ended: u32,
    left: u32,
    forgotten: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SignalledJson<'a> {
    id: &'a str,
    signal: String,
    sent: bool,
}

/// Of a process whose server could not be asked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AbandonedJson<'a> {
    id: &'a str,
    forgotten: bool,
    unreachable: &'a str,
}

/// The exit code is 1 if one could not be ended.
pub(crate) async fn run(args: &KillArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    // All ids are looked up before the first process is ended: with a mistake in one, nothing happens to the others.
    let processes = args.ids.iter().map(|id| store.find(id)).collect::<anyhow::Result<Vec<DetachedProcess>>>()?;
    let mut code = 0;
    for process in processes {
        let id = process.id.clone();
        let ended = match args.signal {
            Some(signal) => send(args, &store, process, signal).await,
            None => terminate(args, &store, process).await,
        };
        match ended {
            Ok(true) => {}
            Ok(false) => code = exit_code::FAILED,
            Err(error) => {
                let what = if args.signal.is_some() { "cannot signal" } else { "cannot end" };
                messages::print_note(format_args!("{what} {id}: {}", messages::error_chain(&error)));
                code = exit_code::FAILED;
            }
        }
    }
    Ok(code)
}

/// Returns whether it is there to take the signal.
async fn send(
    args: &KillArgs,
    store: &DetachedStore,
    process: DetachedProcess,
    signal: Signal,
) -> anyhow::Result<bool> {
    let id = process.id.clone();
    // We come as an observer, so that whoever drives it loses nothing if we are refused.
    let session = DetachedSession::observe_noted(store, process, args.take_over).await?;
    let sent = match session.get_drive(args.take_over).await {
        Ok(former) => {
            let sent = session.processes().signal(&session.id, signal).await;
            if let Some(former) = former {
                hand_back(&session, &former).await;
            }
            sent.map_err(anyhow::Error::from)
        }
        Err(busy) => Err(busy.into()),
    };
    session.close().await;
    let sent = sent? == Signalled::Sent;
    if args.json {
        let signal = exec_core::signal::name(signal.number());
        messages::print_json(&SignalledJson { id: &id, signal, sent })?;
    } else if !sent {
        messages::print_note(format_args!("{id} has ended already"));
    }
    Ok(sent)
}

/// A client that knows of observers is still there and goes on with the drive. Any other has lost its connection.
async fn hand_back(session: &DetachedSession, former: &AttachedClient) {
    if let Err(error) = session.environment.hand_over_drive(former.id).await {
        tracing::debug!(%error, client = former.client_name, "the drive could not be handed back");
    }
}

/// Returns whether all of it is gone.
async fn terminate(args: &KillArgs, store: &DetachedStore, process: DetachedProcess) -> anyhow::Result<bool> {
    let id = process.id.clone();
    // A command that is attached to it is disconnected: the process is to end in any case.
    let session = match DetachedSession::resume(store, process.clone(), true).await {
        Ok(session) => session,
        Err(ResumeError::Gone { .. }) if args.forget => {
            report(args, &id, Terminated { was_running: false, ended: 0, left: 0 }, true)?;
            return Ok(true);
        }
        // Whoever lets go of it does not want to see it again, whether or not its server comes back.
        Err(ResumeError::Unreachable { why }) if args.forget => {
            store.remove(&process);
            report_abandoned(args, &id, &why)?;
            return Ok(true);
        }
        Err(error) => return Err(error.into()),
    };
    // A server that does not support a grace period kills at once.
    let has_grace = session.environment.link().has(Extension::TERMINATE_GRACE);
    let grace = if has_grace { args.grace } else { Duration::ZERO };
    let ended = session.processes().terminate(&session.id, grace).await.context("it may still run");
    let forgotten = args.forget && matches!(ended, Ok(Terminated { left: 0, .. }));
    match forgotten {
        true => session.forget(store).await?,
        false => session.close().await,
    }
    let ended = ended?;
    report(args, &id, ended, forgotten)?;
    Ok(ended.left == 0)
}

fn report_abandoned(args: &KillArgs, id: &str, why: &str) -> anyhow::Result<()> {
    if args.json {
        return messages::print_json(&AbandonedJson { id, forgotten: true, unreachable: why });
    }
    messages::print_note(format_args!("{id}: forgotten, but it may still run: {why}"));
    Ok(())
}

fn report(args: &KillArgs, id: &str, terminated: Terminated, forgotten: bool) -> anyhow::Result<()> {
    let Terminated { was_running, ended, left } = terminated;
    if args.json {
        return messages::print_json(&TerminatedJson { id, was_running, ended, left, forgotten });
    }
    let mut text = match (was_running, ended) {
        (true, _) => format!("{id}: ended {}", messages::process_count(ended.max(1))),
        (false, 0) => format!("{id}: had already ended"),
        (false, ended) => format!("{id}: had already ended; ended {} it left behind", messages::process_count(ended)),
    };
    if left > 0 {
        text += &format!("; {} could not be ended: look for them there with ps", messages::process_count(left));
    }
    if forgotten {
        text += "; forgotten";
    }
    text.push('\n');
    messages::print_stdout(text.as_bytes()).context("cannot write to stdout")
}
