//! A peer that does not read: reading goes on, pongs leave at the next frame boundary, writing
//! fails at its deadline, and no dropped future tears a frame.

use std::time::Duration;

use exec_transport::{ConnectOptions, Connection, Limits, ListenOptions, SendError};
use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;

use crate::support::{
    Frame, long_text, masked, message, read_frame, send, text, with_our_client, with_raw_client, within,
};

/// More than the socket buffers of both ends take.
const TOO_MUCH: usize = 24 << 20;

#[tokio::test]
async fn reading_never_waits_for_writing_and_a_pong_overtakes_the_rest_of_a_message() {
    let (ours, mut client) = with_raw_client(ListenOptions::default()).await;
    let (mut sender, mut receiver) = (ours.sender, ours.receiver);
    let writing = tokio::spawn(async move {
        sender.feed(text(long_text(TOO_MUCH))).await.expect("they read in the end");
        sender
    });
    // The writer is stuck: the client has not read a byte. Everything it sends arrives all the same.
    for round in 0..50_u8 {
        client.write_all(&masked(0x89, &[round])).await.expect("we read");
        client.write_all(&masked(0x81, b"request")).await.expect("we read");
        assert_eq!(message(&mut receiver).await, text("request"));
    }
    assert!(!writing.is_finished());
    let mut pong_before_the_end = None;
    within(async {
        loop {
            let frame = read_frame(&mut client).await.expect("well formed");
            match frame {
                Frame { opcode: 10, payload, .. } => pong_before_the_end = Some(payload),
                Frame { fin: true, .. } => break,
                Frame { payload, .. } => assert_eq!(payload.len(), 1 << 20),
            }
        }
    })
    .await;
    assert_eq!(pong_before_the_end, Some(vec![49]), "the newest pong comes between the fragments");
    drop(within(writing).await.expect("the writer did not panic"));
}

#[tokio::test]
async fn little_waits_in_the_kernel_for_a_peer_that_does_not_read() {
    let limits = Limits { write_deadline: Duration::from_millis(300), ..Limits::default() };
    let (mut ours, client) = with_raw_client(ListenOptions { limits, ..ListenOptions::default() }).await;
    // What is on its way and not read yet is the peer's own affair; here it is next to nothing.
    socket2::SockRef::from(&client).set_recv_buffer_size(16 << 10).expect("a socket");
    let piece = long_text(16 << 10);
    let mut taken = 0;
    while within(ours.sender.feed(text(piece.clone()))).await.is_ok() {
        taken += piece.len();
    }
    assert!(taken < 1 << 20, "{taken} bytes would stand before an echo");
}

#[tokio::test]
async fn a_peer_that_reads_nothing_fails_the_write_at_its_deadline() {
    let limits = Limits { write_deadline: Duration::from_millis(100), ..Limits::default() };
    let (mut ours, client) = with_raw_client(ListenOptions { limits, ..ListenOptions::default() }).await;
    let failed = within(ours.sender.feed(text(long_text(TOO_MUCH)))).await;
    assert!(matches!(failed, Err(SendError::Stalled { after }) if after == Duration::from_millis(100)));
    assert!(matches!(within(ours.sender.feed(text("more"))).await, Err(SendError::Closed | SendError::Write { .. })));
    drop(client);
}

#[tokio::test]
async fn whoever_waits_for_room_is_woken_when_the_peer_reads() {
    let (mut ours, mut theirs) = with_our_client(ListenOptions::default(), ConnectOptions::default()).await;
    let content = long_text(88 << 10);
    let sent = fill(&mut ours, &content);
    let reading = async {
        for _ in 0..sent {
            assert!(message(&mut theirs.receiver).await == text(content.clone()), "a message was changed");
        }
    };
    let (room, ()) = tokio::join!(within(ours.sender.wait_for_room()), within(reading));
    room.expect("they have read");
    assert!(fill(&mut ours, &content) > 0);
}

#[tokio::test]
async fn a_peer_that_reads_nothing_fails_the_wait_for_room_at_its_deadline() {
    let limits = Limits { write_deadline: Duration::from_millis(100), ..Limits::default() };
    let (mut ours, client) = with_raw_client(ListenOptions { limits, ..ListenOptions::default() }).await;
    fill(&mut ours, &long_text(88 << 10));
    let failed = within(ours.sender.wait_for_room()).await;
    assert!(matches!(failed, Err(SendError::Stalled { after }) if after == Duration::from_millis(100)));
    drop(client);
}

/// Sends messages until there is no room for one more, and tells how many.
fn fill(connection: &mut Connection, content: &str) -> usize {
    let mut sent = 0;
    while let Some(room) = connection.sender.wait_for_room().now_or_never() {
        room.expect("the peer lives");
        // Whether it was written or not, it was accepted.
        let _ = connection.sender.feed(text(content)).now_or_never();
        sent += 1;
    }
    sent
}

#[tokio::test]
async fn a_slow_reader_is_no_stall_as_long_as_it_reads() {
    let limits = Limits { write_deadline: Duration::from_millis(500), ..Limits::default() };
    let (mut ours, mut client) = with_raw_client(ListenOptions { limits, ..ListenOptions::default() }).await;
    let reading = async {
        let mut frames = 0;
        while !read_frame(&mut client).await.expect("well formed").fin {
            frames += 1;
            // not a wait: time is the subject; the whole takes longer than the deadline, no part of it does
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        frames
    };
    let (frames, ()) = tokio::join!(within(reading), send(&mut ours, text(long_text(TOO_MUCH))));
    assert_eq!(frames, 23);
}

#[tokio::test]
async fn dropped_sends_tear_no_frame() {
    let (mut ours, mut theirs) = with_our_client(ListenOptions::default(), ConnectOptions::default()).await;
    let content = long_text(TOO_MUCH);
    // Each future is dropped after one poll, in the middle of whatever it was doing.
    for _ in 0..3 {
        let mut feed = Box::pin(ours.sender.feed(text(content.clone())));
        tokio::select! {
            biased;
            result = &mut feed => result.expect("they read"),
            () = tokio::task::yield_now() => {}
        }
    }
    let reading = async {
        assert!(message(&mut theirs.receiver).await == text(content.clone()), "a frame was torn");
        let mut more = 0;
        loop {
            match message(&mut theirs.receiver).await {
                end if end == text("end") => return more,
                other => {
                    assert!(other == text(content.clone()), "a frame was torn");
                    more += 1;
                }
            }
        }
    };
    let (_, ()) = tokio::join!(within(reading), send(&mut ours, text("end")));
}

#[tokio::test]
async fn both_ends_may_send_more_than_fits_at_once() {
    let (ours, theirs) = with_our_client(ListenOptions::default(), ConnectOptions::default()).await;
    let exchange = |mut end: exec_transport::Connection| async move {
        let content = long_text(TOO_MUCH);
        let sending = async {
            end.sender.feed(text(content.clone())).await.expect("they read");
            end.sender.flush().await.expect("they read");
        };
        let (received, ()) = tokio::join!(message(&mut end.receiver), sending);
        assert!(received == text(content.clone()), "the message was changed");
        end
    };
    within(async { tokio::join!(exchange(ours), exchange(theirs)) }).await;
}
