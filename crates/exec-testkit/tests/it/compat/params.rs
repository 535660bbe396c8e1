//! WIRE 1.3: every member of every method's params, absent, null and of every wrong type; and every method too early.

use serde_json::{Value, json};

use super::case::{Case, CaseStep, Transport, case, start, with};
use super::case_directory::{in_directory, uri};

/// A method, and params that it accepts without doing any harm.
fn methods() -> Vec<(&'static str, Value)> {
    let walk = json!({"maxDepth": 1, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": false, "pruneHiddenDirectories": false});
    vec![
        ("environmentConfig/read", json!({"cwd": "file:///", "configPaths": [["a"]], "requirementsPaths": []})),
        (
            "process/start",
            with(
                start("p", &["/no/such"]),
                json!({"pipeStdin": false, "arg0": null, "sandbox": null, "envPolicy": null, "metadata": null, "shellSnapshot": null, "managedNetwork": null, "enforceManagedNetwork": false}),
            ),
        ),
        ("process/read", json!({"processId": "no", "afterSeq": 0, "maxBytes": 0, "waitMs": 0})),
        ("process/write", json!({"processId": "no", "chunk": "", "writeId": "1"})),
        ("process/signal", json!({"processId": "no", "signal": "interrupt"})),
        ("process/terminate", json!({"processId": "no"})),
        (
            "http/request",
            json!({"method": "GET", "url": "http://$WEB/status/200", "headers": [], "bodyBase64": null, "timeoutMs": 5000, "redirectPolicy": "stop", "requestId": "r", "streamResponse": false}),
        ),
        ("capabilityRoots/discoverV1", json!({"roots": []})),
        ("fs/readFile", json!({"path": uri("no"), "followSymlinks": true, "sandbox": null})),
        ("fs/writeFile", json!({"path": uri("no/x"), "dataBase64": "", "followSymlinks": true, "sandbox": null})),
        ("fs/open", json!({"handleId": "h", "path": uri("no"), "mode": "read", "sandbox": null})),
        ("fs/readBlock", json!({"handleId": "h", "offset": 0, "len": 1})),
        ("fs/writeBlock", json!({"handleId": "h", "offset": 0, "chunk": "eA=="})),
        ("fs/close", json!({"handleId": "h"})),
        ("fs/createDirectory", json!({"path": uri("d"), "recursive": true, "followSymlinks": true, "sandbox": null})),
        ("fs/getMetadata", json!({"path": uri("no"), "followSymlinks": true, "sandbox": null})),
        ("fs/canonicalize", json!({"path": uri("no"), "sandbox": null})),
        ("fs/readDirectory", json!({"path": uri("no"), "sandbox": null})),
        ("fs/walk", json!({"path": uri("no"), "options": walk, "sandbox": null})),
        (
            "fs/remove",
            json!({"path": uri("no"), "recursive": true, "force": true, "followSymlinks": true, "sandbox": null}),
        ),
        (
            "fs/copy",
            json!({"sourcePath": uri("no"), "destinationPath": uri("no2"), "recursive": true, "sandbox": null}),
        ),
        ("fs/watchMissing", json!({"watchId": 1, "missing": [], "present": null})),
    ]
}

/// Values of every type.
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(5),
        json!(1.5),
        json!(18_446_744_073_709_551_615_u64),
        json!("text"),
        json!(""),
        json!([]),
        json!([1]),
        json!(["text"]),
        json!([["text"]]),
        json!([{}]),
        json!({}),
        json!({"text": "text"}),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (method, good) in methods() {
        cases.push(whole(method, &good));
        cases.push(too_early(method, &good));
        for member in good.as_object().expect("params are objects").keys() {
            cases.push(one_member(method, &good, &[member]));
        }
    }
    for (method, good) in methods() {
        if method == "fs/walk" {
            for member in good["options"].as_object().expect("options are an object").keys() {
                cases.push(one_member(method, &good, &["options", member]));
            }
        }
    }
    cases.extend(methods_without_params());
    cases.extend(inner());
    cases
}

/// Params that are something else altogether.
fn whole(method: &str, good: &Value) -> Case {
    let mut case = in_directory(&format!("the params of {method}"));
    for value in values() {
        case = case.call(method, value);
    }
    case = case.call(method, with(good.clone(), json!({"unknown": [1, 2, {"x": null}]})));
    case.send_and_receive(format!(r#"{{"id":"none","method":"{method}"}}"#))
}

/// One member of every type, and absent.
fn one_member(method: &str, good: &Value, path: &[&str]) -> Case {
    let mut case = in_directory(&format!("{} of {method}", path.join(".")));
    // The error of an unknown word lists the words that we add; and whether 5 ms are enough is chance.
    let word = |value: &Value| value.is_string() || value.is_object();
    let left_out = |value: &Value| match (method, path) {
        ("process/signal", ["signal"]) | ("fs/open", ["mode"]) => word(value),
        ("http/request", ["timeoutMs"]) => *value == 5,
        _ => false,
    };
    for value in values().into_iter().filter(|value| !left_out(value)).chain([json!("$ABSENT")]) {
        let params = match path {
            [member] => with(good.clone(), json!({*member: value})),
            [outer, member] => {
                let inner = with(good[*outer].clone(), json!({*member: value}));
                with(good.clone(), json!({*outer: inner}))
            }
            _ => unreachable!("members are one or two deep"),
        };
        case = case.call(method, params);
    }
    case
}

/// Before `initialize`, and before `initialized`.
fn too_early(method: &str, good: &Value) -> Case {
    case(&format!("{method} too early"))
        .only(Transport::WebSocket)
        .call(method, good.clone())
        .call(method, json!(5))
        .step(CaseStep::Initialize)
        .call(method, good.clone())
        .call(method, json!(5))
        .send(r#"{"method":"initialized"}"#)
        .call(method, good.clone())
}

fn methods_without_params() -> Vec<Case> {
    let cases = ["environment/info", "environment/status"].into_iter().map(|method| {
        let mut case = case(&format!("{method} and its params")).only(Transport::WebSocket);
        case = case.send_and_receive(format!(r#"{{"id":"early","method":"{method}"}}"#)).call(method, json!(5));
        case = case.step(CaseStep::Initialize).send_and_receive(format!(r#"{{"id":"early","method":"{method}"}}"#));
        case = case.send(r#"{"method":"initialized"}"#);
        for value in values() {
            case = case.call(method, value);
        }
        case
    });
    let others = [
        "fs/stat",
        "fs",
        "process/resize2",
        "process/kill",
        "http/get",
        "exec",
        "Initialize",
        "initialized",
        "fs/readfile",
        "network/policyRequest",
        "process/output",
        "fs/missingChanged",
    ];
    let unknown =
        others.into_iter().map(|method| in_directory(&format!("there is no {method}")).call(method, json!({})).alive());
    cases.chain(unknown).collect()
}

/// Members of members.
fn inner() -> Vec<Case> {
    let header = |name: &str, header: Value| {
        let params = json!({"method": "GET", "url": "http://$WEB/status/200", "headers": [header], "requestId": "r"});
        in_directory(&format!("a header {name}")).call("http/request", params)
    };
    let root = |name: &str, root: Value| {
        in_directory(&format!("a root {name}")).call("capabilityRoots/discoverV1", json!({"roots": [root]}))
    };
    let good = json!({"name": "x-a", "value": "v", "valueEnvVar": null});
    let good_root = json!({"id": "r", "path": uri("no"), "sandbox": null});
    let mut cases = Vec::new();
    for value in values().into_iter().chain([json!("$ABSENT")]) {
        for member in ["name", "value", "valueEnvVar"] {
            // What an odd name or value means is the subject of the HTTP cases.
            if !value.is_string() || value == "$ABSENT" {
                cases.push(header(&format!("with {member} {value}"), with(good.clone(), json!({member: value}))));
            }
        }
        for member in ["id", "path", "sandbox"] {
            cases.push(root(&format!("with {member} {value}"), with(good_root.clone(), json!({member: value}))));
        }
        cases.push(header(&format!("that is {value}"), value.clone()));
        cases.push(root(&format!("that is {value}"), value));
    }
    cases
}
