//! `completions`, `man` and `schema`: made from the same description as `--help`, or from the types of the wire, so that
//! they cannot disagree with them.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::{exit_code, say};

/// The completion script of a shell, on stdout.
pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "exec-server", &mut script);
    told(say::answer(&script))
}

/// The man page of the whole, or of one command, on stdout.
pub(crate) fn page(command: &[String]) -> ExitCode {
    let mut whole = Args::command();
    // Fills in what the commands inherit: their full names and usage lines.
    whole.build();
    let found = command.iter().try_fold(&whole, |within, name| within.find_subcommand(name));
    let Some(described) = found.cloned() else {
        say::note(format_args!("there is no command {:?}: see `exec-server --help`", command.join(" ")));
        return exit_code::MISUNDERSTOOD.into();
    };
    let mut roff = Vec::new();
    let rendered = clap_mangen::Man::new(described).render(&mut roff);
    told(rendered.and_then(|()| say::answer(&roff)))
}

/// The JSON Schema of the wire, on stdout.
pub(crate) fn schema() -> ExitCode {
    let mut text = format!("{:#}", exec_wire::schema::schema()).into_bytes();
    text.push(b'\n');
    told(say::answer(&text))
}

fn told(outcome: std::io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::note(format_args!("cannot write to stdout: {error}"));
            exit_code::OWN_FAILURE.into()
        }
    }
}
