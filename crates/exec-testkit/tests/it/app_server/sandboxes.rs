//! Sandbox policies and permission profiles: what can be written, whether there is a network, and the variable that says so.

use serde_json::{Value, json};

use super::case::Case;

/// Tells which folders can be written, and whether a socket can be made.
const PROBE: &str = r#"
for d in . sub tmpdir /tmp /var/tmp /usr; do
    if touch $d/.probe-$$ 2>/dev/null; then echo "writes $d"; rm -f $d/.probe-$$; fi
done
echo "variable $CODEX_SANDBOX_NETWORK_DISABLED"
(exec 3<>/dev/tcp/127.0.0.1/9) 2>&1 | grep -o 'refused\|not permitted'
true"#;

fn probe(change: Value) -> Case {
    let base = json!({ "command": ["/bin/bash", "-c", PROBE] });
    Case::new("sandbox")
        .does(|root| std::fs::create_dir_all(root.join("sub")).expect("it is ours"))
        .call("command/exec", super::exec_params::merge(base, change))
}

pub(super) fn cases() -> Vec<Case> {
    let policy = |policy: Value| json!({ "sandboxPolicy": policy });
    let refused =
        |why: &str| json!({ "error": { "code": -32603, "message": format!("failed to spawn command: {why}") } });
    vec![
        probe(json!({})),
        probe(policy(json!({ "type": "readOnly" }))),
        probe(policy(json!({ "type": "readOnly", "access": { "type": "fullAccess" } }))),
        probe(policy(json!({ "type": "readOnly", "networkAccess": true }))),
        probe(policy(json!({ "type": "dangerFullAccess" }))),
        probe(policy(json!({ "type": "externalSandbox" }))),
        probe(policy(json!({ "type": "externalSandbox", "networkAccess": "enabled" }))),
        probe(policy(json!({ "type": "workspaceWrite" }))),
        probe(policy(json!({ "type": "workspaceWrite", "networkAccess": true }))),
        probe(policy(json!({ "type": "workspaceWrite", "excludeSlashTmp": true }))),
        probe(policy(json!({ "type": "workspaceWrite", "excludeSlashTmp": true, "excludeTmpdirEnvVar": true }))),
        probe(policy(json!({ "type": "workspaceWrite", "writableRoots": ["/usr/share"] }))),
        probe(policy(json!({ "type": "workspaceWrite", "writableRoots": ["/nonexistent"] }))),
        probe(json!({ "permissionProfile": ":read-only" })),
        probe(json!({ "permissionProfile": ":workspace" })),
        probe(json!({ "permissionProfile": ":workspace", "cwd": "sub" })),
        probe(json!({ "permissionProfile": ":danger-full-access" })),
        Case::new("the workspace of a policy is the server's folder").call(
            "command/exec",
            json!({
                "command": ["/bin/sh", "-c", "touch $OLD/a && echo there; touch /usr/a 2>&1 || true"], "cwd": "/usr",
                "env": { "OLD": "$ROOT" }, "sandboxPolicy": { "type": "workspaceWrite" },
            }),
        ),
        Case::new("how a confined command ends")
            .call("command/exec", json!({ "command": ["/bin/sh", "-c", "exit 7"] }))
            .call("command/exec", json!({ "command": ["/bin/sh", "-c", "kill -9 $$"] }))
            .call("command/exec", json!({ "command": ["/bin/sh", "-c", "kill -15 $$"] }))
            .call("command/exec", json!({ "command": ["/bin/sh", "-c", "echo a; sleep 20"], "timeoutMs": 500 }))
            .call("command/exec", json!({ "command": ["true"], "cwd": "/nonexistent" }))
            .call("command/exec", json!({ "command": ["true"], "cwd": "/etc/passwd" }))
            .call("command/exec", json!({ "command": ["/bin/sh", "-c", "stty size"], "tty": true, "processId": "t" })),
        Case::new("how a confined command on a terminal ends")
            .call("command/exec", json!({ "command": ["/bin/sh", "-c", "exit 7"], "tty": true, "processId": "t1" }))
            .call("command/exec", json!({ "command": ["/bin/sh", "-c", "kill -9 $$"], "tty": true, "processId": "t2" }))
            .call(
                "command/exec",
                json!({ "command": ["/bin/sh", "-c", "kill -15 $$"], "tty": true, "processId": "t3" }),
            )
            .call(
                "command/exec",
                json!({ "command": ["/bin/sh", "-c", "sleep 20"], "tty": true, "processId": "t4", "timeoutMs": 500 }),
            )
            .send(
                "command/exec",
                json!({ "command": ["/bin/sh", "-c", "echo on; sleep 20"], "tty": true, "processId": "t5" }),
            )
            .printed("t5", "on")
            .call("command/exec/terminate", json!({ "processId": "t5" }))
            .answer(0),
        Case::new("a confined program that is not there")
            .call("command/exec", json!({ "command": ["no-such-program"] }))
            .differs("confined-program-missing", refused("No such file or directory (os error 2)"))
            .call("command/exec", json!({ "command": ["/etc/passwd"] }))
            .differs("confined-program-missing", refused("Permission denied (os error 13)")),
    ]
}
