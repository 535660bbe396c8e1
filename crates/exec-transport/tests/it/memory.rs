//! The memory pair behaves as the others do.

use exec_transport::{CloseReason, ConnectionEnd, Message, PeerKind, SendError, memory_pair};

use crate::support::{closed, message, send, text, within};

#[tokio::test]
async fn messages_and_the_reason_of_the_end_arrive() {
    let (mut left, mut right) = memory_pair(4);
    assert_eq!((left.peer.kind(), left.peer.to_string().as_str()), (PeerKind::Memory, "memory"));
    send(&mut left, text("hello")).await;
    send(&mut left, Message::Binary(vec![1].into())).await;
    assert_eq!(message(&mut right.receiver).await, text("hello"));
    assert_eq!(message(&mut right.receiver).await, Message::Binary(vec![1].into()));
    left.sender.close(CloseReason::new(1008, "taken over")).await;
    let ConnectionEnd::ByPeer(reason) = closed(&mut right.receiver).await else { panic!("not by the peer") };
    assert_eq!(reason, CloseReason::new(1008, "taken over"));
    assert!(matches!(closed(&mut right.receiver).await, ConnectionEnd::EndOfStream));
}

#[tokio::test]
async fn a_full_channel_makes_the_sender_wait() {
    let (mut left, mut right) = memory_pair(1);
    send(&mut left, text("first")).await;
    let mut second = Box::pin(left.sender.feed(text("second")));
    tokio::select! {
        biased;
        _ = &mut second => panic!("there was no room"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(message(&mut right.receiver).await, text("first"));
    within(second).await.expect("there is room now");
    assert_eq!(message(&mut right.receiver).await, text("second"));
}

#[tokio::test]
async fn dropping_an_end_is_noticed_by_the_other() {
    let (left, mut right) = memory_pair(1);
    drop(left);
    assert!(matches!(closed(&mut right.receiver).await, ConnectionEnd::EndOfStream));
    assert!(matches!(right.sender.feed(text("anybody?")).await, Err(SendError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_fails_the_send_at_its_deadline() {
    let (mut left, _right) = memory_pair(1);
    left.sender.feed(text("fits")).await.expect("there is room");
    assert!(matches!(left.sender.feed(text("waits")).await, Err(SendError::Stalled { .. })));
}
