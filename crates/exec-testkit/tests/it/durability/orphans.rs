//! A keeper without an owner ends its process trees after a while, then itself, and leaves nothing behind.

use std::time::Duration;

use exec_env::Environment;
use exec_testkit::os_process::eventually;

use super::support::{self, LONG_TTL};

const SHORT_TTL: Duration = Duration::from_millis(300);

#[test]
fn without_an_owner_for_its_time_the_keeper_ends_every_tree_and_itself() {
    support::run(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let (env, environment) = support::test_environment(state.path(), SHORT_TTL).await;
        let mut gone = Vec::new();
        for kind in ["fork", "setsid", "nohup", "double-fork", "daemonise"] {
            let script = format!("ignore-term ; {kind} [ ignore-term ; wait-forever ] ; wait-forever");
            let process = env.start(kind, &script).await;
            gone.push(process.os_process());
            gone.push(process.reader().await.wait_for_descendant().await);
        }
        // One whose leader has ended already: only its descendant is left to end.
        let survivor = env.start("survivor", "setsid [ wait-forever ] ; exit 0").await;
        gone.push(survivor.reader().await.wait_for_descendant().await);
        survivor.exit().await;
        let keeper = support::keeper_of(state.path());
        let cgroup = support::cgroup_directory(gone[0].pid);

        support::into_environment(env, environment).hand_over().await;
        // It is a child of this process, which does not reap it; so it may stay in the table as a zombie.
        eventually("the keeper ends", || !keeper.is_alive()).await;
        for process in gone {
            process.wait_until_gone().await;
        }
        if let Some(cgroup) = cgroup {
            eventually("its cgroups are gone", || !cgroup.exists()).await;
        }
        let environment = support::open(state.path(), LONG_TTL).await.expect("the folder is free again");
        assert_eq!(environment.processes().list().await, Ok(Vec::new()));
        let keeper = support::keeper_of(state.path());
        support::shut_down(environment, keeper).await;
        let left: Vec<_> =
            std::fs::read_dir(state.path()).expect("it is ours").flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().contains("spool")), "{left:?}");
    });
}

#[test]
fn an_owner_that_comes_back_in_time_stops_the_clock() {
    support::run(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let (env, environment) = support::test_environment(state.path(), SHORT_TTL).await;
        let leader = env.start("p", "wait-forever").await.os_process();
        let keeper = support::keeper_of(state.path());
        support::into_environment(env, environment).hand_over().await;
        let environment = support::open(state.path(), SHORT_TTL).await.expect("the keeper still waits");
        // not a wait: what must not happen sends no event; the keeper would not have waited so long without an owner
        tokio::time::sleep(SHORT_TTL * 2).await;
        assert!(keeper.is_alive() && leader.is_alive());
        support::shut_down(environment, keeper).await;
        leader.wait_until_gone().await;
    });
}
