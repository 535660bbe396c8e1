//! Envelopes, the handshake, experimental methods.

use serde_json::json;

use super::case::Case;

pub(super) fn cases() -> Vec<Case> {
    let client = json!({ "clientInfo": { "name": "test", "version": "1" } });
    let experimental = json!({
        "clientInfo": { "name": "test", "title": "T", "version": "1" },
        "capabilities": { "experimentalApi": true, "optOutNotificationMethods": ["process/exited", "process/outputDelta"] },
    });
    let mut cases = vec![
        Case::fresh("before the handshake")
            .call("command/exec", json!({ "command": ["true"] }))
            .call("fs/readFile", json!({ "path": "/etc/hostname" }))
            .call("fs/readFile", json!({}))
            .call("process/spawn", json!({ "command": ["true"], "processHandle": "a", "cwd": "/" }))
            .call("unknown/method", json!({}))
            .call("initialize", json!(null))
            .call("initialize", json!({}))
            .call("initialize", json!({ "clientInfo": { "name": "x" } }))
            .call("initialize", json!({ "clientInfo": { "name": 1, "version": "1" } }))
            .call("initialize", json!({ "clientInfo": { "name": "x", "version": "1" }, "capabilities": 5 }))
            .call(
                "initialize",
                json!({ "clientInfo": { "name": "x", "version": "1" }, "capabilities": { "experimentalApi": "x" } }),
            )
            .call("initialize", client.clone())
            .call("initialize", client.clone()),
        Case::fresh("without the experimental API")
            .call("initialize", client)
            .call("process/spawn", json!({ "command": ["true"], "processHandle": "a", "cwd": "/" }))
            .call("process/spawn", json!({}))
            .call("process/kill", json!({ "processHandle": "a" }))
            .call("process/writeStdin", json!({ "processHandle": "a" }))
            .call("process/resizePty", json!({ "processHandle": "a", "size": { "rows": 1, "cols": 1 } }))
            .call("environment/add", json!({ "environmentId": "a", "execServerUrl": "ws://127.0.0.1:1" }))
            .call("environment/status", json!({ "environmentId": "local" }))
            .call("environment/info", json!({ "environmentId": "local" }))
            .call("command/exec", json!({ "command": ["true"], "permissionProfile": ":read-only" }))
            .call("fs/watch", json!({ "watchId": "a", "path": "/tmp" }))
            .call("fs/unwatch", json!({ "watchId": "a" })),
        Case::fresh("notifications that the client does not want")
            .call("initialize", experimental)
            .call("process/spawn", json!({ "command": ["true"], "processHandle": "a", "cwd": "/" }))
            .call(
                "command/exec",
                json!({
                    "command": ["/bin/sh", "-c", "echo out"], "processId": "p", "streamStdoutStderr": true,
                    "sandboxPolicy": { "type": "dangerFullAccess" },
                }),
            ),
        wrong_capabilities(),
        Case::fresh("a name that no header can have")
            .call("initialize", json!({ "clientInfo": { "name": "a\nb", "version": "1" } }))
            .call("fs/unwatch", json!({ "watchId": "a" }))
            .call("initialize", json!({ "clientInfo": { "name": "a\u{7f}b", "version": "1" } }))
            .call("initialize", json!({ "clientInfo": { "name": "ü\t/ ", "version": "\n" } }))
            .call("fs/unwatch", json!({ "watchId": "a" })),
        Case::fresh("capabilities as an array")
            .call("initialize", json!([["test", "T", "1"], [false, true, false, false, ["fs/changed"], null]]))
            .call("process/kill", json!({ "processHandle": "a" })),
        Case::fresh("a client without capabilities")
            .call("initialize", json!({ "clientInfo": { "name": "test", "version": "1" }, "capabilities": null }))
            .call("process/kill", json!({}))
            .call("process/kill", json!({ "processHandle": "a" }))
            .call("command/exec", json!({ "command": [], "permissionProfile": ":read-only" }))
            .call("command/exec", json!({ "command": [], "permissionProfile": null })),
        Case::new("a key twice")
            .line(r#"{"id":1001,"method":"fs/unwatch","params":{"watchId":"a","watchId":"b"}}"#)
            .differs("repeated-keys", json!([])),
    ];
    let lines = [
        "garbage",
        "",
        "{}",
        "[]",
        "null",
        "1",
        r#""x""#,
        r#"{"id":1}"#,
        r#"{"method":"fs/unwatch"}"#,
        r#"{"id":null,"method":"x"}"#,
        r#"{"id":1.5,"method":"x"}"#,
        r#"{"id":true,"method":"x"}"#,
        r#"{"id":"s","method":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1077,"method":"x"}"#,
        r#"{"id":1078,"method":"x","extra":1}"#,
        r#"{"id":1079,"method":5}"#,
        r#"{"id":1080,"method":"x","params":[]}"#,
        r#"{"id":1081,"result":{}}"#,
        r#"{"id":1082,"error":{"code":1,"message":"x"}}"#,
        r#"{"id":1083,"method":"fs/unwatch","params":null}"#,
        r#"{"id":1084,"method":"fs/unwatch","params":[]}"#,
        r#"{"id":1085,"method":"fs/unwatch","params":"x"}"#,
        r#"{"id":-3,"method":"x"}"#,
        r#"{"id":99999999999999999999,"method":"x"}"#,
        r#"{"id":1087,"id":1088,"method":"x"}"#,
        r#"{"id":1089,"method":"fs/unwatch","params":{"watchId":"a","other":1}}"#,
        r#"{"id":"","method":"x"}"#,
        r#"{"method":"unknown"}"#,
        r#"{"id":1091,"method":""}"#,
        r#"{"id":1092,"method":"thread/nothing","params":{}}"#,
        r#"{"id":1093,"method":"fs/unwatch","params":{"watchId":"a"},"trace":{"traceparent":"x"}}"#,
        r#"{"id":1094,"method":"fs/unwatch","params":{"watchId":"a"},"trace":5}"#,
        r#"  {"id":1095,"method":"fs/unwatch","params":{"watchId":"a"}}  "#,
        // An array stands for the members in their order, and numbers are what they are written as.
        r#"{"id":1100,"method":"fs/unwatch","params":["a"]}"#,
        r#"{"id":1101,"method":"fs/unwatch","params":["a","b"]}"#,
        r#"{"id":1102,"method":"fs/unwatch","params":{"watchId":"a","x":99999999999999999999}}"#,
        r#"{"id":1103,"method":"fs/unwatch","params":{"watchId":"a","x":[-99999999999999999999]}}"#,
        r#"{"id":1104,"method":"fs/unwatch","params":{"watchId":"a","x":1e400}}"#,
        r#"{"id":1105,"method":"fs/unwatch","params":{"watchId":1e3}}"#,
        r#"{"id":1106,"method":"fs/unwatch","params":{"watchId":1.50}}"#,
        r#"{"id":1107,"method":"fs/unwatch","params":{"watchId":1E300}}"#,
        r#"{"id":1108,"method":"fs/unwatch","params":{"watchId":-0}}"#,
        r#"{"id":1109,"method":"fs/unwatch","params":1e3}"#,
        r#"{"id":1110,"method":"unknown","params":{"x":99999999999999999999}}"#,
        r#"[{"id":1111,"method":"fs/unwatch","params":{"watchId":"a"}}]"#,
        r#"{"id":1112,"method":"fs/unwatch","params":{"watchId":"a"}} x"#,
        r#"{"id":1113,"method":"FS/unwatch","params":{"watchId":"a"}}"#,
        r#"{"id":1114,"method":"fs\/unwatch","params":{"watchId":"a"}}"#,
        r#"{"id":1115,"method":null,"params":{"watchId":"a"}}"#,
        r#"{"id":1116,"method":"fs/unwatch","params":{"watchId":"a"},"result":1}"#,
        r#"{"id":1117,"method":"fs/unwatch","params":{"watchId":"\ud800"}}"#,
        r#"{"id":1118,"method":"initialized"}"#,
        r#"{"id":1119,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}"#,
        r#"{"id":1120,"method":"process/exited","params":{}}"#,
        r#"{"id":"a\nb","method":"fs/unwatch","params":{"watchId":"a"}}"#,
        r#"{"id":9223372036854775807,"method":"fs/unwatch","params":{"watchId":"a"}}"#,
        r#"{"id":9223372036854775808,"method":"fs/unwatch","params":{"watchId":"a"}}"#,
        r#"{"id":-9223372036854775808,"method":"fs/unwatch","params":{"watchId":"a"}}"#,
        r#"{"id":1e3,"method":"fs/unwatch","params":{"watchId":"a"}}"#,
        r#"{"id":[],"method":"fs/unwatch","params":{"watchId":"a"}}"#,
        r#"{"jsonrpc":1,"id":1121,"method":"fs/unwatch","params":{"watchId":"a"}}"#,
    ];
    cases.extend(lines.map(|line| Case::new("envelope").line(line)));
    cases
}

/// Requests that initialize nothing, because one of the capabilities is wrong.
fn wrong_capabilities() -> Case {
    let client = json!({ "name": "test", "version": "1" });
    let mut case = Case::fresh("capabilities that are wrong");
    for wrong in [
        json!({ "requestAttestation": null }),
        json!({ "requestAttestation": "x", "experimentalApi": 5 }),
        json!({ "experimentalApi": null }),
        json!({ "explicitGatewayOauth": [] }),
        json!({ "mcpServerOpenaiFormElicitation": 1 }),
        json!({ "extensions": [] }),
        json!({ "optOutNotificationMethods": "fs/changed" }),
        json!({ "optOutNotificationMethods": [5] }),
        json!([]),
        json!([true, 5]),
        json!([true, true, true, true, 5, 5]),
        json!([true, true, true, true, null, 5]),
        json!([true, true, true, true, null, null, null]),
    ] {
        case = case.call("initialize", json!({ "clientInfo": client, "capabilities": wrong }));
    }
    case.call("initialize", json!([["test", "T"], null])).call("initialize", json!({ "clientInfo": ["test"] }))
}
