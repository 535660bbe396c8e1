//! `soak`: the tests about kills, races and endurance, again and again for a while.
//!
//! A race that shows once in a thousand runs shows here. Tests that can repeat themselves read
//! `EXEC_SOAK_ROUNDS`; all others are simply run again. The first failure ends it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::{Workspace, in_view};

/// Rounds inside one test; enough to matter and short enough to stay below nextest's time limit.
const ROUNDS: &str = "100";

/// Runs the tests until `minutes` are over, at least once.
pub(crate) fn run(workspace: &Workspace, minutes: u64) -> Result<()> {
    let rounds = std::env::var("EXEC_SOAK_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    let begun = Instant::now();
    let enough = Duration::from_secs(minutes * 60);
    for turn in 1_u64.. {
        println!("soak: turn {turn}, {} s of {} s", begun.elapsed().as_secs(), enough.as_secs());
        let mut nextest = workspace.cargo(&["nextest", "run", "--workspace", "--profile", "ci"]);
        nextest.args(["-E", "test(/soak|kill|race/)"]).env("EXEC_SOAK_ROUNDS", &rounds);
        in_view(&mut nextest).with_context(|| format!("turn {turn} of the soak failed"))?;
        if begun.elapsed() >= enough {
            println!("soak: {turn} turns without a failure");
            break;
        }
    }
    Ok(())
}
