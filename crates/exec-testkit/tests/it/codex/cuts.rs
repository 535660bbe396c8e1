//! A connection that breaks while commands run, which the model must not notice.

use std::path::Path;

use exec_testkit::os_process::eventually;
use exec_testkit::proxy::Counts;
use exec_testkit::semaphore::FifoSemaphore;

use super::agent::Agent;
use super::commands::assert_whole_count;
use super::report::{Report, exited};

pub(super) async fn a_command_outlives_a_cut_and_loses_nothing(agent: &mut Agent) {
    let semaphore = FifoSemaphore::new(agent.path("semaphore"));
    let command = "echo before; touch started; head -c 1 semaphore >/dev/null; seq 1 2000; echo after; exit 5";
    let call = begin(agent, command).await;
    agent.proxy.cut();
    agent.proxy.wait_until(|counts| counts.connections >= 2).await;
    semaphore.release();
    let report = agent.report_of(&call).await;
    let counted: String = (1..=2000).map(|number| format!("{number}\n")).collect();
    assert_eq!(report, exited(5, &format!("before\n{counted}after\n")));
}

pub(super) async fn output_printed_while_nobody_was_connected_arrives(agent: &mut Agent) {
    let report = run_during_outage(agent, "echo meanwhile; echo {a..e}").await;
    assert_eq!(report, exited(0, "meanwhile\na b c d e\n"));
}

/// Codex's own server keeps 1 MiB of output, and its client gives up a process that has printed more.
pub(super) async fn megabytes_printed_while_nobody_was_connected_are_counted_to_the_last_byte(agent: &mut Agent) {
    let report = run_during_outage(agent, "seq 1 1000000").await;
    assert_whole_count(&report, 1_000_000);
}

pub(super) async fn a_shell_takes_input_after_a_cut(agent: &mut Agent) {
    let session = agent.open_shell().await;
    agent.type_line(session, "number=41", "shell> ").await;
    agent.proxy.cut();
    agent.type_line(session, "echo [$((number + 1))]", "[42]").await;
    agent.close_shell(session, 6).await;
    assert!(agent.proxy.counts().connections >= 2, "there was a cut");
}

/// Live output must not overtake the client's reading of what it has missed: it holds little out of order (WIRE A.1).
pub(super) async fn a_flood_survives_cut_after_cut(agent: &mut Agent) {
    // In the middle of live output; then twice in the middle of the page with which the client catches up.
    const CUT_AFTER_BYTES: [u64; 3] = [1 << 20, 64 << 10, 2 << 20];
    let call = agent.begin_command("seq 1 1000000");
    for (connections, bytes) in (1..).zip(CUT_AFTER_BYTES) {
        let before = agent.proxy.counts().answered_bytes;
        let enough = |counts: &Counts| counts.connections >= connections && counts.answered_bytes > before + bytes;
        agent.proxy.wait_until(enough).await;
        agent.proxy.cut();
    }
    let report = agent.report_of(&call).await;
    assert_whole_count(&report, 1_000_000);
}

/// Runs a command that prints all it has while Codex cannot reach the server, and ends.
async fn run_during_outage(agent: &mut Agent, command: &str) -> Report {
    let semaphore = FifoSemaphore::new(agent.path("semaphore"));
    let call = begin(agent, &format!("touch started; head -c 1 semaphore >/dev/null; {command}; touch done")).await;
    agent.proxy.block();
    semaphore.release();
    wait_until_exists(&agent.path("done")).await;
    agent.proxy.unblock();
    agent.report_of(&call).await
}

/// Returns when the command has made the file `started`, and Codex has the answer to its start: Codex does not ask for a start
/// again, so a cut before that is the end of it.
async fn begin(agent: &mut Agent, command: &str) -> String {
    let before = agent.proxy.counts().answered_starts;
    let call = agent.begin_command(command);
    agent.proxy.wait_until(|counts| counts.answered_starts > before).await;
    wait_until_exists(&agent.path("started")).await;
    call
}

async fn wait_until_exists(path: &Path) {
    eventually(&format!("{} appears", path.display()), || path.exists()).await;
}
