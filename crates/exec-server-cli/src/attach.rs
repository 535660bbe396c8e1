//! `exec-server attach`: connects the terminal to a detached process.

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_client::session::LossKind;
use exec_core::{ExitStatus, Signal};

use crate::args::AttachArgs;
use crate::connection_status::LinkMonitor;
use crate::detached_session::DetachedSession;
use crate::detached_store::DetachedStore;
use crate::interactive::formatter::OutputFormatter;
use crate::interactive::output_thread::OutputThread;
use crate::interactive::signals::{self, Ownership};
use crate::interactive::stdin_forwarder::{StdinEnd, UserInput};
use crate::interactive::{BackgroundPolicy, InteractiveLoop, Outcome};
use crate::{exit_code, messages, terminal};

/// The exit code is that of the process.
pub(crate) async fn run(args: &AttachArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    let process = store.find(&args.id)?;
    let session = DetachedSession::resume(&store, process, args.take_over).await?;
    let outcome = run_interactively(args, &session).await;
    let (id, tty) = (session.process.id.clone(), session.process.tty);
    let link_state = session.environment.link().states().borrow().clone();
    session.close().await;
    match outcome {
        Ok(Outcome::Finished { exit, .. }) if exit.status == ExitStatus::Lost => {
            bail!("nobody saw how {id} ended: its keeper died first")
        }
        Ok(Outcome::Finished { exit, .. }) => Ok(exit_code::of_exit(&exit)),
        Ok(Outcome::Detached) => {
            if !args.quiet {
                if tty {
                    // The cursor may be anywhere in a line.
                    let _ = writeln!(std::io::stderr());
                }
                messages::print_note(format_args!("left {id} running: `exec-server attach {id}` goes on with it"));
            }
            Ok(0)
        }
        Ok(Outcome::OutputFailed(error)) if error.is_broken_pipe() => Ok(exit_code::BROKEN_PIPE),
        Ok(Outcome::OutputFailed(error)) => bail!("{error}; {id} goes on"),
        Ok(Outcome::Interrupted(signal)) => Ok(exit_code::of_signal(signal.number())),
        Err(error) => match link_state {
            LinkState::Lost(loss) if loss.kind == LossKind::TakenOver => {
                bail!("another exec-server has taken {id} over: see `exec-server ps`")
            }
            _ => Err(error),
        },
    }
}

/// Returns when the process ends or the user leaves. Our terminal is restored then.
async fn run_interactively(args: &AttachArgs, session: &DetachedSession) -> anyhow::Result<Outcome> {
    let DetachedSession { process, id, .. } = session;
    let takes_keys = process.tty && !args.no_stdin;
    let on_a_terminal = std::io::stdin().is_terminal();
    // In raw mode Ctrl-\ is a key like others; otherwise our terminal turns it into a signal.
    let ownership = Ownership::Attached { quit_detaches: on_a_terminal && !takes_keys };
    let mut signals = signals::listen(ownership, process.tty).context("cannot listen for signals")?;
    let output = OutputThread::open().context("cannot start the thread that writes output")?;
    if !args.quiet && on_a_terminal {
        let keys = if takes_keys { "Ctrl-\\ d" } else { "Ctrl-\\" };
        messages::print_note(format_args!("attached to {}: {keys} leaves it running", process.id));
    }
    let UserInput { raw, stdin } = match args.no_stdin {
        true => UserInput::default(),
        false => UserInput::open(process.tty, StdinEnd::Detach)?,
    };
    if process.tty && on_a_terminal {
        fit_terminal_size(session).await;
    }
    let mut formatter = OutputFormatter::new(args.json, raw.is_some());
    let link = LinkMonitor::new(session.environment.link(), process.at.to_string(), raw.is_some(), args.quiet);
    let interaction = InteractiveLoop {
        processes: session.processes(),
        id,
        after: args.since_seq,
        wait_all: args.wait_all,
        limit: None,
        background: BackgroundPolicy::Keep,
        signals: &mut signals,
        raw: raw.as_ref(),
        formatter: &mut formatter,
        link: Some(link),
    };
    interaction.run(None, output, stdin).await
}

/// Gives the process the size of our terminal, and makes it redraw even if the size is the same. A process that has ended
/// can do neither, which does not matter.
async fn fit_terminal_size(session: &DetachedSession) {
    if let Some(size) = terminal::size() {
        let resized = session.processes().resize(&session.id, size).await;
        let redrawn = session.processes().signal(&session.id, Signal::WindowChange).await;
        tracing::debug!(?resized, ?redrawn, "fitted to our terminal");
    }
}
