//! `ci`: every check in order, each timed, ended by the first failure.
//!
//! A new check is one more entry of [`STEPS`]. All cargo steps use the same profile, packages and features, so that no
//! step compiles again what an earlier one has compiled; on two cores the whole list must stay below [`BUDGET`]. The
//! output of a step is kept in `target/ci/STEP.log` and shown when the step fails. There are no retries: a test that
//! fails sometimes is a failing test.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, run_visible};
use crate::{examples, fuzz, setup, tidy};

/// Longer than this and people stop running it before they push.
const BUDGET: Duration = Duration::from_secs(35 * 60);

/// How much of a failed step's output is shown; the log file has the rest.
const SHOWN_LINES: usize = 400;

const STEPS: &[Step] = &[
    Step { name: "setup", action: Action::Xtask(setup::run) },
    cargo_step("fmt", &["fmt", "--all", "--check"]),
    Step { name: "tidy", action: Action::Xtask(tidy::run) },
    cargo_step("clippy", &["clippy", "--workspace", "--all-features", "--all-targets", "--", "-D", "warnings"]),
    cargo_step("build", BUILD),
    cargo_step("test", &["nextest", "run", "--workspace", "--all-features", "--profile", "ci"]),
    Step { name: "examples", action: Action::Xtask(examples::run) },
    cargo_step("doctest", &["test", "--doc", "--workspace", "--all-features"]),
    Step {
        name: "doc",
        action: Action::Cargo {
            env: &[("RUSTDOCFLAGS", "-Dwarnings")],
            arguments: &["doc", "--no-deps", "--workspace", "--all-features"],
        },
    },
    Step { name: "fuzz", action: Action::Xtask(fuzz::run) },
];

/// Tests start binaries of other packages (the actor, the server), which nextest alone does not build. The tests are
/// built here too, because without them cargo would choose other features for the dependencies, and compile those twice.
pub(crate) const BUILD: &[&str] =
    &["build", "--workspace", "--all-features", "--lib", "--bins", "--tests", "--examples"];

struct Step {
    name: &'static str,
    action: Action,
}

enum Action {
    /// The subcommand of xtask that has the step's name.
    Xtask(fn(&Workspace) -> Result<()>),
    Cargo {
        env: &'static [(&'static str, &'static str)],
        arguments: &'static [&'static str],
    },
}

const fn cargo_step(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, action: Action::Cargo { env: &[], arguments } }
}

/// Runs all steps.
pub(crate) fn run(workspace: &Workspace, verbose: bool) -> Result<()> {
    let started = Instant::now();
    let mut finished = Vec::new();
    for step in STEPS {
        println!("==> {:<8} {}", step.name, step.command_line());
        let step_started = Instant::now();
        let result = step.run(workspace, verbose);
        let duration = step_started.elapsed();
        println!("    {:<8} {} in {}", step.name, verdict(result.is_ok()), format_duration(duration));
        finished.push((step.name, result.is_ok(), duration));
        if let Err(error) = result {
            print_summary(&finished, started.elapsed());
            println!("to see it alone: {}", step.command_line());
            return Err(error.context(format!("step `{}` failed", step.name)));
        }
    }
    print_summary(&finished, started.elapsed());
    Ok(())
}

/// `cargo xtask test`: the steps `build` and `test` with their output shown, and with more arguments for nextest.
pub(crate) fn test(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    run_visible(&mut workspace.cargo(BUILD))?;
    run_visible(&mut workspace.cargo(&nextest_arguments(arguments)))
}

/// All packages are meant unless some are named; cargo would let `--workspace` win over `-p`.
fn nextest_arguments(arguments: &[String]) -> Vec<&str> {
    let named = arguments.iter().any(|word| word.starts_with("-p") || word.starts_with("--package"));
    let selection = if named { None } else { Some("--workspace") };
    ["nextest", "run", "--all-features"]
        .into_iter()
        .chain(selection)
        .chain(arguments.iter().map(String::as_str))
        .collect()
}

impl Step {
    fn run(&self, workspace: &Workspace, verbose: bool) -> Result<()> {
        match &self.action {
            Action::Xtask(subcommand) => subcommand(workspace),
            Action::Cargo { env, arguments } => {
                let mut command = workspace.cargo(arguments);
                command.envs(env.iter().copied());
                if verbose { run_visible(&mut command) } else { run_logged(workspace, self.name, &mut command) }
            }
        }
    }

    /// What to type to run only this step.
    fn command_line(&self) -> String {
        match &self.action {
            Action::Xtask(_) => format!("cargo xtask {}", self.name),
            Action::Cargo { env, arguments } => {
                let variables = env.iter().map(|(name, value)| format!("{name}={value} "));
                format!("{}cargo {}", variables.collect::<String>(), arguments.join(" "))
            }
        }
    }
}

/// Runs a command with its output in the log of that name, and shows the end of the log if the command fails.
pub(crate) fn run_logged(workspace: &Workspace, name: &str, command: &mut Command) -> Result<()> {
    let path = log_path(workspace, name);
    let directory = workspace.target.join("ci");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {directory:?}"))?;
    let log = File::create(&path).with_context(|| format!("cannot create {path:?}"))?;
    let errors = log.try_clone().with_context(|| format!("cannot share {path:?}"))?;
    let status = command.stdout(log).stderr(errors).status().with_context(|| format!("cannot run step `{name}`"))?;
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {path:?}"))?;
    let text = String::from_utf8_lossy(&bytes);
    if status.success() {
        // nextest counts its tests in one line, and a count that shrinks should be seen.
        if let Some(line) = text.lines().rfind(|line| line.contains("Summary [")) {
            println!("    {}", line.trim());
        }
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", tail(&text, SHOWN_LINES)).context("cannot write to stdout")?;
    bail!("{status}; all of its output is in {}", path.display())
}

/// Where [`run_logged`] keeps the output of a step.
pub(crate) fn log_path(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target.join("ci").join(format!("{name}.log"))
}

/// The last lines of a text, and how many were left out.
fn tail(text: &str, shown: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(shown);
    let kept = lines[hidden..].join("\n");
    if hidden == 0 { kept } else { format!("({hidden} earlier lines left out)\n{kept}") }
}

fn print_summary(finished: &[(&str, bool, Duration)], total: Duration) {
    println!("\nsummary");
    for (name, passed, duration) in finished {
        println!("  {name:<8} {:<6} {:>12}", verdict(*passed), format_duration(*duration));
    }
    for step in &STEPS[finished.len()..] {
        println!("  {:<8} not run", step.name);
    }
    println!("  {:<8} {:<6} {:>12}", "total", "", format_duration(total));
    if total > BUDGET {
        println!("  this is over the budget of {}: find out what became slow", format_duration(BUDGET));
    }
}

fn verdict(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}

fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_shows_its_end_and_says_how_much_is_missing() {
        assert_eq!(tail("a\nb\nc\n", 2), "(1 earlier lines left out)\nb\nc");
        assert_eq!(tail("a\nb\n", 2), "a\nb");
    }

    #[test]
    fn durations_read_like_a_clock() {
        assert_eq!(format_duration(Duration::from_millis(1_250)), "1.2 s");
        assert_eq!(format_duration(Duration::from_secs(125)), "2 min 05 s");
    }

    #[test]
    fn naming_a_package_means_only_that_package() {
        let words = ["-p", "exec-core"].map(str::to_owned);
        assert_eq!(nextest_arguments(&words), ["nextest", "run", "--all-features", "-p", "exec-core"]);
        let words = ["--no-fail-fast".to_owned()];
        assert_eq!(nextest_arguments(&words), ["nextest", "run", "--all-features", "--workspace", "--no-fail-fast"]);
    }

    #[test]
    fn every_step_can_be_typed_by_itself() {
        let doc = STEPS.iter().find(|step| step.name == "doc").expect("doc is a step");
        assert_eq!(doc.command_line(), "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --workspace --all-features");
        let tidy = STEPS.iter().find(|step| step.name == "tidy").expect("tidy is a step");
        assert_eq!(tidy.command_line(), "cargo xtask tidy");
    }
}
