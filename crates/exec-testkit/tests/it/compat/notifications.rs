//! WIRE 2.10: notifications of a process, and their seqs.

use serde_json::json;

use super::case::{Case, initialized, start};

pub(super) fn cases() -> Vec<Case> {
    vec![
        initialized("nothing but the end").sh("p", "exit 6").exact_log("p"),
        initialized("one line").sh_with_stdin("p", "echo one; read x").line_after("p", "one\n", "1").exact_log("p"),
        initialized("stdout and stderr share the numbers")
            .sh_with_stdin("p", "echo a; read x; echo b >&2; read x; echo c; read x; exit 1")
            .line_after("p", "a\n", "1")
            .line_after("p", "b\n", "2")
            .line_after("p", "c\n", "3")
            .exact_log("p"),
        initialized("a terminal has one stream")
            .sh_on_tty("p", "stty -echo; printf a; read x; printf b >&2; read x; exit 1")
            .line_after("p", "a", "1")
            .line_after("p", "b", "2")
            .exact_log("p"),
        initialized("two processes have numbers of their own")
            .sh("p", "exit 1")
            .sh("q", "exit 2")
            .exact_log("p")
            .exact_log("q"),
        initialized("closed stdout and stderr do not close before the exit")
            .sh_with_stdin("p", "exec >&- 2>&-; read x; exit 9")
            .write("p", "1", "\n")
            .exact_log("p"),
        initialized("notices go on while nobody asks").sh("p", "for i in 1 2 3; do echo $i; done").log("p"),
        initialized("notices come for a process with an empty id")
            .call("process/start", start("", &["echo", "x"]))
            .log(""),
        initialized("the end is told before the next start is asked for")
            .sh("p", "echo 1")
            .log("p")
            .sh("q", "echo 2")
            .log("q")
            .read("p", json!({"afterSeq": 3})),
    ]
}
