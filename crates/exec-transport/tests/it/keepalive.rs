//! Pings, and peers that fall silent. The times are short; the rules are tested in their own file.

use std::time::Duration;

use exec_transport::{ConnectionEnd, Limits, ListenOptions, Received};
use tokio::io::AsyncWriteExt;

use crate::support::{Frame, closed, masked, message, read_frame, text, with_raw_client, within};

const PING: Frame = Frame { fin: true, opcode: 9, payload: Vec::new() };

fn brisk() -> ListenOptions {
    let limits = Limits {
        ping_interval: Duration::from_millis(50),
        silence_limit: Duration::from_millis(150),
        ..Limits::default()
    };
    ListenOptions { limits, ..ListenOptions::default() }
}

#[tokio::test]
async fn a_peer_that_answers_nothing_is_pinged_and_then_gone() {
    let (mut ours, mut client) = with_raw_client(brisk()).await;
    let ConnectionEnd::Silent(silent) = closed(&mut ours.receiver).await else { panic!("not for silence") };
    assert!(silent >= Duration::from_millis(150), "{silent:?}");
    assert_eq!(within(read_frame(&mut client)).await.expect("well formed"), PING);
    assert_eq!(within(read_frame(&mut client)).await.expect("well formed"), PING);
}

#[tokio::test]
async fn a_peer_that_answers_pings_stays() {
    let (mut ours, mut client) = with_raw_client(brisk()).await;
    let answering = async {
        for _ in 0..20 {
            assert_eq!(read_frame(&mut client).await.expect("well formed"), PING);
            client.write_all(&masked(0x8a, b"")).await.expect("we read");
        }
        client.write_all(&masked(0x81, b"still here")).await.expect("we read");
        client
    };
    let (received, _client) = tokio::join!(message(&mut ours.receiver), within(answering));
    assert_eq!(received, text("still here"));
}

#[tokio::test]
async fn pings_are_answered_without_anybody_sending() {
    let (mut ours, mut client) = with_raw_client(ListenOptions::default()).await;
    let asking = async {
        for round in 0..100_u8 {
            client.write_all(&masked(0x89, &[round; 3])).await.expect("we read");
            let pong = read_frame(&mut client).await.expect("well formed");
            assert_eq!(pong, Frame { fin: true, opcode: 10, payload: vec![round; 3] });
        }
    };
    tokio::select! {
        received = ours.receiver.next() => panic!("only pings were sent: {received:?}"),
        () = within(asking) => {}
    }
}

#[tokio::test]
async fn a_flood_of_pings_gets_at_least_the_newest_pong() {
    let (mut ours, mut client) = with_raw_client(ListenOptions::default()).await;
    let flood: Vec<u8> = (0..=255_u8).flat_map(|round| masked(0x89, &[round])).collect();
    client.write_all(&flood).await.expect("we read");
    client.write_all(&masked(0x81, b"done")).await.expect("we read");
    assert_eq!(message(&mut ours.receiver).await, text("done"));
    let reading = async { while read_frame(&mut client).await.expect("well formed").payload != [255] {} };
    tokio::select! {
        received = ours.receiver.next() => panic!("nothing more was sent: {received:?}"),
        () = within(reading) => {}
    }
    drop(client);
    assert!(matches!(within(ours.receiver.next()).await, Received::Closed(_)));
}
