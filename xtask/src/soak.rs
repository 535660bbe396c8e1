//! `soak`: the tests about kills, races, hostile peers and endurance, again and again for a while; then random sequences of
//! messages against a live server, a task that nobody asks for during eleven minutes, and mutants of the rules in exec-core.
//!
//! A race that shows once in a thousand runs shows here. Tests that can repeat themselves read
//! `EXEC_SOAK_ROUNDS`; all others are simply run again, in turn with one worker thread and with two. The first failure ends it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::setup::{self, CargoTool};
use crate::workspace::{Workspace, run_visible};

/// Rounds inside one test; enough to matter and short enough to stay below nextest's time limit.
const ROUNDS: &str = "100";

/// The whole suites behind a gateway, of which every run has a part. Hostile clients, and limits of open files that are
/// lowered step by step, are in `server_robust`; hostile servers in `hostile_server`; hostile owners of a keeper in
/// `keeper_line`.
const TESTS: &str = "test(/soak|kill|race|hostile|server_robust|keeper_line|odd_kernels|behind_a_gateway/)";

/// How long sequences are played, by seed: ten minutes in all, each run below nextest's time limit.
const SEQUENCES: &[(u64, &str)] = &[(2, "300"), (3, "300")];

/// How long the task goes on that must be found after ten minutes without anybody, in seconds.
const LONG_TASK_SECONDS: &str = "660";

const CARGO_MUTANTS: CargoTool = CargoTool { name: "mutants", version: "27.1.0", install_arguments: &[] };

/// Of the mutants of exec-core that compile, its own tests may miss so many in a hundred.
const MISSED_PERCENT: usize = 10;

/// Runs the tests until `minutes` are over, at least once.
pub(crate) fn run(workspace: &Workspace, minutes: u64) -> Result<()> {
    let rounds = std::env::var("EXEC_SOAK_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    let started = Instant::now();
    let duration = Duration::from_secs(minutes * 60);
    for pass in 1_u64.. {
        let workers = if pass % 2 == 1 { "1" } else { "2" };
        println!("soak: pass {pass}, workers {workers}, {} s of {} s", started.elapsed().as_secs(), duration.as_secs());
        let mut nextest = workspace.cargo(&["nextest", "run", "--workspace", "--all-features", "--profile", "ci"]);
        // What the profile leaves out of every run is run here.
        nextest.arg("--ignore-default-filter");
        nextest.args(["-E", TESTS]).env("EXEC_SOAK_ROUNDS", &rounds).env("EXEC_TEST_WORKERS", workers);
        run_visible(&mut nextest).with_context(|| format!("pass {pass} of the soak failed"))?;
        if started.elapsed() >= duration {
            println!("soak: {pass} passes without a failure");
            break;
        }
    }
    for (seed, seconds) in SEQUENCES {
        println!("soak: sequences of messages, seed {seed}, {seconds} s");
        let mut nextest =
            workspace.cargo(&["nextest", "run", "-p", "exec-server-cli", "--all-features", "--profile", "ci"]);
        nextest.args(["-E", "test(sequences_of_messages)"]);
        nextest.env("EXEC_SEQUENCE_SEED", seed.to_string()).env("EXEC_SEQUENCE_SECONDS", seconds);
        run_visible(&mut nextest).with_context(|| format!("a sequence of seed {seed} failed"))?;
    }
    println!("soak: a task of {LONG_TASK_SECONDS} s that everybody leaves");
    let mut nextest = workspace.cargo(&["nextest", "run", "-p", "exec-testkit", "--all-features", "--profile", "ci"]);
    nextest.args(["-E", "test(a_task_of_minutes)"]).env("EXEC_LONG_TASK_SECONDS", LONG_TASK_SECONDS);
    run_visible(&mut nextest).context("the task of minutes failed")?;
    mutants(workspace)
}

/// Changes the rules of exec-core one at a time, and counts the changes that its own tests do not notice.
fn mutants(workspace: &Workspace) -> Result<()> {
    setup::install_cargo_tool(workspace, &CARGO_MUTANTS)?;
    let output = workspace.target.join("mutants");
    std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
    let mut command = workspace.cargo(&["mutants", "-p", "exec-core", "--baseline", "skip", "--test-tool", "nextest"]);
    command.args(["--timeout", "120", "--build-timeout", "600", "--cargo-test-arg=--all-features", "--output"]);
    // Fewer random histories than usual: what the tests notice, they notice soon.
    command.arg(&output).env("PROPTEST_CASES", "32");
    // It fails as soon as one mutant is missed; what counts is how many were.
    let ended = run_visible(&mut command);
    let count = |name: &str| count_lines(&output.join("mutants.out").join(name));
    let (caught, timeout, missed) = (count("caught.txt")?, count("timeout.txt")?, count("missed.txt")?);
    let viable = caught + timeout + missed;
    println!("soak: {missed} of {viable} viable mutants of exec-core were missed by its own tests");
    ensure!(viable > 0, "no mutant was tried: {ended:?}");
    ensure!(
        missed * 100 <= viable * MISSED_PERCENT,
        "more than {MISSED_PERCENT} % were missed: write tests for those in {}",
        output.join("mutants.out/missed.txt").display()
    );
    Ok(())
}

fn count_lines(path: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().count())
}
