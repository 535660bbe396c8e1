//! WIRE 2.2 to 2.4: how the server describes its machine.

use serde_json::{Value, json};

use super::case::{Case, case, initialized};

pub(super) fn cases() -> Vec<Case> {
    let config = |name: &str, params: Value| initialized(name).call("environmentConfig/read", params);
    vec![
        case("initialize describes the machine").call("initialize", json!({"clientName": "c"})),
        initialized("environment/info describes the machine").call("environment/info", Value::Null),
        initialized("environment/info with no members").call("environment/info", json!({})),
        initialized("environment/status is ready").call("environment/status", Value::Null),
        config(
            "a configuration that is not there",
            json!({"cwd": "file:///", "configPaths": [["mcp_servers"]], "requirementsPaths": [["mcp_servers"]]}),
        ),
        config("only config paths", json!({"cwd": "file:///", "configPaths": [["a", "b"]], "requirementsPaths": []})),
        config(
            "a working directory that is not there",
            json!({"cwd": "file:///no/such/folder", "configPaths": [["a"]], "requirementsPaths": []}),
        ),
        config("no paths", json!({"cwd": "file:///", "configPaths": [], "requirementsPaths": []})),
        config("an empty path", json!({"cwd": "file:///", "configPaths": [[]], "requirementsPaths": []})),
        config("an empty requirement", json!({"cwd": "file:///", "configPaths": [["a"]], "requirementsPaths": [[]]})),
        config("no cwd", json!({"configPaths": [["a"]], "requirementsPaths": []})),
        config("no config paths", json!({"cwd": "file:///", "requirementsPaths": []})),
        config("no requirements paths", json!({"cwd": "file:///", "configPaths": [["a"]]})),
        config("a cwd that is a path", json!({"cwd": "/tmp", "configPaths": [["a"]], "requirementsPaths": []})),
        config("a path that is a text", json!({"cwd": "file:///", "configPaths": ["a"], "requirementsPaths": []})),
    ]
}
