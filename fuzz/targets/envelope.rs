//! Messages: any text is decoded or refused, and what was decoded round-trips.
//!
//! `serde_json` is the second opinion on syntax. Whether error messages are those of Codex is not tested here; the
//! oracle of exec-wire does that.

#![no_main]

use exec_wire::envelope::{self, Incoming, write_error, write_notification, write_request, write_response};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match envelope::decode(text) {
        Ok(message) => {
            assert!(serde_json::from_str::<&RawValue>(text).is_ok(), "what is no JSON was read");
            let again = encode(&message);
            assert_eq!(envelope::decode(&again).as_ref(), Ok(&message), "written as {again}");
        }
        // Scanner and decoder say this only of each other's mistakes.
        Err(malformed) => assert_ne!(malformed.reason, "invalid JSON", "JSON was refused without a reason"),
    }
});

fn encode(message: &Incoming<'_>) -> String {
    let mut out = Vec::new();
    match message {
        Incoming::Request(request) => {
            let params = raw(request.params.as_str());
            write_request(&mut out, &request.id, &request.method, &params, request.trace.as_ref(), request.jsonrpc);
        }
        Incoming::Notification(notification) => {
            let params = raw(notification.params.as_str());
            write_notification(&mut out, &notification.method, &params, notification.jsonrpc);
        }
        Incoming::Response(response) => {
            write_response(&mut out, &response.id, &raw(response.result.as_str()), false);
        }
        Incoming::Error(reply) => write_error(&mut out, &reply.id, &reply.error, false),
    }
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("a part of JSON is JSON")
}
