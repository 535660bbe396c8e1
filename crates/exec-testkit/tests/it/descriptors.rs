//! Limits of open files: they are raised before they are needed, and what exceeds them is refused and breaks nothing.

use exec_env::process::{ProcessError, ProcessReason, SpawnFailure, SpawnStep};
use exec_testkit::TestEnvironment;
use exec_testkit::test_environment::process_id;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::durability::support::{self, LONG_TTL, OwnerProcess, SPOOL_BYTES};
use crate::environments::{self, ACTOR};
use crate::odd_kernels;

const EMFILE: i32 = 24;

#[test]
fn a_terminal_starts_however_many_descriptors_the_keeper_holds() {
    support::run(async {
        let env = odd_kernels::wrapped("ulimit -Sn 64 && exec \"$@\"").await;
        for held in 0..24 {
            env.start_with_stdin(&format!("held {held}"), "wait-forever").await;
        }
        let terminal = env.start_on_terminal("terminal", "say hello ; exit 3").await;
        let log = terminal.read_to_end().await;
        assert_eq!((log.terminal().as_str(), log.exit().shell_code()), ("hello\n", 3));
    });
}

#[test]
fn an_owner_with_a_low_limit_adopts_all_that_an_earlier_one_held() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let open = || {
        let mut owner = OwnerProcess::durable_after("ulimit -Sn 64", state.path(), LONG_TTL, SPOOL_BYTES);
        owner.expect("open");
        owner
    };
    let mut first = open();
    for held in 0..40 {
        first.send(&format!("start held-{held} stdin {ACTOR} say ready ; cat-count"));
        first.expect(&format!("started held-{held}"));
    }
    first.kill();
    let mut second = open();
    for held in 0..40 {
        second.send(&format!("close-stdin held-{held}"));
        second.expect(&format!("closed held-{held}"));
    }
    for held in 0..40 {
        second.send(&format!("match held-{held} 0.bytes"));
        second.expect(&format!("matched held-{held}"));
    }
    drop(second);
    support::run(async {
        let environment = support::open(state.path(), LONG_TTL).await.expect("the state folder can be opened");
        support::shut_down(environment, support::keeper_of(state.path())).await;
    });
}

/// The keeper's answer arrives without its descriptors then.
#[test]
fn a_start_whose_descriptors_cannot_be_taken_is_refused_and_the_next_one_works() {
    support::run(async {
        let env = environments::keeper_as_process().await;
        let living = env.start_with_stdin("living", "cat-count").await;
        let found = getrlimit(Resource::Nofile);
        for spare in 0..4 {
            let highest = std::fs::read_dir("/proc/self/fd").expect("there is /proc").flatten();
            let highest = highest.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
            let limit = highest.expect("some are open") + 1 + spare;
            // All numbers below are taken, so that only `spare` are left.
            let plugs: Vec<_> = (0..limit).map_while(|_| plug(limit - spare)).collect();
            setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..found }).expect("a limit may be lowered");
            let refused = start(&env, "refused").await;
            setrlimit(Resource::Nofile, found).expect("it was so before");
            drop(plugs);
            assert_eq!(refused, (SpawnStep::Pipe, EMFILE), "with {spare} left");
        }
        assert_eq!(env.run("after", "exit 3").await.exit().shell_code(), 3);
        living.close_stdin().await;
        assert_eq!(living.read_to_end().await.stdout(), "0 bytes\n", "it lived on");
    });
}

#[test]
fn over_the_share_of_processes_a_start_is_refused_until_one_is_forgotten() {
    support::run(async {
        let found = getrlimit(Resource::Nofile);
        // 64 are reserved; of the rest processes have six tenths, at eight each.
        setrlimit(Resource::Nofile, Rlimit { current: Some(64 + 40), ..found }).expect("a limit may be lowered");
        let env = environments::keeper_as_process().await;
        for started in 0..3 {
            env.start(&format!("p{started}"), "wait-forever").await;
        }
        assert_eq!(start(&env, "one too many").await, (SpawnStep::Pipe, EMFILE));
        env.processes().forget(&process_id("p0")).await.expect("it is ours");
        let mut last = (SpawnStep::Pipe, EMFILE);
        // Its log is freed by a task of its own, of which no event is told.
        while last == (SpawnStep::Pipe, EMFILE) {
            exec_testkit::os_process::poll_pause().await;
            match env.processes().start(&process_id("after"), env.command("exit 0")).await {
                Ok(_) => return,
                Err(error) => last = spawn_failure(error),
            }
        }
        panic!("{last:?}");
    });
}

/// Starts what must be refused.
async fn start(env: &TestEnvironment, name: &str) -> (SpawnStep, i32) {
    let refused = env.processes().start(&process_id(name), env.command("wait-forever")).await;
    spawn_failure(refused.expect_err("there are no descriptors for it"))
}

fn spawn_failure(error: ProcessError) -> (SpawnStep, i32) {
    match error.reason {
        ProcessReason::SpawnFailed(SpawnFailure { step, errno, .. }) => (step, errno),
        other => panic!("{other:?}"),
    }
}

/// Takes a free descriptor below `end`, if there is one.
fn plug(end: u64) -> Option<std::fs::File> {
    use std::os::fd::AsRawFd;
    let plug = std::fs::File::open("/dev/null").expect("there is one");
    (plug.as_raw_fd() as u64 <= end).then_some(plug)
}
