//! Params, results and notices: every shape of the method table, given any JSON, takes or refuses it; and what it has
//! taken and written it takes again, to write the same.
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
        let spec = method.spec();
        is_steady(&spec.params, value);
        is_steady(&spec.result, value);
    }
    for notice in NotificationMethod::ALL {
        is_steady(&notice.params(), value);
    }
});

fn is_steady(shape: &JsonType, value: RawJson<'_>) {
    match (shape.rewrite)(value) {
        Ok(first) => {
            let raw = RawJson::parse(&first).expect("what a shape writes is JSON within bounds");
            let second = (shape.rewrite)(raw).expect("a shape reads what it wrote");
            assert_eq!(first, second, "{} changes under its own hand", shape.type_name);
        }
        // The decoder's word for text that the scanner should have refused.
        Err(error) => assert_ne!(error.reason(), "invalid JSON", "{} lost its place", shape.type_name),
    }
}
