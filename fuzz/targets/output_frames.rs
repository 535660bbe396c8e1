//! Output in both encodings: binary frames, and the JSON notification with its fast decoder.
//!
//! The fast decoder may decline anything, but what it accepts must be what the ordinary decoder would have read.

#![no_main]

use exec_wire::envelope::{self, Incoming};
use exec_wire::output_codec::{OutputEncoder, decode_output};
use exec_wire::process::{OutputParams, Stream};
use exec_wire::{binary, limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, payload)) = binary::decode(bytes) {
        let mut again = Vec::new();
        binary::encode(&mut again, &header, payload).expect("an id that came in a frame fits one");
        assert_eq!(again, bytes, "a frame is written as it was read");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        decoders_agree(text);
        round_trips(text);
    }
});

fn decoders_agree(text: &str) {
    let Some(fast) = decode_output(text) else { return };
    let Ok(Incoming::Notification(notification)) = envelope::decode(text) else {
        panic!("accepted, and no notification");
    };
    let params: OutputParams = notification.params.decode().expect("accepted, so well formed");
    let ordinary = (params.process_id.as_str(), params.seq, params.stream, &params.chunk.0[..]);
    assert_eq!((fast.process_id, fast.seq, fast.stream, &fast.bytes[..]), ordinary);
}

/// The text is a process id and, as bytes, what the process printed.
fn round_trips(text: &str) {
    let mut out = Vec::new();
    OutputEncoder::new(text, text.len() % 2 == 0).encode(&mut out, u64::MAX, Stream::Pty, text.as_bytes());
    let line = std::str::from_utf8(&out).expect("JSON is UTF-8");
    let Ok(Incoming::Notification(notification)) = envelope::decode(line) else {
        panic!("our own notification does not read: {line}");
    };
    let params: OutputParams = notification.params.decode().expect("our own params read");
    assert_eq!((params.process_id.as_str(), &params.chunk.0[..]), (text, text.as_bytes()));
    assert!(line.len() <= limits::MESSAGE_BYTES);
}
