//! `exec-server kill`: ends processes that were left somewhere, with all they started.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use exec_env::process::Terminated;
use serde::Serialize;

use crate::args::KillArgs;
use crate::notebook::{Note, Notebook};
use crate::visit::visit;
use crate::{errand, exit_code, say};

/// Ends them; the code is 1 if one could not be ended.
pub(crate) fn main(args: &KillArgs) -> ExitCode {
    errand::run(kill(args), exit_code::FAILED)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: &'a str,
    was_running: bool,
    ended: u32,
    left: u32,
    forgotten: bool,
}

async fn kill(args: &KillArgs) -> anyhow::Result<u8> {
    let notebook = Notebook::open()?;
    // All are known before the first is ended: a slip in one must not cost half of them.
    let notes = args.ids.iter().map(|id| notebook.find(id)).collect::<anyhow::Result<Vec<Note>>>()?;
    let mut code = 0;
    for note in notes {
        let id = note.id.clone();
        match end(args, &notebook, note).await {
            Ok(Terminated { left: 0, .. }) => {}
            Ok(_) => code = exit_code::FAILED,
            Err(error) => {
                say::note(format_args!("cannot end {id}: {}", say::chain(&error)));
                code = exit_code::FAILED;
            }
        }
    }
    Ok(code)
}

async fn end(args: &KillArgs, notebook: &Notebook, note: Note) -> anyhow::Result<Terminated> {
    let id = note.id.clone();
    // Whoever is attached sees it end, or is thrown out; its end is what was asked for.
    let visit = visit(notebook, note, true).await?;
    visit.look(notebook).await?;
    // A server that knows no grace kills at once.
    let has_grace = visit.environment().link().has("process/terminate.graceMs");
    let grace = if has_grace { args.grace } else { Duration::ZERO };
    let ended = visit.processes().terminate(&visit.id, grace).await.context("it may still run");
    let forgotten = args.forget && matches!(ended, Ok(Terminated { left: 0, .. }));
    match forgotten {
        true => visit.forget(notebook).await?,
        false => visit.leave().await,
    }
    let ended = ended?;
    tell(args, &id, ended, forgotten)?;
    Ok(ended)
}

fn tell(args: &KillArgs, id: &str, found: Terminated, forgotten: bool) -> anyhow::Result<()> {
    let Terminated { was_running, ended, left } = found;
    if args.json {
        return errand::json_line(&Line { id, was_running, ended, left, forgotten });
    }
    let mut text = match (was_running, ended) {
        (true, _) => format!("{id}: ended {}", say::processes(ended.max(1))),
        (false, 0) => format!("{id}: had already ended"),
        (false, ended) => format!("{id}: had already ended; ended {} it left behind", say::processes(ended)),
    };
    if left > 0 {
        text += &format!("; {} could not be ended: look for them there with ps", say::processes(left));
    }
    if forgotten {
        text += "; forgotten";
    }
    text.push('\n');
    say::answer(text.as_bytes()).context("cannot write to stdout")
}
