//! A server with nothing to do does nothing: after a mixed load, and with everything still there that may wait for ever.

use std::time::Duration;

use exec_core::Command;
use exec_env::Environment;
use exec_testkit::binaries;
use exec_testkit::os_process::OsProcess;
use exec_testkit::test_environment::process_id;
use serde_json::json;

use super::client::{Client, ServerFixture, flood, shell, with_deadline};
use crate::compat::raw_connection::RawConnection;
use crate::compat::server_program::{Implementation, ServerProgram};
use crate::durability::support::{keeper_of, number_from_env, read_log};
use crate::endurance::connected;
use crate::endurance::daemon::Daemon;
use crate::environments::ACTOR;

/// How long nothing happens; in a soak, longer.
const QUIET: Duration = Duration::from_secs(2);
const QUIET_IN_SOAK: Duration = Duration::from_secs(10);

/// Processor time that a process may use meanwhile, in the kernel's ticks of 10 ms: the housekeeping looks around.
const TICKS: u64 = 2;

/// What the load left under way may take so many of these times to come to rest.
const WINDOWS: usize = 5;

#[tokio::test]
async fn after_a_mixed_load_an_idle_server_and_its_keeper_use_no_processor_time() {
    let server = ServerFixture::start().await;
    let _kept = with_deadline(mixed_load(&server)).await;
    assert_idle([OsProcess::of(server.pid()).expect("it runs"), server.keeper()]).await;
}

#[tokio::test]
async fn after_a_thousand_processes_an_idle_server_and_its_keeper_use_no_processor_time() {
    const AT_ONCE: usize = 50;
    let server = ServerFixture::start().await;
    let mut client = server.client().await;
    for round in 0..1000 / AT_ONCE {
        let mut ids = Vec::new();
        for number in 0..AT_ONCE {
            let id = format!("p {round} {number}");
            let start = client.request("process/start", shell(&id, "echo out; exit 3", number % 2 == 0)).await;
            ids.push((start, id));
        }
        for (start, id) in &ids {
            assert_eq!(client.response(*start).await["result"]["processId"], id.as_str());
            let waited = client.call("process/wait", json!({"processId": id, "until": {"kind": "closed"}})).await;
            assert_eq!(waited["result"]["outcome"]["kind"], "closed", "{waited}");
        }
        // Half of them are kept, as a client that forgets nothing leaves them.
        for (_, id) in ids.iter().filter(|_| round % 2 == 0) {
            client.call("process/forget", json!({"processId": id})).await;
        }
        client.drop_unread();
    }
    assert_idle([OsProcess::of(server.pid()).expect("it runs"), server.keeper()]).await;
}

#[tokio::test]
async fn over_stdio_an_idle_server_and_its_keeper_use_no_processor_time() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let program = ServerProgram::new(Implementation::Ours, binaries::exec_server(), directory.path());
    let child = program.on_stdio();
    let pid = child.id().expect("it runs");
    let mut client = Client::over(RawConnection::of_child(child)).await;
    let folder = format!("file://{}", directory.path().display());
    let watch = json!({"watchId": "w", "path": folder, "recursive": true});
    assert_eq!(client.call("fs/watch", watch).await["result"]["watchId"], "w");
    for start in [shell("silent", "exec sleep 1000", true), shell("quick", "echo out; exit 3", false)] {
        assert!(client.call("process/start", start).await["result"].is_object());
    }
    client.call("process/wait", json!({"processId": "quick", "until": {"kind": "closed"}})).await;
    let keeper = *OsProcess::children_of(pid).first().expect("a server has a keeper");
    assert_idle([OsProcess::of(pid).expect("it runs"), keeper]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_unix_socket_after_kills_an_idle_server_and_its_keeper_use_no_processor_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut daemon = Daemon::with_state(folder.path());
    let environment = connected(daemon.target()).await;
    let mut kept = Vec::new();
    for round in 0..3 {
        let (silent, flood) = (process_id(&format!("silent {round}")), process_id(&format!("flood {round}")));
        let processes = environment.processes();
        processes.start(&silent, Command::new(["/bin/sleep", "1000"], "/")).await.expect("it starts");
        processes
            .start(&flood, Command::new([ACTOR, "flood", "stdout", "4000000", "1", "9000"], "/"))
            .await
            .expect("it starts");
        kept.push(processes.follow(&silent, 0).await.expect("it is there"));
        assert_eq!(read_log(processes, flood.as_str()).await.output_bytes(), 4_000_000);
        daemon.kill_and_restart();
    }
    environment.processes().list().await.expect("the client is back");
    let keeper = keeper_of(&folder.path().join("state"));
    assert_idle([OsProcess::of(daemon.pid()).expect("it runs"), keeper]).await;
    drop(kept);
    environment.close().await;
    daemon.shut_down().await;
}

/// Fails if either uses the processor in each of several windows.
async fn assert_idle(both: [OsProcess; 2]) {
    let quiet = if number_from_env("EXEC_SOAK_ROUNDS").is_some() { QUIET_IN_SOAK } else { QUIET };
    let ticks = || both.map(|process| process.processor_ticks().expect("it runs"));
    let mut windows = Vec::new();
    while windows.len() < WINDOWS {
        let before = ticks();
        // not a wait: this is the time in which nothing may happen
        tokio::time::sleep(quiet).await;
        let after = ticks();
        let used = [after[0] - before[0], after[1] - before[1]];
        windows.push(used);
        if used.iter().all(|used| *used <= TICKS) {
            return;
        }
    }
    panic!("ticks of the server and its keeper in windows of {quiet:?}: {windows:?}");
}

/// Does some of everything, and returns the connections on which something waits for ever.
async fn mixed_load(server: &ServerFixture) -> Vec<Client> {
    let mut client = server.client().await;
    let folder = format!("file://{}", server.directory.path().display());
    for number in 0..10 {
        let id = format!("quick {number}");
        client.sh(&id, "echo out; echo err >&2; exit 3").await;
        client.call("process/wait", json!({"processId": id, "until": {"kind": "closed"}})).await;
        client.call("process/forget", json!({"processId": id})).await;
    }
    let done = server.semaphore("done");
    client.sh("flood", &flood(4 << 20, 1, &done)).await;
    done.acquire_many(1).await;
    client.sh("terminated", "trap '' TERM; sleep 1000 & exec sleep 1000").await;
    client.call("process/terminate", json!({"processId": "terminated", "graceMs": 10})).await;
    let watch = |id| json!({"watchId": id, "path": folder, "recursive": true});
    for id in ["ended", "kept"] {
        assert_eq!(client.call("fs/watch", watch(id)).await["result"]["watchId"], id);
    }
    std::fs::write(server.directory.path().join("changed"), "some words\n").expect("the folder is ours");
    client.call("fs/unwatch", json!({"watchId": "ended"})).await;
    for id in ["whole", "cancelled"] {
        let search = json!({"searchId": id, "path": folder, "pattern": {"literal": "words"}});
        assert!(client.call("fs/search", search).await["result"].is_object());
    }
    client.call("fs/cancelSearch", json!({"searchId": "cancelled"})).await;
    let opened = client.call("fs/open", json!({"handleId": "kept", "path": format!("{folder}/changed")})).await;
    assert_eq!(opened["result"]["handleId"], "kept");

    // What follows waits for ever: a child that says nothing, a terminal, a leader that is gone while its pipes are held, a
    // long poll, and a write to a child that does not read.
    let mut terminal = shell("terminal", "exec sleep 1000", false);
    terminal["tty"] = json!(true);
    for start in [shell("silent", "exec sleep 1000", true), terminal] {
        assert!(client.call("process/start", start).await["result"].is_object());
    }
    client.sh("held pipe", "sleep 1000 & exit 0").await;
    let session = client.session.clone();
    drop(client);
    let mut resumed = server.resume(&session).await;
    resumed.request("process/read", json!({"processId": "silent", "waitMs": 100_000})).await;
    let chunk = base64_simd::STANDARD.encode_to_string(vec![0; 1 << 20]);
    resumed.request("process/write", json!({"processId": "silent", "writeId": "1", "chunk": chunk})).await;
    // And a child whose log is full, whose client does not read.
    let mut deaf = server.client().await;
    let mut blocked = shell("blocked", "exec yes", false);
    (blocked["overflow"], blocked["spoolBytes"]) = (json!("block"), json!(1 << 20));
    assert_eq!(deaf.call("process/start", blocked).await["result"]["processId"], "blocked");
    assert_eq!(resumed.call("environment/status", json!({})).await["result"]["status"], "ready");
    vec![resumed, deaf]
}
