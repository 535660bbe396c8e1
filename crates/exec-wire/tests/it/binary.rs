//! Binary frames: what is written is read, and what is damaged is named.

use exec_wire::binary::{self, FrameHeader, HEADER_BYTES, IdTooLong, MalformedFrame};
use exec_wire::process::Stream;
use proptest::prelude::*;

fn output() -> FrameHeader<'static> {
    FrameHeader::Output { process_id: "p", seq: 7, stream: Stream::Pty }
}

fn framed(header: &FrameHeader<'_>, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    binary::encode(&mut frame, header, payload).expect("a short id");
    frame
}

#[test]
fn the_layout_is_the_documented_one() {
    assert_eq!(framed(&output(), b"hi"), b"\x01\x01\x03\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07phi");
    let block = FrameHeader::Block { request_id: "12", offset: 256, eof: true };
    assert_eq!(framed(&block, b""), b"\x02\x01\x00\x01\x00\x02\x00\x00\x00\x00\x00\x00\x01\x0012");
    let write = FrameHeader::Write { request_id: "12", handle_id: "h-1", offset: 256 };
    assert_eq!(framed(&write, b"hi"), b"\x03\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x01\x0012\x03h-1hi");
    let write = FrameHeader::StreamWrite { request_id: "12", stream_id: "s-1", offset: 256, eof: true };
    assert_eq!(framed(&write, b"hi"), b"\x04\x01\x00\x01\x00\x02\x00\x00\x00\x00\x00\x00\x01\x0012\x03s-1hi");
}

#[test]
fn damage_is_named() {
    let good = framed(&output(), b"hi");
    let damaged = |position: usize, byte: u8| {
        let mut frame = good.clone();
        frame[position] = byte;
        frame
    };
    let found_bytes = HEADER_BYTES - 1;
    assert_eq!(binary::decode(&good[..found_bytes]), Err(MalformedFrame::Short { found_bytes }));
    assert_eq!(binary::decode(&damaged(0, b'{')), Err(MalformedFrame::Kind { kind: b'{' }));
    assert_eq!(binary::decode(&damaged(1, 2)), Err(MalformedFrame::Version { version: 2 }));
    assert_eq!(binary::decode(&damaged(2, 4)), Err(MalformedFrame::Stream { stream: 4 }));
    assert_eq!(binary::decode(&damaged(3, 1)), Err(MalformedFrame::Flags { flags: 1 }));
    assert_eq!(binary::decode(&damaged(5, 200)), Err(MalformedFrame::Short { found_bytes: good.len() }));
    assert_eq!(binary::decode(&damaged(14, 0xff)), Err(MalformedFrame::Id));
    let write = framed(&FrameHeader::Write { request_id: "1", handle_id: "h", offset: 0 }, b"");
    assert_eq!(binary::decode(&write[..16]), Err(MalformedFrame::Short { found_bytes: 16 }));
    assert_eq!(binary::decode(&write[..15]), Err(MalformedFrame::Short { found_bytes: 15 }));
}

#[test]
fn an_id_that_does_not_fit_is_refused() {
    let process_id = "x".repeat(65_536);
    let header = FrameHeader::Output { process_id: &process_id, seq: 1, stream: Stream::Stdout };
    let mut frame = Vec::new();
    assert_eq!(binary::encode(&mut frame, &header, b""), Err(IdTooLong { found_bytes: 65_536 }));
    let handle_id = "h".repeat(256);
    let header = FrameHeader::Write { request_id: "1", handle_id: &handle_id, offset: 0 };
    assert_eq!(binary::encode(&mut frame, &header, b""), Err(IdTooLong { found_bytes: 256 }));
    assert!(frame.is_empty());
}

#[test]
fn json_and_frames_are_told_apart_by_the_first_byte() {
    assert!(binary::is_binary(&framed(&output(), b"")));
    assert!(!binary::is_binary(b" {\"id\":1}"));
    assert!(!binary::is_binary(b""));
}

proptest! {
    #[test]
    fn a_frame_reads_back_what_was_written(
        id in any::<String>(),
        position in any::<u64>(),
        eof in any::<bool>(),
        handle in "[a-z0-9é]{0,32}",
        kind in 0..4,
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let header = match kind {
            0 => FrameHeader::Block { request_id: &id, offset: position, eof },
            1 => FrameHeader::Write { request_id: &id, handle_id: &handle, offset: position },
            2 => FrameHeader::StreamWrite { request_id: &id, stream_id: &handle, offset: position, eof },
            _ => FrameHeader::Output { process_id: &id, seq: position, stream: Stream::Stderr },
        };
        let frame = framed(&header, &payload);
        prop_assert_eq!(binary::decode(&frame), Ok((header, &payload[..])));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(frame in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = binary::decode(&frame);
    }
}
