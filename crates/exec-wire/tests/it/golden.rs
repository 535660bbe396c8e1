//! Golden files: one per message, exactly as it goes over the wire. Each is read into its type and written again, and
//! must come out as the same bytes. `PROTOCOL.md` quotes them.

use std::collections::BTreeMap;
use std::path::Path;

use exec_wire::envelope::{self, Incoming, write_error, write_notification, write_request, write_response};
use exec_wire::{Method, NotificationMethod, RawJson};
use serde_json::value::RawValue;

/// Every golden file by its name without the ending, without its last newline.
pub(crate) fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    std::fs::read_dir(folder)
        .expect("the golden files are part of the crate")
        .map(|entry| {
            let path = entry.expect("a readable folder").path();
            let name = path.file_stem().expect("a file has a name").to_string_lossy();
            let text = std::fs::read_to_string(&path).expect("golden files are text");
            (name.into_owned(), text.trim_end_matches('\n').to_owned())
        })
        .collect()
}

fn file_name(method: &str, kind: &str) -> String {
    format!("{}.{kind}", method.replace('/', "-"))
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("what was just written is JSON")
}

/// The message, read into its types and written again.
fn rewritten(name: &str, text: &str) -> String {
    let mut out = Vec::new();
    match envelope::decode(text).unwrap_or_else(|error| panic!("{name}: {error}")) {
        Incoming::Request(request) => {
            let method = Method::parse(&request.method).expect("a method of the table");
            let params = (method.params().rewrite)(request.params).unwrap_or_else(|error| panic!("{name}: {error}"));
            let trace = request.trace.as_ref();
            write_request(&mut out, &request.id, method.name(), &raw(params), trace, request.jsonrpc);
        }
        Incoming::Response(response) => {
            let method = Method::ALL
                .iter()
                .find(|method| file_name(method.name(), "response") == name)
                .unwrap_or_else(|| panic!("{name}: the response to no method"));
            let result = (method.result().rewrite)(response.result).unwrap_or_else(|error| panic!("{name}: {error}"));
            write_response(&mut out, &response.id, &raw(result), false);
        }
        Incoming::Notification(notification) => {
            let method = NotificationMethod::parse(&notification.method).expect("a notification of the table");
            let params =
                (method.params().rewrite)(notification.params).unwrap_or_else(|error| panic!("{name}: {error}"));
            write_notification(&mut out, method.name(), &raw(params), notification.jsonrpc);
        }
        Incoming::Error(reply) => write_error(&mut out, &reply.id, &reply.error, false),
    }
    String::from_utf8(out).expect("JSON is UTF-8")
}

#[test]
fn every_golden_message_is_written_as_it_was_read() {
    for (name, text) in files() {
        assert_eq!(rewritten(&name, &text), text, "{name}");
    }
}

#[test]
fn every_message_of_the_table_has_its_golden_file_and_no_other_exists() {
    let methods =
        Method::ALL.iter().flat_map(|method| ["request", "response"].map(|kind| file_name(method.name(), kind)));
    let notifications =
        NotificationMethod::ALL.iter().map(|notification| file_name(notification.name(), "notification"));
    let mut expected: Vec<String> = methods.chain(notifications).collect();
    expected.sort();
    let found: Vec<String> = files().into_keys().filter(|name| !name.starts_with("error.")).collect();
    assert_eq!(found, expected);
}

/// One that overlooked it would act with the rights of the server's own account.
#[test]
fn every_file_call_with_a_sandbox_reads_whose_rights_it_has() {
    let context = r#"{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled","runAs":{"user":"ann"}}"#;
    let files = files();
    let mut read = Vec::new();
    for method in Method::ALL.iter().filter(|method| **method != Method::ProcessStart) {
        let Incoming::Request(request) =
            envelope::decode(&files[&file_name(method.name(), "request")]).expect("a golden message")
        else {
            panic!("{}: no request", method.name())
        };
        let params = request.params.as_str();
        // Where a context may stand there is one, or nothing.
        let with_user = params.replace(r#""sandbox":null"#, &format!(r#""sandbox":{context}"#));
        if with_user == params {
            assert!(!params.contains(r#""sandbox""#) || params.contains(r#""runAs""#), "{}: {params}", method.name());
            continue;
        }
        let again = (method.params().rewrite)(RawJson::parse(&with_user).expect("it is JSON"));
        assert!(again.is_ok_and(|again| again.contains(r#""runAs":{"user":"ann"}"#)), "{}", method.name());
        read.push(method.name());
    }
    assert!(read.contains(&"fs/readFile") && read.contains(&"fs/writeFile"), "{read:?}");
}

#[test]
fn answers_of_an_older_server_are_understood() {
    // It knows nothing of our members; a client must not mind.
    let theirs = r#"{"chunks":[],"nextSeq":4,"exited":false,"exitCode":null,"closed":false,"failure":null,"sandboxDenied":false}"#;
    let again = (Method::ProcessRead.result().rewrite)(RawJson::parse(theirs).expect("a captured result is JSON"));
    assert_eq!(again.as_deref(), Ok(theirs));
    let smallest = r#"{"shell":{"name":"bash","path":"/bin/bash"}}"#;
    let info = RawJson::parse(smallest).expect("a captured result is JSON");
    assert_eq!((Method::EnvironmentInfo.result().check)(info), Ok(()));
}
