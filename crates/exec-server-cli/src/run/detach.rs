//! `run --detach`: a program is started in a far place and left there, with a note of where.
//!
//! Each has a session of its own, so that nobody who looks at one disturbs the others.

use anyhow::{Context, bail};
use exec_client::RemoteEnvironment;
use exec_core::ProcessId;
use exec_env::Environment;
use exec_env::process::Started;

use super::command::{self, Setting};
use super::{Failure, machine};
use crate::args::RunArgs;
use crate::attend::view::View;
use crate::notebook::{Note, Notebook};
use crate::place::{Place, There};
use crate::{exit_code, say, terminal};

/// Starts it and leaves.
pub(super) async fn run(args: &RunArgs, place: Place) -> Result<u8, Failure> {
    let there = judge(place)?;
    let notebook = Notebook::open()?;
    let environment = machine::connect(&there, args.keep).await?;
    let left = leave(args, &there, &notebook, &environment).await;
    match left {
        Ok((note, started)) => {
            environment.close().await;
            told(args, &note, started)
        }
        Err(failure) => {
            if let Err(error) = environment.end().await {
                tracing::debug!(%error, "the session ends by itself");
            }
            Err(failure)
        }
    }
}

fn judge(place: Place) -> anyhow::Result<There> {
    match place {
        Place::There(there) if there.outlives_us() => Ok(*there),
        Place::There(there) => bail!(
            "--detach needs a server that stays when we leave: environment `{}` is a program whose server ends with \
             its connection; run `exec-server serve` there, on ws:// or unix://",
            there.address
        ),
        Place::Here => bail!(
            "--detach needs a server that stays when we leave: start `exec-server serve` and name it with --connect, \
             or choose an --environment"
        ),
    }
}

async fn leave(
    args: &RunArgs,
    there: &There,
    notebook: &Notebook,
    environment: &RemoteEnvironment,
) -> Result<(Note, Started), Failure> {
    if !environment.link().has("initialize.detachedTtlMs") {
        let message = "--detach needs a server that keeps a session for us: this one forgets it after half a minute";
        return Err(anyhow::Error::msg(message).into());
    }
    let command =
        command::of(args, Setting::there(terminal::size(), environment.info()), |name| std::env::var_os(name))?;
    let note = Note {
        id: notebook.new_id(&args.argv[0]),
        session: environment.session_id().context("the connection broke again at once: try once more")?,
        at: there.address.clone(),
        argv: args.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        tty: args.tty,
        started_ms: say::now_ms(),
    };
    let id = ProcessId::new(&note.id).context("cannot name the process")?;
    // Before it runs: should we die in between, there is a note without a process rather than a process that nobody
    // finds. Held, so that a `ps` in another window does not take the session from us meanwhile.
    notebook.add(&note)?;
    let _hold = notebook.hold(&note, std::time::Duration::ZERO).await?;
    match environment.processes().start(&id, command).await {
        Ok(started) => Ok((note, started)),
        Err(error) => {
            notebook.remove(&note);
            Err(Failure { message: super::unstarted(&error, false), exit_code: exit_code::of_start(&error) })
        }
    }
}

fn told(args: &RunArgs, note: &Note, started: Started) -> Result<u8, Failure> {
    let Note { id, session, at, .. } = note;
    let answer = match args.json {
        true => View::detached(id, started.pid, &at.to_string(), session).to_vec(),
        false => format!("{id}\n").into_bytes(),
    };
    say::answer(&answer).context("cannot write to stdout")?;
    if !args.quiet && !args.json {
        say::note(format_args!("{id} runs on {at}: `exec-server attach {id}` goes on with it, also logs, kill, ps"));
    }
    Ok(0)
}
