//! `exec-server run`: one program, here or far away, as if it were started directly; but with its tree held together.
//!
//! [`command`] says what to run, [`machine`] where, [`detach`] how to leave it there. The loop between a start and an
//! end is [`crate::attend`], the same for near and far. The runtime has one thread.

mod command;
mod detach;
mod machine;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use exec_core::{ExitCause, Exit, ProcessId, ExitStatus, signal};
use exec_env::process::{SpawnFailure, StartError, SpawnStep};

use crate::args::RunArgs;
use crate::attend::feeder::{End, Feeder};
use crate::attend::outlet::{Broken, Outlet};
use crate::attend::signals::{Bond, Signals};
use crate::attend::view::View;
use crate::attend::{self, Attendant, Outcome, Remains, Terms};
use crate::place::{self, Place};
use crate::terminal::RawTerminal;
use crate::{exit_code, say};
use machine::Machine;

/// Runs it and says with what code to end.
pub(crate) fn main(args: &RunArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime.context("cannot start the runtime") {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(code) => code.into(),
        Err(failure) => {
            if args.json {
                // If this cannot be written either, stderr and the code still tell.
                let _ = say::answer(&View::failed(&failure.message, failure.exit_code));
            }
            say::note(&failure.message);
            failure.exit_code.into()
        }
    }
}

/// Why there is no code of a child: what a person is told, and what the shell is.
#[derive(Debug)]
struct Failure {
    message: String,
    exit_code: u8,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { message: format!("{error:#}"), exit_code: exit_code::OWN_FAILURE }
    }
}

async fn run(args: &RunArgs) -> Result<u8, Failure> {
    let place = place::choose(&args.place)?;
    if args.detach {
        return detach::run(args, place).await;
    }
    let near = matches!(place, Place::Here);
    let machine = Machine::open(place, args.spool).await?;
    let ended = attended(args, &machine, near).await;
    // Everything is gone before the code is told: whoever waits for us may rely on it.
    let within_reach = machine.is_within_reach();
    machine.end().await;
    if !within_reach && !args.quiet {
        say::note("the connection is gone; if the program still runs there, its server ends it within a minute");
    }
    let (view, outcome) = ended?;
    told(args, &view, outcome)
}

/// From the start to the end. When it returns, our terminal is as it was.
async fn attended(args: &RunArgs, machine: &Machine, near: bool) -> Result<(View, Outcome), Failure> {
    if !args.tty && !args.no_stdin && !machine.can("process/closeStdin") {
        let message = "this server cannot tell a program that its input has ended: say --no-stdin, or --tty";
        return Err(anyhow::Error::msg(message).into());
    }
    let command = command::of(args, machine.setting(), |name| std::env::var_os(name))?;
    let id = ProcessId::new("run").context("cannot name the process")?;
    // Listened to before there is a child, so that no signal falls between.
    let resizes = args.tty && machine.can("process/resize");
    let mut signals = Signals::listen(Bond::Own, resizes).context("cannot listen for signals")?;
    let outlet = Outlet::open().context("cannot start the thread that writes output")?;
    let processes = machine.environment().processes();
    let started = processes
        .start(&id, command)
        .await
        .map_err(|error| Failure { message: unstarted(&error, near), exit_code: exit_code::of_start(&error) })?;
    let raw = if args.tty && !args.no_stdin { raw_terminal()? } else { None };
    let end = match (args.tty, &raw) {
        (false, _) => End::OfPipe,
        (true, None) => End::Typed,
        (true, Some(_)) => End::HungUp,
    };
    let feeder = if args.no_stdin { Feeder::none() } else { Feeder::open(end)? };
    let mut view = View::new(args.json, raw.is_some());
    // A server that knows no grace kills at once.
    let grace = if machine.can("process/terminate.graceMs") { args.grace } else { Duration::ZERO };
    let terms = Terms { after: 0, wait_all: args.wait_all, limit: args.timeout, remains: Remains::Sweep { grace } };
    let link = machine.link(raw.is_some(), args.quiet);
    let (signals, raw) = (&mut signals, raw.as_ref());
    let attendant = Attendant { processes, id: &id, terms, signals, raw, view: &mut view, link };
    let outcome = attendant.run(Some(started), outlet, feeder).await;
    let cut_off = !machine.is_within_reach();
    if let Ok(Outcome::Broken(_) | Outcome::Interrupted(_)) | Err(_) = &outcome
        && !cut_off
    {
        attend::end(processes, &id, grace, signals).await;
    }
    Ok((view, outcome?))
}

/// What is left to say about an end, and its code.
fn told(args: &RunArgs, view: &View, outcome: Outcome) -> Result<u8, Failure> {
    let (exit, mut swept, cut_short) = match outcome {
        Outcome::Finished { exit, swept, cut_short } => (exit, swept, cut_short),
        Outcome::Interrupted(signal) => return Ok(exit_code::of_signal(signal.number())),
        // Asked for by guests only.
        Outcome::Detached => return Ok(0),
        Outcome::Broken(broken) if broken.nobody_reads() => return Ok(exit_code::NOBODY_READS),
        Outcome::Broken(Broken { to, errno }) => {
            let message = format!("cannot write to {to}: {errno}; the program was ended");
            return Err(Failure { message, exit_code: exit_code::OWN_FAILURE });
        }
    };
    if exit.cause == ExitCause::TimedOut {
        // The whole tree was ended, and that is told as one thing.
        swept.ended = 0;
    }
    // Patience with the background ends only at the time limit.
    let overdue = args.wait_all && cut_short;
    if args.json && (swept.ended > 0 || swept.left > 0) {
        let _ = say::answer(&View::left_behind(swept));
    }
    let code = if overdue { exit_code::TIMED_OUT } else { exit_code::of_exit(&exit) };
    if !args.quiet {
        let program = args.argv[0].to_string_lossy();
        if let Some(how) = remarkable(args, &exit, overdue) {
            say::note(format_args!("{program}: {how}"));
        }
        if swept.ended > 0 {
            let hint = if cut_short && !overdue { "; --wait-all waits for it" } else { "" };
            let count = say::processes(swept.ended);
            say::note(format_args!("{program} left {count} running in the background: ended{hint}"));
        }
        if swept.left > 0 {
            let count = say::processes(swept.left);
            say::note(format_args!("{program} left {count} that could not be ended: look for them with ps"));
        }
    }
    if exit.status == ExitStatus::Lost {
        let message = "nobody saw how the program ended: its keeper died first".to_owned();
        return Err(Failure { message, exit_code: code });
    }
    // A reader of JSON was told of the gap; a reader of plain bytes must not take them for the whole.
    let incomplete = view.saw_a_gap() && !args.json && code == 0;
    Ok(if incomplete { exit_code::OWN_FAILURE } else { code })
}

/// An end that its code alone does not explain.
fn remarkable(args: &RunArgs, exit: &Exit, overdue: bool) -> Option<String> {
    match (exit.cause, exit.status) {
        (ExitCause::TimedOut, _) => Some(format!("ended after {:?}, its time limit", args.timeout.unwrap_or_default())),
        _ if overdue => Some(format!("its output was still open after {:?}", args.timeout.unwrap_or_default())),
        (ExitCause::OutOfMemory, _) => Some("killed by the kernel: out of memory".to_owned()),
        (_, ExitStatus::Signal { number, core_dumped }) => {
            let core = if core_dumped { ", core dumped" } else { "" };
            // Asked for by whoever pressed the key, or wrote to a closed pipe as programs do.
            let expected = [signal::Signal::Interrupt.number(), SIGPIPE].contains(&number);
            (!expected).then(|| format!("ended by {}{core}", signal::name(number)))
        }
        _ => None,
    }
}

const SIGPIPE: i32 = 13;

/// A start's failure without the name we gave the process, which means nothing to the caller. `near`: its files are ours.
fn unstarted(error: &StartError, near: bool) -> String {
    match error {
        StartError::Spawn { failure: SpawnFailure { step: SpawnStep::Exec, errno: 2, subject }, .. }
            if near && subject.components().count() > 1 && subject.exists() =>
        {
            format!("program {subject:?} is there, but not what runs it: check its #! line, or its loader")
        }
        StartError::Spawn { failure, .. } => failure.to_string(),
        other => other.to_string(),
    }
}

fn raw_terminal() -> Result<Option<RawTerminal>, Failure> {
    let raw = RawTerminal::enter().context("cannot put the terminal in raw mode")?;
    if raw.is_none() && !std::io::stdout().is_terminal() {
        tracing::debug!("--tty without a terminal of our own: the program gets one of the usual size");
    }
    Ok(raw)
}
