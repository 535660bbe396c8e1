//! The binary `exec-server`: a command line becomes calls on the other crates.
//!
//! In the order in which a command meets them:
//!
//! - [`args`]: the command line; [`logging`].
//! - One file per command: [`run`], [`ssh`] and its far end [`relay`], [`serve`], [`mcp`], [`e2b`], [`app_server`], [`ps`],
//!   [`attach`], [`logs`], [`screen`], [`wait`], [`kill`], [`env`], [`fs`], [`cp`], [`forward`], [`token`], [`audit`],
//!   [`doctor`], [`manual`], [`complete`].
//! - [`target`]: which environment, and the connection to it; [`connection_status`]: what the user sees of connections.
//! - [`interactive`]: the loop between the user's terminal and a process; [`terminal`].
//! - [`detached_store`], [`detached_session`]: processes that `run --detach` started.
//! - [`local_daemon`]: the server of this account, that `mcp`, `e2b`, `run --detach` and `relay` find or start.
//! - [`session_server`]: the server behind [`mcp`] and [`e2b`], with a session there that goes on.
//! - [`location`]: paths on the command line; [`failures`]: how file commands report errors; [`output`]: what they print.
//! - [`runtime`], [`stdio`], [`messages`], [`table`], [`exit_code`], [`signal_listener`]: what all of them use.
//!
//! It decides nothing about processes. A new command is a variant of [`args::CliCommand`], a file, and a line in `main`.

mod app_server;
mod args;
mod attach;
mod audit;
mod complete;
mod connection_status;
mod cp;
mod detached_session;
mod detached_store;
mod doctor;
mod e2b;
mod env;
mod exit_code;
mod failures;
mod find_process;
mod forward;
mod fs;
mod idle;
mod interactive;
mod kill;
mod local_daemon;
mod location;
mod logging;
mod logs;
mod manual;
mod mcp;
mod messages;
mod output;
mod ps;
mod relay;
mod run;
mod runtime;
mod sandbox_choice;
mod screen;
mod serve;
mod session_server;
mod signal_listener;
mod ssh;
mod stdio;
mod table;
mod target;
mod terminal;
mod token;
mod wait;

use std::process::ExitCode;

use args::{Args, CliCommand};
use clap::Parser;

fn main() -> ExitCode {
    exec_keeper::name_service::load_no_modules();
    // This comes before clap and before any thread: a keeper process is one small loop, and its arguments are a matter
    // between it and the exec-server that started it.
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    if first.as_deref().is_some_and(|arg| arg == "keeper") {
        return exec_keeper::start_keeper::main(args);
    }
    let parsed = Args::try_parse_from(args::spelled_out(std::env::args_os())).and_then(|args| match &args.command {
        CliCommand::Sandbox(sandbox) => Args::try_parse_from(sandbox.as_run()),
        _ => Ok(args),
    });
    let args = match parsed {
        Ok(args) => args,
        Err(error) => {
            let has_a_child =
                first.is_some_and(|arg| ["run", "ssh", "sandbox", "attach", "wait"].iter().any(|name| arg == *name));
            return report_usage_error(&error, has_a_child);
        }
    };
    logging::init(args.command.log_format());
    let code = carry_out(args.command);
    logging::finish();
    code
}

fn carry_out(command: CliCommand) -> ExitCode {
    match command {
        CliCommand::Run(args) => runtime::run(run::run(&args), exit_code::OWN_FAILURE),
        CliCommand::Ssh(args) => runtime::run(ssh::run(&args), exit_code::OWN_FAILURE),
        CliCommand::Relay(args) => runtime::run(relay::run(&args), exit_code::FAILED),
        CliCommand::Sandbox(_) => unreachable!("it was turned into `run` above"),
        CliCommand::Serve(args) => serve::main(&args),
        CliCommand::AppServer(args) => app_server::main(&args),
        CliCommand::Ps(args) => runtime::run(ps::run(&args), exit_code::FAILED),
        CliCommand::Attach(args) => runtime::run(attach::run(&args), exit_code::OWN_FAILURE),
        CliCommand::Logs(args) => runtime::run(logs::run(&args), exit_code::FAILED),
        CliCommand::Screen(args) => runtime::run(screen::run(&args), exit_code::FAILED),
        CliCommand::Wait(args) => runtime::run(wait::run(&args), exit_code::OWN_FAILURE),
        CliCommand::Kill(args) => runtime::run(kill::run(&args), exit_code::FAILED),
        CliCommand::Env(args) => runtime::run(env::run(&args.command), exit_code::FAILED),
        CliCommand::Fs(args) => runtime::run(fs::run(&args.command), fs::failure_code(&args.command)),
        CliCommand::Cp(args) => runtime::run(cp::run(&args), exit_code::FAILED),
        CliCommand::Forward(args) => runtime::run(forward::run(&args), exit_code::FAILED),
        CliCommand::Mcp(args) => mcp::main(&args),
        CliCommand::E2b(args) => e2b::main(&args),
        CliCommand::Doctor(args) => runtime::run(doctor::run(&args), exit_code::FAILED),
        CliCommand::Token(args) => runtime::run(token::run(&args.command), exit_code::FAILED),
        CliCommand::Audit(args) => runtime::run(audit::run(&args.command), exit_code::FAILED),
        CliCommand::Schema => manual::schema(),
        CliCommand::Completions { shell } => manual::completions(shell),
        CliCommand::Complete(args) => runtime::run(complete::run(&args), exit_code::FAILED),
        CliCommand::Man { command } => manual::page(&command),
    }
}

/// Help and version are no errors. An error must not look like the 2 of a child where a child's code is expected.
fn report_usage_error(error: &clap::Error, has_a_child: bool) -> ExitCode {
    let _ = error.print();
    match (error.use_stderr(), has_a_child) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => exit_code::OWN_FAILURE.into(),
        (true, false) => exit_code::USAGE_ERROR.into(),
    }
}
