//! `run --detach`: starts a program in a remote environment, writes a record of it, and leaves it running.
//!
//! Each program has a session of its own, so that a command on one does not affect the others.

use std::time::Duration;

use anyhow::{Context, bail};
use exec_client::{Options, RemoteEnvironment};
use exec_core::ProcessId;
use exec_env::Environment;
use exec_env::process::Started;
use exec_wire::Extension;

use super::command::{self, CommandDefaults};
use super::{RunFailure, describe_start_error};
use crate::args::RunArgs;
use crate::detached_store::{DetachedProcess, DetachedStore};
use crate::interactive::formatter::JsonEvent;
use crate::target::{self, RemoteTarget, Target};
use crate::{exit_code, messages, runtime, terminal};

/// How long a detached program may go on without anybody looking at it, if its server allows that.
const UNATTENDED: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) async fn run(args: &RunArgs, target: Target) -> Result<u8, RunFailure> {
    let remote = require_lasting_server(target)?;
    let store = DetachedStore::open()?;
    let detached_ttl = Some(UNATTENDED.max(args.keep));
    let environment = remote.connect(Options { detached_ttl, ..Options::default() }).await?;
    let detached = start_detached(args, &remote, &store, &environment).await;
    match detached {
        Ok((process, started)) => {
            environment.close().await;
            report(args, &process, started)
        }
        Err(failure) => {
            target::end_session(environment).await;
            Err(failure)
        }
    }
}

fn require_lasting_server(target: Target) -> anyhow::Result<RemoteTarget> {
    match target {
        Target::Remote(remote) if remote.survives_disconnect() => Ok(*remote),
        Target::Remote(remote) => bail!(
            "--detach needs a server that stays when we leave: environment `{}` is a program whose server ends with \
             its connection; add `--state-dir DIR` to it, or run `exec-server serve` there, on ws:// or unix://",
            remote.address
        ),
        // It is started if there is none, and ends by itself when nobody needs it any more.
        Target::Local => RemoteTarget::of_this_account(),
    }
}

async fn start_detached(
    args: &RunArgs,
    remote: &RemoteTarget,
    store: &DetachedStore,
    environment: &RemoteEnvironment,
) -> Result<(DetachedProcess, Started), RunFailure> {
    if !environment.link().has(Extension::INITIALIZE_DETACHED_TTL) {
        let message = "--detach needs a server that keeps a session for us: this one forgets it after half a minute";
        return Err(anyhow::Error::msg(message).into());
    }
    let defaults = match remote.is_this_account() {
        true => CommandDefaults::of_this_account(terminal::size()),
        false => CommandDefaults::remote(terminal::size(), environment.info()),
    };
    let command = command::build(args, defaults)?;
    let process = DetachedProcess {
        id: match &args.name {
            Some(name) => name.clone(),
            None => store.new_id(&args.argv[0]),
        },
        session: environment.session_id().context("the connection broke again at once: try once more")?,
        at: remote.address.clone(),
        argv: args.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        tty: args.tty,
        started_ms: runtime::now_ms(),
    };
    if store.has(&process.id) {
        let id = &process.id;
        let message = format!(
            "a detached process is called {id} already: choose another --name, or let go of it with `exec-server kill \
             --forget {id}`"
        );
        return Err(anyhow::Error::msg(message).into());
    }
    let id = ProcessId::new(&process.id).context("cannot name the process")?;
    // The record is written before the start: if we die in between, there is a record without a process rather than a
    // process that nobody finds. It is locked, so that a `ps` does not take the session from us meanwhile.
    store.add(&process)?;
    let _lock = store.lock_session(&process, Duration::ZERO).await?;
    match environment.processes().start(&id, command).await {
        Ok(started) => Ok((process, started)),
        Err(error) => {
            store.remove(&process);
            Err(RunFailure { message: describe_start_error(&error, false), exit_code: exit_code::of_start(&error) })
        }
    }
}

fn report(args: &RunArgs, process: &DetachedProcess, started: Started) -> Result<u8, RunFailure> {
    let DetachedProcess { id, session, at, .. } = process;
    // Whoever cannot be told the id by stdout must find the process all the same.
    let told = match args.json {
        true => messages::print_json(&JsonEvent::Detached { id, pid: started.pid, at: &at.to_string(), session }),
        false => messages::print_stdout(format!("{id}\n").as_bytes()).context("cannot write to stdout"),
    };
    told.map_err(|error| anyhow::anyhow!("{error:#}; {id} goes on"))?;
    if !args.json && !args.quiet {
        messages::print_note(format_args!(
            "{id} runs on {at}: `exec-server attach {id}` goes on with it, also logs, kill, ps"
        ));
    }
    Ok(0)
}
