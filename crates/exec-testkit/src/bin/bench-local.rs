//! What keeper, spool and log cost: starts and output, compared with a bare `posix_spawn` and pipe in the same run; and what a
//! sandbox, limits and another user add to a start.
//!
//! Rounds of both are interleaved, so that a noisy machine is noisy for both; medians are compared, as ratios.

use std::process::{Command as Bare, Stdio};
use std::time::{Duration, Instant};

use exec_core::sandbox::NetworkPolicy;
use exec_core::{Command, EntryBody, ProcessId, ResourceLimits, RunAs, SandboxPolicy};
use exec_env::Environment;
use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions};

/// Starts of one round. Few, so that what disturbs the machine for a moment disturbs both kinds.
const STARTS: usize = 10;
/// Rounds of each kind.
const ROUNDS: usize = 100;
/// Output of one throughput round.
const FLOOD_BYTES: usize = 512 << 20;
/// What the owner takes at a time, as a server does.
const PAGE_BYTES: usize = 256 << 10;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (name, keeper) in keepers() {
        runtime.block_on(async {
            let options = LocalOptions { keeper, spool_bytes: 2 << 30, ..LocalOptions::default() };
            let environment = LocalEnvironment::open(options).await.expect("this machine can be set up");
            spawn(name, &environment).await;
            confined_spawn(name, &environment).await;
            flood(name, &environment).await;
            environment.end().await;
        });
    }
}

fn keepers() -> Vec<(&'static str, KeeperChoice)> {
    let own = std::env::current_exe().expect("we run");
    let program =
        exec_keeper::start_keeper::KeeperProgram { program: own.with_file_name("test-keeper"), args: Vec::new() };
    let mut keepers = vec![("keeper thread", KeeperChoice::Thread)];
    if program.program.exists() {
        keepers.push(("keeper process", KeeperChoice::Process(program)));
    }
    keepers
}

async fn spawn(name: &str, environment: &LocalEnvironment) {
    let (mut bare, mut piped, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        bare.push(timed(STARTS, || bare_start(Stdio::null)));
        piped.push(timed(STARTS, || bare_start(Stdio::piped)));
        let begin = Instant::now();
        for start in 0..STARTS {
            our_start(environment, &format!("{round}-{start}"), Command::new(["/bin/true"], "/")).await;
        }
        ours.push(begin.elapsed() / STARTS as u32);
    }
    let (bare, piped, ours) = (median(bare), median(piped), median(ours));
    println!("spawn, {name}: start to closed of /bin/true");
    println!("  bare posix_spawn + wait           {:>8.0} µs", micros(bare));
    println!("  bare, with pipes read to the end  {:>8.0} µs", micros(piped));
    println!("  ours                              {:>8.0} µs", micros(ours));
    println!("  ratio ours / bare {:.2}, ours / bare with pipes {:.2}", ratio(ours, bare), ratio(ours, piped));
}

fn bare_start(stream: fn() -> Stdio) {
    let child = Bare::new("/bin/true").stdin(Stdio::null()).stdout(stream()).stderr(stream()).spawn();
    child.expect("/bin/true runs").wait_with_output().expect("it ends");
}

/// Each kind of start in turn.
async fn confined_spawn(name: &str, environment: &LocalEnvironment) {
    let kinds = confined_commands(environment);
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); kinds.len()];
    for round in 0..ROUNDS {
        for ((kind, command), times) in kinds.iter().zip(&mut times) {
            let begin = Instant::now();
            for start in 0..STARTS {
                our_start(environment, &format!("{kind}-{round}-{start}"), command.clone()).await;
            }
            times.push(begin.elapsed() / STARTS as u32);
        }
    }
    let medians: Vec<Duration> = times.into_iter().map(median).collect();
    println!("spawn, {name}: the same under");
    for ((kind, _), time) in kinds.iter().zip(&medians) {
        let more = micros(*time) - micros(medians[0]);
        println!("  {kind:<32}  {:>8.0} µs  {more:>+8.0} µs  {:.2} ×", micros(*time), ratio(*time, medians[0]));
    }
}

/// The first is what the others are compared with. Only root has the last.
fn confined_commands(environment: &LocalEnvironment) -> Vec<(&'static str, Command)> {
    let plain = || Command::new(["/bin/true"], "/");
    let workspace = [environment.info().temp_dir.clone()];
    let network = NetworkPolicy::Restricted;
    let limits = ResourceLimits { memory_bytes: Some(1 << 30), cpu_seconds: Some(60), ..ResourceLimits::default() };
    let mut commands = vec![
        ("nothing", plain()),
        ("sandbox read-only", Command { sandbox: Some(SandboxPolicy::read_only(network)), ..plain() }),
        (
            "sandbox workspace-write",
            Command { sandbox: Some(SandboxPolicy::workspace_write(&workspace, network)), ..plain() },
        ),
        ("limits of memory and time", Command { limits, ..plain() }),
    ];
    if rustix::process::geteuid().is_root() {
        commands.push(("another user", Command { run_as: Some(RunAs { user: "nobody".to_owned() }), ..plain() }));
    }
    commands
}

async fn our_start(environment: &LocalEnvironment, id: &str, command: Command) {
    let id = ProcessId::new(id).expect("short");
    let processes = environment.processes();
    processes.start(&id, command).await.expect("/bin/true runs");
    let mut follower = processes.follow(&id, 0).await.expect("it is there");
    while follower.next(PAGE_BYTES).await.expect("the log reads").is_some() {}
    processes.forget(&id).await.expect("it is closed");
}

async fn flood(name: &str, environment: &LocalEnvironment) {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for round in 0..5 {
        bare.push(bare_flood());
        ours.push(our_flood(environment, &format!("flood-{round}")).await);
    }
    let (bare, ours) = (median(bare), median(ours));
    println!("output, {name}: {} MiB by dd, read by the owner", FLOOD_BYTES >> 20);
    println!("  bare pipe read {:>8.0} MB/s", rate(bare));
    println!("  ours, by spool {:>8.0} MB/s", rate(ours));
    println!("  ratio ours / bare {:.2}", ratio(bare, ours));
}

fn dd() -> [String; 5] {
    let count = FLOOD_BYTES / (64 << 10);
    ["/bin/dd".into(), "if=/dev/zero".into(), "bs=64k".into(), format!("count={count}"), "status=none".into()]
}

fn bare_flood() -> Duration {
    use std::io::Read;
    let begin = Instant::now();
    let [program, args @ ..] = dd();
    let mut child = Bare::new(program).args(args).stdout(Stdio::piped()).spawn().expect("dd runs");
    let mut pipe = child.stdout.take().expect("piped");
    let (mut buffer, mut total) = (vec![0; 64 << 10], 0);
    loop {
        match pipe.read(&mut buffer).expect("a pipe reads") {
            0 => break,
            count => total += count,
        }
    }
    child.wait().expect("it ends");
    assert_eq!(total, FLOOD_BYTES);
    begin.elapsed()
}

async fn our_flood(environment: &LocalEnvironment, id: &str) -> Duration {
    let id = ProcessId::new(id).expect("short");
    let processes = environment.processes();
    let begin = Instant::now();
    processes.start(&id, Command::new(dd(), "/")).await.expect("dd runs");
    let mut follower = processes.follow(&id, 0).await.expect("it is there");
    let mut total = 0;
    while let Some(page) = follower.next(PAGE_BYTES).await.expect("the log reads") {
        for entry in page.entries {
            if let EntryBody::Output { bytes, .. } = entry.body {
                total += bytes.len();
            }
        }
    }
    let took = begin.elapsed();
    assert_eq!(total, FLOOD_BYTES);
    processes.forget(&id).await.expect("it is closed");
    took
}

fn timed(times: usize, mut work: impl FnMut()) -> Duration {
    let begin = Instant::now();
    for _ in 0..times {
        work();
    }
    begin.elapsed() / times as u32
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn rate(time: Duration) -> f64 {
    FLOOD_BYTES as f64 / time.as_secs_f64() / 1e6
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
