//! The binary `exec-server`: words on a command line in, calls on the rooms below out.
//!
//! Reading order: [`args`] (what can be said), then one file per command ([`run`], [`serve`], [`manual`]), then what they share:
//! [`terminal`] (the user's terminal, and its way back to normal), [`exit_code`] (what a shell is told), [`say`] (what
//! a person is told) and [`logs`].
//!
//! It knows every room and decides nothing about processes. A new command is a variant of [`args::Verb`], a file, and
//! a line in `main`.

mod args;
mod exit_code;
mod logs;
mod manual;
mod run;
mod say;
mod serve;
mod terminal;

use std::process::ExitCode;

use args::{Args, Verb};
use clap::Parser;

fn main() -> ExitCode {
    // Before anything else looks at the words or makes a thread: a keeper process is one small loop, and its words
    // are between it and whoever started it.
    let mut words = std::env::args_os().skip(1);
    let first = words.next();
    if first.as_deref().is_some_and(|word| word == "keeper") {
        return exec_keeper::hire::main(words);
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return misunderstood(&error, first.is_some_and(|word| word == "run")),
    };
    logs::to_stderr(args.verb.log_format());
    match args.verb {
        Verb::Run(args) => run::main(&args),
        Verb::Serve(args) => serve::main(&args),
        Verb::Completions { shell } => manual::completions(shell),
        Verb::Man { command } => manual::page(command.as_deref()),
    }
}

/// Help and version are answers, not mistakes. A mistake before `run` has a child must not look like a child's 2.
fn misunderstood(error: &clap::Error, of_run: bool) -> ExitCode {
    let _ = error.print();
    match (error.use_stderr(), of_run) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => exit_code::OWN_FAILURE.into(),
        (true, false) => exit_code::MISUNDERSTOOD.into(),
    }
}
