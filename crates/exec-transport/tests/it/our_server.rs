//! Our server's frames with tungstenite as the client.

use exec_transport::{CloseReason, ConnectionEnd, ListenOptions, Message, SendError};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message as TheirMessage;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as TheirFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use tokio::io::AsyncWriteExt;

use crate::support::{
    closed, long_text, masked, message, read_frame, send, text, with_raw_client, with_tungstenite, within,
};

#[tokio::test]
async fn text_and_binary_go_both_ways() {
    let (mut ours, mut theirs) = with_tungstenite(ListenOptions::default()).await;
    for size in [0, 1, 125, 126, 4095, 4096, 16_384, 65_535, 65_536, 300_000] {
        let content = long_text(size);
        theirs.send(TheirMessage::text(content.clone())).await.expect("we read");
        let received = message(&mut ours.receiver).await;
        assert_eq!(received, text(content.clone()));
        send(&mut ours, received).await;
        let echoed = within(theirs.next()).await.expect("open").expect("well formed");
        assert_eq!(echoed, TheirMessage::text(content.clone()));

        theirs.send(TheirMessage::binary(content.clone().into_bytes())).await.expect("we read");
        let received = message(&mut ours.receiver).await;
        assert_eq!(received, Message::Binary(content.clone().into_bytes().into()));
        send(&mut ours, received).await;
        let echoed = within(theirs.next()).await.expect("open").expect("well formed");
        assert_eq!(echoed, TheirMessage::binary(content.into_bytes()));
    }
}

#[tokio::test]
async fn many_small_messages_keep_their_order() {
    let (mut ours, mut theirs) = with_tungstenite(ListenOptions::default()).await;
    let reading = async {
        for number in 0..20_000 {
            let received = theirs.next().await.expect("open").expect("well formed");
            assert_eq!(received, TheirMessage::text(format!("message {number}")));
        }
    };
    let writing = async {
        for number in 0..20_000 {
            ours.sender.feed(text(format!("message {number}"))).await.expect("they read");
        }
        ours.sender.flush().await.expect("they read");
    };
    within(async { tokio::join!(reading, writing) }).await;
}

#[tokio::test]
async fn fragments_with_pings_between_become_one_message_and_pongs() {
    let (mut ours, mut theirs) = with_tungstenite(ListenOptions::default()).await;
    let part = |content: &'static str, opcode, fin| {
        TheirMessage::Frame(TheirFrame::message(content, OpCode::Data(opcode), fin))
    };
    let sending = async {
        theirs.send(part("one ", Data::Text, false)).await.expect("we read");
        theirs.send(TheirMessage::Ping("first".into())).await.expect("we read");
        theirs.send(part("two ", Data::Continue, false)).await.expect("we read");
        theirs.send(part("three", Data::Continue, true)).await.expect("we read");
        within(theirs.next()).await.expect("open").expect("well formed")
    };
    let (received, pong) = tokio::join!(message(&mut ours.receiver), async {
        let pong = sending.await;
        assert_eq!(pong, TheirMessage::Pong("first".into()));
    });
    let () = pong;
    assert_eq!(received, text("one two three"));
}

#[tokio::test]
async fn a_large_message_leaves_in_frames_of_at_most_one_mebibyte() {
    let (mut ours, mut client) = with_raw_client(ListenOptions::default()).await;
    let content = long_text(3 * (1 << 20) + 5);
    let reading = async {
        let mut frames = Vec::new();
        loop {
            let frame = read_frame(&mut client).await.expect("well formed");
            let fin = frame.fin;
            frames.push(frame);
            if fin {
                return frames;
            }
        }
    };
    let (frames, ()) = tokio::join!(within(reading), send(&mut ours, text(content.clone())));
    let shapes: Vec<_> = frames.iter().map(|frame| (frame.opcode, frame.payload.len())).collect();
    assert_eq!(shapes, [(1, 1 << 20), (0, 1 << 20), (0, 1 << 20), (0, 5)]);
    let joined: Vec<u8> = frames.into_iter().flat_map(|frame| frame.payload).collect();
    assert!(joined == content.as_bytes(), "the fragments do not add up to the message");
}

#[tokio::test]
async fn the_peers_close_is_answered_and_reported() {
    let (mut ours, mut theirs) = with_tungstenite(ListenOptions::default()).await;
    let frame = CloseFrame { code: CloseCode::Away, reason: "going home".into() };
    theirs.close(Some(frame)).await.expect("we read");
    let ConnectionEnd::ByPeer(reason) = closed(&mut ours.receiver).await else { panic!("not by the peer") };
    assert_eq!(reason, CloseReason::new(1001, "going home"));
    assert!(matches!(ours.sender.feed(text("late")).await, Err(SendError::Closed)));
    drop(ours);
    let answer = within(theirs.next()).await.expect("an answer").expect("well formed");
    let TheirMessage::Close(Some(answer)) = answer else { panic!("no close frame: {answer:?}") };
    assert_eq!(answer.code, CloseCode::Away);
    assert!(within(theirs.next()).await.is_none());
}

#[tokio::test]
async fn our_close_carries_code_and_reason_after_all_messages() {
    let (mut ours, mut theirs) = with_tungstenite(ListenOptions::default()).await;
    ours.sender.feed(text("last words")).await.expect("open");
    within(ours.sender.close(CloseReason::new(CloseReason::GOING_AWAY, "server stops"))).await;
    assert_eq!(within(theirs.next()).await.expect("open").expect("well formed"), TheirMessage::text("last words"));
    let end = within(theirs.next()).await.expect("open").expect("well formed");
    let TheirMessage::Close(Some(frame)) = end else { panic!("no close frame: {end:?}") };
    assert_eq!((frame.code, frame.reason.as_str()), (CloseCode::Away, "server stops"));
    assert!(within(theirs.next()).await.is_none());
    assert!(matches!(closed(&mut ours.receiver).await, ConnectionEnd::ByPeer(reason) if reason.code == 1001));
}

#[tokio::test]
async fn a_connection_dropped_between_messages_ends_in_good_order() {
    let (mut ours, theirs) = with_tungstenite(ListenOptions::default()).await;
    drop(theirs);
    assert!(matches!(closed(&mut ours.receiver).await, ConnectionEnd::EndOfStream));
    assert!(matches!(closed(&mut ours.receiver).await, ConnectionEnd::EndOfStream));
}

#[tokio::test]
async fn peers_are_named_by_their_address() {
    let (ours, theirs) = with_tungstenite(ListenOptions::default()).await;
    let address = theirs.get_ref().local_addr().expect("connected");
    assert_eq!(ours.peer.to_string(), address.to_string());
    assert_eq!(ours.peer.kind(), exec_transport::PeerKind::WebSocket);
    assert!(ours.sender.carries_binary());
}

#[tokio::test]
async fn a_message_right_behind_a_pong_is_not_left_lying() {
    let (mut ours, mut raw) = with_raw_client(ListenOptions::default()).await;
    let both = [masked(0x8A, b""), masked(0x81, b"behind the pong")].concat();
    raw.write_all(&both).await.expect("we read");
    assert_eq!(message(&mut ours.receiver).await, text("behind the pong"));
}
