//! Lines of text: however the bytes are split, they decode to the same lines or the same violation.

#![no_main]

use exec_transport::fuzzing::lines;
use libfuzzer_sys::fuzz_target;

/// Small, so that inputs of ordinary length reach it.
const LINE_MAX_BYTES: usize = 500;

fuzz_target!(|bytes: &[u8]| {
    let [cut, stream @ ..] = bytes else { return };
    let whole = lines(LINE_MAX_BYTES, stream, stream.len().max(1));
    let pieces = lines(LINE_MAX_BYTES, stream, usize::from(*cut) + 1);
    assert_eq!(whole, pieces, "how the bytes were cut made a difference");
});
