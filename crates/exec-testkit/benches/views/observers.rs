//! Ten observers of a flood: what they cost the server, and what they do to the echo of the driver.

use std::time::Duration;

use exec_client::RemoteEnvironment;
use exec_core::limits::SPOOL_MIN_BYTES;
use exec_core::{Command, Io};
use exec_env::Environment;
use exec_testkit::observers::{PlainObserver, echo_once, median};
use exec_testkit::proc_status;
use exec_testkit::process::LogReader;
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_environment::process_id;

use crate::{Server, millis, ratio};

const OBSERVERS: usize = 10;
const FLOOD_BYTES: usize = 32 << 20;
const ROUNDS: usize = 5;
const ECHOES: usize = 60;
/// In the field observers are on machines of their own; here they must not take the processor from the server.
const NICE: i32 = 19;

pub(crate) async fn measure() {
    println!("{OBSERVERS} observers of a flood in entries of 64 KiB, as JSON");
    memory().await;
    echo().await;
}

async fn memory() {
    let (mut idle, mut each) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // A server keeps for a while what it has once needed, so each round has a new one.
        let server = Server::start();
        let driver = server.driver().await;
        let mut floods = Floods { server: &server, driver: &driver, started: 0 };
        // The first flood makes it as large as one client and one observer make it: the pieces of the program that they use.
        floods.peak(1).await;
        let alone = floods.peak(0).await;
        let observed = floods.peak(OBSERVERS).await;
        each.push(observed.peak.saturating_sub(alone.peak) / OBSERVERS as u64);
        idle.push(observed.attached.saturating_sub(alone.attached) / OBSERVERS as u64);
    }
    each.sort_unstable();
    idle.sort_unstable();
    println!(
        "memory of each: {} KiB in the flood ({} to {}), {} KiB before it",
        each[ROUNDS / 2] >> 10,
        each[0] >> 10,
        each[ROUNDS - 1] >> 10,
        idle[ROUNDS / 2] >> 10,
    );
}

/// More than there was before anybody was attached, in bytes.
struct Grown {
    attached: u64,
    peak: u64,
}

struct Floods<'a> {
    server: &'a Server,
    driver: &'a RemoteEnvironment,
    started: usize,
}

impl Floods<'_> {
    async fn peak(&mut self, observers: usize) -> Grown {
        self.started += 1;
        let name = format!("flood-{}", self.started);
        let gate = start_flood(self.server, self.driver, &name, FLOOD_BYTES).await;
        let driven = LogReader::open(self.driver.processes(), &process_id(&name), 0).await;
        let pid = self.server.pid();
        proc_status::reset_peak(pid);
        let before = proc_status::resident_bytes(pid);
        let observers: Vec<PlainObserver> = (0..observers).map(|_| attach(self.server, self.driver, &name)).collect();
        let attached = proc_status::resident_bytes(pid).saturating_sub(before);
        gate.release();
        driven.read_to_end().await;
        let all = tokio::task::spawn_blocking(|| observers.into_iter().all(PlainObserver::has_read_all)).await;
        assert!(all.expect("no panic"), "each was told the end");
        self.driver.processes().forget(&process_id(&name)).await.expect("it is over");
        Grown { attached, peak: proc_status::peak_resident_bytes(pid).saturating_sub(before) }
    }
}

async fn echo() {
    let server = Server::start();
    let driver = server.driver().await;
    let command =
        Command { io: Io::Pipes { stdin: true }, ..Command::new([env!("CARGO_BIN_EXE_actor"), "echo-lines"], "/") };
    driver.processes().start(&process_id("echo"), command).await.expect("it starts");
    let gate = start_flood(&server, &driver, "flood", 1 << 40).await;
    let mut driven = driver.processes().follow(&process_id("flood"), 0).await.expect("it runs");
    let mut echoes = driver.processes().follow(&process_id("echo"), 0).await.expect("it runs");
    gate.release();
    let draining = async { while matches!(driven.next(1 << 20).await, Ok(Some(_))) {} };
    let measuring = async {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            for number in 0..ECHOES {
                without.push(echo_once(driver.processes(), &mut *echoes, &format!("{round} a {number}")).await);
            }
            let observers: Vec<PlainObserver> = (0..OBSERVERS).map(|_| attach(&server, &driver, "flood")).collect();
            for number in 0..ECHOES {
                with.push(echo_once(driver.processes(), &mut *echoes, &format!("{round} b {number}")).await);
            }
            observers.into_iter().for_each(PlainObserver::leave);
        }
        (without, with)
    };
    let (without, with): (Vec<Duration>, Vec<Duration>) = tokio::select! {
        echoes = measuring => echoes,
        () = draining => panic!("the flood has no end"),
    };
    let (without, with) = (median(without), median(with));
    println!(
        "the driver's echo beside the flood: p50 {:.2} ms without them, {:.2} ms with them: {:.2} ×",
        millis(without),
        millis(with),
        ratio(with, without)
    );
}

/// A flood that begins when the gate is released. Its spool is small, so that one without an end does not fill the disk.
async fn start_flood(server: &Server, driver: &RemoteEnvironment, name: &str, bytes: usize) -> FifoSemaphore {
    let gate = FifoSemaphore::new(server.folder.path().join(format!("gate of {name}").replace(' ', "-")));
    let script = format!("{} ; flood stdout {bytes} 77 65536", gate.acquire());
    let argv = std::iter::once(env!("CARGO_BIN_EXE_actor").to_owned()).chain(script.split(' ').map(str::to_owned));
    let spool_bytes = (bytes > FLOOD_BYTES).then_some(SPOOL_MIN_BYTES);
    let command = Command { spool_bytes, ..Command::new(argv, "/") };
    driver.processes().start(&process_id(name), command).await.expect("it starts");
    gate
}

fn attach(server: &Server, driver: &RemoteEnvironment, process: &str) -> PlainObserver {
    let session = driver.session_id().expect("it is connected");
    PlainObserver::attach(&server.socket(), &session, process, NICE)
}
