//! The binary `exec-server`: words on a command line in, calls on the rooms below out.
//!
//! Reading order: [`args`] (what can be said), then one file per command ([`run`], [`serve`], [`ps`], [`attach`], [`logs`],
//! [`kill`], [`env`], [`fs`], [`cp`], [`manual`]), then what they share: [`attend`] (the loop between a person and a
//! process), [`place`] (which environment, and the way there), [`store`] and [`visit`] (processes that were left
//! there), [`location`], [`trouble`] and [`paper`] (files: where they are, how they fail, what is printed of them),
//! [`errand`], [`table`], [`spinner`], [`terminal`] (the user's terminal, and its way back to normal), [`exit_code`] (what a shell
//! is told), [`say`] (what a person is told) and [`own_log`].
//!
//! It knows every room and decides nothing about processes. A new command is a variant of [`args::Verb`], a file, and
//! a line in `main`.

mod args;
mod attach;
mod cp;
mod detached_session;
mod detached_store;
mod env;
mod exit_code;
mod failures;
mod fs;
mod interactive;
mod kill;
mod location;
mod logging;
mod logs;
mod manual;
mod messages;
mod output;
mod ps;
mod run;
mod runtime;
mod serve;
mod spinner;
mod table;
mod target;
mod terminal;

use std::process::ExitCode;

use args::{Args, CliCommand};
use clap::Parser;

fn main() -> ExitCode {
    // Before anything else looks at the words or makes a thread: a keeper process is one small loop, and its words
    // are between it and whoever started it.
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    if first.as_deref().is_some_and(|arg| arg == "keeper") {
        return exec_keeper::start_keeper::main(args);
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let has_a_child = first.is_some_and(|arg| arg == "run" || arg == "attach");
            return report_usage_error(&error, has_a_child);
        }
    };
    logging::init(args.command.log_format());
    match args.command {
        CliCommand::Run(args) => run::main(&args),
        CliCommand::Serve(args) => serve::main(&args),
        CliCommand::Ps(args) => ps::main(&args),
        CliCommand::Attach(args) => attach::main(&args),
        CliCommand::Logs(args) => logs::main(&args),
        CliCommand::Kill(args) => kill::main(&args),
        CliCommand::Env(args) => env::main(&args.command),
        CliCommand::Fs(args) => fs::main(&args.command),
        CliCommand::Cp(args) => cp::main(&args),
        CliCommand::Schema => manual::schema(),
        CliCommand::Completions { shell } => manual::completions(shell),
        CliCommand::Man { command } => manual::page(&command),
    }
}

/// Help and version are answers, not mistakes. A mistake where a child's code is expected must not look like its 2.
fn report_usage_error(error: &clap::Error, has_a_child: bool) -> ExitCode {
    let _ = error.print();
    match (error.use_stderr(), has_a_child) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => exit_code::OWN_FAILURE.into(),
        (true, false) => exit_code::USAGE_ERROR.into(),
    }
}
