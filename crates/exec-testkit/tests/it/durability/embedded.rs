//! A program whose keeper is a thread is killed: none of its processes outlives it for long.

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

async fn next_keeper() {
    let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
    assert_eq!(environment.processes().list().await, Ok(Vec::new()));
    environment.end().await;
}
