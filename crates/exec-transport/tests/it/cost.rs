//! What an idle connection costs.

use exec_transport::{ConnectOptions, ListenOptions, Target, connect};

use crate::support::{accept, long_text, message, send, text, websocket_listener, within};

const CONNECTIONS: usize = 400;

/// The promise: below 16 KiB. The test holds both ends of each connection.
const LIMIT_BYTES: usize = 2 * (16 << 10);

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).expect("resident").parse().expect("a number");
    pages * rustix::param::page_size()
}

#[tokio::test]
async fn an_idle_connection_costs_less_than_16_kib_even_after_a_burst() {
    let (mut listener, address) = websocket_listener(ListenOptions::default()).await;
    let target: Target = format!("ws://{address}").parse().expect("a URL");
    let options = ConnectOptions::default();
    let mut pairs = Vec::new();
    let mut before = 0;
    for number in 0..=CONNECTIONS {
        let (mut server, client) = tokio::join!(accept(&mut listener), within(connect(&target, &options)));
        let mut client = client.expect("it upgrades");
        // A burst each way makes every buffer grow once.
        for size in [100, 10_000, 200_000] {
            let content = text(long_text(size));
            let (received, ()) = tokio::join!(message(&mut server.receiver), send(&mut client, content.clone()));
            assert!(received == content);
            let (received, ()) = tokio::join!(message(&mut client.receiver), send(&mut server, content.clone()));
            assert!(received == content);
        }
        pairs.push((server, client));
        if number == 0 {
            before = resident_bytes();
        }
    }
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    println!("both ends: {each} bytes");
    assert!(each < LIMIT_BYTES, "both ends of an idle connection cost {each} bytes");
}
