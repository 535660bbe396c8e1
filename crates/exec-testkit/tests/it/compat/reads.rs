//! WIRE 2.6 and appendix B: pages of a log, and waiting for one.

use serde_json::{Value, json};

use super::case::{Case, initialized};

pub(super) fn cases() -> Vec<Case> {
    [golden(), waits(), refusals()].concat()
}

/// `out` is entry 1, `err` is 2, the exit 3, the end 4.
fn three(name: &str) -> Case {
    initialized(name)
        .sh_with_stdin("p", "echo out; read x; echo err >&2; read x; exit 3")
        .line_after("p", "out\n", "1")
        .line_after("p", "err\n", "2")
        .exact_log("p")
}

fn golden() -> Vec<Case> {
    let pages: [(&str, Value); 18] = [
        ("everything", json!({})),
        ("everything, with nulls", json!({"afterSeq": null, "maxBytes": null, "waitMs": null})),
        ("after 0", json!({"afterSeq": 0})),
        ("after 1", json!({"afterSeq": 1})),
        ("after 2", json!({"afterSeq": 2})),
        ("after 3", json!({"afterSeq": 3})),
        ("after 4", json!({"afterSeq": 4})),
        ("after 100", json!({"afterSeq": 100})),
        ("0 bytes", json!({"maxBytes": 0})),
        ("1 byte", json!({"maxBytes": 1})),
        ("4 bytes", json!({"maxBytes": 4})),
        ("7 bytes", json!({"maxBytes": 7})),
        ("8 bytes", json!({"maxBytes": 8})),
        ("100 bytes", json!({"maxBytes": 100})),
        ("1 byte after 1", json!({"afterSeq": 1, "maxBytes": 1})),
        ("1 byte after 4", json!({"afterSeq": 4, "maxBytes": 1})),
        ("0 bytes after 2", json!({"afterSeq": 2, "maxBytes": 0})),
        ("after the largest number", json!({"afterSeq": u64::MAX, "waitMs": 1})),
    ];
    let mut cases: Vec<Case> =
        pages.into_iter().map(|(name, page)| three(&format!("page: {name}")).read("p", page)).collect();
    let running = |name: &str, page: Value| {
        initialized(&format!("page of a running process: {name}"))
            .sh_with_stdin("p", "echo a; read x; echo b; read x; echo c; sleep 1000")
            .line_after("p", "a\n", "1")
            .line_after("p", "b\n", "2")
            .printed("p", "c\n")
            .read("p", page)
    };
    cases.extend([
        running("everything", json!({})),
        running("2 bytes", json!({"maxBytes": 2})),
        running("3 bytes", json!({"maxBytes": 3})),
        running("after 1, 2 bytes", json!({"afterSeq": 1, "maxBytes": 2})),
        running("after 3", json!({"afterSeq": 3})),
        running("after 9", json!({"afterSeq": 9})),
        initialized("a page of a terminal")
            .sh_on_tty("p", "stty -echo; printf abc; read x")
            .line_after("p", "abc", "1")
            .exact_log("p")
            .read("p", json!({})),
    ]);
    cases
}

fn waits() -> Vec<Case> {
    let waiting = |name: &str| initialized(name).sh_with_stdin("p", "read x; echo a; read x; exit 4");
    vec![
        waiting("no wait is no wait").read("p", json!({"waitMs": 0})),
        waiting("a wait that ends by itself").read("p", json!({"waitMs": 20})),
        waiting("a wait for what is there already")
            .write("p", "1", "\n")
            .printed("p", "a\n")
            .read("p", json!({"waitMs": 20000})),
        waiting("a wait after the end")
            .write("p", "1", "\n")
            .line_after("p", "a\n", "2")
            .exact_log("p")
            .read("p", json!({"afterSeq": 4, "waitMs": 20000})),
        initialized("a wait that ends with the exit")
            .sh_with_stdin("p", "sleep 1000 & sleep 0.3; exit 4")
            .read("p", json!({"waitMs": 20000})),
        initialized("a wait that ends with the end")
            .sh("p", "sleep 0.3; exit 5")
            .exited("p")
            .read("p", json!({"afterSeq": 1, "waitMs": 20000})),
        initialized("a wait for output that comes")
            .sh("p", "sleep 0.3; echo a; sleep 1000")
            .read("p", json!({"waitMs": 20000, "maxBytes": 1})),
    ]
}

fn refusals() -> Vec<Case> {
    vec![
        initialized("a read of an unknown process").read("none", json!({})),
        initialized("a read of an unknown process with a wait").read("none", json!({"waitMs": 20000})),
        initialized("a read of an empty id").read("", json!({})),
    ]
}
