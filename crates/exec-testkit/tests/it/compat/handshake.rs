//! WIRE 1.3: the order of checks, and what must come before what.

use serde_json::{Value, json};

use super::rows::Row;
use super::script::{Case, Over, case, greeted, start};

/// A method of every family, with params that decode.
fn families() -> Vec<(&'static str, Value)> {
    vec![
        ("environment/info", Value::Null),
        ("environment/status", Value::Null),
        ("environmentConfig/read", json!({"cwd": "file:///", "configPaths": [["a"]], "requirementsPaths": []})),
        ("process/start", start("p", &["true"])),
        ("process/read", json!({"processId": "p"})),
        ("process/write", json!({"processId": "p", "writeId": "1", "chunk": ""})),
        ("process/signal", json!({"processId": "p", "signal": "interrupt"})),
        ("process/terminate", json!({"processId": "p"})),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (method, params) in families() {
        cases.push(case(&format!("{method} before initialize")).call(method, params.clone()).alive());
        let before = case(&format!("{method} before initialized"));
        cases.push(before.call("initialize", json!({"clientName": "c"})).call(method, params).alive());
        let bad = case(&format!("{method} with bad params, before initialize"));
        cases.push(bad.call(method, json!([1, 2])).alive());
        let number = greeted(&format!("{method} with a number for params"));
        cases.push(number.call(method, json!(5)).call(method, json!("text")).call(method, json!(true)).alive());
    }
    cases.extend(initialize());
    cases.extend(params());
    cases
}

fn initialize() -> Vec<Case> {
    vec![
        case("initialize with a name").call("initialize", json!({"clientName": "c"})).alive(),
        case("an empty client name").call("initialize", json!({"clientName": ""})),
        case("initialize with resumeSessionId null")
            .call("initialize", json!({"clientName": "c", "resumeSessionId": null})),
        case("initialize without params").says(r#"{"id":1,"method":"initialize"}"#).alive(),
        case("initialize with null").call("initialize", Value::Null),
        case("initialize with no members").call("initialize", json!({})),
        case("initialize with an array").call("initialize", json!([])),
        case("initialize with a text").call("initialize", json!("c")),
        case("a client name that is a number").call("initialize", json!({"clientName": 1})),
        case("a client name that is null").call("initialize", json!({"clientName": null})),
        case("a session id that is a number").call("initialize", json!({"clientName": "c", "resumeSessionId": 1})),
        case("unknown members of initialize are ignored")
            .call("initialize", json!({"clientName": "c", "capabilities": {"x": [1]}})),
        case("initialize twice")
            .call("initialize", json!({"clientName": "c"}))
            .call("initialize", json!({"clientName": "c"}))
            .alive(),
        greeted("initialize after initialized").call("initialize", json!({"clientName": "c"})).alive(),
        case("an unknown session")
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "nope"}))
            .call("initialize", json!({"clientName": "c", "resumeSessionId": ""}))
            .call("initialize", json!({"clientName": "c"}))
            .say(r#"{"method":"initialized"}"#)
            .call("environment/status", Value::Null),
        case("initialized before initialize").only(Over::WebSocket).say(r#"{"method":"initialized"}"#).alive(),
        case("initialized after a failed initialize")
            .only(Over::WebSocket)
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "nope"}))
            .say(r#"{"method":"initialized"}"#)
            .alive(),
        greeted("initialized again, with any params")
            .say(r#"{"method":"initialized","params":5}"#)
            .say(r#"{"method":"initialized","params":[1]}"#)
            .call("environment/status", Value::Null),
        case("initialized as a request").says(r#"{"id":1,"method":"initialized"}"#).alive(),
        case("everything pipelined")
            .ask("initialize", json!({"clientName": "c"}))
            .say(r#"{"method":"initialized","params":{}}"#)
            .ask("environment/status", json!({}))
            .ask("process/terminate", json!({"processId": "none"}))
            .answer(1)
            .answer(2)
            .answer(3),
    ]
}

fn params() -> Vec<Case> {
    let unknown = ["process/resizePty", "process", "fs/", "Environment/Info", "rpc.discover", "process/start "];
    let unknown = unknown.iter().map(|method| greeted(&format!("{method:?} is not known")).call(method, json!({})));
    let status = |name: &str, params: &str| {
        greeted(name).says(format!(r#"{{"id":"s","method":"environment/status"{params}}}"#)).alive()
    };
    let mut cases: Vec<Case> = unknown.collect();
    cases.extend([
        status("status without params", ""),
        status("status with null", r#","params":null"#),
        status("status with no members", r#","params":{}"#),
        status("status with a member", r#","params":{"a":1}"#),
        status("status with an array", r#","params":[]"#),
        status("status with a number", r#","params":1"#),
        status("status with false", r#","params":false"#),
        greeted("info with a member").call("environment/info", json!({"a": 1})),
        greeted("read without an id").call("process/read", json!({})),
        greeted("read with a negative seq").call("process/read", json!({"processId": "p", "afterSeq": -1})),
        greeted("read with a fraction").call("process/read", json!({"processId": "p", "afterSeq": 1.5})),
        greeted("read with a text for a number").call("process/read", json!({"processId": "p", "waitMs": "1"})),
        greeted("read with 2^64")
            .says(r#"{"id":"r","method":"process/read","params":{"processId":"p","afterSeq":18446744073709551616}}"#),
        greeted("read with a number for an id").call("process/read", json!({"processId": 1})),
        greeted("params as a list of members").call("process/read", json!(["p", null, null, null])),
        greeted("params as a list too short").call("process/terminate", json!([])),
        greeted("a signal of another name")
            .call("process/signal", json!({"processId": "p", "signal": "sigfoo"}))
            .better(
                Row::Added,
                json!({
                    "error": {
                        "code": -32602,
                        "message": "unknown variant `sigfoo`, expected one of `hangup`, `interrupt`, `quit`, `kill`, \
                                    `user1`, `user2`, `terminate`, `stop`, `continue`, `windowChange`"
                    },
                    "id": 2
                }),
            ),
        greeted("a signal that is a number").call("process/signal", json!({"processId": "p", "signal": 2})),
        greeted("base64 with a bad symbol")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "****"})),
        greeted("base64 without padding")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "YQ"})),
        greeted("base64 with url-safe symbols")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "-_-_"})),
        greeted("base64 with a space")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "YW Jj"})),
        greeted("base64 with one symbol over")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "YWJjZ"})),
        greeted("base64 with bits left over")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "YR=="})),
        greeted("base64 with padding in the middle")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "YQ==YQ=="})),
        greeted("a chunk that is a list")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": [1]})),
        greeted("a write without an id").call("process/write", json!({"processId": "p", "chunk": ""})),
    ]);
    cases
}
