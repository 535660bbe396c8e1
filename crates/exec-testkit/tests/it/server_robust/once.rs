//! What a plain client asks again of the next server, after the first was killed: it has happened once.

use serde_json::{Value, json};

use super::client::{Client, ServerFixture, with_deadline};

const COUNTER: &str = "n=0; trap 'n=$((n+1)); echo told $n' TERM; trap 'echo done; exit 0' INT; echo ready; \
                       while :; do sleep 1000 & wait; done";

/// Without a scope of requests, so that nothing but the key tells that it is the same signal.
#[tokio::test]
async fn a_signal_with_a_key_is_sent_once_though_its_server_was_killed() {
    let mut server = ServerFixture::start_with_state().await;
    let mut client = server.client().await;
    client.sh("p", COUNTER).await;
    let session = client.session.clone();
    assert_eq!(wait_for(&mut client, "ready").await["kind"], "matched");
    let signal = |key: &str| json!({"processId": "p", "signal": "terminate", "signalId": key});
    let mut client = Some(client);
    for (key, told) in [("one", "told 1"), ("two", "told 2")] {
        let mut before = client.take().expect("one is there");
        assert_eq!(before.call("process/signal", signal(key)).await["result"]["status"], "sent");
        assert_eq!(wait_for(&mut before, told).await["kind"], "matched");
        server.kill_and_restart().await;
        let mut after = server.resume(&session).await;
        for _ in 0..3 {
            assert_eq!(after.call("process/signal", signal(key)).await["result"]["status"], "sent");
        }
        client = Some(after);
    }
    let mut client = client.expect("one is there");
    let end = json!({"processId": "p", "signal": "interrupt", "signalId": "three"});
    assert_eq!(client.call("process/signal", end).await["result"]["status"], "sent");
    let closed = json!({"processId": "p", "until": {"kind": "exited"}});
    with_deadline(client.call("process/wait", closed)).await;
    let page = client.call("process/read", json!({"processId": "p", "afterSeq": 0})).await;
    let chunks = page["result"]["chunks"].as_array().expect("a page has chunks").iter();
    let text: Vec<u8> = chunks.flat_map(|chunk| decoded(&chunk["chunk"])).collect();
    assert_eq!(String::from_utf8_lossy(&text), "ready\ntold 1\ntold 2\ndone\n");
}

fn decoded(chunk: &Value) -> Vec<u8> {
    base64_simd::STANDARD.decode_to_vec(chunk.as_str().expect("base64")).expect("base64")
}

async fn wait_for(client: &mut Client, word: &str) -> Value {
    let until = json!({"kind": "output", "regex": word, "afterSeq": 0});
    with_deadline(client.call("process/wait", json!({"processId": "p", "until": until}))).await["result"]["outcome"]
        .clone()
}
