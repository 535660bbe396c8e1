//! Commands over pipes, as the model asks for them.

use exec_testkit::semaphore::FifoSemaphore;
use serde_json::json;

use super::agent::Agent;
use super::report::{CommandState, Report, exited};

/// What the client keeps of a command's output: half a mebibyte from its beginning, half from its end.
pub(super) const KEPT_BYTES: u64 = 1 << 20;
/// The shortest time a tool waits, for a command that is not expected to end.
const BRIEFLY_MS: u64 = 250;
/// The shortest time a poll waits.
const POLL_MS: u64 = 5000;

pub(super) async fn a_command_over_pipes_tells_its_output_and_exit_code(agent: &mut Agent) {
    assert_eq!(agent.run("echo hello; exit 3").await, exited(3, "hello\n"));
    assert_eq!(agent.run("printf 'no end'").await, exited(0, "no end"));
    assert_eq!(agent.run("kill -KILL $$").await, exited(137, ""));
}

pub(super) async fn both_streams_of_a_command_arrive(agent: &mut Agent) {
    // They are two pipes, so only their bytes are certain, not which came first.
    let Report { state, output } = agent.run("echo out; echo err >&2").await;
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!((state, lines), (CommandState::Exited(0), vec!["err", "out"]));
}

pub(super) async fn a_command_runs_where_it_is_told_to(agent: &mut Agent) {
    let (work, inner) = (agent.path(""), agent.path("inner"));
    std::fs::create_dir(&inner).expect("the working directory is ours");
    let work = work.to_str().expect("test folders have plain names").trim_end_matches('/');
    assert_eq!(agent.run("pwd").await, exited(0, &format!("{work}\n")));
    let [report] = agent.exec([json!({"cmd": "pwd", "workdir": "inner"})]).await;
    assert_eq!(report, exited(0, &format!("{}\n", inner.display())));
}

pub(super) async fn three_megabytes_are_counted_to_the_last_byte(agent: &mut Agent) {
    let report = agent.run("seq 1 450000").await;
    assert_whole_count(&report, 450_000);
}

pub(super) async fn a_command_that_goes_on_is_polled_to_its_end(agent: &mut Agent) {
    let semaphore = FifoSemaphore::new(agent.path("semaphore"));
    let command = "echo early; head -c 1 semaphore >/dev/null; echo late; exit 4";
    let [report] = agent.exec([json!({"cmd": command, "yield_time_ms": BRIEFLY_MS})]).await;
    let session = report.session();
    semaphore.release();
    let rest = agent.poll_to_the_end(session, report.output).await;
    assert_eq!(rest, exited(4, "early\nlate\n"));
}

pub(super) async fn an_interrupt_reaches_a_command_over_pipes(agent: &mut Agent) {
    let command = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    let [report] = agent.exec([json!({"cmd": command, "yield_time_ms": BRIEFLY_MS})]).await;
    let session = report.session();
    let ready = agent.poll_until(session, report.output, "ready\n").await;
    assert_eq!(ready, "ready\n");
    let report = agent.write(session, "\u{3}", POLL_MS).await;
    let end = match report.state {
        CommandState::Exited(_) => report,
        CommandState::Running(_) => agent.poll_to_the_end(session, report.output).await,
    };
    assert_eq!(end, exited(7, "caught\n"));
}

pub(super) async fn two_commands_run_side_by_side(agent: &mut Agent) {
    // Each waits for a line of the other, so neither ends unless both run.
    let _fifos = [FifoSemaphore::new(agent.path("to-second")), FifoSemaphore::new(agent.path("to-first"))];
    let first = "echo one >to-second; read -r word <to-first; echo first heard $word";
    let second = "read -r word <to-second; echo second heard $word; echo two >to-first";
    let reports = agent.exec([json!({"cmd": first}), json!({"cmd": second})]).await;
    assert_eq!(reports, [exited(0, "first heard two\n"), exited(0, "second heard one\n")]);
}

impl Agent {
    /// Polls until the command has ended; all its output since `before`.
    pub(super) async fn poll_to_the_end(&mut self, session: u64, before: String) -> Report {
        let mut output = before;
        loop {
            let report = self.write(session, "", POLL_MS).await;
            output += &report.output;
            if let CommandState::Exited(_) = report.state {
                return Report { output, ..report };
            }
        }
    }

    /// Polls until the command, which goes on, has printed `text`; all its output since `before`.
    pub(super) async fn poll_until(&mut self, session: u64, before: String, text: &str) -> String {
        let mut output = before;
        while !output.contains(text) {
            let report = self.write(session, "", POLL_MS).await;
            report.session();
            output += &report.output;
        }
        output
    }
}

/// Checks the report of `seq 1 LAST`, which prints more than the client keeps: it begins and ends as it must, and the
/// count of omitted bytes makes it whole.
pub(super) fn assert_whole_count(report: &Report, last: u64) {
    assert_eq!(report.state, CommandState::Exited(0));
    let printed: u64 = (1..=last).map(|number| u64::from(number.ilog10()) + 2).sum();
    assert_eq!(report.omitted_bytes() + KEPT_BYTES, printed, "every byte has arrived");
    assert!(report.output.contains("\n1\n2\n3\n4\n"), "the beginning is there");
    assert!(report.output.ends_with(&format!("\n{}\n{last}\n", last - 1)), "the end is there");
}
