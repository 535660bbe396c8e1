//! `kill -9` of the owner, at random moments, again and again: the next owner finds every process, byte and exit.

use std::path::Path;
use std::time::Duration;

use exec_env::Environment;
use exec_testkit::os_process::{OsProcess, eventually};
use exec_testkit::test_data::SeededRng;

use super::printing_children::{self, CHILDREN, PrintingChild};
use super::support::{self, LONG_TTL, OwnerProcess, SPOOL_BYTES};

/// Kills that one set of children lives through; then a new set in a new state directory begins.
const KILLS_PER_SET: usize = 40;

/// At least this many kills, unless `EXEC_SOAK_ROUNDS` asks for more.
const KILLS: usize = 200;

/// A kill comes at a random moment within this time: from the middle of opening to well into the printing.
const KILL_WITHIN_MICROS: usize = 20_000;

#[test]
fn alone_two_hundred_kills_of_the_owner_cost_no_byte_and_no_exit() {
    let mut left = support::number_from_env("EXEC_SOAK_ROUNDS").map_or(KILLS, |rounds| (rounds as usize).max(KILLS));
    let mut seed = support::number_from_env("EXEC_SOAK_SEED").unwrap_or(1);
    while left > 0 {
        let kills = left.min(KILLS_PER_SET);
        // Printed so that a failure can be repeated.
        println!("{kills} kills with EXEC_SOAK_SEED={seed}");
        support::run(kill_owners(seed, kills));
        left -= kills;
        seed += 1;
    }
}

async fn kill_owners(seed: u64, kills: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let start_all_file = folder.path().join("children");
    let mut rng = SeededRng::new(seed);
    let children = printing_children::create_all(folder.path(), &mut rng, kills);
    std::fs::write(&start_all_file, printing_children::start_all_file(&children)).expect("the folder is ours");
    let mut complete = false;
    for _ in 0..kills {
        let mut owner = OwnerProcess::durable(&state, LONG_TTL, SPOOL_BYTES);
        owner.send(&format!("start-all {}", start_all_file.display()));
        // One in three dies while it opens or starts the children, the others while it moves and reads.
        if rng.below(3) > 0 {
            owner.expect("open");
            owner.expect("ready");
            complete = true;
        }
        children.iter().for_each(PrintingChild::print_next_piece);
        // not a wait: the moment of the kill is random
        tokio::time::sleep(Duration::from_micros(rng.below(KILL_WITHIN_MICROS) as u64)).await;
        owner.kill();
    }
    assert!(complete, "with {kills} kills, one owner had the time to start all");
    the_last_owner_finds_everything(&state, &children).await;
}

#[test]
fn alone_the_keeper_moves_everything_while_there_is_no_owner() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        let start_all_file = folder.path().join("children");
        let pieces = 30;
        let children = printing_children::create_all(folder.path(), &mut SeededRng::new(7), pieces);
        std::fs::write(&start_all_file, printing_children::start_all_file(&children)).expect("the folder is ours");
        let mut owner = OwnerProcess::durable(&state, LONG_TTL, SPOOL_BYTES);
        owner.send(&format!("start-all {}", start_all_file.display()));
        owner.expect("open");
        owner.expect("ready");
        let keeper = support::keeper_of(&state);
        owner.kill();
        let leaders = OsProcess::children_of(keeper.pid);
        assert!(leaders.len() >= CHILDREN - CHILDREN / 5, "those that wait at their gates: {leaders:?}");
        for _ in 0..pieces {
            children.iter().for_each(PrintingChild::print_next_piece);
        }
        // They print more than pipes hold, so they end only if the keeper moves it; and only their parent can reap
        // them.
        for leader in leaders {
            leader.wait_until_gone().await;
        }
        the_last_owner_finds_everything(&state, &children).await;
    });
}

async fn the_last_owner_finds_everything(state: &Path, children: &[PrintingChild]) {
    let keeper = support::keeper_of(state);
    let environment = support::open(state, LONG_TTL).await.expect("the state folder can be opened");
    let listed = environment.processes().list().await.expect("the list is there");
    let mut found: Vec<&str> = listed.iter().map(|process| process.id.as_str()).collect();
    let mut expected: Vec<&str> = children.iter().map(|child| child.id.as_str()).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    for child in children {
        child.check(&support::read_log(environment.processes(), &child.id).await);
    }
    let left = OsProcess::children_of(keeper.pid);
    eventually("nobody is left below the keeper", || left.iter().all(|child| !child.is_present())).await;
    support::shut_down(environment, keeper).await;
}
