//! `command/exec`: what is refused, in which order, and the words.

use serde_json::{Value, json};

use super::case::{Case, calls};

pub(super) fn cases() -> Vec<Case> {
    let zero = json!({ "rows": 0, "cols": 1 });
    let one = json!({ "rows": 1, "cols": 1 });
    let full = json!({ "type": "dangerFullAccess" });
    let mistakes = vec![
        json!({ "command": [] }),
        json!({ "command": null }),
        json!({ "command": "x" }),
        json!({ "command": [1] }),
        json!({ "tty": 1 }),
        json!({ "tty": null }),
        json!({ "streamStdin": "x" }),
        json!({ "disableTimeout": null }),
        json!({ "timeoutMs": -1 }),
        json!({ "timeoutMs": "x" }),
        json!({ "timeoutMs": 1.5 }),
        json!({ "timeoutMs": 9_223_372_036_854_775_808_u64 }),
        json!({ "timeoutMs": i64::MAX }),
        json!({ "timeoutMs": 5, "disableTimeout": true }),
        json!({ "outputBytesCap": 5, "disableOutputCap": true }),
        json!({ "outputBytesCap": -1 }),
        json!({ "size": one }),
        json!({ "size": zero }),
        json!({ "tty": true }),
        json!({ "streamStdin": true }),
        json!({ "streamStdoutStderr": true }),
        json!({ "tty": true, "processId": "z", "size": zero }),
        json!({ "tty": true, "processId": "z", "size": { "rows": 1 } }),
        json!({ "tty": true, "processId": "z", "size": { "rows": 70_000, "cols": 1 } }),
        json!({ "processId": 5 }),
        json!({ "processId": "" }),
        json!({ "cwd": 5 }),
        json!({ "env": { "A": 1 } }),
        json!({ "env": [] }),
        json!({ "sandboxPolicy": { "type": "nope" } }),
        json!({ "sandboxPolicy": {} }),
        json!({ "sandboxPolicy": "readOnly" }),
        json!({ "sandboxPolicy": { "type": "readOnly", "networkAccess": "x" } }),
        json!({ "sandboxPolicy": { "type": "readOnly", "access": { "type": "restricted" } } }),
        json!({ "sandboxPolicy": { "type": "externalSandbox", "networkAccess": true } }),
        json!({ "sandboxPolicy": { "type": "externalSandbox", "networkAccess": "some" } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "writableRoots": ["rel"] } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "writableRoots": "rel" } }),
        json!({ "sandboxPolicy": full, "permissionProfile": ":read-only" }),
        json!({ "sandboxPolicy": { "type": "readOnly", "access": null } }),
        json!({ "sandboxPolicy": { "type": "readOnly", "networkAccess": null } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "readOnlyAccess": { "type": "restricted" } } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "writableRoots": null } }),
        json!({ "permissionProfile": ":danger-no-sandbox" }),
        json!({ "permissionProfile": ":nope" }),
        json!({ "permissionProfile": "nope" }),
        json!({ "permissionProfile": "" }),
        json!({ "permissionProfile": 5 }),
        json!({ "unknown": 1 }),
        json!({ "env": null, "cwd": null, "size": null, "processId": null, "timeoutMs": null, "outputBytesCap": null, "sandboxPolicy": null, "permissionProfile": null }),
        // Two mistakes: the same one is told.
        json!({ "command": [], "timeoutMs": -1 }),
        json!({ "command": [], "tty": true, "size": zero }),
        json!({ "command": [], "sandboxPolicy": full, "permissionProfile": "x" }),
        json!({ "tty": true, "timeoutMs": -1 }),
        json!({ "tty": true, "size": zero }),
        json!({ "tty": true, "size": zero, "timeoutMs": -1, "processId": "a" }),
        json!({ "tty": true, "size": zero, "permissionProfile": "nope", "processId": "a" }),
        json!({ "sandboxPolicy": full, "permissionProfile": "x", "timeoutMs": -1 }),
        json!({ "sandboxPolicy": full, "permissionProfile": "x", "size": one }),
        json!({ "permissionProfile": ":nope", "tty": true }),
        json!({ "size": one, "outputBytesCap": 1, "disableOutputCap": true }),
        json!({ "timeoutMs": 5, "disableTimeout": true, "outputBytesCap": 5, "disableOutputCap": true }),
        json!({ "timeoutMs": -1, "disableTimeout": true }),
        json!({ "env": { "A": "\0" }, "tty": true }),
        json!({ "disableTimeout": true, "timeoutMs": null }),
        json!({ "timeoutMs": 1e300 }),
        json!({ "timeoutMs": true }),
        json!({ "outputBytesCap": 1.5 }),
        json!({ "outputBytesCap": "5" }),
        json!({ "disableOutputCap": 1 }),
        json!({ "streamStdoutStderr": null }),
        json!({ "cwd": ["x"] }),
        json!({ "env": { "A": [] } }),
        json!({ "env": "A=b" }),
        json!({ "size": [1, 1] }),
        json!({ "size": [1, 1, 1] }),
        json!({ "size": { "cols": "x", "rows": -1 } }),
        json!({ "size": { "rows": 1.0, "cols": 1 } }),
        json!({ "size": {} }),
        json!({ "command": [null] }),
        json!({ "command": {} }),
        json!({ "sandboxPolicy": { "type": 5 } }),
        json!({ "sandboxPolicy": { "type": null } }),
        json!({ "sandboxPolicy": { "type": "ReadOnly" } }),
        json!({ "sandboxPolicy": [4] }),
        json!({ "sandboxPolicy": ["readOnly", 5] }),
        json!({ "sandboxPolicy": ["workspaceWrite", ["/x"], 5] }),
        json!({ "sandboxPolicy": { "type": "readOnly", "access": 5 } }),
        json!({ "sandboxPolicy": { "type": "readOnly", "access": { "type": "x" } } }),
        json!({ "sandboxPolicy": { "type": "readOnly", "access": ["restricted"] } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "readOnlyAccess": true } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "excludeSlashTmp": "x" } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "excludeTmpdirEnvVar": null } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "writableRoots": ["~"] } }),
        json!({ "sandboxPolicy": { "type": "workspaceWrite", "writableRoots": [5] } }),
        json!({ "permissionProfile": ["x"] }),
    ];
    let mut cases =
        calls("command/exec", mistakes.into_iter().map(|mistake| merge(json!({ "command": ["true"] }), mistake)));
    cases.push(
        Case::new("no params")
            .call("command/exec", json!({}))
            .call("command/exec", json!([]))
            .call("command/exec", json!([["true"]])),
    );
    // Two members of a wrong type: that which comes first in the text.
    cases.extend(
        ["{\"timeoutMs\":\"x\",\"command\":5}", "{\"command\":5,\"timeoutMs\":\"x\"}"].iter().zip(1150..).map(
            |(params, id)| {
                Case::new("two of a wrong type")
                    .line(format!(r#"{{"id":{id},"method":"command/exec","params":{params}}}"#))
            },
        ),
    );
    let not_started = [
        json!({ "cwd": "/nonexistent" }),
        json!({ "cwd": "relative/nowhere" }),
        json!({ "cwd": "" }),
        json!({ "cwd": "./tmpdir/.." }),
        json!({ "cwd": "/etc/passwd" }),
        json!({ "cwd": "a\0b" }),
        json!({ "cwd": "~", "command": ["pwd"] }),
        json!({ "cwd": "~/..", "command": ["true"] }),
        json!({ "cwd": "~/nowhere" }),
        json!({ "cwd": "~nobody" }),
        json!({ "cwd": "nowhere/../tmpdir", "command": ["pwd"] }),
        json!({ "cwd": "/nonexistent/..", "command": ["pwd"] }),
        json!({ "cwd": "//tmp/./", "command": ["pwd"] }),
        json!({ "cwd": "x".repeat(300) }),
        json!({ "cwd": format!("/{}", "x/".repeat(2100)) }),
        json!({ "cwd": "/dev/null" }),
        json!({ "cwd": " " }),
        json!({ "command": ["no-such-program"] }),
        json!({ "command": ["/nonexistent/x"] }),
        json!({ "command": ["./x"] }),
        json!({ "command": ["/etc/passwd"] }),
        json!({ "command": ["/etc"] }),
        json!({ "command": ["."] }),
        json!({ "command": ["tmpdir"] }),
        json!({ "command": ["true/"] }),
        json!({ "command": ["/bin/true/"] }),
        json!({ "command": ["/etc/passwd/x"] }),
        json!({ "command": ["true "] }),
        json!({ "command": ["\n"] }),
        json!({ "command": ["x".repeat(300)] }),
        json!({ "command": [format!("/{}", "x".repeat(5000))] }),
        json!({ "command": ["true", "x".repeat(131_071)] }),
        json!({ "command": ["/bin/echo", "a b", "", "c'd\"e", "*", "$HOME", "ü"] }),
        json!({ "env": { "": "x" }, "command": ["printenv", ""] }),
        json!({ "env": { "A=B": "c" }, "command": ["printenv", "A"] }),
        json!({ "env": { "PATH": null } }),
        json!({ "command": [""] }),
        json!({ "command": ["a\0b"] }),
        json!({ "command": ["true", "a\0b"] }),
        json!({ "env": { "A\0": "b" } }),
        json!({ "env": { "A": "b\0" } }),
        json!({ "env": { "PATH": "/nonexistent" } }),
        json!({ "command": ["no-such-program"], "streamStdoutStderr": true, "processId": "t" }),
        json!({ "command": ["/nonexistent/x"], "tty": true, "processId": "t" }),
        json!({ "command": ["/etc/passwd"], "tty": true, "processId": "t" }),
        json!({ "command": [""], "tty": true, "processId": "t" }),
        json!({ "command": ["true", "a\0"], "tty": true, "processId": "t" }),
        json!({ "command": ["true", "x".repeat(200_000)] }),
        json!({ "processId": "x".repeat(10_000) }),
    ];
    let unconfined = json!({ "command": ["true"], "sandboxPolicy": full });
    cases.extend(calls("command/exec", not_started.into_iter().map(|start| merge(unconfined.clone(), start))));
    let missing = json!({ "error": { "code": -32603, "message": "failed to spawn command: No such file or directory (os error 2)" } });
    cases.push(
        Case::new("a terminal and a program that is not there")
            .call(
                "command/exec",
                json!({ "command": ["no-such-program"], "tty": true, "processId": "t", "sandboxPolicy": full }),
            )
            .differs("terminal-without-program", missing.clone()),
    );
    cases.push(
        Case::new("a terminal in a folder that is not there")
            .call("command/exec", json!({ "command": ["true"], "cwd": "/nonexistent", "tty": true, "processId": "t", "sandboxPolicy": full }))
            .differs("terminal-without-folder", missing),
    );
    cases
}

/// `change`, and what it leaves as it is.
pub(super) fn merge(mut base: Value, change: Value) -> Value {
    let members = change.as_object().expect("an object").clone();
    base.as_object_mut().expect("an object").extend(members);
    base
}
