//! `cargo xtask VERB`: everything that is done *to* the project and not *by* it.
//!
//! One verb is one module. `ci` is the list of all checks and the only thing `.ci/run` calls; each
//! check is a verb of its own where that helps someone who mends it. Nothing here is shipped, and
//! nothing here depends on a crate of the project: the checks must run when the project does not build.

mod bench;
mod ci;
mod dist;
mod fuzz;
mod setup;
mod soak;
mod source;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Checks, benchmarks and releases of exec-server.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run every check, in order, until one fails
    Ci {
        /// Show the output of every step as it comes, not only that of a failing one
        #[arg(long)]
        verbose: bool,
    },
    /// Install what the checks need and this machine lacks
    Setup,
    /// Check the rules that neither the compiler nor clippy knows
    Tidy,
    /// Build every binary, then run the tests
    Test {
        /// Passed on to `cargo nextest run`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure
    Bench {
        #[command(subcommand)]
        what: bench::What,
    },
    /// Repeat the tests about kills, races and endurance until the time is over
    Soak {
        /// How long to go on
        #[arg(default_value_t = 10)]
        minutes: u64,
    },
    /// Give every fuzz target inputs nobody thought of, for a while
    Fuzz {
        /// How long each target runs; EXEC_FUZZ_SECONDS or 30 if it is not said
        seconds: Option<u64>,
        /// Only these targets
        targets: Vec<String>,
    },
    /// Build the release binary and print its size and digest
    Dist,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match Workspace::find().and_then(|workspace| carry_out(arguments.verb, &workspace)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(verb: Verb, workspace: &Workspace) -> anyhow::Result<()> {
    match verb {
        Verb::Ci { verbose } => ci::run(workspace, verbose),
        Verb::Setup => setup::run(workspace),
        Verb::Tidy => tidy::run(workspace),
        Verb::Test { arguments } => ci::test(workspace, &arguments),
        Verb::Bench { what } => bench::run(workspace, what),
        Verb::Soak { minutes } => soak::run(workspace, minutes),
        Verb::Fuzz { seconds, targets } => fuzz::run_some(workspace, seconds, &targets),
        Verb::Dist => dist::run(workspace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_free_of_contradictions() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn arguments_of_the_tests_reach_nextest_unread() {
        let arguments = Arguments::try_parse_from(["xtask", "test", "-p", "exec-core", "--", "log"])
            .expect("hyphens after `test` belong to nextest");
        let Verb::Test { arguments } = arguments.verb else {
            panic!("`test` was read as another verb");
        };
        assert_eq!(arguments, ["-p", "exec-core", "--", "log"]);
    }
}
