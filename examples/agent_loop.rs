//! A tiny agent: a model asks for commands, one after another, and is shown what each of them printed.
//!
//! The model is a script here. Everything else is what a real agent needs: output as the model may see it (bounded),
//! exit codes, time limits that end the whole tree, errors as text to learn from. Give it a URL, and the same loop works
//! on another machine.
//!
//!     cargo run -p exec-server --example agent_loop [ws://HOST:PORT]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use exec_server::process::{ProcessReason, WaitCondition, Waited};
use exec_server::{Command, EntryBody, Environ, Environment, ExitCause, ProcessId, SharedEnvironment, TimeLimit};

/// How much of one command's output the model is shown, in bytes.
const SHOWN_BYTES: usize = 2_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let machine: SharedEnvironment = match std::env::args().nth(1) {
        Some(url) => Arc::new(exec_server::connect_url(&url).await?),
        None => Arc::new(exec_server::open_local().await?),
    };
    let mut model = ScriptedModel::default();
    let mut result = None;
    let mut turns = 0;
    while let Some(request) = model.next_command(result.as_ref()) {
        turns += 1;
        println!("model> {}", request.join(" "));
        let command_result = run(&*machine, &format!("turn-{turns}"), &request).await?;
        println!("{}[{}]", command_result.output, command_result.ending);
        result = Some(command_result);
    }
    println!("the model is content after {turns} commands");
    assert_eq!(turns, 5);
    Ok(())
}

/// What the model learns about a command.
struct CommandResult {
    output: String,
    ending: String,
}

/// Runs one command to its end. What a model can cause by a bad request is a result, not an error.
async fn run(machine: &dyn Environment, id: &str, argv: &[&str]) -> Result<CommandResult, Box<dyn Error>> {
    let processes = machine.processes();
    let id = ProcessId::new(id)?;
    let command = Command {
        environ: Environ::exactly([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("TERM", "dumb")]),
        time_limit: Some(TimeLimit { after: Duration::from_secs(1), grace: Duration::from_secs(1) }),
        ..Command::new(argv, machine.info().temp_dir.clone())
    };
    match processes.start(&id, command).await {
        Ok(_) => {}
        Err(error) if matches!(error.reason, ProcessReason::Unreachable(_)) => return Err(error.into()),
        Err(error) => return Ok(CommandResult { output: String::new(), ending: error.to_string() }),
    }

    // To the end of the log, and not only of the leader: what children print in the background belongs to it.
    let mut printed = Vec::new();
    let mut left_out = 0;
    let mut follower = processes.follow(&id, 0).await?;
    while let Some(page) = follower.next(SHOWN_BYTES).await? {
        for entry in page.entries {
            let EntryBody::Output { bytes, .. } = entry.body else { continue };
            let room = SHOWN_BYTES - printed.len();
            printed.extend_from_slice(&bytes[..bytes.len().min(room)]);
            left_out += bytes.len().saturating_sub(room);
        }
    }
    let mut output = String::from_utf8_lossy(&printed).into_owned();
    if left_out > 0 {
        output.push_str(&format!("\n({left_out} more bytes)\n"));
    }
    let Waited::Closed(exit) = processes.wait(&id, WaitCondition::Closed, None).await? else {
        return Err("the log was read to its end".into());
    };
    processes.forget(&id).await?;
    let ending = match exit.cause {
        ExitCause::TimedOut => "ended by its time limit".to_owned(),
        _ => format!("exit code {}", exit.shell_code()),
    };
    Ok(CommandResult { output, ending })
}

/// Stands for a language model: it looks at the last result and asks for the next command.
#[derive(Default)]
struct ScriptedModel {
    turn: usize,
}

impl ScriptedModel {
    fn next_command(&mut self, last: Option<&CommandResult>) -> Option<Vec<&'static str>> {
        self.turn += 1;
        let seen = |text: &str| last.is_some_and(|last| last.output.contains(text) || last.ending.contains(text));
        match self.turn {
            1 => Some(vec!["no-such-compiler", "main.c"]),
            2 if seen("was not found") => Some(vec!["sh", "-c", "echo tests failed >&2; exit 2"]),
            3 if seen("tests failed") && seen("exit code 2") => Some(vec!["sh", "-c", "echo hanging; sleep 1000"]),
            4 if seen("hanging") && seen("time limit") => Some(vec!["seq", "100000"]),
            5 if seen("more bytes") => Some(vec!["sh", "-c", "echo all tests pass"]),
            _ => None,
        }
    }
}
