//! The binary `exec-server`: words on a command line in, calls on the rooms below out.
//!
//! Reading order: [`args`] (what can be said), then one file per command ([`run`], [`serve`], [`ps`], [`attach`], [`logs`],
//! [`kill`], [`env`], [`fs`], [`cp`], [`manual`]), then what they share: [`attend`] (the loop between a person and a
//! process), [`place`] (which environment, and the way there), [`notebook`] and [`visit`] (processes that were left
//! there), [`site`], [`trouble`] and [`paper`] (files: where they are, how they fail, what is printed of them),
//! [`errand`], [`table`], [`spinner`], [`terminal`] (the user's terminal, and its way back to normal), [`exit_code`] (what a shell
//! is told), [`say`] (what a person is told) and [`own_log`].
//!
//! It knows every room and decides nothing about processes. A new command is a variant of [`args::Verb`], a file, and
//! a line in `main`.

mod args;
mod attach;
mod attend;
mod cp;
mod env;
mod errand;
mod exit_code;
mod fs;
mod kill;
mod logs;
mod manual;
mod notebook;
mod own_log;
mod paper;
mod place;
mod ps;
mod run;
mod say;
mod serve;
mod site;
mod spinner;
mod table;
mod terminal;
mod trouble;
mod visit;

use std::process::ExitCode;

use args::{Args, Verb};
use clap::Parser;

fn main() -> ExitCode {
    // Before anything else looks at the words or makes a thread: a keeper process is one small loop, and its words
    // are between it and whoever started it.
    let mut words = std::env::args_os().skip(1);
    let first = words.next();
    if first.as_deref().is_some_and(|word| word == "keeper") {
        return exec_keeper::start_keeper::main(words);
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let has_a_child = first.is_some_and(|word| word == "run" || word == "attach");
            return misunderstood(&error, has_a_child);
        }
    };
    own_log::to_stderr(args.verb.log_format());
    match args.verb {
        Verb::Run(args) => run::main(&args),
        Verb::Serve(args) => serve::main(&args),
        Verb::Ps(args) => ps::main(&args),
        Verb::Attach(args) => attach::main(&args),
        Verb::Logs(args) => logs::main(&args),
        Verb::Kill(args) => kill::main(&args),
        Verb::Env(args) => env::main(&args.verb),
        Verb::Fs(args) => fs::main(&args.verb),
        Verb::Cp(args) => cp::main(&args),
        Verb::Schema => manual::schema(),
        Verb::Completions { shell } => manual::completions(shell),
        Verb::Man { command } => manual::page(&command),
    }
}

/// Help and version are answers, not mistakes. A mistake where a child's code is expected must not look like its 2.
fn misunderstood(error: &clap::Error, has_a_child: bool) -> ExitCode {
    let _ = error.print();
    match (error.use_stderr(), has_a_child) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => exit_code::OWN_FAILURE.into(),
        (true, false) => exit_code::MISUNDERSTOOD.into(),
    }
}
