//! The client's view of a log: any answer to `process/read`, true or not, becomes a page whose entries are in sequence,
//! and no method of that page panics.
//!
//! The first eight bytes are the seq that the reader has reached, the rest is the answer.

#![no_main]

use exec_client::page::page_of;
use exec_wire::RawJson;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((after, json)) = bytes.split_first_chunk::<8>() else { return };
    let Ok(text) = std::str::from_utf8(json) else { return };
    let after = u64::from_le_bytes(*after);
    let Ok(Ok(result)) = RawJson::parse(text).map(|raw| raw.decode()) else { return };
    let page = page_of(after, result, None);
    let cursor = page.cursor(after);
    assert!(cursor >= after, "a reader never goes back");
    for pair in page.entries.windows(2) {
        assert_eq!(pair[0].seq + 1, pair[1].seq, "entries follow each other");
    }
    if let (Some(gap), Some(first)) = (page.gap, page.entries.first()) {
        assert_eq!(gap.to_seq + 1, first.seq, "the first entry follows the gap");
    }
    let _ = (page.head.has_news(cursor), page.head.gap(cursor));
});
