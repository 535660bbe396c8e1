//! `command/exec/write`, `resize` and `terminate`.

use serde_json::{Value, json};

use super::case::{Case, calls};
use super::exec_params::merge;

fn start(script: &str, change: Value) -> Value {
    let base = json!({
        "command": ["/bin/sh", "-c", script], "processId": "s", "sandboxPolicy": { "type": "dangerFullAccess" },
    });
    merge(base, change)
}

fn write(text: &str) -> Value {
    json!({ "processId": "s", "deltaBase64": exec_wire::base64::encode(text.as_bytes()) })
}

/// Prints `gone` some time after the shell was waited for, and holds its output. Between that wait and the moment in which a
/// server knows of the exit, both answer as before it; 2 s after it they end the child.
pub(super) const CHILD_THAT_STAYS: &str =
    "(while kill -0 $$ 2>/dev/null; do sleep 0.05; done; sleep 0.7; echo gone; sleep 20) & exit 3";

/// A command that has exited, and whose output a child still holds.
fn after_the_exit(id: &'static str) -> Case {
    Case::new("a command that has exited while a child holds its output")
        .send(
            "command/exec",
            start(CHILD_THAT_STAYS, json!({ "processId": id, "streamStdin": true, "streamStdoutStderr": true })),
        )
        .printed(id, "gone")
}

pub(super) fn cases() -> Vec<Case> {
    let close = json!({ "processId": "s", "closeStdin": true });
    let resize = json!({ "processId": "s", "size": { "rows": 7, "cols": 9 } });
    let end = json!({ "processId": "s" });
    let both = json!({ "streamStdin": true, "streamStdoutStderr": true });
    let mut cases = calls(
        "command/exec/write",
        [
            json!({}),
            json!({ "processId": "none" }),
            json!({ "processId": "none", "deltaBase64": "!!" }),
            json!({ "processId": "none", "closeStdin": true }),
            json!({ "processId": "none", "deltaBase64": "eA" }),
            json!({ "processId": "none", "deltaBase64": "" }),
            json!({ "processId": 1, "deltaBase64": "" }),
            json!({ "processId": "none", "deltaBase64": null, "closeStdin": false }),
            json!({ "processId": "none", "closeStdin": null }),
            json!({ "processId": "no\"ne\n", "closeStdin": true }),
        ],
    );
    cases.extend(calls(
        "command/exec/resize",
        [
            json!({}),
            json!({ "processId": "none" }),
            json!({ "processId": "none", "size": { "rows": 0, "cols": 1 } }),
            json!({ "processId": "none", "size": { "rows": 1, "cols": 1 } }),
            json!({ "processId": "none", "size": null }),
        ],
    ));
    cases.extend(calls(
        "command/exec/terminate",
        [
            json!({}),
            json!({ "processId": "none" }),
            json!({ "processId": null }),
            json!({ "processId": "\0\"\u{7f}ü" }),
        ],
    ));
    // It outlives the end of its stdin: a write after that is answered otherwise once the command is gone.
    let mut bad = Case::new("what is no base64").send("command/exec", start("cat; sleep 2", both.clone()));
    for text in ["!!", "eA", "eA=", "eA===", "e A==", "eA==\n", "=", "====", "e_-=", "eB==", "abcd*", "ab=c"] {
        bad = bad.call("command/exec/write", json!({ "processId": "s", "deltaBase64": text }));
    }
    cases.push(
        bad.call("command/exec/write", write("abc"))
            .call("command/exec/write", write(""))
            .call("command/exec/resize", resize.clone())
            .call("command/exec/resize", json!({ "processId": "s", "size": { "rows": 0, "cols": 1 } }))
            .call("command/exec/write", merge(write("last"), close.clone()))
            .call("command/exec/write", write("more"))
            .answer(0),
    );
    cases.extend([
        Case::new("stdin alone is streamed")
            .send("command/exec", start("cat", json!({ "streamStdin": true })))
            .call("command/exec/write", merge(write("hello\n"), close.clone()))
            .answer(0),
        Case::new("nobody reads")
            .send("command/exec", start("exec <&-; sleep 2; echo end", both.clone()))
            .call("command/exec/write", write("more"))
            .call("command/exec/write", close.clone())
            .call("command/exec/write", close.clone())
            .call("command/exec/write", write("more"))
            .answer(0),
        Case::new("a late reader")
            .send("command/exec", start("sleep 0.3; wc -c", json!({ "streamStdin": true })))
            .call("command/exec/write", merge(write(&"x".repeat(500_000)), close.clone()))
            .answer(0),
        Case::new("a terminal's line and its end")
            .send("command/exec", start("cat", json!({ "tty": true })))
            .call("command/exec/write", write("abc\n\u{4}"))
            .answer(0),
        Case::new("a terminal is resized")
            .send("command/exec", start("read line; stty size", json!({ "tty": true })))
            .call("command/exec/resize", resize)
            .call("command/exec/resize", json!({ "processId": "s", "size": { "rows": 0, "cols": 9 } }))
            .call("command/exec/write", write("go\n"))
            .answer(0),
        Case::new("a terminal is ended")
            .send("command/exec", start("sleep 20", json!({ "tty": true })))
            .call("command/exec/terminate", end.clone())
            .answer(0),
        Case::new("a command is ended")
            .send("command/exec", start("trap '' TERM; sleep 20 & wait; sleep 20", both.clone()))
            .call("command/exec/terminate", end.clone())
            .answer(0)
            .call("command/exec/terminate", end.clone()),
        Case::new("a confined command is ended")
            .send(
                "command/exec",
                start("sleep 20", json!({ "streamStdoutStderr": true, "sandboxPolicy": { "type": "readOnly" } })),
            )
            .call("command/exec/terminate", end.clone())
            .answer(0),
        Case::new("one write after the other")
            .send("command/exec", start("cat", json!({ "streamStdin": true })))
            .send("command/exec/write", write("1 "))
            .send("command/exec/write", write("2 "))
            .send("command/exec/write", write("3 "))
            .send("command/exec/write", close.clone())
            .answer(0)
            .answer(1)
            .answer(4),
        after_the_exit("p1").call("command/exec/write", json!({ "processId": "p1", "deltaBase64": "eA==" })).answer(0),
        after_the_exit("p2")
            .call("command/exec/resize", json!({ "processId": "p2", "size": { "rows": 1, "cols": 1 } }))
            .answer(0),
        after_the_exit("p3").call("command/exec/terminate", json!({ "processId": "p3" })).answer(0),
        after_the_exit("\"\n").call("command/exec/write", json!({ "processId": "\"\n", "closeStdin": true })).answer(0),
        Case::new("requests about a command that was not started")
            .send("command/exec", merge(start("", both), json!({ "command": ["/nonexistent/program"] })))
            .answer(0)
            .call("command/exec/terminate", end),
    ]);
    cases
}
