//! The JSON Schema of the whole wire, made from the types.
//!
//! It describes what we read; a `null` where a member may be absent is fine, and members nobody knows are ignored.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::envelope::{RequestId, TraceContext};
use crate::error::RpcError;
use crate::method::{Method, NotificationMethod};

/// One document: every method that our servers answer and the one that they call, with params and result, every notification
/// that they send or understand, and the definitions they share.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut methods = Map::new();
    let mut describe = |method: Method| {
        let (params, result) = method.schemas(&mut generator);
        json!({ "params": params, "result": result })
    };
    for method in Method::ALL.iter().filter(|method| method.is_served()) {
        methods.insert(method.name().to_owned(), describe(*method));
    }
    let asked = Method::NetworkPolicyRequest;
    let called = json!({ asked.name(): describe(asked) });
    let mut notifications = Map::new();
    for notification in NotificationMethod::ALL {
        let params = notification.schema(&mut generator);
        notifications.insert(notification.name().to_owned(), json!({ "params": params }));
    }
    let id = generator.subschema_for::<RequestId>();
    let trace = generator.subschema_for::<TraceContext>();
    let error = generator.subschema_for::<RpcError>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "exec-server wire",
        "methods": methods,
        "clientMethods": called,
        "notifications": notifications,
        "envelope": { "id": id, "trace": trace, "error": error },
        "$defs": generator.take_definitions(true),
    })
}
