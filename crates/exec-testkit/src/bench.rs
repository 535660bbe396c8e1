//! Where a behaviour is tried: an environment, the actor, and a folder of its own.

use std::any::Any;
use std::path::{Path, PathBuf};

use exec_core::{Command, Environ, Io, ProcessId, WriteId};
use exec_env::{Processes, SharedEnvironment};
use tempfile::TempDir;

use crate::gate::Gate;
use crate::process::Process;
use crate::transcript::Transcript;

/// An environment under judgement.
pub struct Bench {
    /// What is judged.
    pub environment: SharedEnvironment,
    /// The child for all tests: the binary `actor`.
    pub actor: PathBuf,
    scratch: TempDir,
    /// Kept until the environment is gone: a state folder, a server's task.
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl Bench {
    /// A bench for `environment`, whose processes can see the file `actor`.
    pub fn new(environment: SharedEnvironment, actor: impl Into<PathBuf>) -> Self {
        Self {
            environment,
            actor: actor.into(),
            scratch: tempfile::tempdir().expect("a test needs a temporary folder"),
            guards: Vec::new(),
        }
    }

    /// Keeps `guard` alive until the test is over.
    #[must_use]
    pub fn keep(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }

    /// What it runs.
    pub fn processes(&self) -> &dyn Processes {
        self.environment.processes()
    }

    /// A folder for this test alone, without symbolic links in its path.
    pub fn scratch(&self) -> PathBuf {
        std::fs::canonicalize(self.scratch.path()).expect("it exists as long as the bench")
    }

    /// A closed gate.
    pub fn gate(&self, name: &str) -> Gate {
        Gate::new(self.scratch().join(name))
    }

    /// The actor with this script, cut at spaces: pipes, no stdin, an empty environment, in the scratch folder.
    pub fn command(&self, script: &str) -> Command {
        self.command_of(&self.actor, script)
    }

    /// Like [`Self::command`], but by another name of the actor.
    pub fn command_of(&self, program: &Path, script: &str) -> Command {
        let words = script.split_whitespace().map(Into::into);
        let argv: Vec<std::ffi::OsString> = std::iter::once(program.into()).chain(words).collect();
        Command { environ: Environ::default(), ..Command::new(argv, self.scratch()) }
    }

    /// Starts an actor without stdin.
    pub async fn start(&self, name: &str, script: &str) -> Process<'_> {
        self.launch(name, self.command(script)).await
    }

    /// Starts an actor whose stdin can be written.
    pub async fn start_listening(&self, name: &str, script: &str) -> Process<'_> {
        let mut command = self.command(script);
        command.io = Io::Pipes { stdin: true };
        self.launch(name, command).await
    }

    /// Starts an actor on a terminal of the usual size.
    pub async fn start_on_terminal(&self, name: &str, script: &str) -> Process<'_> {
        let mut command = self.command(script);
        command.io = Io::Pty(exec_core::TerminalSize::default());
        self.launch(name, command).await
    }

    /// Starts a command that must start.
    pub async fn launch(&self, name: &str, command: Command) -> Process<'_> {
        let id = process_id(name);
        match self.processes().start(&id, command).await {
            Ok(started) => Process::new(self, id, started.pid),
            Err(error) => panic!("{name} must start, but: {error}"),
        }
    }

    /// Starts an actor and reads its whole log.
    pub async fn run(&self, name: &str, script: &str) -> Transcript {
        self.start(name, script).await.transcript().await
    }

    /// Ends and forgets everything, so that nothing outlives the test.
    pub(crate) async fn clear(&self) {
        let listed = self.processes().list().await.expect("the list is there");
        for process in listed {
            let forgotten = self.processes().forget(&process.id).await;
            assert_eq!(forgotten, Ok(()), "{} must be forgotten", process.id);
        }
    }
}

/// A process id from a short name.
pub fn process_id(name: &str) -> ProcessId {
    ProcessId::new(name).expect("names in tests are short")
}

/// A write id from a short key.
pub fn write_id(key: &str) -> WriteId {
    WriteId::new(key).expect("keys in tests are short and not empty")
}
