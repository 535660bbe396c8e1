//! The environment under test, with all that a behaviour needs beside it: the actor, a scratch directory, guards.

use std::any::Any;
use std::path::{Path, PathBuf};

use exec_core::{Command, Environ, Io, ProcessId, WriteId};
use exec_env::{Processes, SharedEnvironment};
use tempfile::TempDir;

use crate::checked_log::CheckedLog;
use crate::process::TestProcess;
use crate::semaphore::FifoSemaphore;

pub struct TestEnvironment {
    pub environment: SharedEnvironment,
    /// The child for all tests: the binary `actor`.
    pub actor: PathBuf,
    scratch: TempDir,
    /// Kept until the environment is gone: a state directory, a server's tasks.
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl TestEnvironment {
    /// `actor` is the path of that binary as the processes of `environment` see it.
    pub fn new(environment: SharedEnvironment, actor: impl Into<PathBuf>) -> Self {
        Self {
            environment,
            actor: actor.into(),
            scratch: tempfile::tempdir().expect("a test needs a temporary directory"),
            guards: Vec::new(),
        }
    }

    /// Keeps `guard` alive until the test is over.
    #[must_use]
    pub fn keep(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }

    pub fn processes(&self) -> &dyn Processes {
        self.environment.processes()
    }

    /// A directory for this test alone, without symbolic links in its path.
    pub fn scratch(&self) -> PathBuf {
        std::fs::canonicalize(self.scratch.path()).expect("it exists as long as the test environment")
    }

    pub fn semaphore(&self, name: &str) -> FifoSemaphore {
        FifoSemaphore::new(self.scratch().join(name))
    }

    /// The actor with this script, split at spaces: pipes, no stdin, no environment variables, in the scratch
    /// directory.
    pub fn command(&self, script: &str) -> Command {
        self.command_for(&self.actor, script)
    }

    /// Like [`Self::command`], but with another program, or the actor by another name.
    pub fn command_for(&self, program: &Path, script: &str) -> Command {
        let words = script.split_whitespace().map(Into::into);
        let argv: Vec<std::ffi::OsString> = std::iter::once(program.into()).chain(words).collect();
        Command { environ: Environ::default(), ..Command::new(argv, self.scratch()) }
    }

    /// Starts an actor without stdin.
    pub async fn start(&self, name: &str, script: &str) -> TestProcess<'_> {
        self.start_command(name, self.command(script)).await
    }

    /// Starts an actor whose stdin can be written.
    pub async fn start_with_stdin(&self, name: &str, script: &str) -> TestProcess<'_> {
        let mut command = self.command(script);
        command.io = Io::Pipes { stdin: true };
        self.start_command(name, command).await
    }

    /// Starts an actor on a terminal of 24 rows and 80 columns.
    pub async fn start_on_terminal(&self, name: &str, script: &str) -> TestProcess<'_> {
        let mut command = self.command(script);
        command.io = Io::Pty(exec_core::TerminalSize::default());
        self.start_command(name, command).await
    }

    /// Starts a command that must start.
    pub async fn start_command(&self, name: &str, command: Command) -> TestProcess<'_> {
        let id = process_id(name);
        match self.processes().start(&id, command).await {
            Ok(started) => TestProcess::new(self, id, started.pid),
            Err(error) => panic!("{name} must start, but: {error}"),
        }
    }

    /// Starts an actor and reads its whole log.
    pub async fn run(&self, name: &str, script: &str) -> CheckedLog {
        self.start(name, script).await.read_to_end().await
    }

    /// Forgets every process, which ends it, so that nothing outlives the test.
    pub async fn forget_all(&self) {
        let listed = self.processes().list().await.expect("the list is there");
        for process in listed {
            let forgotten = self.processes().forget(&process.id).await;
            assert_eq!(forgotten, Ok(()), "{} must be forgotten", process.id);
        }
    }
}

pub fn process_id(name: &str) -> ProcessId {
    ProcessId::new(name).expect("names in tests are short")
}

pub fn write_id(key: &str) -> WriteId {
    WriteId::new(key).expect("keys in tests are short and not empty")
}
