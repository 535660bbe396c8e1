//! What these tests share: an owner in a process of its own, the keeper of a state directory, a deadline.

use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use exec_env::Processes;
use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions, OpenError};
use exec_testkit::TestEnvironment;
use exec_testkit::checked_log::CheckedLog;
use exec_testkit::os_process::{OsProcess, eventually};
use exec_testkit::process::LogReader;
use exec_testkit::runner::run_test;
use exec_testkit::test_environment::process_id;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::environments::{ACTOR, keeper_program};

/// Longest time one of these tests may take on a loaded machine. One that needs it has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(150);
/// Longer than any test: a keeper that is not meant to end by itself. Short enough that a failed test leaves nothing.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(300);
/// Enough for everything but the volume test.
pub(crate) const SPOOL_BYTES: u64 = 256 << 20;

pub(crate) fn run(test: impl Future<Output = ()>) {
    run_for(DEADLINE, test);
}

pub(crate) fn run_for(deadline: Duration, test: impl Future<Output = ()>) {
    run_test("the test", deadline, Box::pin(test));
}

/// An owner that can be killed.
pub(crate) struct OwnerProcess {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// What was read of stdout and not yet returned.
    unread: Vec<u8>,
}

impl OwnerProcess {
    /// Its first line tells whether it has opened the state directory.
    pub(crate) fn durable(state: &Path, orphan_ttl: Duration, spool_bytes: u64) -> Self {
        Self::durable_after(":", state, orphan_ttl, spool_bytes)
    }

    /// The same, started by a shell after this command.
    pub(crate) fn durable_after(before: &str, state: &Path, orphan_ttl: Duration, spool_bytes: u64) -> Self {
        let keeper = keeper_program().program;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{before} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_owner")]);
        command.arg("durable").arg(state).arg(keeper);
        Self::spawn(command.arg(orphan_ttl.as_millis().to_string()).arg(spool_bytes.to_string()))
    }

    /// Its keeper is one of its threads.
    pub(crate) fn embedded() -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_owner")).arg("embedded"))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the owner was built with this test");
        let stdin = child.stdin.take().expect("it was asked for");
        let stdout = child.stdout.take().expect("it was asked for");
        Self { child, stdin, stdout, unread: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("the owner reads");
    }

    pub(crate) fn read_line(&mut self) -> String {
        self.next_line().expect("the owner prints a line before it ends")
    }

    /// Reads the next line, which must begin so; returns the rest of it.
    pub(crate) fn expect(&mut self, beginning: &str) -> String {
        let line = self.read_line();
        let rest = line.strip_prefix(beginning);
        rest.unwrap_or_else(|| panic!("the owner should print {beginning:?}, not {line:?}")).trim_start().to_owned()
    }

    fn next_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut ready = [PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(DEADLINE).expect("a few minutes fit");
            let count = poll(&mut ready, Some(&timeout)).expect("a pipe can be waited for");
            assert!(count > 0, "the owner printed nothing for {DEADLINE:?}");
            let mut block = [0; 4096];
            match self.stdout.read(&mut block).expect("a pipe can be read") {
                0 => return None,
                count => self.unread.extend_from_slice(&block[..count]),
            }
        }
    }

    /// `kill -9`. When this returns, the kernel has closed everything it held.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is our child and not waited for");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for OwnerProcess {
    fn drop(&mut self) {
        // A test that failed leaves no owner behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn options(state: &Path, orphan_ttl: Duration) -> LocalOptions {
    let keeper = KeeperChoice::Durable { program: keeper_program(), state: state.into(), orphan_ttl };
    LocalOptions { keeper, ..LocalOptions::default() }
}

/// Makes this process the owner of a state directory.
pub(crate) async fn open(state: &Path, orphan_ttl: Duration) -> Result<LocalEnvironment, OpenError> {
    LocalEnvironment::open(options(state, orphan_ttl)).await
}

/// A test environment on a state directory, and the environment itself, to be handed over or ended.
pub(crate) async fn test_environment(state: &Path, orphan_ttl: Duration) -> (TestEnvironment, Arc<LocalEnvironment>) {
    let environment = Arc::new(open(state, orphan_ttl).await.expect("the state folder can be opened"));
    (TestEnvironment::new(environment.clone(), ACTOR), environment)
}

/// Drops the test environment; its environment remains.
pub(crate) fn into_environment(env: TestEnvironment, environment: Arc<LocalEnvironment>) -> LocalEnvironment {
    drop(env);
    Arc::into_inner(environment).expect("the test environment had the only other handle")
}

/// The keeper process of a state directory.
pub(crate) fn keeper_of(state: &Path) -> OsProcess {
    find_keeper(state).expect("the state directory has a keeper")
}

pub(crate) fn find_keeper(state: &Path) -> Option<OsProcess> {
    let listed = std::fs::read_dir("/proc").expect("there is a process table").flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let state = state.to_str().expect("test folders have plain names");
    let serves = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        args.windows(2).any(|pair| pair[0] == b"--folder" && pair[1] == state.as_bytes())
    };
    let mut found = pids.filter(serves).filter_map(OsProcess::of).filter(OsProcess::is_alive);
    let keeper = found.next();
    assert_eq!(found.next(), None, "it has one keeper");
    keeper
}

/// Kills a process that is not our child, and waits until it is dead.
pub(crate) async fn kill(victim: OsProcess) {
    victim.signal(Signal::KILL);
    eventually(&format!("process {} is dead", victim.pid), || !victim.is_alive()).await;
}

pub(crate) async fn read_log(processes: &dyn Processes, id: &str) -> CheckedLog {
    LogReader::open(processes, &process_id(id), 0).await.read_to_end().await
}

/// A number from the environment, for whoever wants more or less than is usual.
pub(crate) fn number_from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

/// The directory in the cgroup hierarchy that holds the process trees of the keeper of this process, if it has one.
pub(crate) fn cgroup_directory(member: u32) -> Option<std::path::PathBuf> {
    let own = std::fs::read_to_string(format!("/proc/{member}/cgroup")).ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let keeper = own.split('/').find(|name| name.starts_with("exec-server-"))?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
    let above = own.split(keeper).next()?;
    Some(Path::new(mount).join(above.trim_start_matches('/')).join(keeper))
}

/// Ends the environment and checks that its keeper ends.
pub(crate) async fn shut_down(environment: LocalEnvironment, keeper: OsProcess) {
    environment.end().await;
    eventually("the keeper ends when it is told to", || !keeper.is_alive()).await;
}
