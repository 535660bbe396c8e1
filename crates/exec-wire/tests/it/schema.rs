//! The schema covers the wire, and the golden files show that it describes what is sent.

use exec_wire::schema::schema;
use exec_wire::{Method, NotificationMethod};
use serde_json::Value;

#[test]
fn what_our_servers_answer_is_in_the_schema_and_every_reference_leads_somewhere() {
    let schema = schema();
    for method in Method::ALL {
        let entry = &schema["methods"][method.name()];
        let described = entry["params"].is_object() && entry["result"].is_object();
        assert_eq!(described, Method::parse_for_server(method.name()).is_some(), "{}", method.name());
    }
    assert!(schema["methods"]["capabilities/discoverV2"].is_null());
    assert!(schema["clientMethods"]["network/policyRequest"]["result"].is_object());
    for notification in NotificationMethod::ALL {
        assert!(schema["notifications"][notification.name()]["params"].is_object(), "{}", notification.name());
    }
    let mut references = Vec::new();
    collect_references(&schema, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = reference.trim_start_matches('#');
        assert!(schema.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn no_two_shapes_share_a_name() {
    // Where they do, the second gets a number.
    let schema = schema();
    let definitions = schema["$defs"].as_object().expect("definitions are an object");
    for name in definitions.keys() {
        let numbered = name.ends_with(|last: char| last.is_ascii_digit());
        let shorter = name.trim_end_matches(|last: char| last.is_ascii_digit());
        assert!(!(numbered && definitions.contains_key(shorter)), "{name}");
    }
}

#[test]
fn members_that_must_be_there_are_required() {
    let schema = schema();
    let required = &schema["$defs"]["StartParams"]["required"];
    assert_eq!(*required, serde_json::json!(["processId", "argv", "cwd", "env", "tty"]));
}

fn collect_references(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member.as_str() {
                    Some(reference) if key == "$ref" => into.push(reference.to_owned()),
                    _ => collect_references(member, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        _ => {}
    }
}
