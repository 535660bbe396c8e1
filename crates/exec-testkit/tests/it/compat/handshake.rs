//! WIRE 1.3: the order of checks, and what must come before what.

use serde_json::{Value, json};

use super::case::{Case, Transport, case, initialized, start};
use super::declared_differences::DeclaredDifference;

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
        let number = initialized(&format!("{method} with a number for params"));
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
        case("initialize without params").send_and_receive(r#"{"id":1,"method":"initialize"}"#).alive(),
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
        initialized("initialize after initialized").call("initialize", json!({"clientName": "c"})).alive(),
        case("an unknown session")
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "nope"}))
            .call("initialize", json!({"clientName": "c", "resumeSessionId": ""}))
            .call("initialize", json!({"clientName": "c"}))
            .send(r#"{"method":"initialized"}"#)
            .call("environment/status", Value::Null),
        case("initialized before initialize").only(Transport::WebSocket).send(r#"{"method":"initialized"}"#).alive(),
        case("initialized after a failed initialize")
            .only(Transport::WebSocket)
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "nope"}))
            .send(r#"{"method":"initialized"}"#)
            .alive(),
        initialized("initialized again, with any params")
            .send(r#"{"method":"initialized","params":5}"#)
            .send(r#"{"method":"initialized","params":[1]}"#)
            .call("environment/status", Value::Null),
        case("initialized as a request").send_and_receive(r#"{"id":1,"method":"initialized"}"#).alive(),
        case("everything pipelined")
            .request("initialize", json!({"clientName": "c"}))
            .send(r#"{"method":"initialized","params":{}}"#)
            .request("environment/status", json!({}))
            .request("process/terminate", json!({"processId": "none"}))
            .response(1)
            .response(2)
            .response(3),
    ]
}

fn params() -> Vec<Case> {
    let unknown = ["process/resizePty", "process", "fs/", "Environment/Info", "rpc.discover", "process/start "];
    let unknown = unknown.iter().map(|method| initialized(&format!("{method:?} is not known")).call(method, json!({})));
    let status = |name: &str, params: &str| {
        initialized(name).send_and_receive(format!(r#"{{"id":"s","method":"environment/status"{params}}}"#)).alive()
    };
    let chunk = |name: &str, chunk: Value| {
        initialized(name).call("process/write", json!({"processId": "p", "writeId": "1", "chunk": chunk}))
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
        initialized("info with a member").call("environment/info", json!({"a": 1})),
        initialized("read without an id").call("process/read", json!({})),
        initialized("read with a negative seq").call("process/read", json!({"processId": "p", "afterSeq": -1})),
        initialized("read with a fraction").call("process/read", json!({"processId": "p", "afterSeq": 1.5})),
        initialized("read with a text for a number").call("process/read", json!({"processId": "p", "waitMs": "1"})),
        initialized("read with 2^64").send_and_receive(
            r#"{"id":"r","method":"process/read","params":{"processId":"p","afterSeq":18446744073709551616}}"#,
        ),
        initialized("read with a number for an id").call("process/read", json!({"processId": 1})),
        initialized("params as a list of members").call("process/read", json!(["p", null, null, null])),
        initialized("params as a list too short").call("process/terminate", json!([])),
        initialized("a signal of another name")
            .call("process/signal", json!({"processId": "p", "signal": "sigfoo"}))
            .differs(
                DeclaredDifference::Added,
                json!({
                    "error": {
                        "code": -32602,
                        "message": "unknown variant `sigfoo`, expected one of `hangup`, `interrupt`, `quit`, `kill`, \
                                    `user1`, `user2`, `terminate`, `stop`, `continue`, `windowChange`"
                    },
                    "id": 2
                }),
            ),
        initialized("a signal that is a number").call("process/signal", json!({"processId": "p", "signal": 2})),
        chunk("base64 with a bad symbol", json!("****")),
        chunk("base64 without padding", json!("YQ")),
        chunk("base64 with url-safe symbols", json!("-_-_")),
        chunk("base64 with a space", json!("YW Jj")),
        chunk("base64 with one symbol over", json!("YWJjZ")),
        chunk("base64 with bits left over", json!("YR==")),
        chunk("base64 with padding in the middle", json!("YQ==YQ==")),
        chunk("a chunk that is a list", json!([1])),
        initialized("a write without an id").call("process/write", json!({"processId": "p", "chunk": ""})),
    ]);
    cases
}
