//! `ci`: every check in order, each timed, ended by the first failure.
//!
//! A new check is one more entry of [`STEPS`]. All cargo steps use the same profile and the same
//! selection of packages, so that what one step compiled the next one finds; on two cores the whole
//! list must stay below [`BUDGET`]. Output of a step is kept in `target/ci/STEP.log` and shown when
//! the step fails. There are no retries: a test that fails sometimes is a failing test.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, in_view};
use crate::{fuzz, setup, tidy};

/// Longer than this and people stop running it before they push.
const BUDGET: Duration = Duration::from_secs(25 * 60);

/// How much of a failed step's output is shown; the log file has the rest.
const SHOWN_LINES: usize = 400;

const STEPS: &[Step] = &[
    Step { name: "setup", work: Work::Here(setup::run) },
    Step { name: "fmt", work: Work::Cargo { env: &[], words: &["fmt", "--all", "--check"] } },
    Step { name: "tidy", work: Work::Here(tidy::run) },
    Step {
        name: "clippy",
        work: Work::Cargo { env: &[], words: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"] },
    },
    Step { name: "build", work: Work::Cargo { env: &[], words: BUILD } },
    Step { name: "test", work: Work::Cargo { env: &[], words: &["nextest", "run", "--workspace", "--profile", "ci"] } },
    Step { name: "doctest", work: Work::Cargo { env: &[], words: &["test", "--doc", "--workspace"] } },
    Step {
        name: "doc",
        work: Work::Cargo { env: &[("RUSTDOCFLAGS", "-Dwarnings")], words: &["doc", "--no-deps", "--workspace"] },
    },
    Step { name: "fuzz", work: Work::Here(fuzz::run) },
];

// Tests start binaries of other packages (the actor, the server), which nextest alone does not
// build. The tests are named too, because without them cargo would choose other features for the
// dependencies, and compile those twice.
const BUILD: &[&str] = &["build", "--workspace", "--lib", "--bins", "--tests"];

/// One check.
struct Step {
    name: &'static str,
    work: Work,
}

/// Who carries a step out.
enum Work {
    /// A verb of xtask with the step's name.
    Here(fn(&Workspace) -> Result<()>),
    /// Cargo.
    Cargo { env: &'static [(&'static str, &'static str)], words: &'static [&'static str] },
}

/// Runs all steps.
pub(crate) fn run(workspace: &Workspace, verbose: bool) -> Result<()> {
    let begun = Instant::now();
    let mut done = Vec::new();
    for step in STEPS {
        println!("==> {:<8} {}", step.name, step.alone());
        let started = Instant::now();
        let result = step.run(workspace, verbose);
        let took = started.elapsed();
        println!("    {:<8} {} in {}", step.name, if result.is_ok() { "ok" } else { "FAILED" }, spell(took));
        done.push((step.name, result.is_ok(), took));
        if let Err(error) = result {
            summarise(&done, begun.elapsed());
            println!("to see it alone: {}", step.alone());
            return Err(error.context(format!("step `{}` failed", step.name)));
        }
    }
    summarise(&done, begun.elapsed());
    Ok(())
}

/// The steps `build` and `test`, in view, with more words for nextest.
pub(crate) fn test(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    in_view(&mut workspace.cargo(BUILD))?;
    in_view(&mut workspace.cargo(&nextest_words(arguments)))
}

/// All packages are meant unless some are named; cargo would let `--workspace` win over `-p`.
fn nextest_words(arguments: &[String]) -> Vec<&str> {
    let named = arguments.iter().any(|word| word.starts_with("-p") || word.starts_with("--package"));
    let mut words = vec!["nextest", "run"];
    if !named {
        words.push("--workspace");
    }
    words.extend(arguments.iter().map(String::as_str));
    words
}

impl Step {
    fn run(&self, workspace: &Workspace, verbose: bool) -> Result<()> {
        match &self.work {
            Work::Here(verb) => verb(workspace),
            Work::Cargo { env, words } => {
                let mut command = workspace.cargo(words);
                command.envs(env.iter().copied());
                if verbose { in_view(&mut command) } else { into_log(workspace, self.name, &mut command) }
            }
        }
    }

    /// What to type to run only this step.
    fn alone(&self) -> String {
        match &self.work {
            Work::Here(_) => format!("cargo xtask {}", self.name),
            Work::Cargo { env, words } => {
                let mut typed: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
                typed.push("cargo".to_owned());
                typed.extend(words.iter().map(|word| (*word).to_owned()));
                typed.join(" ")
            }
        }
    }
}

/// Runs a command with its output in the step's log, and shows the log if it fails.
pub(crate) fn into_log(workspace: &Workspace, name: &str, command: &mut Command) -> Result<()> {
    let folder = workspace.target.join("ci");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
    let path = folder.join(format!("{name}.log"));
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

/// The last lines of a text, and a word about those left out.
fn tail(text: &str, shown: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(shown);
    let kept = lines[hidden..].join("\n");
    if hidden == 0 { kept } else { format!("({hidden} earlier lines left out)\n{kept}") }
}

fn summarise(done: &[(&str, bool, Duration)], total: Duration) {
    println!("\nsummary");
    for (name, passed, took) in done {
        println!("  {name:<8} {:<6} {:>12}", if *passed { "ok" } else { "FAILED" }, spell(*took));
    }
    for step in &STEPS[done.len()..] {
        println!("  {:<8} not run", step.name);
    }
    println!("  {:<8} {:<6} {:>12}", "total", "", spell(total));
    if total > BUDGET {
        println!("  this is over the budget of {}: find out what became slow", spell(BUDGET));
    }
}

/// A duration for people.
fn spell(duration: Duration) -> String {
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
        assert_eq!(spell(Duration::from_millis(1_250)), "1.2 s");
        assert_eq!(spell(Duration::from_secs(125)), "2 min 05 s");
    }

    #[test]
    fn naming_a_package_means_only_that_package() {
        let words = ["-p", "exec-core"].map(str::to_owned);
        assert_eq!(nextest_words(&words), ["nextest", "run", "-p", "exec-core"]);
        let words = ["--no-fail-fast".to_owned()];
        assert_eq!(nextest_words(&words), ["nextest", "run", "--workspace", "--no-fail-fast"]);
    }

    #[test]
    fn every_step_can_be_typed_by_itself() {
        let doc = STEPS.iter().find(|step| step.name == "doc").expect("doc is a step");
        assert_eq!(doc.alone(), "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --workspace");
        let tidy = STEPS.iter().find(|step| step.name == "tidy").expect("tidy is a step");
        assert_eq!(tidy.alone(), "cargo xtask tidy");
    }
}
