//! `exec-server run`: one program, here or far away, as if it were started directly; but with its tree held together.
//!
//! [`command`] says what to run, [`machine`] where, [`detach`] how to leave it there. The loop between a start and an
//! end is [`crate::attend`], the same for near and far. The runtime has one thread.

mod command;
mod detach;
mod environment;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use exec_core::{ExitCause, Exit, ProcessId, ExitStatus, signal};
use exec_env::process::{SpawnFailure, StartError, SpawnStep};

use crate::args::RunArgs;
use crate::interactive::formatter::OutputFormatter;
use crate::interactive::output_thread::{OutputError, OutputThread};
use crate::interactive::signals::{Ownership, Signals};
use crate::interactive::stdin_forwarder::{StdinEnd, StdinForwarder};
use crate::interactive::{self, BackgroundPolicy, InteractiveLoop, InteractiveOptions, Outcome};
use crate::target::{self, Target};
use crate::terminal::RawTerminal;
use crate::{exit_code, messages};
use environment::RunEnvironment;

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
                let _ = messages::print_stdout(&OutputFormatter::failed(&failure.message, failure.exit_code));
            }
            messages::print_note(&failure.message);
            failure.exit_code.into()
        }
    }
}

/// Why there is no code of a child: what a person is told, and what the shell is.
#[derive(Debug)]
struct RunFailure {
    message: String,
    exit_code: u8,
}

impl From<anyhow::Error> for RunFailure {
    fn from(error: anyhow::Error) -> Self {
        Self { message: format!("{error:#}"), exit_code: exit_code::OWN_FAILURE }
    }
}

async fn run(args: &RunArgs) -> Result<u8, RunFailure> {
    let target = target::choose(&args.target)?;
    if args.detach {
        return detach::run(args, target).await;
    }
    let is_local = matches!(target, Target::Local);
    let environment = RunEnvironment::open(target, args.spool).await?;
    let ended = run_interactively(args, &environment, is_local).await;
    // Everything is gone before the code is told: whoever waits for us may rely on it.
    let is_connected = environment.is_connected();
    environment.end().await;
    if !is_connected && !args.quiet {
        messages::print_note(
            "the connection is gone; if the program still runs there, its server ends it within a minute",
        );
    }
    let (formatter, outcome) = ended?;
    report_outcome(args, &formatter, outcome)
}

/// From the start to the end. When it returns, our terminal is as it was.
async fn run_interactively(
    args: &RunArgs,
    environment: &RunEnvironment,
    is_local: bool,
) -> Result<(OutputFormatter, Outcome), RunFailure> {
    if !args.tty && !args.no_stdin && !environment.supports("process/closeStdin") {
        let message = "this server cannot tell a program that its input has ended: say --no-stdin, or --tty";
        return Err(anyhow::Error::msg(message).into());
    }
    let command = command::build(args, environment.command_defaults(), |name| std::env::var_os(name))?;
    let id = ProcessId::new("run").context("cannot name the process")?;
    // Listened to before there is a child, so that no signal falls between.
    let resizes = args.tty && environment.supports("process/resize");
    let mut signals = Signals::listen(Ownership::Owned, resizes).context("cannot listen for signals")?;
    let output = OutputThread::open().context("cannot start the thread that writes output")?;
    let processes = environment.as_dyn().processes();
    let started = processes.start(&id, command).await.map_err(|error| RunFailure {
        message: describe_start_error(&error, is_local),
        exit_code: exit_code::of_start(&error),
    })?;
    let raw = if args.tty && !args.no_stdin { raw_terminal()? } else { None };
    let end = match (args.tty, &raw) {
        (false, _) => StdinEnd::ClosePipe,
        (true, None) => StdinEnd::TypeEof,
        (true, Some(_)) => StdinEnd::Hangup,
    };
    let stdin = if args.no_stdin { StdinForwarder::none() } else { StdinForwarder::open(end)? };
    let mut formatter = OutputFormatter::new(args.json, raw.is_some());
    // A server that knows no grace kills at once.
    let grace = if environment.supports("process/terminate.graceMs") { args.grace } else { Duration::ZERO };
    let options = InteractiveOptions {
        after: 0,
        wait_all: args.wait_all,
        limit: args.timeout,
        background: BackgroundPolicy::Terminate { grace },
    };
    let link = environment.link_monitor(raw.is_some(), args.quiet);
    let (signals, raw) = (&mut signals, raw.as_ref());
    let interaction = InteractiveLoop { processes, id: &id, options, signals, raw, formatter: &mut formatter, link };
    let outcome = interaction.run(Some(started), output, stdin).await;
    let cut_off = !environment.is_connected();
    if let Ok(Outcome::OutputFailed(_) | Outcome::Interrupted(_)) | Err(_) = &outcome
        && !cut_off
    {
        interactive::terminate(processes, &id, grace, signals).await;
    }
    Ok((formatter, outcome?))
}

/// What is left to say about an end, and its code.
fn report_outcome(args: &RunArgs, formatter: &OutputFormatter, outcome: Outcome) -> Result<u8, RunFailure> {
    let (exit, mut terminated, cut_short) = match outcome {
        Outcome::Finished { exit, terminated, cut_short } => (exit, terminated, cut_short),
        Outcome::Interrupted(signal) => return Ok(exit_code::of_signal(signal.number())),
        // Asked for by guests only.
        Outcome::Detached => return Ok(0),
        Outcome::OutputFailed(error) if error.is_broken_pipe() => return Ok(exit_code::BROKEN_PIPE),
        Outcome::OutputFailed(OutputError { to, errno }) => {
            let message = format!("cannot write to {to}: {errno}; the program was ended");
            return Err(RunFailure { message, exit_code: exit_code::OWN_FAILURE });
        }
    };
    if exit.cause == ExitCause::TimedOut {
        // The whole tree was ended, and that is told as one thing.
        terminated.ended = 0;
    }
    // Patience with the background ends only at the time limit.
    let overdue = args.wait_all && cut_short;
    if args.json && (terminated.ended > 0 || terminated.left > 0) {
        let _ = messages::print_stdout(&OutputFormatter::left_behind(terminated));
    }
    let code = if overdue { exit_code::TIMED_OUT } else { exit_code::of_exit(&exit) };
    if !args.quiet {
        let program = args.argv[0].to_string_lossy();
        if let Some(description) = describe_unusual_end(args, &exit, overdue) {
            messages::print_note(format_args!("{program}: {description}"));
        }
        if terminated.ended > 0 {
            let hint = if cut_short && !overdue { "; --wait-all waits for it" } else { "" };
            let count = messages::process_count(terminated.ended);
            messages::print_note(format_args!("{program} left {count} running in the background: ended{hint}"));
        }
        if terminated.left > 0 {
            let count = messages::process_count(terminated.left);
            messages::print_note(format_args!("{program} left {count} that could not be ended: look for them with ps"));
        }
    }
    if exit.status == ExitStatus::Lost {
        let message = "nobody saw how the program ended: its keeper died first".to_owned();
        return Err(RunFailure { message, exit_code: code });
    }
    // A reader of JSON was told of the gap; a reader of plain bytes must not take them for the whole.
    let incomplete = formatter.saw_a_gap() && !args.json && code == 0;
    Ok(if incomplete { exit_code::OWN_FAILURE } else { code })
}

/// An end that its code alone does not explain.
fn describe_unusual_end(args: &RunArgs, exit: &Exit, overdue: bool) -> Option<String> {
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
fn describe_start_error(error: &StartError, is_local: bool) -> String {
    match error {
        StartError::Spawn { failure: SpawnFailure { step: SpawnStep::Exec, errno: 2, subject }, .. }
            if is_local && subject.components().count() > 1 && subject.exists() =>
        {
            format!("program {subject:?} is there, but not what runs it: check its #! line, or its loader")
        }
        StartError::Spawn { failure, .. } => failure.to_string(),
        other => other.to_string(),
    }
}

fn raw_terminal() -> Result<Option<RawTerminal>, RunFailure> {
    let raw = RawTerminal::enter().context("cannot put the terminal in raw mode")?;
    if raw.is_none() && !std::io::stdout().is_terminal() {
        tracing::debug!("--tty without a terminal of our own: the program gets one of the usual size");
    }
    Ok(raw)
}
