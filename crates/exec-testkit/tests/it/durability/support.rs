//! What the tests about death share: an owner in a process of its own, the keeper of a state folder, a deadline.

use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use exec_env::Processes;
use exec_local::{KeeperChoice, LocalEnvironment, OpenError, LocalOptions};
use exec_testkit::Bench;
use exec_testkit::bench::process_id;
use exec_testkit::transcript::Transcript;
use exec_testkit::witness::{Witness, eventually};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::environments::{ACTOR, keeper_program};

/// Longest time one of these tests may take on a loaded machine. One that needs it has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(150);
/// Longer than any test: a keeper that is not meant to end by itself. Short enough that a failed test leaves nothing.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(300);
/// Enough for everything but the volume test.
pub(crate) const SPOOL_BYTES: u64 = 256 << 20;

/// Runs one test inside a runtime and its deadline.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_for(DEADLINE, test);
}

/// The same with another deadline.
pub(crate) fn run_for(deadline: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a test can make a runtime");
    let verdict = runtime.block_on(async { tokio::time::timeout(deadline, test).await });
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(verdict.is_ok(), "not over after {deadline:?}");
}

/// An owner that can be killed.
pub(crate) struct OwnerProcess {
    child: Child,
    orders: ChildStdin,
    answers: ChildStdout,
    heard: Vec<u8>,
}

impl OwnerProcess {
    /// One that will have opened the state folder, or failed to, when it says its first line.
    pub(crate) fn of(state: &Path, orphan_ttl: Duration, spool_bytes: u64) -> Self {
        let keeper = keeper_program().program;
        let mut command = Command::new(env!("CARGO_BIN_EXE_owner"));
        command.arg("durable").arg(state).arg(keeper);
        Self::spawn(command.arg(orphan_ttl.as_millis().to_string()).arg(spool_bytes.to_string()))
    }

    /// One that carries its keeper itself.
    pub(crate) fn embedded() -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_owner")).arg("embedded"))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the owner was built with this test");
        let orders = child.stdin.take().expect("it was asked for");
        let answers = child.stdout.take().expect("it was asked for");
        Self { child, orders, answers, heard: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order.
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the owner listens");
    }

    /// Its next line.
    pub(crate) fn line(&mut self) -> String {
        self.next_line().expect("the owner says something before it ends")
    }

    /// The next line, which must begin so; what follows.
    pub(crate) fn expect(&mut self, beginning: &str) -> String {
        let line = self.line();
        let rest = line.strip_prefix(beginning);
        rest.unwrap_or_else(|| panic!("the owner should say {beginning:?}, not {line:?}")).trim_start().to_owned()
    }

    fn next_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut ready = [PollFd::from_borrowed_fd(self.answers.as_fd(), PollFlags::IN)];
            let patience = Timespec::try_from(DEADLINE).expect("a few minutes fit");
            let count = poll(&mut ready, Some(&patience)).expect("a pipe can be waited for");
            assert!(count > 0, "the owner said nothing for {DEADLINE:?}");
            let mut block = [0; 4096];
            match self.answers.read(&mut block).expect("a pipe can be read") {
                0 => return None,
                count => self.heard.extend_from_slice(&block[..count]),
            }
        }
    }

    /// Kills it where it stands. When this returns, the kernel has closed everything it held.
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

/// How this process opens a state folder.
pub(crate) fn options(state: &Path, orphan_ttl: Duration) -> LocalOptions {
    let keeper = KeeperChoice::Durable { program: keeper_program(), state: state.into(), orphan_ttl };
    LocalOptions { keeper, ..LocalOptions::default() }
}

/// This process as owner of a state folder.
pub(crate) async fn open(state: &Path, orphan_ttl: Duration) -> Result<LocalEnvironment, OpenError> {
    LocalEnvironment::open(options(state, orphan_ttl)).await
}

/// A bench on a state folder, and the environment itself, to be handed over or ended.
pub(crate) async fn bench(state: &Path, orphan_ttl: Duration) -> (Bench, Arc<LocalEnvironment>) {
    let environment = Arc::new(open(state, orphan_ttl).await.expect("the state folder can be opened"));
    (Bench::new(environment.clone(), ACTOR), environment)
}

/// Takes the environment back from a bench that is done.
pub(crate) fn take_back(bench: Bench, environment: Arc<LocalEnvironment>) -> LocalEnvironment {
    drop(bench);
    Arc::into_inner(environment).expect("the bench had the only other handle")
}

/// The keeper process of a state folder.
pub(crate) fn keeper_of(state: &Path) -> Witness {
    let listed = std::fs::read_dir("/proc").expect("there is a process table").flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let state = state.to_str().expect("test folders have plain names");
    let serves = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        args.windows(2).any(|pair| pair[0] == b"--folder" && pair[1] == state.as_bytes())
    };
    let mut found = pids.filter(serves).filter_map(Witness::of).filter(Witness::is_alive);
    let keeper = found.next().expect("the state folder has a keeper");
    assert_eq!(found.next(), None, "it has one keeper");
    keeper
}

/// Kills a process that is not our child, and waits until it can do nothing any more.
pub(crate) async fn kill(victim: Witness) {
    let pid = i32::try_from(victim.pid).ok().and_then(Pid::from_raw).expect("the kernel gave it");
    kill_process(pid, Signal::KILL).expect("it runs and is ours");
    eventually(&format!("process {} is dead", victim.pid), || !victim.is_alive()).await;
}

/// Reads a whole log, every promise of it checked.
pub(crate) async fn transcript(processes: &dyn Processes, id: &str) -> Transcript {
    let follow = processes.follow(&process_id(id), 0).await;
    let mut follow = follow.unwrap_or_else(|error| panic!("{id} can be followed: {error}"));
    let mut transcript = Transcript::new(0);
    while let Some(page) = follow.next(1 << 20).await.unwrap_or_else(|error| panic!("{id} can be read: {error}")) {
        transcript.absorb(page);
    }
    assert!(transcript.is_closed(), "the log of {id} ends with closed");
    transcript
}

/// The folder in the cgroup hierarchy that holds the trees of a process's keeper, if it has one.
pub(crate) fn cgroup_folder(member: u32) -> Option<std::path::PathBuf> {
    let own = std::fs::read_to_string(format!("/proc/{member}/cgroup")).ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let keeper = own.split('/').find(|name| name.starts_with("exec-server-"))?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
    let above = own.split(keeper).next()?;
    Some(Path::new(mount).join(above.trim_start_matches('/')).join(keeper))
}

/// Ends everything and sees that the keeper is gone.
pub(crate) async fn end(environment: LocalEnvironment, keeper: Witness) {
    environment.end().await;
    eventually("the keeper ends when it is told to", || !keeper.is_alive()).await;
}
