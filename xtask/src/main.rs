//! `cargo xtask SUBCOMMAND`: checks, measurements and builds of the project.
//!
//! One subcommand is one module. `ci` is the list of all checks and the only thing `.ci/run` calls. Nothing here depends on
//! a crate of the project: the checks must run when the project does not build.

mod audit;
mod bench;
mod ci;
mod dist;
mod examples;
mod fuzz;
mod npm;
mod setup;
mod soak;
mod source;
mod tidy;
mod wheel;
mod workspace;
mod zig;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::workspace::Workspace;

/// Checks, benchmarks and releases of exec-server.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
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
        benchmark: bench::Benchmark,
    },
    /// Repeat the tests about kills, races and hostile peers until the time is over; then sequences and mutants
    Soak {
        /// How long to go on
        #[arg(default_value_t = 10)]
        minutes: u64,
    },
    /// Run every fuzz target for a while
    Fuzz {
        /// How long each target runs; EXEC_FUZZ_SECONDS or 30 if it is not said
        seconds: Option<u64>,
        /// Only these targets
        targets: Vec<String>,
    },
    /// Run every example to its end
    Examples,
    /// Check licences, sources and advisories of all dependencies with cargo-deny; not part of `ci`
    Audit,
    /// Build everything that is shipped: a portable binary, archives, packages, an image and their digests
    Dist {
        /// Also build again elsewhere and compare, and install and run everything in roots without a compiler; takes long
        #[arg(long)]
        check: bool,
    },
    /// Build the package for Node with the server's binary in it
    Npm {
        /// The binary to put in; one that is built for it if it is not said
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Without optimisation, to try how it installs
        #[arg(long)]
        debug: bool,
        /// Also install and use it in roots without a compiler, as `dist --check` does; needs a portable binary
        #[arg(long)]
        check: bool,
    },
    /// Build the Python package with the server's binary in it
    Wheel {
        /// The binary to put in; that of the release profile if it is not said
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Without optimisation, to try how it installs
        #[arg(long)]
        debug: bool,
        /// Also install and use it in roots without a compiler, as `dist --check` does; needs a portable binary
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match Workspace::find().and_then(|workspace| run(arguments.subcommand, &workspace)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(subcommand: Subcommand, workspace: &Workspace) -> anyhow::Result<()> {
    match subcommand {
        Subcommand::Ci { verbose } => ci::run(workspace, verbose),
        Subcommand::Setup => setup::run(workspace),
        Subcommand::Tidy => tidy::run(workspace),
        Subcommand::Test { arguments } => ci::test(workspace, &arguments),
        Subcommand::Bench { benchmark } => bench::run(workspace, benchmark),
        Subcommand::Soak { minutes } => soak::run(workspace, minutes),
        Subcommand::Fuzz { seconds, targets } => fuzz::run_targets(workspace, seconds, &targets),
        Subcommand::Examples => examples::run(workspace),
        Subcommand::Audit => audit::run(workspace),
        Subcommand::Dist { check } => dist::run(workspace, check),
        Subcommand::Npm { binary, debug, check } => npm::run(workspace, binary, debug, check),
        Subcommand::Wheel { binary, debug, check } => wheel::run(workspace, binary, debug, check),
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
        let Subcommand::Test { arguments } = arguments.subcommand else {
            panic!("`test` was parsed as another subcommand");
        };
        assert_eq!(arguments, ["-p", "exec-core", "--", "log"]);
    }
}
