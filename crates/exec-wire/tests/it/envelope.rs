//! The envelope: four kinds of message, ids, and the writers.

use bytes::Bytes;
use exec_wire::envelope::{
    self, Incoming, Notification, Request, SharedJson, TraceContext, write_error, write_notification, write_request,
    write_response,
};
use exec_wire::process::{OutputParams, ReadParams};
use exec_wire::{ErrorData, RawJson, RequestId, RpcError};
use serde_json::json;

fn decoded(text: &str) -> Incoming<'_> {
    envelope::decode(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_request_borrows_its_params_from_the_text() {
    let text = r#"{"jsonrpc":"2.0","id":"a\n","method":"process/read","params":{"processId":"x"},"trace":{"traceparent":"t"}}"#;
    let Incoming::Request(request) = decoded(text) else {
        panic!("not a request");
    };
    let params = request.params.as_str();
    let start = params.as_ptr() as usize - text.as_ptr() as usize;
    assert_eq!(&text[start..start + params.len()], params);
    assert_eq!(
        request,
        Request {
            id: RequestId::Text("a\n".to_owned()),
            method: "process/read".into(),
            params: RawJson::parse(r#"{"processId":"x"}"#).expect("JSON"),
            trace: Some(TraceContext { traceparent: Some("t".to_owned()), tracestate: None }),
            jsonrpc: true,
        }
    );
}

#[test]
fn absent_params_are_null() {
    assert_eq!(
        decoded(r#"{"method":"initialized"}"#),
        Incoming::Notification(Notification { method: "initialized".into(), params: RawJson::NULL, jsonrpc: false })
    );
}

#[test]
fn a_method_and_an_id_make_a_request_whatever_else_is_there() {
    let both = r#"{"id":1,"method":"m","result":1,"error":2}"#;
    assert!(matches!(decoded(both), Incoming::Request(_)));
    let response = r#"{"result":null,"error":2,"id":1}"#;
    assert!(matches!(decoded(response), Incoming::Response(_)));
}

#[test]
fn ids_are_echoed_unchanged() {
    for id in ["0", "-1", "9223372036854775807", "-9223372036854775808", r#""""#, r#""a\"b""#] {
        let text = format!(r#"{{"id":{id},"method":"m"}}"#);
        let Incoming::Request(request) = decoded(&text) else {
            panic!("not a request");
        };
        let mut out = Vec::new();
        write_response(&mut out, &request.id, &json!({}), request.jsonrpc);
        assert_eq!(String::from_utf8(out).expect("JSON is UTF-8"), format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
}

#[test]
fn data_of_an_error_is_kept_if_it_is_ours_and_dropped_if_not() {
    let error = |text: &'static str| match decoded(text) {
        Incoming::Error(reply) => reply.error,
        other => panic!("not an error: {other:?}"),
    };
    let ours = r#"{"error":{"code":-32004,"message":"gone","data":{"kind":"ENOENT","errno":2}},"id":1}"#;
    let expected = RpcError::new(-32004, "gone").with_data(ErrorData { errno: Some(2), ..ErrorData::new("ENOENT") });
    assert_eq!(error(ours), expected);
    let foreign = r#"{"error":{"code":-32004,"message":"gone","data":[1]},"id":1}"#;
    assert_eq!(error(foreign), RpcError::new(-32004, "gone"));
}

#[test]
fn jsonrpc_is_written_only_to_those_who_write_it() {
    let id = RequestId::Number(1);
    let error = RpcError::unknown_method("m");
    let trace = TraceContext::default();
    for (jsonrpc, opening) in [(true, r#"{"jsonrpc":"2.0","#), (false, "{\"")] {
        let mut out = Vec::new();
        write_error(&mut out, &id, &error, jsonrpc);
        write_notification(&mut out, "n", &json!(null), jsonrpc);
        write_request(&mut out, &id, "m", &json!(5), Some(&trace), jsonrpc);
        let text = String::from_utf8(out).expect("JSON is UTF-8");
        assert!(text.starts_with(opening), "{text}");
        assert_eq!(text.matches("jsonrpc").count(), if jsonrpc { 3 } else { 0 });
    }
}

#[test]
fn params_move_into_another_task_without_a_copy() {
    let frame = Bytes::from_static(br#"{"id":1,"method":"process/read","params":{"processId":"x"}}"#);
    let text = std::str::from_utf8(&frame).expect("ASCII");
    let Incoming::Request(request) = decoded(text) else {
        panic!("not a request");
    };
    let shared = SharedJson::new(&frame, request.params);
    let absent = SharedJson::new(&frame, RawJson::NULL);
    drop(frame);
    let params: ReadParams =
        std::thread::spawn(move || shared.decode()).join().expect("decoding does not panic").expect("good params");
    assert_eq!(params.process_id, "x");
    assert_eq!(absent.decode::<Option<u64>>(), Ok(None));
}

#[test]
fn a_mebibyte_of_output_in_a_message_is_decoded_exactly() {
    let bytes: Vec<u8> = (0..1 << 20).map(|place: u32| (place % 251) as u8).collect();
    let params = OutputParams {
        process_id: "p".to_owned(),
        seq: 1,
        stream: exec_wire::process::Stream::Stderr,
        chunk: bytes.into(),
    };
    let mut out = Vec::new();
    write_notification(&mut out, "process/output", &params, false);
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    let Incoming::Notification(notification) = decoded(&text) else {
        panic!("not a notification");
    };
    assert_eq!(notification.params.decode(), Ok(params));
}

/// What we write, we can read; and who writes knows it before.
#[test]
fn a_response_is_counted_as_its_reader_counts_it() {
    use exec_wire::limits::MESSAGE_VALUES;
    for (jsonrpc, envelope_values) in [(false, 3), (true, 4)] {
        let items = MESSAGE_VALUES - envelope_values;
        let written = |result: &serde_json::Value| {
            let mut out = Vec::new();
            let values = write_response(&mut out, &RequestId::Number(1), result, jsonrpc);
            let text = String::from_utf8(out).expect("JSON is text");
            (values, envelope::decode(&text).is_ok())
        };
        assert_eq!(written(&serde_json::json!(vec![0; items])), (MESSAGE_VALUES, true));
        assert_eq!(written(&serde_json::json!(vec![0; items + 1])), (MESSAGE_VALUES + 1, false));
        // An object and its two members, one of them a pair.
        let objects = vec![serde_json::json!({"a": 1, "b": [2, 3]}); items / 5];
        assert_eq!(written(&serde_json::json!(objects)), (envelope_values + items / 5 * 5, true));
    }
}
