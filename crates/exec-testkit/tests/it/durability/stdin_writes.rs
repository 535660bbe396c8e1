//! A stdin write that was under way when its owner was killed is reported as in doubt, and never made twice.

use exec_env::Environment;
use exec_env::process::Written;
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_data::{Checksum, SeededBytes};
use exec_testkit::test_environment::{process_id, write_id};

use super::support::{self, LONG_TTL, OwnerProcess, SPOOL_BYTES};
use crate::environments::ACTOR;

const SMALL_BYTES: usize = 1000;
const LARGE_BYTES: usize = 4 << 20;

#[test]
fn a_write_cut_off_by_a_kill_is_in_doubt_and_an_applied_one_is_not_made_again() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        let semaphore = FifoSemaphore::new(folder.path().join("semaphore"));
        let mut owner = OwnerProcess::durable(&state, LONG_TTL, SPOOL_BYTES);
        owner.expect("open");
        owner.send(&format!("start p stdin {ACTOR} {} ; digest ; exit 0", semaphore.acquire()));
        owner.expect("started p");
        owner.send(&format!("write p applied 1 {SMALL_BYTES}"));
        owner.expect("written p applied Accepted");
        // The child does not read yet: the kernel takes what a pipe holds, the rest waits.
        owner.send(&format!("write p cut 2 {LARGE_BYTES}"));
        owner.expect("waiting p cut");
        owner.send("write p behind 3 10");
        owner.expect("waiting p behind");
        owner.kill();

        let keeper = support::keeper_of(&state);
        let environment = support::open(&state, LONG_TTL).await.expect("the state folder can be opened");
        let id = process_id("p");
        let write = async |key: &str, bytes: Vec<u8>| {
            let written = environment.processes().write(&id, write_id(key), bytes.into()).await;
            written.expect("the process is known")
        };
        assert_eq!(write("cut", SeededBytes::new(2).bytes(LARGE_BYTES)).await, Written::InDoubt);
        assert_eq!(write("applied", SeededBytes::new(1).bytes(SMALL_BYTES)).await, Written::Accepted);
        assert_eq!(write("behind", SeededBytes::new(3).bytes(10)).await, Written::InDoubt);
        semaphore.release();
        assert_eq!(write("after", b"!".to_vec()).await, Written::Accepted);
        assert_eq!(environment.processes().close_stdin(&id).await, Ok(Written::Accepted));

        let printed = support::read_log(environment.processes(), "p").await.stdout();
        let count: usize =
            printed.split(' ').next().and_then(|count| count.parse().ok()).expect("a digest has a count");
        let taken = count - SMALL_BYTES - 1;
        assert!((1..LARGE_BYTES).contains(&taken), "a part of the large write arrived: {taken}");
        let mut expected = Checksum::of(&SeededBytes::new(1).bytes(SMALL_BYTES));
        expected.update(&SeededBytes::new(2).bytes(taken));
        expected.update(b"!");
        assert_eq!(printed, format!("{count} bytes {expected}\n"), "each byte once, in order");
        support::shut_down(environment, keeper).await;
    });
}

#[test]
fn a_closed_stdin_stays_closed_for_the_next_owner() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let semaphore = FifoSemaphore::new(folder.path().join("semaphore"));
        let mut owner = OwnerProcess::durable(folder.path(), LONG_TTL, SPOOL_BYTES);
        owner.expect("open");
        owner.send(&format!("start p stdin {ACTOR} cat-count ; {} ; exit 5", semaphore.acquire()));
        owner.expect("started p");
        owner.send("write p a 1 70000");
        let line = owner.read_line();
        if line == "waiting p a" {
            owner.expect("written p a Accepted");
        } else {
            assert_eq!(line, "written p a Accepted");
        }
        owner.send("close-stdin p");
        owner.expect("closed p");
        owner.kill();

        let keeper = support::keeper_of(folder.path());
        let environment = support::open(folder.path(), LONG_TTL).await.expect("the state folder can be opened");
        let late = environment.processes().write(&process_id("p"), write_id("late"), "x".into()).await;
        assert_eq!(late, Ok(Written::StdinClosed));
        let again = environment.processes().write(&process_id("p"), write_id("a"), "x".into()).await;
        assert_eq!(again, Ok(Written::Accepted));
        semaphore.release();
        let seen = support::read_log(environment.processes(), "p").await;
        assert_eq!((seen.stdout().as_str(), seen.exit().shell_code()), ("70000 bytes\n", 5));
        support::shut_down(environment, keeper).await;
    });
}
