//! `exec-server run`: runs one program, locally or in another environment, as if it were started directly, but ends its
//! whole process tree.
//!
//! [`command`] turns the arguments into a command, [`detach`] is `--detach`. The loop between start and end is
//! [`crate::interactive`], the same for local and remote programs.

mod command;
mod detach;
mod env_file;

use std::time::Duration;

use anyhow::Context;
use exec_core::limits::SPOOL_TOTAL_BYTES;
use exec_core::{Exit, ExitCause, ExitStatus, Limit, ProcessId, signal};
use exec_env::Environment;
use exec_env::process::{ProcessError, ProcessReason, SpawnFailure, SpawnStep};
use exec_local::{LocalEnvironment, OpenError};
use exec_wire::{Extension, Method};
use libc::{ENOENT, SIGPIPE};

use crate::args::RunArgs;
use crate::connection_status::RawScreen;
use crate::interactive::formatter::{JsonEvent, OutputFormatter};
use crate::interactive::full_screen::FullScreenDetector;
use crate::interactive::output_thread::OutputThread;
use crate::interactive::signals::{self, Ownership};
use crate::interactive::stdin_forwarder::{StdinEnd, UserInput};
use crate::interactive::{self, BackgroundPolicy, InteractiveLoop, Outcome};
use crate::target::{self, OpenConnection, OpenTarget, Target};
use crate::{exit_code, messages, terminal};
use command::CommandDefaults;

/// Below this limit of open files a keeper may not begin: it and a process need some twenty, and we have some.
const OPEN_FILES: u64 = 64;

pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<u8> {
    run_to_exit_code(args).await.or_else(|RunFailure { message, exit_code }| {
        if args.json {
            // If stdout cannot be written, stderr and the exit code still tell.
            let _ = messages::print_json(&JsonEvent::Failed { message: &message, exit_code });
        }
        messages::print_note(&message);
        Ok(exit_code)
    })
}

/// Why there is no exit code of a child.
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

async fn run_to_exit_code(args: &RunArgs) -> Result<u8, RunFailure> {
    let target = target::choose(&args.target)?;
    if args.detach {
        return detach::run(args, target).await;
    }
    let environment = open(target, args.spool).await?;
    let ended = run_interactively(args, &environment).await;
    let leftover = environment.describe_leftover().filter(|_| !environment.is_connected());
    // Everything is ended before we exit: whoever waits for us may rely on it.
    match environment {
        OpenTarget::Local(environment) => environment.end().await,
        OpenTarget::Remote(connection) => connection.end().await,
    }
    if let Some(leftover) = leftover.filter(|_| !args.quiet) {
        messages::print_note(format_args!("the connection is gone; {leftover}"));
    }
    let (formatter, outcome) = ended?;
    report_outcome(args, &formatter, outcome)
}

async fn open(target: Target, spool_bytes: u64) -> anyhow::Result<OpenTarget<LocalEnvironment>> {
    match target {
        Target::Local => {
            let spool_total_bytes = SPOOL_TOTAL_BYTES.max(spool_bytes);
            let options = exec_local::LocalOptions { spool_total_bytes, ..exec_local::LocalOptions::default() };
            let environment = LocalEnvironment::open(options).await.map_err(with_advice)?;
            Ok(OpenTarget::Local(Box::new(environment)))
        }
        Target::Remote(remote) => Ok(OpenTarget::Remote(Box::new(OpenConnection::open(&remote).await?))),
    }
}

/// A keeper that cannot begin hangs up on us; what it lacks, we lack as well.
fn with_advice(error: OpenError) -> anyhow::Error {
    let silent = matches!(error, OpenError::NoAnswer { .. });
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let failed = anyhow::Error::from(error);
    let failed = match null {
        _ if silent && open_files.is_some_and(|most| most < OPEN_FILES) => {
            failed.context("it needs more open files: raise their limit with `ulimit -n`")
        }
        Err(why) if silent => {
            failed.context(format!("it needs /dev/null, which cannot be opened ({why}): make it first"))
        }
        _ => failed,
    };
    failed.context("cannot set up this machine")
}

/// Starts the program and waits for its end. When this returns, our terminal is restored.
async fn run_interactively(
    args: &RunArgs,
    environment: &OpenTarget<LocalEnvironment>,
) -> Result<(OutputFormatter, Outcome), RunFailure> {
    if !args.tty && !args.no_stdin && !environment.supports(Method::ProcessCloseStdin) {
        let message = "this server cannot tell a program that its input has ended: say --no-stdin, or --tty";
        return Err(anyhow::Error::msg(message).into());
    }
    let size = terminal::size().filter(|_| environment.supports(Extension::START_SIZE));
    let (processes, defaults) = match environment {
        OpenTarget::Local(local) => (local.processes(), CommandDefaults::local(size)),
        OpenTarget::Remote(connection) => {
            let remote = &connection.environment;
            (remote.processes(), CommandDefaults::remote(size, remote.info()))
        }
    };
    let command = command::build(args, defaults)?;
    let id = ProcessId::new("run").context("cannot name the process")?;
    // We listen before there is a child, so that no signal is missed.
    let resizes = args.tty && environment.supports(Method::ProcessResize);
    let mut signals = signals::listen(Ownership::Owned, resizes).context("cannot listen for signals")?;
    let output = OutputThread::open().context("cannot start the thread that writes output")?;
    let started = processes.start(&id, command).await.map_err(|error| RunFailure {
        message: describe_start_error(&error, environment.is_local()),
        exit_code: exit_code::of_start(&error),
    })?;
    let UserInput { raw, stdin } = match args.no_stdin {
        true => UserInput::default(),
        false => UserInput::open(args.tty, StdinEnd::Hangup)?,
    };
    let mut formatter = OutputFormatter::new(args.json, raw.is_some());
    // A server that does not support a grace period kills at once.
    let grace = if environment.supports(Extension::TERMINATE_GRACE) { args.grace } else { Duration::ZERO };
    let raw_screen = raw.is_some().then_some(RawScreen { keys: "Ctrl-C leaves" });
    let link = environment.link_monitor(raw_screen, args.quiet);
    let full_screen = FullScreenDetector::default();
    let full_screen_state = full_screen.state();
    let interaction = InteractiveLoop {
        processes,
        id: &id,
        after: 0,
        wait_all: args.wait_all,
        limit: args.timeout,
        background: BackgroundPolicy::Terminate { grace },
        signals: &mut signals,
        raw: raw.as_ref(),
        formatter: &mut formatter,
        full_screen,
        link,
    };
    let outcome = interaction.run(Some(started), output, stdin).await;
    full_screen_state.leave();
    if let Ok(Outcome::OutputFailed(_) | Outcome::Interrupted(_)) | Err(_) = &outcome
        && environment.is_connected()
    {
        interactive::terminate(processes, &id, grace, &mut signals).await;
    }
    Ok((formatter, outcome?))
}

/// Prints what the user must know about the end, and returns the exit code.
fn report_outcome(args: &RunArgs, formatter: &OutputFormatter, outcome: Outcome) -> Result<u8, RunFailure> {
    let (exit, mut terminated, cut_short) = match outcome {
        Outcome::Finished { exit, terminated, cut_short } => (exit, terminated, cut_short),
        Outcome::Interrupted(signal) => return Ok(exit_code::of_signal(signal.number())),
        // Only `attach` can detach.
        Outcome::Detached => return Ok(0),
        Outcome::OutputFailed(error) if error.is_broken_pipe() => return Ok(exit_code::BROKEN_PIPE),
        Outcome::OutputFailed(error) => {
            let message = format!("{error}; the program was ended");
            return Err(RunFailure { message, exit_code: exit_code::OWN_FAILURE });
        }
    };
    if exit.cause == ExitCause::TimedOut {
        // The whole tree was ended, and the time limit is reported already.
        terminated.ended = 0;
    }
    // With --wait-all, only the time limit ends background processes.
    let overdue = args.wait_all && cut_short;
    if args.json && (terminated.ended > 0 || terminated.left > 0) {
        let _ = messages::print_json(&JsonEvent::LeftBehind { ended: terminated.ended, left: terminated.left });
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
    // JSON has an event for the gap. Whoever reads plain bytes must not take them for the whole output.
    let incomplete = formatter.saw_a_gap() && !args.json && code == 0;
    Ok(if incomplete { exit_code::OWN_FAILURE } else { code })
}

/// Describes an end that the exit code alone does not explain.
fn describe_unusual_end(args: &RunArgs, exit: &Exit, overdue: bool) -> Option<String> {
    match (exit.cause, exit.status) {
        (ExitCause::TimedOut, _) => Some(format!("ended after {:?}, its time limit", args.timeout.unwrap_or_default())),
        _ if overdue => Some(format!("its output was still open after {:?}", args.timeout.unwrap_or_default())),
        (ExitCause::OutOfMemory, _) if exit.limits_reached.contains(Limit::MemoryBytes) => {
            Some("killed by the kernel: it has used up the memory of its limit".to_owned())
        }
        (ExitCause::OutOfMemory, _) => Some("killed by the kernel: out of memory".to_owned()),
        (ExitCause::CpuLimit, _) => Some("ended: it has used up the processor time of its limit".to_owned()),
        (ExitCause::FileSizeLimit, _) => Some("ended: it wrote a file larger than its limit".to_owned()),
        (_, ExitStatus::Code(_)) if !exit.limits_reached.is_empty() => {
            let names: Vec<&str> = exit.limits_reached.iter().map(Limit::name).collect();
            Some(format!("it has reached a limit: {}", names.join(", ")))
        }
        (_, ExitStatus::Signal { number, core_dumped }) => {
            let core = if core_dumped { ", core dumped" } else { "" };
            // The user pressed Ctrl-C, or the program wrote to a closed pipe, which is usual.
            let expected = [signal::Signal::Interrupt.number(), SIGPIPE].contains(&number);
            (!expected).then(|| format!("ended by {}{core}", signal::name(number)))
        }
        _ => None,
    }
}

/// Leaves out our name of the process, which means nothing to the user.
fn describe_start_error(error: &ProcessError, is_local: bool) -> String {
    match &error.reason {
        ProcessReason::SpawnFailed(SpawnFailure { step: SpawnStep::Exec, errno: ENOENT, subject })
            if is_local && subject.components().count() > 1 && subject.exists() =>
        {
            format!("program {subject:?} is there, but not what runs it: check its #! line, or its loader")
        }
        ProcessReason::SpawnFailed(failure) => failure.to_string(),
        _ => error.to_string(),
    }
}
