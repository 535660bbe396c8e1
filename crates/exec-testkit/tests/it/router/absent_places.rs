//! Places that are away: their calls fail and say for how long, nobody else notices, and what runs there is found again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_client::environments::{Endpoint, RemoteServer};
use exec_client::{Options, RemoteEnvironment};
use exec_core::{Command, Stream};
use exec_env::SharedEnvironment;
use exec_env::files::LinkPolicy;
use exec_env::process::{ProcessReason, ReadQuery};
use exec_rpc::ServerOptions;
use exec_testkit::checked_log::CheckedLog;
use exec_testkit::os_process::poll_pause;
use exec_testkit::process::LogReader;
use exec_testkit::runner::run_test;
use exec_testkit::test_environment::process_id;

use super::daemon::Daemon;
use super::{Gateway, two};
use crate::environments::ACTOR;

const DEADLINE: Duration = Duration::from_secs(120);

/// Lines that a process prints before it waits, and after.
const LINES: &str = "20000";

fn run(test: impl Future<Output = ()>) {
    run_test("the test", DEADLINE, Box::pin(test));
}

fn gateway_daemon(folder: &Path, a: &Daemon, b: &Daemon) -> Daemon {
    let file = folder.join("environments.toml");
    std::fs::write(&file, format!("default = \"a\"\n{}", two(&a.url, &b.url))).expect("the folder is ours");
    Daemon::start(folder, "gateway", &["--environments", &file.display().to_string()])
}

async fn connect(url: &str) -> Arc<RemoteEnvironment> {
    let server = RemoteServer::new(Endpoint::Url { url: url.to_owned(), bearer_token: None });
    let options = Options { give_up: Some(DEADLINE), ..Options::default() };
    Arc::new(server.connect(options).await.expect("it listens"))
}

async fn environment(client: &Arc<RemoteEnvironment>, id: &str) -> SharedEnvironment {
    Arc::new(client.environment(id).await.expect("that environment is there"))
}

/// Prints, waits for the semaphore, prints again.
async fn start_printing(
    environment: &SharedEnvironment,
    id: &str,
    folder: &Path,
) -> exec_testkit::semaphore::FifoSemaphore {
    let semaphore = exec_testkit::semaphore::FifoSemaphore::new(folder.join(id));
    let path = semaphore.path().display().to_string();
    let words = [ACTOR, "lines", LINES, ";", "acquire", &path, ";", "lines", LINES, ";", "say", "end"];
    environment.processes().start(&process_id(id), Command::new(words, "/")).await.expect("it starts");
    semaphore
}

async fn whole_log(environment: &SharedEnvironment, id: &str) -> CheckedLog {
    LogReader::open(environment.processes(), &process_id(id), 0).await.read_to_end().await
}

fn assert_whole(log: &CheckedLog) {
    let bytes = log.bytes(Stream::Stdout);
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, 40_001, "every line is there once");
    assert!(bytes.ends_with(b"end\n"));
}

/// The median of some round trips.
async fn round_trip(environment: &SharedEnvironment) -> Duration {
    let mut times = Vec::new();
    for _ in 0..101 {
        let begun = Instant::now();
        environment.files().metadata("/".as_ref(), LinkPolicy::Follow).await.expect("it answers");
        times.push(begun.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

#[test]
fn a_place_that_is_killed_fails_its_own_calls_and_is_found_again_with_what_ran_there() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mut a, b) = (Daemon::start(folder.path(), "a", &[]), Daemon::start(folder.path(), "b", &[]));
        let gateway = gateway_daemon(folder.path(), &a, &b);
        let client = connect(&gateway.url).await;
        let (in_a, in_b) = (environment(&client, "a").await, environment(&client, "b").await);
        let go_on = start_printing(&in_a, "p", folder.path()).await;
        let before = round_trip(&in_b).await;
        a.kill();
        // The first calls wait for it to come back, and fail; then they fail at once. Each says since when.
        let query = ReadQuery::default();
        let read = in_a.processes().read(&process_id("p"), query).await.expect_err("nobody is there");
        assert!(matches!(read.reason, ProcessReason::Unreachable(_)), "{read:?}");
        assert!(read.to_string().contains("`a` has been away for "), "{read}");
        let file = in_a.files().metadata("/".as_ref(), LinkPolicy::Follow).await.expect_err("nobody is there");
        assert!(file.to_string().contains("`a` has been away for "), "{file}");
        // Nobody else notices.
        let meanwhile = round_trip(&in_b).await;
        assert!(meanwhile < before * 8, "{before:?} before, {meanwhile:?} while the other is away");
        let status = client.link().call(exec_wire::environment::ListParams {}).await.expect("the gateway answers");
        let told: Vec<(&str, bool)> =
            status.environments.iter().map(|entry| (entry.status.as_str(), entry.unreachable_ms.is_some())).collect();
        assert_eq!(told, [("ready", false), ("disconnected", true), ("ready", false)], "this machine, a, b");
        a.start_again();
        while in_a.processes().read(&process_id("p"), query).await.is_err() {
            poll_pause().await;
        }
        go_on.release();
        assert_whole(&whole_log(&in_a, "p").await);
    });
}

#[test]
fn a_gateway_that_is_killed_finds_what_runs_elsewhere_and_whose_it_is() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (a, mut b) = (Daemon::start(folder.path(), "a", &[]), Daemon::start(folder.path(), "b", &[]));
        let mut gateway = gateway_daemon(folder.path(), &a, &b);
        let client = connect(&gateway.url).await;
        let (in_a, in_b) = (environment(&client, "a").await, environment(&client, "b").await);
        let first = start_printing(&in_a, "p", folder.path()).await;
        let second = start_printing(&in_b, "q", folder.path()).await;
        gateway.kill();
        first.release();
        gateway.start_again();
        // The client resumes its session by itself.
        assert_whole(&whole_log(&in_a, "p").await);
        // A place that is away when the gateway starts may have processes of its sessions: nobody says that they are gone.
        gateway.kill();
        b.kill();
        gateway.start_again();
        let read = in_b.processes().read(&process_id("q"), ReadQuery::default()).await.expect_err("b is away");
        assert!(matches!(read.reason, ProcessReason::Unreachable(_)), "{read:?}");
        b.start_again();
        second.release();
        while in_b.processes().read(&process_id("q"), ReadQuery::default()).await.is_err() {
            poll_pause().await;
        }
        assert_whole(&whole_log(&in_b, "q").await);
    });
}

#[test]
fn two_gateways_have_their_own_processes_in_one_place() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let far = Daemon::start(folder.path(), "far", &[]);
        let environments = two(&far.url, &far.url);
        let one = Gateway::start(&environments, ServerOptions::default()).await;
        let other = Gateway::start(&environments, ServerOptions::default()).await;
        let mut listed = Vec::new();
        for gateway in [&one, &other] {
            let b = gateway.environment("b").await;
            b.processes().start(&process_id("p"), Command::new([ACTOR, "wait-forever"], "/")).await.expect("it starts");
            listed.push(b.processes().list().await.expect("it answers"));
        }
        let pids: Vec<Vec<u32>> = listed.iter().map(|listed| listed.iter().map(|info| info.pid).collect()).collect();
        assert!(pids.iter().all(|pids| pids.len() == 1) && pids[0] != pids[1], "{pids:?}");
        for gateway in [&one, &other] {
            let b = gateway.environment("b").await;
            b.processes().forget(&process_id("p")).await.expect("it is its own");
        }
    });
}

#[test]
fn a_place_that_never_answers_delays_nobody_else_and_a_wrong_url_is_told() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let far = Daemon::start(folder.path(), "far", &[]);
        // The kernel accepts connections, and nobody ever answers them.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let closed = closed.local_addr().expect("it is bound").port();
        let silent_url = format!("ws://{}", silent.local_addr().expect("it is bound"));
        let third = format!("[[environments]]\nid = \"wrong\"\nurl = \"ws://127.0.0.1:{closed}\"\n");
        let text = format!("default = \"a\"\n{}{third}", two(&silent_url, &far.url));
        let gateway = Gateway::start(&text, ServerOptions::default()).await;
        let client = gateway.client.clone();
        let waiting = tokio::spawn(async move { client.environment("a").await.map(drop) });
        let b = gateway.environment("b").await;
        round_trip(&b).await;
        assert!(!waiting.is_finished(), "b has answered a hundred times, and a not once");
        waiting.abort();
        let wrong = gateway.client.environment("wrong").await.expect_err("nobody listens there").to_string();
        assert!(wrong.contains("`wrong` has been away for ") && wrong.contains("refused"), "{wrong}");
    });
}
