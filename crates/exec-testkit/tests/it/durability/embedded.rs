//! A program whose keeper is a thread is killed: none of its processes outlives it for long.

use exec_core::{Command, ExitCause, ProcessId};
use exec_env::Environment;
use exec_local::{LocalEnvironment, LocalOptions};
use exec_testkit::os_process::{OsProcess, eventually};

use super::support::{self, OwnerProcess};
use crate::environments::ACTOR;

#[test]
fn what_a_killed_host_leaves_dies_with_it_or_at_the_next_keepers_start() {
    support::run(async {
        let mut host = OwnerProcess::embedded();
        host.expect("open");
        host.send(&format!("start p pipes {ACTOR} ignore-term ; setsid [ ignore-term ; wait-forever ] ; wait-forever"));
        let leader = host.expect("started p").parse().ok().and_then(OsProcess::of).expect("the leader runs");
        host.send("match p pid.[0-9]+");
        let runaway = OsProcess::from_pid_line(&host.expect("matched p")).expect("the descendant runs");
        let cgroup = support::cgroup_directory(runaway.pid);
        host.kill();
        leader.wait_until_gone().await;
        let Some(cgroup) = cgroup else {
            println!("skipped the rest: without cgroups nobody can find {} any more", runaway.pid);
            support::kill(runaway).await;
            return;
        };
        // The next keeper cleans up, even if it belongs to another program.
        next_keeper().await;
        runaway.wait_until_gone().await;
        // That keeper may have looked before the process was gone; then the next one removes the cgroup.
        next_keeper().await;
        eventually("the cgroups of the dead host are gone", || !cgroup.exists()).await;
    });
}

/// Whoever reads along, an audit for example, must be able to tell that from the death of a keeper.
#[test]
fn what_runs_when_an_environment_is_ended_is_told_as_terminated() {
    support::run(async {
        let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
        let mut logs = Vec::new();
        for number in 0..3 {
            let id = ProcessId::new(format!("p{number}")).expect("it is a good id");
            let words: [std::ffi::OsString; 4] = [ACTOR, "ignore-term", ";", "wait-forever"].map(Into::into);
            let command = Command::new(words.to_vec(), std::env::temp_dir());
            environment.processes().start(&id, command).await.expect("it starts");
            logs.push(environment.processes().follow(&id, 0).await.expect("it is known"));
        }
        environment.end().await;
        for mut log in logs {
            let mut exit = None;
            while let Some(page) = log.next(1 << 16).await.expect("the log can be read") {
                exit = exit.or(page.head.exit.map(|(_, exit)| exit.cause));
            }
            assert_eq!(exit, Some(ExitCause::Terminated));
        }
    });
}

async fn next_keeper() {
    let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
    assert_eq!(environment.processes().list().await, Ok(Vec::new()));
    environment.end().await;
}
