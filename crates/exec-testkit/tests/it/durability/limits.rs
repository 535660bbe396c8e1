//! Limits outlive their owner: the next one learns what enforces them and which were reached. And nothing is left of the
//! cgroups that enforced them, whoever was killed.

use std::path::{Path, PathBuf};

use exec_core::{ExitCause, Limit, LimitMeans};
use exec_env::Environment;
use exec_testkit::os_process::{OsProcess, eventually};
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_environment::process_id;

use super::support::{self, LONG_TTL, OwnerProcess, SPOOL_BYTES};
use crate::environments::ACTOR;

/// The first hundred MiB and three processes are within the limits of [`start`], the second are not.
const GROW: &str = "rss 104857600";

/// Starts a process with limits under an owner that can be killed.
fn start(owner: &mut OwnerProcess, id: &str, script: &str) -> OsProcess {
    owner.send(&format!("start-limited {id} 160 1 {ACTOR} {script}"));
    let pid = owner.expect(&format!("started {id}"));
    pid.parse().ok().and_then(OsProcess::of).expect("the leader runs")
}

/// The directories of cgroups that belong to this keeper and that this process is in, in all hierarchies.
fn limiting_directories(member: OsProcess) -> Vec<PathBuf> {
    let own = std::fs::read_to_string(format!("/proc/{}/cgroup", member.pid)).expect("it runs");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("there are mounts");
    let directory = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let at = path.find("exec-server-")?;
        let keeper = path[at..].split('/').next()?;
        let is_mount = |line: &&str| match controllers {
            "" => line.contains(" - cgroup2 "),
            _ => line.contains(" - cgroup ") && line.ends_with(&format!(",{controllers}")),
        };
        let mount = mounts.lines().find(is_mount)?.split(' ').nth(4)?;
        Some(Path::new(mount).join(path[..at].trim_start_matches('/')).join(keeper))
    };
    own.lines().filter_map(directory).collect()
}

#[test]
fn the_next_owner_learns_which_limits_were_reached_while_there_was_none() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        let gate = FifoSemaphore::new(folder.path().join("gate"));
        let mut owner = OwnerProcess::durable(&state, LONG_TTL, SPOOL_BYTES);
        owner.expect("open");
        let hog = start(&mut owner, "hog", &format!("{} ; {GROW} ; {GROW} ; exit 0", gate.acquire()));
        let spinner = start(&mut owner, "spinner", &format!("{} ; spin 3600000", gate.acquire()));
        owner.kill();
        gate.release();
        gate.release();
        // Only the keeper is there to see it.
        hog.wait_until_gone().await;
        spinner.wait_until_gone().await;

        let keeper = support::keeper_of(&state);
        let environment = support::open(&state, LONG_TTL).await.expect("the state folder can be opened");
        let listed = environment.processes().list().await.expect("the list is there");
        let report = |name: &str| listed.iter().find(|info| info.id == process_id(name)).and_then(|info| info.limits);
        let of_the_tree =
            |name: &str, limit| report(name).and_then(|report| report.get(limit)).map(LimitMeans::is_of_the_tree);
        let hog = support::read_log(environment.processes(), "hog").await.exit();
        if of_the_tree("hog", Limit::MemoryBytes).expect("it is told") {
            assert_eq!(hog.cause, ExitCause::OutOfMemory);
            assert_eq!(hog.limits_reached.iter().collect::<Vec<_>>(), [Limit::MemoryBytes]);
        }
        let spinner = support::read_log(environment.processes(), "spinner").await.exit();
        assert_eq!(spinner.cause, ExitCause::CpuLimit);
        assert_eq!(spinner.limits_reached.iter().collect::<Vec<_>>(), [Limit::CpuSeconds]);
        support::shut_down(environment, keeper).await;
    });
}

#[test]
fn nothing_is_left_of_limiting_cgroups_when_the_keeper_ends() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut owner = OwnerProcess::durable(&folder.path().join("state"), LONG_TTL, SPOOL_BYTES);
        owner.expect("open");
        let leader = start(&mut owner, "p", "wait-forever");
        let directories = limiting_directories(leader);
        assert!(directories.iter().all(|directory| directory.exists()), "{directories:?}");
        owner.kill();
        let keeper = support::keeper_of(&folder.path().join("state"));
        let environment = support::open(&folder.path().join("state"), LONG_TTL).await.expect("it can be opened");
        support::shut_down(environment, keeper).await;
        leader.wait_until_gone().await;
        eventually("the cgroups are gone", || !directories.iter().any(|directory| directory.exists())).await;
    });
}

#[test]
fn the_next_keeper_removes_the_limiting_cgroups_of_a_killed_one() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        let mut owner = OwnerProcess::durable(&state, LONG_TTL, SPOOL_BYTES);
        owner.expect("open");
        let leader = start(&mut owner, "p", "wait-forever");
        let directories = limiting_directories(leader);
        support::kill(support::keeper_of(&state)).await;
        owner.kill();
        // Whoever killed the keeper has left it running.
        support::kill(leader).await;
        leader.wait_until_gone().await;

        let environment = support::open(&state, LONG_TTL).await.expect("the state folder can be opened");
        let keeper = support::keeper_of(&state);
        assert!(!directories.iter().any(|directory| directory.exists()), "{directories:?}");
        support::shut_down(environment, keeper).await;
    });
}
