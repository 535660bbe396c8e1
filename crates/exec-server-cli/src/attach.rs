//! `exec-server attach`: a process that was left somewhere gets a person again.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_client::session::LossKind;
use exec_core::{Signal, ExitStatus};

use crate::args::AttachArgs;
use crate::attend::feeder::{End, Feeder};
use crate::attend::outlet::Outlet;
use crate::attend::signals::{Bond, Signals};
use crate::attend::view::View;
use crate::attend::{Attendant, Outcome, Remains, Terms};
use crate::notebook::Notebook;
use crate::spinner::LinkNews;
use crate::terminal::{self, RawTerminal};
use crate::visit::{Visit, visit};
use crate::{errand, exit_code, say};

/// Attaches; the code is that of the process.
pub(crate) fn main(args: &AttachArgs) -> ExitCode {
    errand::run(attach(args), exit_code::OWN_FAILURE)
}

async fn attach(args: &AttachArgs) -> anyhow::Result<u8> {
    let notebook = Notebook::open()?;
    let note = notebook.find(&args.id)?;
    let visit = visit(&notebook, note, args.take_over).await?;
    visit.look(&notebook).await?;
    let outcome = attended(args, &visit).await;
    let (id, tty) = (visit.note.id.clone(), visit.note.tty);
    let lost = visit.environment().link().states().borrow().clone();
    visit.leave().await;
    match outcome {
        Ok(Outcome::Finished { exit, .. }) if exit.status == ExitStatus::Lost => {
            bail!("nobody saw how {id} ended: its keeper died first")
        }
        Ok(Outcome::Finished { exit, .. }) => Ok(exit_code::of_exit(&exit)),
        Ok(Outcome::Detached) => {
            if !args.quiet {
                if tty {
                    // Its cursor may stand anywhere in a line.
                    let _ = writeln!(std::io::stderr());
                }
                say::note(format_args!("left {id} running: `exec-server attach {id}` goes on with it"));
            }
            Ok(0)
        }
        Ok(Outcome::Broken(broken)) if broken.nobody_reads() => Ok(exit_code::NOBODY_READS),
        Ok(Outcome::Broken(broken)) => bail!("cannot write to {}: {}; {id} goes on", broken.to, broken.errno),
        Ok(Outcome::Interrupted(signal)) => Ok(exit_code::of_signal(signal.number())),
        Err(error) => match lost {
            LinkState::Lost(loss) if loss.kind == LossKind::TakenOver => {
                bail!("another exec-server has taken {id} over: see `exec-server ps`")
            }
            _ => Err(error),
        },
    }
}

/// Until it ends or we leave. When it returns, our terminal is as it was.
async fn attended(args: &AttachArgs, visit: &Visit) -> anyhow::Result<Outcome> {
    let Visit { note, id, .. } = visit;
    let takes_keys = note.tty && !args.no_stdin;
    let on_a_terminal = std::io::stdin().is_terminal();
    // With raw keys Ctrl-\ is one of them; else our terminal makes a signal of it.
    let bond = Bond::Guest { quit_leaves: on_a_terminal && !takes_keys };
    let mut signals = Signals::listen(bond, note.tty).context("cannot listen for signals")?;
    let outlet = Outlet::open().context("cannot start the thread that writes output")?;
    if !args.quiet && on_a_terminal {
        let keys = if takes_keys { "Ctrl-\\ d" } else { "Ctrl-\\" };
        say::note(format_args!("attached to {}: {keys} leaves it running", note.id));
    }
    let raw = match takes_keys {
        true => RawTerminal::enter().context("cannot put the terminal in raw mode")?,
        false => None,
    };
    if note.tty && on_a_terminal {
        fit(visit).await;
    }
    let end = match (note.tty, &raw) {
        (false, _) => End::OfPipe,
        (true, None) => End::Typed,
        (true, Some(_)) => End::Detach,
    };
    let feeder = if args.no_stdin { Feeder::none() } else { Feeder::open(end)? };
    let mut view = View::new(args.json, raw.is_some());
    let terms = Terms { after: args.since_seq, wait_all: args.wait_all, limit: None, remains: Remains::Leave };
    let link = LinkNews::of(visit.environment().link(), note.at.to_string(), raw.is_some(), args.quiet);
    let attendant = Attendant {
        processes: visit.processes(),
        id,
        terms,
        signals: &mut signals,
        raw: raw.as_ref(),
        view: &mut view,
        link: Some(link),
    };
    attendant.run(None, outlet, feeder).await
}

/// Gives the process the size of our terminal, and has it draw itself anew even if that is the size it had. One that
/// has ended can do neither, which does not matter.
async fn fit(visit: &Visit) {
    if let Some(size) = terminal::size() {
        let resized = visit.processes().resize(&visit.id, size).await;
        let drawn = visit.processes().signal(&visit.id, Signal::WindowChange).await;
        tracing::debug!(?resized, ?drawn, "fitted to our terminal");
    }
}
