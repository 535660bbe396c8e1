//! The server in the background ends by itself when nobody has any use for it, and not before.

use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::sandbox::command;
use super::server::{Account, Protocol};
use crate::durability::support::run;

const LATEST: Protocol = Protocol::Stateless;

/// The server that `exec-server mcp` of this account would start, but with less patience.
async fn impatient_daemon(account: &Account, patience: &str) -> Child {
    let home = account.path().join("state/daemon");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let url = format!("unix://{}", home.join("socket").display());
    let mut daemon = account.command(exec_testkit::binaries::exec_server());
    daemon.args(["serve", "--listen", &url, "--exit-when-idle", patience, "--state-dir"]).arg(home.join("state"));
    let mut daemon = daemon.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(daemon.stdout.take().expect("it is piped")).lines();
    assert_eq!(lines.next_line().await.expect("it prints UTF-8"), Some(url));
    daemon
}

/// Waits until a server has ended for want of work, which began no earlier than this.
async fn another_has_ended() {
    let account = Account::new();
    let mut other = impatient_daemon(&account, "200ms").await;
    assert!(other.wait().await.expect("it is our child").success());
}

#[test]
fn it_ends_when_nobody_needs_it_and_the_next_client_gets_another() {
    run(async {
        let account = Account::new();
        let mut daemon = impatient_daemon(&account, "200ms").await;
        let ended = daemon.wait().await.expect("it is our child");
        assert!(ended.success(), "{ended}");
        // Those of clients have more patience.
        let mut server = account.start(LATEST, false).await;
        assert_eq!(server.call("exec_command", command("echo hi")).await["output"], "hi\n");
        let [daemon] = account.daemons()[..] else { panic!("one runs") };
        let line = std::fs::read(format!("/proc/{}/cmdline", daemon.as_raw_nonzero())).expect("it runs");
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(line.contains("--exit-when-idle\u{0}10m\u{0}"), "{line:?}");
        server.leave().await;
    });
}

#[test]
fn it_stays_while_something_runs_is_kept_or_somebody_is_connected() {
    run(async {
        let account = Account::new();
        let mut daemon = impatient_daemon(&account, "200ms").await;
        let mut server = account.start(LATEST, false).await;
        assert_eq!(server.call("list_sessions", json!({})).await["sessions"], json!([]));
        another_has_ended().await;
        assert_eq!(daemon.try_wait().expect("it is our child"), None, "somebody is connected");
        let running = json!({"cmd": "cat", "stdin": true, "login": false, "yield_time_ms": 250});
        let running = server.call("exec_command", running).await;
        server.leave().await;
        another_has_ended().await;
        assert_eq!(daemon.try_wait().expect("it is our child"), None, "something runs");

        let mut server = account.start(LATEST, false).await;
        let end = json!({"session_id": running["session_id"], "close_stdin": true, "yield_time_ms": 30_000});
        assert_eq!(server.call("write_stdin", end).await["exit_code"], 0);
        server.leave().await;
        another_has_ended().await;
        assert_eq!(daemon.try_wait().expect("it is our child"), None, "its results are kept");
        let mut server = account.start(LATEST, false).await;
        let log = server.call("read_output", json!({"session_id": running["session_id"]})).await;
        assert_eq!(log["exit_code"], 0);
        server.leave().await;
    });
}

#[test]
fn a_client_that_comes_while_it_ends_is_served_by_it_or_by_another() {
    run(async {
        // How far it has come when the client connects differs from time to time.
        for patience in ["0ms", "10ms", "20ms", "40ms", "60ms", "80ms"] {
            let account = Account::new();
            let mut daemon = impatient_daemon(&account, patience).await;
            let mut server = account.start(LATEST, false).await;
            assert_eq!(server.call("exec_command", command("echo hi")).await["output"], "hi\n", "{patience}");
            server.leave().await;
            daemon.kill().await.expect("it is our child");
        }
    });
}
