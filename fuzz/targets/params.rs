//! Params, results and notifications: every shape of the method table, given any JSON, accepts or refuses it; and what
//! it accepted and wrote it accepts again, and writes the same.
//!
//! Seeds are whole messages (the golden files), of which the inner part is used; any other JSON is used as it is.

#![no_main]

use exec_wire::envelope::{self, Incoming};
use exec_wire::method::JsonType;
use exec_wire::{Method, NotificationMethod, RawJson};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(whole) = RawJson::parse(text) else { return };
    let value = match envelope::decode(text) {
        Ok(Incoming::Request(request)) => request.params,
        Ok(Incoming::Notification(notification)) => notification.params,
        Ok(Incoming::Response(response)) => response.result,
        Ok(Incoming::Error(_)) | Err(_) => whole,
    };
    for method in Method::ALL {
        round_trips(&method.params(), value);
        round_trips(&method.result(), value);
    }
    for notice in NotificationMethod::ALL {
        round_trips(&notice.params(), value);
    }
});

fn round_trips(shape: &JsonType, value: RawJson<'_>) {
    match (shape.rewrite)(value) {
        Ok(first) => {
            let raw = RawJson::parse(&first).expect("what a shape writes is JSON within bounds");
            let second = (shape.rewrite)(raw).expect("a shape reads what it wrote");
            assert_eq!(first, second, "{} does not round-trip", shape.type_name);
        }
        // The decoder says this of text that the scanner should have refused.
        Err(error) => assert_ne!(error.reason(), "invalid JSON", "{} lost its position", shape.type_name),
    }
}
