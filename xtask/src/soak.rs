//! `soak`: the tests about kills, races and endurance, again and again for a while.
//!
//! A race that shows once in a thousand runs shows here. Tests that can repeat themselves read
//! `EXEC_SOAK_ROUNDS`; all others are simply run again, in turn with one worker thread and with two. The first failure ends it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::{Workspace, run_visible};

/// Rounds inside one test; enough to matter and short enough to stay below nextest's time limit.
const ROUNDS: &str = "100";

/// Runs the tests until `minutes` are over, at least once.
pub(crate) fn run(workspace: &Workspace, minutes: u64) -> Result<()> {
    let rounds = std::env::var("EXEC_SOAK_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    let started = Instant::now();
    let duration = Duration::from_secs(minutes * 60);
    for pass in 1_u64.. {
        let workers = if pass % 2 == 1 { "1" } else { "2" };
        println!("soak: pass {pass}, workers {workers}, {} s of {} s", started.elapsed().as_secs(), duration.as_secs());
        let mut nextest = workspace.cargo(&["nextest", "run", "--workspace", "--all-features", "--profile", "ci"]);
        nextest
            .args(["-E", "test(/soak|kill|race/)"])
            .env("EXEC_SOAK_ROUNDS", &rounds)
            .env("EXEC_TEST_WORKERS", workers);
        run_visible(&mut nextest).with_context(|| format!("pass {pass} of the soak failed"))?;
        if started.elapsed() >= duration {
            println!("soak: {pass} passes without a failure");
            break;
        }
    }
    Ok(())
}
