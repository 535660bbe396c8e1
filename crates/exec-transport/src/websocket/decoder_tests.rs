//! The decoder against hand-made bytes, and against our own encoder under any cut.

use proptest::prelude::*;

use super::*;
use crate::websocket::frame::{MaskKeys, Role};

const LIMIT: usize = 1 << 20;

/// Hands `bytes` over in pieces of at most `piece` and collects what comes of it.
fn decode(decoder: &mut Decoder, bytes: &[u8], piece: usize) -> Result<Vec<DecoderEvent>, CloseReason> {
    let mut found = Vec::new();
    for mut chunk in bytes.chunks(piece) {
        while !chunk.is_empty() {
            let mut space = decoder.space();
            let fits = space.remaining_mut().min(chunk.len());
            space.put_slice(&chunk[..fits]);
            decoder.filled(fits);
            chunk = &chunk[fits..];
            while let Some(incoming) = decoder.next()? {
                found.push(incoming);
            }
            decoder.release_idle();
        }
    }
    Ok(found)
}

fn client(frame_max: usize, message_max: usize) -> Decoder {
    Decoder::new(false, frame_max, message_max, &[])
}

fn violation(bytes: &[u8]) -> CloseReason {
    decode(&mut client(LIMIT, LIMIT), bytes, 1).expect_err("a violation")
}

#[test]
fn control_frames_may_come_between_fragments() {
    for piece in 1..30 {
        let bytes = b"\x01\x03abc\x89\x02hi\x00\x00\x8a\x00\x80\x03def";
        let found = decode(&mut client(LIMIT, LIMIT), bytes, piece).expect("well formed");
        let shown = format!("{found:?}");
        assert_eq!(shown, r#"[Ping(b"hi"), Pong, Message(Text(b"abcdef"))]"#);
    }
}

#[test]
fn each_violation_has_its_code_and_reason() {
    for (bytes, code, reason) in [
        (&b"\xc1\x00"[..], 1002, "a frame with reserved bits; no extension was agreed on"),
        (b"\x83\x00", 1002, "a frame with the unknown opcode 3"),
        (b"\x81\x80\0\0\0\0", 1002, "a masked frame from a server"),
        (b"\x80\x00", 1002, "a continuation frame without a message to continue"),
        (b"\x01\x00\x81\x00", 1002, "a new message inside an unfinished one"),
        (b"\x09\x00", 1002, "a control frame that is fragmented or longer than 125 bytes"),
        (b"\x89\x7e\x00\x7e", 1002, "a control frame that is fragmented or longer than 125 bytes"),
        (b"\x88\x01\x03", 1002, "a close frame of one byte"),
        (b"\x88\x02\x03\xee", 1002, "a close frame with the invalid code 1006"),
        (b"\x88\x03\x03\xe8\xff", 1007, "the reason in a close frame is not valid UTF-8"),
        (b"\x81\x01\xff", 1007, "a text message is not valid UTF-8"),
        (b"\x82\x7f\0\0\0\0\0\x10\0\x01", 1009, "a frame of 1048577 bytes; at most 1048576 are accepted"),
        (
            b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
            1009,
            "a frame of 18446744073709551615 bytes; at most 1048576 are accepted",
        ),
    ] {
        assert_eq!(violation(bytes), CloseReason::new(code, reason));
    }
}

#[test]
fn a_server_refuses_unmasked_frames() {
    let mut server = Decoder::new(true, LIMIT, LIMIT, &[]);
    let refused = decode(&mut server, b"\x81\x01a", 1).expect_err("clients must mask");
    assert_eq!(refused, CloseReason::new(1002, "an unmasked frame from a client"));
}

#[test]
fn the_message_limit_counts_all_fragments() {
    let bytes = b"\x02\x04abcd\x80\x04efgh";
    assert_eq!(decode(&mut client(8, 8), bytes, 3).expect("at the limit").len(), 1);
    let refused = decode(&mut client(8, 7), bytes, 3).expect_err("over the limit");
    assert_eq!(refused, CloseReason::new(1009, "a message of more than 7 bytes"));
}

#[test]
fn a_close_frame_carries_code_and_reason_or_nothing() {
    for (bytes, expected) in [
        (&b"\x88\x00"[..], CloseReason::new(1005, "")),
        (b"\x88\x05\x03\xe9bye", CloseReason::new(1001, "bye")),
        (b"\x88\x02\x0f\xa0", CloseReason::new(4000, "")),
    ] {
        let found = decode(&mut client(LIMIT, LIMIT), bytes, 1).expect("well formed");
        assert!(matches!(&found[..], [DecoderEvent::Close(reason)] if *reason == expected), "{found:?}");
    }
}

#[test]
fn a_header_that_promises_much_costs_little() {
    let mut decoder = client(16 << 20, 64 << 20);
    let found = decode(&mut decoder, b"\x82\x7f\0\0\0\0\x01\0\0\0ab", 100).expect("well formed so far");
    assert!(found.is_empty());
    let _ = decoder.space();
    let held = decoder.message.as_ref().expect("it began").data.capacity();
    assert!(held <= 2 * READ_BYTES, "{held} bytes are held for two that came");
    assert!(!decoder.at_boundary());
}

proptest! {
    #[test]
    fn what_a_role_encodes_the_other_decodes_under_any_cut(
        messages in proptest::collection::vec((any::<bool>(), 0_usize..40_000), 1..5),
        fragment in 1_usize..20_000,
        piece in 1_usize..9_000,
        masked in any::<bool>(),
    ) {
        let mut role = if masked { Role::Client(MaskKeys::default()) } else { Role::Server };
        let mut bytes = BytesMut::new();
        let mut sent = Vec::new();
        for (binary, length) in messages {
            let payload: Vec<u8> = (0..length).map(|at| b'a' + (at % 23) as u8).collect();
            let mut opcode = if binary { Opcode::Binary } else { Opcode::Text };
            let pieces: Vec<&[u8]> = if payload.is_empty() { vec![&[]] } else { payload.chunks(fragment).collect() };
            for (at, part) in pieces.iter().enumerate() {
                role.append_frame(&mut bytes, at + 1 == pieces.len(), opcode, part);
                opcode = Opcode::Continuation;
            }
            let payload = Bytes::from(payload);
            sent.push(if binary { Message::Binary(payload) } else { Message::Text(payload) });
        }
        let mut decoder = Decoder::new(masked, LIMIT, LIMIT, &[]);
        let found = decode(&mut decoder, &bytes, piece).expect("well formed");
        let found: Vec<Message> = found.into_iter().filter_map(|incoming| match incoming {
            DecoderEvent::Message(message) => Some(message),
            _ => None,
        }).collect();
        prop_assert_eq!(found, sent);
        prop_assert!(decoder.at_boundary());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), masked in any::<bool>(), piece in 1_usize..100) {
        let _ = decode(&mut Decoder::new(masked, 500, 900, &[]), &bytes, piece);
    }
}
