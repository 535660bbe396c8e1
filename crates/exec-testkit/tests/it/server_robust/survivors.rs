//! What lives on when its server is killed, beside what the suites of kills have.

use serde_json::json;

use super::client::{Client, ReceivedLogs, ServerFixture, flood, shell, with_deadline};

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

/// What the client has not acknowledged when the server is killed is in the log. Neither the keeper, which is alone then, nor
/// the next server drops it before the client has had time to come back.
#[tokio::test]
async fn a_reader_whose_server_is_killed_misses_nothing_of_a_flood_many_times_the_spool() {
    const BYTES: u64 = 48 << 20;
    const KILLS: u64 = 4;
    let mut server = ServerFixture::start_with_state().await;
    let done = server.semaphore("done");
    let mut client = Client::connect(&server.process.address).await;
    client.initialize(json!({"clientName": "robust", "outputWindowBytes": 1 << 20})).await;
    let session = client.session.clone();
    let mut start = shell("flood", &flood(BYTES, 1, &done), false);
    start["spoolBytes"] = json!(1 << 20);
    client.call("process/start", start).await;
    let mut logs = ReceivedLogs::default();
    for kill in 1..=KILLS + 1 {
        let upto = if kill > KILLS { BYTES } else { kill * BYTES / (KILLS + 2) };
        let read = async {
            while logs.of("flood").is_none_or(|log| log.bytes < upto) {
                logs.add_notification(&client.next().await, |_| 1);
                let seq = logs.of("flood").map_or(0, |log| log.seq);
                let read = json!({"method": "process/acknowledge", "params": {"processId": "flood", "seq": seq}});
                client.connection.send(&read.to_string()).await;
            }
        };
        with_deadline(read).await;
        if kill > KILLS {
            break;
        }
        server.kill_and_restart().await;
        client = Client::connect(&server.process.address).await;
        let seq = logs.of("flood").map_or(0, |log| log.seq);
        let resume = json!({
            "clientName": "robust", "resumeSessionId": session, "resumeFrom": {"flood": seq}, "outputWindowBytes": 1 << 20,
        });
        client.initialize(resume).await;
        let read = json!({"method": "process/acknowledge", "params": {"processId": "flood", "seq": seq}});
        client.connection.send(&read.to_string()).await;
    }
    logs.read_until_closed(&mut client, 1, |_| 1).await;
    assert_eq!(logs.of("flood").expect("it has a log").bytes, BYTES);
}
