//! Commands on a terminal, and what is typed into them.

use serde_json::json;

use super::agent::Agent;
use super::report::{CommandState, exited};

/// Time for a shell to answer what was typed; if it takes longer, it is polled.
pub(super) const ANSWER_MS: u64 = 500;

pub(super) async fn a_command_on_a_terminal_knows_it(agent: &mut Agent) {
    let command = "test -t 0 && test -t 1 && test -t 2 && stty size; exit 5";
    let [report] = agent.exec([json!({"cmd": command, "tty": true})]).await;
    assert_eq!(report, exited(5, "24 80\r\n"));
}

pub(super) async fn a_shell_remembers_between_two_writes(agent: &mut Agent) {
    let session = agent.open_shell().await;
    agent.type_line(session, "number=41", "shell> ").await;
    let answer = agent.type_line(session, "echo [$((number + 1))]", "[42]").await;
    assert!(answer.contains("echo [$((number + 1))]"), "a terminal echoes what is typed: {answer:?}");
    agent.close_shell(session, 6).await;
}

pub(super) async fn an_interrupt_typed_into_a_terminal_leaves_the_shell(agent: &mut Agent) {
    let session = agent.open_shell().await;
    agent.type_line(session, "echo sta''rted; sleep 1000", "started").await;
    let report = agent.write(session, "\u{3}", ANSWER_MS).await;
    agent.poll_until(session, report.output, "shell> ").await;
    // The shell tells of whom it waited for: 128 and the number of the interrupt.
    agent.type_line(session, "echo [$?]", "[130]").await;
    agent.close_shell(session, 0).await;
}

impl Agent {
    /// A shell on a terminal that has shown its prompt, `shell> `.
    pub(super) async fn open_shell(&mut self) -> u64 {
        let command = json!({"cmd": "PS1='shell> ' exec sh -i", "tty": true, "yield_time_ms": ANSWER_MS});
        let [report] = self.exec([command]).await;
        let session = report.session();
        self.poll_until(session, report.output, "shell> ").await;
        session
    }

    /// Types a line and waits for the answer.
    pub(super) async fn type_line(&mut self, session: u64, line: &str, answer: &str) -> String {
        let report = self.write(session, &format!("{line}\n"), ANSWER_MS).await;
        assert_eq!(report.state, CommandState::Running(session), "the shell goes on: {report:?}");
        self.poll_until(session, report.output, answer).await
    }

    /// Leaves the shell with this code.
    pub(super) async fn close_shell(&mut self, session: u64, code: i32) {
        let report = self.write(session, &format!("exit {code}\n"), ANSWER_MS).await;
        let state = match report.state {
            CommandState::Exited(_) => report.state,
            CommandState::Running(_) => self.poll_to_the_end(session, report.output).await.state,
        };
        assert_eq!(state, CommandState::Exited(code));
    }
}
