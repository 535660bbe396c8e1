//! `exec-server kill`: ends detached processes, with all they started.

use std::time::Duration;

use anyhow::Context;
use exec_env::process::Terminated;
use exec_wire::Extension;
use serde::Serialize;

use crate::args::KillArgs;
use crate::detached_session::DetachedSession;
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

/// The exit code is 1 if one could not be ended.
pub(crate) async fn run(args: &KillArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    // All ids are looked up before the first process is ended: with a mistake in one, nothing happens to the others.
    let processes = args.ids.iter().map(|id| store.find(id)).collect::<anyhow::Result<Vec<DetachedProcess>>>()?;
    let mut code = 0;
    for process in processes {
        let id = process.id.clone();
        match terminate(args, &store, process).await {
            Ok(Terminated { left: 0, .. }) => {}
            Ok(_) => code = exit_code::FAILED,
            Err(error) => {
                messages::print_note(format_args!("cannot end {id}: {}", messages::error_chain(&error)));
                code = exit_code::FAILED;
            }
        }
    }
    Ok(code)
}

async fn terminate(args: &KillArgs, store: &DetachedStore, process: DetachedProcess) -> anyhow::Result<Terminated> {
    let id = process.id.clone();
    // A command that is attached to it is disconnected: the process is to end in any case.
    let session = DetachedSession::resume(store, process, true).await?;
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
    Ok(ended)
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
