//! `exec-server attach`: connects the terminal to a process, to drive it or to look on.
//!
//! Whoever drives the session of the process is not thrown out unasked: we come as an observer, see who is there, and take
//! the drive if nobody has it, or if the user says so.

use std::io::{BufRead, BufReader, IsTerminal, Write};

use anyhow::{Context, bail};
use exec_client::session::LossKind;
use exec_client::{AttachedClient, LinkState, Role};
use exec_core::{ExitStatus, Signal};

use crate::args::AttachArgs;
use crate::connection_status::{LinkMonitor, RawScreen};
use crate::detached_session::DetachedSession;
use crate::detached_store::DetachedStore;
use crate::interactive::formatter::OutputFormatter;
use crate::interactive::full_screen::{FullScreen, FullScreenDetector};
use crate::interactive::output_thread::{OutputError, OutputThread};
use crate::interactive::signals::{self, Ownership};
use crate::interactive::stdin_forwarder::{StdinEnd, UserInput};
use crate::interactive::{BackgroundPolicy, InteractiveLoop, Outcome};
use crate::logs::{self, PrintOptions};
use crate::output::visible;
use crate::{exit_code, find_process, messages, stdio, terminal};

/// The exit code is that of the process.
pub(crate) async fn run(args: &AttachArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    let (process, remote) = find_process::find(&store, &args.target, &args.id).await?;
    let session = DetachedSession::observe(&store, process, &remote, args.take_over).await?;
    if args.observe {
        return look_on(args, session).await;
    }
    get_drive(args, &session).await?;
    let full_screen = FullScreenDetector::default();
    let full_screen_state = full_screen.state();
    let outcome = tokio::select! {
        outcome = run_interactively(args, &session, full_screen) => outcome,
        driver = drive_lost(args, &session, &full_screen_state) => Err(anyhow::anyhow!(
            "{driver} has taken the drive of {0}: `exec-server attach --observe {0}` looks on", session.process.id
        )),
    };
    full_screen_state.leave();
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

/// Shows what the process prints to its end, and exits as it does. Ctrl-C ends us, and nobody else.
async fn look_on(args: &AttachArgs, session: DetachedSession) -> anyhow::Result<u8> {
    if !args.quiet {
        let id = &session.process.id;
        match session.other_driver() {
            Some(driver) => messages::print_note(format_args!("looking on while {} drives {id}", driver.client_name)),
            None => messages::print_note(format_args!("looking at {id}, which nobody drives")),
        }
    }
    let options = PrintOptions { since_seq: args.since_seq, follow: true, json: args.json, quiet: args.quiet };
    let printed = logs::print(&session, options).await;
    session.close().await;
    match printed {
        Ok(exit) => Ok(exit.map_or(0, |exit| exit_code::of_exit(&exit))),
        Err(error) if error.downcast_ref().is_some_and(OutputError::is_broken_pipe) => Ok(exit_code::BROKEN_PIPE),
        Err(error) => Err(error),
    }
}

/// Takes the drive if nobody has it, or if the user wants it.
async fn get_drive(args: &AttachArgs, session: &DetachedSession) -> anyhow::Result<()> {
    // A server that knows no observers has given us the session already.
    if session.environment.role() != Some(Role::Observer) {
        return Ok(());
    }
    let id = &session.process.id;
    if let Some(driver) = session.other_driver().filter(|_| !args.take_over) {
        let name = &driver.client_name;
        if !std::io::stdin().is_terminal() {
            bail!("{name} is driving {id}: say --take-over to take it, or --observe to look on");
        }
        if !confirm(&format!("{name} is driving {id}; take over? [y/N] ")).await? {
            bail!("left {id} to {name}: `exec-server attach --observe {id}` looks on");
        }
    }
    session.environment.take_drive().await.with_context(|| format!("cannot get the drive of {id}"))?;
    Ok(())
}

/// Asks the user on the terminal. Whatever is not yes is no.
async fn confirm(question: &str) -> anyhow::Result<bool> {
    let question = question.to_owned();
    // Of its own, because a person may think for a while, and the connection must be served meanwhile.
    let answer = tokio::task::spawn_blocking(move || -> std::io::Result<String> {
        stdio::stderr().write_all(visible(question.as_bytes()).as_bytes())?;
        let mut line = String::new();
        BufReader::new(stdio::stdin()).read_line(&mut line)?;
        Ok(line)
    });
    let answer = answer.await.context("cannot ask")?.context("cannot ask")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Returns with the name of whoever drives when it is no longer us. Until then it tells of those that ask for the drive.
async fn drive_lost(args: &AttachArgs, session: &DetachedSession, full_screen: &FullScreen) -> String {
    let mut attendance = session.environment.attendance();
    let mut asking = Vec::new();
    let mut has_driven = false;
    loop {
        let seen = attendance.borrow_and_update().clone();
        if let Some(seen) = seen {
            has_driven |= seen.role == Role::Driver;
            if has_driven && seen.role == Role::Observer {
                return seen.driver.map_or_else(|| "another client".to_owned(), |driver| driver.client_name);
            }
            let now: Vec<AttachedClient> = seen.observers.into_iter().filter(|client| client.asks_for_drive).collect();
            // A program that has the whole screen leaves no line for a note; whoever asks can take the drive, too.
            let is_quiet = args.quiet || full_screen.is_on();
            for client in now.iter().filter(|client| !is_quiet && !asking.contains(&client.id)) {
                messages::print_raw_note(format_args!(
                    "{} asks for the drive: leave, and it has it",
                    client.client_name
                ));
            }
            asking = now.iter().map(|client| client.id).collect();
        }
        if attendance.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Returns when the process ends or the user leaves. Our terminal is restored then.
async fn run_interactively(
    args: &AttachArgs,
    session: &DetachedSession,
    full_screen: FullScreenDetector,
) -> anyhow::Result<Outcome> {
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
    let raw_screen = raw.is_some().then_some(RawScreen { keys: "Ctrl-C or Ctrl-\\ d leaves" });
    let link = LinkMonitor::new(session.environment.link(), process.at.to_string(), raw_screen, args.quiet);
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
        full_screen,
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
