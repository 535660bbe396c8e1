//! `kill -9` of the owner, at random instants, again and again: the next one finds every process, byte and exit.

use std::path::Path;
use std::time::Duration;

use exec_env::Environment;
use exec_testkit::pattern::Dice;
use exec_testkit::witness::{Witness, eventually};

use super::parts::{self, PARTS, Part};
use super::support::{self, LONG_TTL, OwnerProcess, SPOOL_BYTES};

/// Kills that one cast lives through; then a new one on a new state folder begins.
const KILLS_A_CAST: usize = 40;

/// At least this many kills, unless `EXEC_SOAK_ROUNDS` asks for more.
const KILLS: usize = 200;

/// Random instants are drawn from this long: from the middle of opening to well into the printing.
const INSTANTS_MICROS: usize = 20_000;

#[test]
fn alone_two_hundred_kills_of_the_owner_cost_no_byte_and_no_exit() {
    let mut left = from_environment("EXEC_SOAK_ROUNDS").map_or(KILLS, |rounds| rounds.max(KILLS));
    let mut seed = from_environment("EXEC_SOAK_SEED").unwrap_or(1) as u64;
    while left > 0 {
        let kills = left.min(KILLS_A_CAST);
        // Printed for the one who looks at a failure: the history can be had again.
        println!("{kills} kills with EXEC_SOAK_SEED={seed}");
        support::run(survive(seed, kills));
        left -= kills;
        seed += 1;
    }
}

async fn survive(seed: u64, kills: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let roster = folder.path().join("roster");
    let mut dice = Dice::new(seed);
    let parts = parts::cast(folder.path(), &mut dice, kills);
    std::fs::write(&roster, parts::roster(&parts)).expect("the folder is ours");
    let mut complete = false;
    for _ in 0..kills {
        let mut owner = OwnerProcess::of(&state, LONG_TTL, SPOOL_BYTES);
        owner.tell(&format!("roster {}", roster.display()));
        // One in three dies while it opens or starts the cast, the others while it moves and reads.
        if dice.below(3) > 0 {
            owner.expect("open");
            owner.expect("ready");
            complete = true;
        }
        parts.iter().for_each(Part::prompt);
        // not a wait: the instant of the kill is what is drawn
        tokio::time::sleep(Duration::from_micros(dice.below(INSTANTS_MICROS) as u64)).await;
        owner.kill();
    }
    assert!(complete, "with {kills} kills, one owner had the time to start all");
    the_last_owner_finds_everything(&state, &parts).await;
}

#[test]
fn alone_the_keeper_moves_everything_while_there_is_no_owner() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        let roster = folder.path().join("roster");
        let pieces = 30;
        let parts = parts::cast(folder.path(), &mut Dice::new(7), pieces);
        std::fs::write(&roster, parts::roster(&parts)).expect("the folder is ours");
        let mut owner = OwnerProcess::of(&state, LONG_TTL, SPOOL_BYTES);
        owner.tell(&format!("roster {}", roster.display()));
        owner.expect("open");
        owner.expect("ready");
        let keeper = support::keeper_of(&state);
        owner.kill();
        let leaders = children_of(keeper.pid);
        assert!(leaders.len() >= PARTS - PARTS / 5, "those that wait at their gates: {leaders:?}");
        for _ in 0..pieces {
            parts.iter().for_each(Part::prompt);
        }
        // They print more than pipes hold, so they end only if somebody moves it; and only a parent can reap them.
        for leader in leaders {
            leader.leaves().await;
        }
        the_last_owner_finds_everything(&state, &parts).await;
    });
}

async fn the_last_owner_finds_everything(state: &Path, parts: &[Part]) {
    let keeper = support::keeper_of(state);
    let environment = support::open(state, LONG_TTL).await.expect("the state folder can be opened");
    let listed = environment.processes().list().await.expect("the list is there");
    let mut found: Vec<&str> = listed.iter().map(|process| process.id.as_str()).collect();
    let mut expected: Vec<&str> = parts.iter().map(|part| part.id.as_str()).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    for part in parts {
        part.judge(&support::transcript(environment.processes(), &part.id).await);
    }
    let left = children_of(keeper.pid);
    eventually("nobody is left below the keeper", || left.iter().all(|child| !child.is_present())).await;
    support::end(environment, keeper).await;
}

/// Children of a process, which `/proc` lists by thread.
fn children_of(pid: u32) -> Vec<Witness> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| Witness::of(child.parse().ok()?)).collect()
}

fn from_environment(name: &str) -> Option<usize> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}
