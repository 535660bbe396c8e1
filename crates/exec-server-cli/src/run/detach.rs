//! `run --detach`: a program is started in a far place and left there, with a note of where.
//!
//! Each has a session of its own, so that nobody who looks at one disturbs the others.

use anyhow::{Context, bail};
use exec_client::RemoteEnvironment;
use exec_core::ProcessId;
use exec_env::Environment;
use exec_env::process::Started;

use super::command::{self, CommandDefaults};
use super::{RunFailure, environment};
use crate::args::RunArgs;
use crate::detached_store::{DetachedProcess, DetachedStore};
use crate::interactive::formatter::OutputFormatter;
use crate::target::{RemoteTarget, Target};
use crate::{exit_code, messages, runtime, terminal};

/// Starts it and leaves.
pub(super) async fn run(args: &RunArgs, target: Target) -> Result<u8, RunFailure> {
    let remote = require_lasting_server(target)?;
    let store = DetachedStore::open()?;
    let environment = environment::connect(&remote, args.keep).await?;
    let detached = start_detached(args, &remote, &store, &environment).await;
    match detached {
        Ok((process, started)) => {
            environment.close().await;
            report(args, &process, started)
        }
        Err(failure) => {
            if let Err(error) = environment.end().await {
                tracing::debug!(%error, "the session ends by itself");
            }
            Err(failure)
        }
    }
}

fn require_lasting_server(target: Target) -> anyhow::Result<RemoteTarget> {
    match target {
        Target::Remote(remote) if remote.survives_disconnect() => Ok(*remote),
        Target::Remote(remote) => bail!(
            "--detach needs a server that stays when we leave: environment `{}` is a program whose server ends with \
             its connection; run `exec-server serve` there, on ws:// or unix://",
            remote.address
        ),
        Target::Local => bail!(
            "--detach needs a server that stays when we leave: start `exec-server serve` and name it with --connect, \
             or choose an --environment"
        ),
    }
}

async fn start_detached(
    args: &RunArgs,
    remote: &RemoteTarget,
    store: &DetachedStore,
    environment: &RemoteEnvironment,
) -> Result<(DetachedProcess, Started), RunFailure> {
    if !environment.link().has("initialize.detachedTtlMs") {
        let message = "--detach needs a server that keeps a session for us: this one forgets it after half a minute";
        return Err(anyhow::Error::msg(message).into());
    }
    let command = command::build(args, CommandDefaults::remote(terminal::size(), environment.info()), |name| {
        std::env::var_os(name)
    })?;
    let process = DetachedProcess {
        id: store.new_id(&args.argv[0]),
        session: environment.session_id().context("the connection broke again at once: try once more")?,
        at: remote.address.clone(),
        argv: args.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        tty: args.tty,
        started_ms: runtime::now_ms(),
    };
    let id = ProcessId::new(&process.id).context("cannot name the process")?;
    // Before it runs: should we die in between, there is a note without a process rather than a process that nobody
    // finds. Held, so that a `ps` in another window does not take the session from us meanwhile.
    store.add(&process)?;
    let _lock = store.lock_session(&process, std::time::Duration::ZERO).await?;
    match environment.processes().start(&id, command).await {
        Ok(started) => Ok((process, started)),
        Err(error) => {
            store.remove(&process);
            Err(RunFailure {
                message: super::describe_start_error(&error, false),
                exit_code: exit_code::of_start(&error),
            })
        }
    }
}

fn report(args: &RunArgs, process: &DetachedProcess, started: Started) -> Result<u8, RunFailure> {
    let DetachedProcess { id, session, at, .. } = process;
    let text = match args.json {
        true => OutputFormatter::detached(id, started.pid, &at.to_string(), session).to_vec(),
        false => format!("{id}\n").into_bytes(),
    };
    messages::print_stdout(&text).context("cannot write to stdout")?;
    if !args.quiet && !args.json {
        messages::print_note(format_args!(
            "{id} runs on {at}: `exec-server attach {id}` goes on with it, also logs, kill, ps"
        ));
    }
    Ok(0)
}
