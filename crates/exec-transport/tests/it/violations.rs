//! Peers that break the rules: told why where the framing allows it, then cut off.

use exec_transport::{CloseReason, Connection, ConnectionEnd, Limits, ListenOptions, Received};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message as TheirMessage;

use crate::support::{
    Frame, closed, long_text, masked, message, read_frame, text, with_raw_client, with_tungstenite, within,
};

/// What the server found, after which it must report its end.
async fn cut_off(ours: &mut Connection) -> CloseReason {
    match within(ours.receiver.next()).await {
        Received::Malformed { reason } => assert!(!reason.is_empty()),
        other => panic!("expected a violation, found {other:?}"),
    }
    match closed(&mut ours.receiver).await {
        ConnectionEnd::Violation(reason) => reason,
        other => panic!("expected a violation, found {other:?}"),
    }
}

fn small_limits() -> ListenOptions {
    let limits = Limits { frame_in_bytes: 100, message_in_bytes: 150, ..Limits::default() };
    ListenOptions { limits, ..ListenOptions::default() }
}

#[tokio::test]
async fn raw_violations_get_a_close_frame_and_the_end() {
    for (bytes, code, reason) in [
        (b"\x81\x02hi".to_vec(), 1002_u16, "an unmasked frame from a client"),
        (masked(0x81, b"\xff\xff"), 1007, "a text message is not valid UTF-8"),
        (masked(0x82, &[0; 101]), 1009, "a frame of 101 bytes; at most 100 are accepted"),
        ([masked(0x02, &[0; 100]), masked(0x80, &[0; 51])].concat(), 1009, "a message of more than 150 bytes"),
        (masked(0xc1, b"hi"), 1002, "a frame with reserved bits; no extension was agreed on"),
    ] {
        let (mut ours, mut client) = with_raw_client(small_limits()).await;
        client.write_all(&bytes).await.expect("we read");
        let telling = async {
            let frame = read_frame(&mut client).await.expect("a close frame");
            let mut payload = code.to_be_bytes().to_vec();
            payload.extend_from_slice(reason.as_bytes());
            assert_eq!(frame, Frame { fin: true, opcode: 8, payload });
            assert_eq!(client.read(&mut [0]).await.expect("the end, not a reset"), 0);
            drop(client);
        };
        let (found, ()) = within(async { tokio::join!(cut_off(&mut ours), telling) }).await;
        assert_eq!(found, CloseReason::new(code, reason));
    }
}

#[tokio::test]
async fn frames_of_sixteen_mebibytes_pass_and_one_byte_more_is_told_1009() {
    let (mut ours, mut theirs) = with_tungstenite(ListenOptions::default()).await;
    let content = long_text(16 << 20);
    let sending = async {
        theirs.send(TheirMessage::text(content.clone())).await.expect("we read");
        // The cut may come while this is being written; what counts is what is read afterwards.
        let _ = theirs.send(TheirMessage::text(format!("{content}x"))).await;
        within(theirs.next()).await.expect("a close frame").expect("well formed")
    };
    let receiving = async {
        assert!(message(&mut ours.receiver).await == text(content.clone()), "the message was changed");
        cut_off(&mut ours).await
    };
    let (told, found) = within(async { tokio::join!(sending, receiving) }).await;
    assert_eq!(found, CloseReason::new(1009, "a frame of 16777217 bytes; at most 16777216 are accepted"));
    let TheirMessage::Close(Some(frame)) = told else { panic!("no close frame: {told:?}") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1009, found.reason.as_ref()));
}

#[tokio::test]
async fn a_frame_that_stops_half_way_is_a_lost_connection() {
    for half in [&masked(0x81, b"hello")[..7], &masked(0x81, b"hello")[..1], &masked(0x01, b"hello")] {
        let (mut ours, mut client) = with_raw_client(ListenOptions::default()).await;
        client.write_all(half).await.expect("we read");
        drop(client);
        assert!(
            matches!(closed(&mut ours.receiver).await, ConnectionEnd::Lost(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
        );
    }
}

#[tokio::test]
async fn a_message_that_comes_byte_by_byte_to_an_impatient_reader_is_whole() {
    let (mut ours, mut client) = with_raw_client(ListenOptions::default()).await;
    client.set_nodelay(true).expect("a TCP stream");
    let bytes = masked(0x81, b"patience");
    let mut received = None;
    for byte in &bytes {
        client.write_all(&[*byte]).await.expect("we read");
        // The future of `next` is dropped after a single poll, again and again.
        let mut next = Box::pin(ours.receiver.next());
        tokio::select! {
            biased;
            found = &mut next => received = Some(found),
            () = tokio::task::yield_now() => {}
        }
    }
    let received = match received {
        Some(received) => received,
        None => within(ours.receiver.next()).await,
    };
    assert!(matches!(received, Received::Message(found) if found == text("patience")));
}
