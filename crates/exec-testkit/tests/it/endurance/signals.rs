//! A signal on its way when the daemon is killed: it is sent once, whoever asks again.

use exec_core::{Command, Signal};
use exec_env::Environment;
use exec_env::process::Signalled;
use exec_testkit::process::LogReader;
use exec_testkit::test_environment::process_id;

use super::daemon::Daemon;
use super::{DEADLINE, connected};
use crate::durability::support::{keeper_of, run_for};
use crate::environments::ACTOR;

const SCRIPT: &str = "tell-term told ; on-int done ; say ready ; wait-forever";

/// The keeper is stopped until the daemon is dead, so the daemon has asked and cannot have heard the answer.
#[test]
fn a_signal_whose_daemon_is_killed_before_the_answer_is_sent_once() {
    run_for(DEADLINE, async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut daemon = Daemon::with_state(folder.path());
        let environment = connected(daemon.target()).await;
        let (processes, id) = (environment.processes(), process_id("p"));
        let command = Command::new([ACTOR].into_iter().chain(SCRIPT.split(' ')), "/");
        processes.start(&id, command).await.expect("the actor is there");
        let mut reader = LogReader::open(processes, &id, 0).await;
        reader.wait_for_line("ready").await;
        for round in 1..=5 {
            let keeper = keeper_of(&folder.path().join("state"));
            keeper.signal(rustix::process::Signal::STOP);
            let kill = async {
                // Answered after the signal was passed on, because requests begin in the order in which they came.
                processes.list().await.expect("the daemon answers");
                daemon.kill();
                keeper.signal(rustix::process::Signal::CONT);
                daemon.restart();
            };
            let (signalled, ()) = tokio::join!(processes.signal(&id, Signal::Terminate), kill);
            assert_eq!(signalled, Ok(Signalled::Sent));
            reader.read_until("told", |seen| seen.stdout().matches("told\n").count() >= round).await;
        }
        assert_eq!(processes.signal(&id, Signal::Interrupt).await, Ok(Signalled::Sent));
        let log = reader.read_to_end().await;
        assert_eq!(log.stdout(), format!("ready\n{}done\n", "told\n".repeat(5)));
        environment.close().await;
        daemon.shut_down().await;
    });
}
