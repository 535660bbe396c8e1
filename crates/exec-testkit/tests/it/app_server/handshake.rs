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
    ];
    cases.extend(lines.map(|line| Case::new("envelope").line(line)));
    cases
}
