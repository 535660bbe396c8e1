//! WIRE 2.7: stdin.

use serde_json::json;

use super::case::{Case, initialized};
use super::declared_differences::DeclaredDifference;

pub(super) fn cases() -> Vec<Case> {
    let cat = |name: &str| initialized(name).sh_with_stdin("p", "while read x; do echo got $x; done");
    vec![
        cat("a write arrives").write("p", "1", "hello\n").printed("p", "got hello\n"),
        cat("two writes arrive in order")
            .write("p", "1", "one\n")
            .write("p", "2", "two\n")
            .printed("p", "got one\ngot two\n"),
        cat("a write of the same id is written once")
            .write("p", "w", "one\n")
            .write("p", "w", "again\n")
            .write("p", "x", "two\n")
            .printed("p", "got one\ngot two\n"),
        cat("an empty write").write("p", "1", "").write("p", "2", "x\n").printed("p", "got x\n"),
        cat("an empty write id").write("p", "", "x\n"),
        initialized("an empty write id and no process").write("none", "", "x\n"),
        initialized("a write to nobody").write("none", "1", "x\n"),
        initialized("a write without a stdin").sh("p", "exec sleep 1000").write("p", "1", "x\n"),
        initialized("a write without a stdin, after the exit").sh("p", "true").log("p").write("p", "1", "x\n"),
        initialized("a write to a terminal is echoed")
            .sh_on_tty("p", "read x; echo got $x")
            .write("p", "1", "hello\n")
            .log("p"),
        initialized("control-C on a terminal")
            .sh_on_tty("p", "trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.05; done")
            .printed("p", "ready")
            .write("p", "1", "\u{3}")
            .log("p"),
        initialized("control-D on a terminal").sh_on_tty("p", "cat; echo done").write("p", "1", "\u{4}").log("p"),
        initialized("a write after the exit")
            .sh_with_stdin("p", "exit 0")
            .log("p")
            .write("p", "1", "x\n")
            .differs(DeclaredDifference::WriteAfterExit, json!({"id": 3, "result": {"status": "stdinClosed"}})),
        initialized("a write after the exit, on a terminal")
            .sh_on_tty("p", "exit 0")
            .log("p")
            .write("p", "1", "x\n")
            .differs(DeclaredDifference::WriteAfterExit, json!({"id": 3, "result": {"status": "stdinClosed"}})),
        initialized("a write after terminate")
            .sh_with_stdin("p", "exec sleep 1000")
            .call("process/terminate", json!({"processId": "p"}))
            .log("p")
            .write("p", "1", "x\n")
            .differs(DeclaredDifference::WriteAfterExit, json!({"id": 4, "result": {"status": "stdinClosed"}})),
        cat("a write of 60 KB").write("p", "1", &format!("{}\n", "y".repeat(60_000))).printed("p", "y\n"),
        cat("bytes that are not text")
            .call("process/write", json!({"processId": "p", "writeId": "1", "chunk": "/w8K"}))
            .printed("p", "\n"),
    ]
}
