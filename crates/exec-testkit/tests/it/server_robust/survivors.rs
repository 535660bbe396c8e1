//! What lives on when its server is killed, beside what the suites of kills have.

use serde_json::json;

use super::client::{ServerFixture, shell, with_deadline};

/// A terminal that nobody has open any longer has an end for whoever reads it. Who closes it then sends its leader a
/// hangup, though the leader is at work.
#[tokio::test]
async fn the_leader_of_a_terminal_that_has_redirected_its_streams_outlives_its_server() {
    let mut server = ServerFixture::start_with_state().await;
    let (ready, go) = (server.semaphore("ready"), server.semaphore("go"));
    let mut client = server.client().await;
    let session = client.session.clone();
    let log = server.directory.path().join("log");
    let script = format!(
        "exec </dev/null >{} 2>&1; echo > {}; read x < {}; echo survived; exit 3",
        log.display(),
        ready.path().display(),
        go.path().display()
    );
    let mut start = shell("leader", &script, false);
    start["tty"] = json!(true);
    assert_eq!(client.call("process/start", start).await["result"]["processId"], "leader");
    with_deadline(ready.acquire_many(1)).await;
    // Twice, so that the keeper has taken it over from a server that had itself found it so.
    for _ in 0..2 {
        server.kill_and_restart().await;
        client = server.resume(&session).await;
        let listed = client.call("process/list", json!({})).await;
        assert_eq!(listed["result"]["processes"][0]["state"], "running", "{listed}");
    }
    std::fs::write(go.path(), "\n").expect("the child reads");
    let until = json!({"processId": "leader", "until": {"kind": "closed"}});
    with_deadline(client.call("process/wait", until)).await;
    let page = client.call("process/read", json!({"processId": "leader"})).await;
    assert_eq!(page["result"]["exitCode"], 3, "{page}");
    assert_eq!(std::fs::read_to_string(&log).expect("the child has written it"), "survived\n");
}
