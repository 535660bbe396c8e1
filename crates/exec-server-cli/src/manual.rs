//! `completions`, `man` and `schema`. They are generated from what `--help` is made of, and from the types of the wire, so
//! they cannot disagree with either.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::{exit_code, messages};

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "exec-server", &mut script);
    exit_code_of(messages::print_stdout(&script))
}

/// Prints the man page of exec-server, or of one command.
pub(crate) fn page(command: &[String]) -> ExitCode {
    let mut whole = Args::command();
    // Fills in what subcommands inherit: their full names and usage lines.
    whole.build();
    let subcommand = command.iter().try_fold(&whole, |within, name| within.find_subcommand(name));
    let Some(described) = subcommand.cloned() else {
        messages::print_note(format_args!("there is no command {:?}: see `exec-server --help`", command.join(" ")));
        return exit_code::USAGE_ERROR.into();
    };
    let mut roff = Vec::new();
    let rendered = clap_mangen::Man::new(described).render(&mut roff);
    exit_code_of(rendered.and_then(|()| messages::print_stdout(&roff)))
}

pub(crate) fn schema() -> ExitCode {
    let mut text = format!("{:#}", exec_wire::schema::schema()).into_bytes();
    text.push(b'\n');
    exit_code_of(messages::print_stdout(&text))
}

fn exit_code_of(outcome: std::io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            messages::print_note(format_args!("cannot write to stdout: {error}"));
            exit_code::OWN_FAILURE.into()
        }
    }
}
