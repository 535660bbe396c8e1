//! `process/spawn` and its family.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::case::{Case, calls};
use super::exec_params::merge;
use super::stdin::CHILD_THAT_STAYS;

fn spawn(script: &str, change: Value) -> Value {
    merge(json!({ "command": ["/bin/sh", "-c", script], "processHandle": "h", "cwd": "$ROOT" }), change)
}

/// With a handle that no other case has: Codex frees one a moment after it has told of the exit.
fn case(script: &str, change: Value) -> Case {
    static CASES: AtomicUsize = AtomicUsize::new(0);
    named_case(&format!("h{}", CASES.fetch_add(1, Ordering::Relaxed)), script, change)
}

fn named_case(handle: &str, script: &str, change: Value) -> Case {
    let params = merge(spawn(script, change), json!({ "processHandle": handle }));
    Case::new("process/spawn").call("process/spawn", params).exited(handle)
}

pub(super) fn cases() -> Vec<Case> {
    let zero = json!({ "rows": 0, "cols": 2 });
    let mistakes = [
        json!({ "command": [] }),
        json!({ "command": null }),
        json!({ "processHandle": "" }),
        json!({ "processHandle": 1 }),
        json!({ "cwd": "relative" }),
        json!({ "cwd": "" }),
        json!({ "cwd": null }),
        json!({ "cwd": "~" }),
        json!({ "cwd": "file:///tmp" }),
        json!({ "cwd": "/nonexistent" }),
        json!({ "cwd": "/etc/passwd" }),
        json!({ "tty": true, "size": zero }),
        json!({ "size": { "rows": 1, "cols": 2 } }),
        json!({ "size": zero, "timeoutMs": -1 }),
        json!({ "tty": true, "size": zero, "timeoutMs": -1 }),
        json!({ "timeoutMs": -1 }),
        json!({ "timeoutMs": "x" }),
        json!({ "outputBytesCap": -1 }),
        json!({ "command": ["no-such-program"] }),
        json!({ "command": [""] }),
        json!({ "command": ["a\0"] }),
        json!({ "env": { "A": "b\0" } }),
        json!({ "env": { "A": 5 } }),
        json!({ "command": ["/etc"] }),
        json!({ "command": ["true/"] }),
        json!({ "command": ["true", "x".repeat(131_072)] }),
        json!({ "cwd": "/dev/null" }),
        json!({ "cwd": format!("/{}", "x".repeat(300)) }),
        json!({ "size": [1, 2, 3] }),
        json!({ "size": { "cols": 1 } }),
        json!({ "timeoutMs": 1e300 }),
        json!({ "outputBytesCap": 1.5 }),
        json!({ "tty": null }),
        json!({ "streamStdin": 0 }),
        json!({ "env": [] }),
        json!({ "tty": null }),
        json!({ "streamStdin": null }),
        json!({ "processHandle": "", "command": [] }),
        json!({ "processHandle": "", "timeoutMs": -1 }),
    ];
    let mut cases = calls("process/spawn", mistakes.into_iter().map(|mistake| spawn("true", mistake)));
    for missing in ["command", "processHandle", "cwd"] {
        let mut params = spawn("true", json!({}));
        params.as_object_mut().expect("an object").remove(missing);
        cases.extend(calls("process/spawn", [params]));
    }
    let stream = |change| merge(json!({ "streamStdoutStderr": true }), change);
    let late = json!({ "processHandle": "h", "closeStdin": true });
    let write = json!({ "processHandle": "h", "deltaBase64": "YWJj" });
    let size = json!({ "rows": 1, "cols": 1 });
    cases.extend([
        case("echo out; echo err >&2; exit 3", json!({})),
        case(
            "pwd; echo $PLAIN $CODEX_SANDBOX_NETWORK_DISABLED; touch written && echo writes",
            json!({ "env": { "PLAIN": null } }),
        ),
        case("pwd", json!({ "cwd": "$ROOT/tmpdir/./.." })),
        case("echo out; sleep 0.1; echo err >&2; exit 3", stream(json!({}))),
        case("stty size; exit 3", json!({ "tty": true })),
        case("stty size", json!({ "tty": true, "size": { "rows": 5, "cols": 6 } })),
        case("printf 123456", json!({ "outputBytesCap": 3 })),
        case("printf 123456", json!({ "outputBytesCap": 6 })),
        case("printf 123456; printf q >&2", json!({ "outputBytesCap": 0 })),
        case("printf 123456; sleep 0.1; printf 7", stream(json!({ "outputBytesCap": 3 }))),
        case("printf 123456", stream(json!({ "outputBytesCap": 0 }))),
        case("echo a; sleep 20", json!({ "timeoutMs": 1000 })),
        case("sleep 20", json!({ "timeoutMs": 0 })),
        case("sleep 20 & echo x", json!({})),
        case("kill -9 $$", json!({})),
        case("kill -HUP $$", json!({})),
        case("kill -SEGV $$", json!({ "tty": true })),
        case("exit 255", json!({ "tty": true })),
        case("test -t 0; echo $?", json!({})),
        case("pwd", json!({ "cwd": "//tmp/./" })),
        case("printf 123456; printf abcdef >&2", json!({ "outputBytesCap": 6 })),
        case("printf 123456", json!({ "tty": true, "outputBytesCap": 2 })),
        case("echo ok", json!({ "timeoutMs": i64::MAX })),
        case("exec >&- 2>&-; exit 6", json!({})),
        case("echo $A$PLAIN", json!({ "env": { "A": "a", "PLAIN": null } })),
        named_case("ü \"\n", "echo x", stream(json!({}))),
        case("kill -15 $$", json!({ "tty": true })),
        case("head -c 3000000 /dev/zero | tr '\\0' x", json!({})),
        case("head -c 3000000 /dev/zero | tr '\\0' x", json!({ "outputBytesCap": null })),
        case("readlink /proc/self/fd/0; cat", json!({})),
        case("true", json!({ "disableTimeout": true, "timeoutMs": null })),
        Case::new("the life of a process")
            .call("process/spawn", spawn("cat; echo done", stream(json!({ "streamStdin": true }))))
            .call("process/spawn", spawn("true", json!({})))
            .call("process/writeStdin", write)
            .call("process/writeStdin", json!({ "processHandle": "h" }))
            .call("process/writeStdin", json!({ "processHandle": "h", "deltaBase64": "!" }))
            .call("process/writeStdin", json!({ "processHandle": "none", "deltaBase64": "eA==" }))
            .call("process/writeStdin", json!({ "processHandle": "none", "deltaBase64": "!" }))
            .call("process/writeStdin", json!({}))
            .call("process/resizePty", json!({ "processHandle": "h", "size": size }))
            .call("process/resizePty", json!({ "processHandle": "h", "size": zero }))
            .call("process/resizePty", json!({ "processHandle": "none", "size": size }))
            .call("process/resizePty", json!({ "processHandle": "h" }))
            .call("process/resizePty", json!({ "processHandle": "h", "size": null }))
            .call("process/kill", json!({ "processHandle": "none" }))
            .call("process/kill", json!({}))
            .call("process/kill", json!(["none", 1]))
            .call("process/kill", json!({ "processHandle": "" }))
            .call("process/resizePty", json!({ "processHandle": "none", "size": [1, 1, 1] }))
            .call("process/writeStdin", json!({ "processHandle": "none", "deltaBase64": 5, "closeStdin": "x" }))
            .call("process/writeStdin", json!({ "processHandle": "h", "deltaBase64": "!", "closeStdin": true }))
            .call("command/exec/terminate", json!({ "processId": "h" }))
            .call("process/writeStdin", late)
            .exited("h"),
        Case::new("a process that is killed")
            .call("process/spawn", spawn("sleep 20", json!({ "processHandle": "k" })))
            .call("process/writeStdin", json!({ "processHandle": "k", "deltaBase64": "eA==" }))
            .call("process/kill", json!({ "processHandle": "k" }))
            .exited("k")
            .call("process/kill", json!({ "processHandle": "k" })),
        Case::new("a terminal that is killed")
            .call("process/spawn", spawn("sleep 20", json!({ "tty": true, "processHandle": "t" })))
            .call("process/resizePty", json!({ "processHandle": "t", "size": size }))
            .call("process/kill", json!({ "processHandle": "t" }))
            .exited("t"),
        Case::new("stdin after its end")
            .call("process/spawn", spawn("sleep 20", json!({ "streamStdin": true, "processHandle": "after" })))
            .call("process/writeStdin", json!({ "processHandle": "after", "closeStdin": true }))
            .call("process/writeStdin", json!({ "processHandle": "after", "deltaBase64": "YWJj" }))
            .call("process/kill", json!({ "processHandle": "after" }))
            .exited("after"),
        Case::new("a process that has exited while a child holds its output")
            .call(
                "process/spawn",
                spawn(CHILD_THAT_STAYS, stream(json!({ "streamStdin": true, "processHandle": "left \"\n" }))),
            )
            .printed("left \"\n", "gone")
            .call("process/writeStdin", json!({ "processHandle": "left \"\n", "closeStdin": true }))
            .exited("left \"\n"),
        Case::new("the end of a process that has exited")
            .call("process/spawn", spawn(CHILD_THAT_STAYS, stream(json!({ "processHandle": "left" }))))
            .printed("left", "gone")
            .send("process/resizePty", json!({ "processHandle": "left", "size": size }))
            .call("process/kill", json!({ "processHandle": "left" }))
            .answer(0)
            .exited("left"),
        Case::new("the two families have names of their own")
            .call("process/spawn", spawn("sleep 20", json!({ "processHandle": "both" })))
            .call("command/exec", json!({ "command": ["true"], "processId": "both" }))
            .call("process/kill", json!({ "processHandle": "both" }))
            .exited("both"),
        named_case("encoding", "printf 'caf\\351'", json!({})).differs(
            "text-encoding",
            json!({
                "processHandle": "encoding", "exitCode": 0, "outputDrainTimedOut": false, "stdout": "caf\u{fffd}",
                "stdoutCapReached": false, "stderr": "", "stderrCapReached": false,
            }),
        ),
    ]);
    cases
}
