//! What it costs to look at a process on our server: views of a long log beside `rg` over the same bytes, the screen of a
//! long recording beside the bare engine, and observers of a flood.
//!
//! `cargo xtask bench views`. All that is compared takes turns in one run, and medians are compared, as ratios. Where the machine
//! is busy, the time of the processors tells more than that of the clock, so both are printed.

mod grep;
mod observers;
mod screens;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_client::{Options, RemoteEnvironment, Role, TargetDial};
use exec_env::Environment;
use exec_env::process::WaitCondition;
use exec_testkit::binaries;
use exec_testkit::test_environment::process_id;
use exec_transport::ConnectOptions;
use tempfile::TempDir;

#[tokio::main]
async fn main() {
    // Some of them only, if there are names; cargo adds options of its own.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    if is_chosen("grep") {
        grep::measure().await;
    }
    if is_chosen("screens") {
        screens::measure().await;
    }
    if is_chosen("observers") {
        observers::measure().await;
    }
}

/// A server of its own for each comparison, without a state directory, so that its processes end with it.
struct Server {
    child: Child,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(binaries::exec_server());
        command.args(["serve", "--workers", "2", "--listen"]).arg(listen(&folder)).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server is there");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        std::io::BufReader::new(stdout).read_line(&mut url).expect("it prints its URL");
        assert!(!url.is_empty(), "the server starts");
        Self { child, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    async fn driver(&self) -> RemoteEnvironment {
        let target = listen(&self.folder).parse().expect("what is listened on can be connected to");
        let dial = Arc::new(TargetDial::new(target, ConnectOptions::default()));
        let options = Options { client_name: "bench".to_owned(), role: Some(Role::Driver), ..Options::default() };
        RemoteEnvironment::open(dial, options).await.expect("the server answers")
    }

    /// Runs a command to its end, so that its log is complete.
    async fn run(&self, environment: &RemoteEnvironment, name: &str, command: exec_core::Command) {
        let id = process_id(name);
        environment.processes().start(&id, command).await.expect("it starts");
        environment.processes().wait(&id, WaitCondition::Closed, None).await.expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(folder: &TempDir) -> String {
    format!("unix://{}", folder.path().join("socket").display())
}

/// What something took.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    wall: Duration,
    /// Of all processors; in steps of the kernel's ticks, so that only sums of many tell something.
    cpu: Duration,
}

/// Measures `work`, whose processor time `cpu` tells.
async fn measured<T>(cpu: impl Fn() -> Duration, work: impl Future<Output = T>) -> (T, Cost) {
    let (before, begun) = (cpu(), Instant::now());
    let done = work.await;
    let wall = begun.elapsed();
    (done, Cost { wall, cpu: cpu() - before })
}

/// The median of the clock, and the mean of the processors, whose ticks are coarse.
fn middle(costs: &[Cost]) -> Cost {
    let wall = exec_testkit::observers::median(costs.iter().map(|cost| cost.wall).collect());
    Cost { wall, cpu: costs.iter().map(|cost| cost.cpu).sum::<Duration>() / costs.len() as u32 }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn ratio(ours: Duration, other: Duration) -> f64 {
    ours.as_secs_f64() / other.as_secs_f64().max(1e-9)
}
