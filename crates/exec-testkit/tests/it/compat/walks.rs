//! WIRE 2.14, `fs/walk`: order, depth, limits, links, hidden folders.

use serde_json::{Value, json};

use super::case::{Case, with};
use super::case_directory::{at, in_directory, uri};
use super::declared_differences::DeclaredDifference;

fn with_files(name: &str) -> Case {
    in_directory(name)
        .file("b", "")
        .file("a", "")
        .file("Z", "")
        .file("ä", "")
        .file(".dotfile", "")
        .directory(".hidden/deep")
        .file(".hidden/h", "")
        .file("d/one/two/three/leaf", "")
        .file("d/a10", "")
        .file("d/a2", "")
        .file("c/x", "")
        .link("l-file", "a")
        .link("l-dir", "d")
        .link("l-up", ".")
        .link("nowhere", "missing")
        .link("circle", "circle")
        .link("l-out", "/proc/self/fdinfo/no")
        .fifo("fifo")
        .directory("empty")
        .file("d-x", "")
        .file("d.x", "")
}

fn options(more: Value) -> Value {
    with(json!({"maxDepth": 10, "maxDirectories": 100, "maxEntries": 1000, "followDirectorySymlinks": false}), more)
}

fn walk(name: &str, root: &str, more: Value) -> Case {
    with_files(name).call("fs/walk", at(root, json!({"options": options(more)})))
}

/// The same walk without and with following links.
fn both(name: &str, root: &str, more: Value) -> [Case; 2] {
    let following = with(more.clone(), json!({"followDirectorySymlinks": true}));
    [walk(name, root, more), walk(&format!("{name}, links followed"), root, following)]
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        walk("everything", "", json!({})),
        walk("a root with a slash", "d/", json!({})),
        walk("a root with dots", "c/../d", json!({})),
        walk("links followed", "", json!({"followDirectorySymlinks": true})),
        walk("hidden pruned", "", json!({"pruneHiddenDirectories": true})),
        walk(
            "hidden pruned, links followed",
            "",
            json!({"pruneHiddenDirectories": true, "followDirectorySymlinks": true}),
        ),
        walk("hidden root pruned", ".hidden", json!({"pruneHiddenDirectories": true})),
        walk("null for hidden", "", json!({"pruneHiddenDirectories": null})),
        walk("no maxDepth", "", json!({"maxDepth": "$ABSENT"})),
        walk("no maxDirectories", "", json!({"maxDirectories": "$ABSENT"})),
        walk("no maxEntries", "", json!({"maxEntries": "$ABSENT"})),
        walk("no followDirectorySymlinks", "", json!({"followDirectorySymlinks": "$ABSENT"})),
        walk("negative", "", json!({"maxDepth": -1})),
        walk("the largest limits", "", json!({"maxDepth": 64, "maxDirectories": 10_000, "maxEntries": 50_000})),
        walk("too deep", "", json!({"maxDepth": 65})),
        walk("too many folders", "", json!({"maxDirectories": 10_001})),
        walk("too many entries", "", json!({"maxEntries": 50_001})),
        walk("no folders at all", "", json!({"maxDirectories": 0})),
        walk("no entries at all", "", json!({"maxEntries": 0})),
        walk("nothing at all, too deep", "", json!({"maxEntries": 0, "maxDepth": 100})),
        walk("limits are judged before the root", "missing", json!({"maxEntries": 0})),
        in_directory("limits are judged before the path")
            .call("fs/walk", json!({"path": "file:///C:/x", "options": options(json!({"maxEntries": 0}))})),
    ];
    for depth in [0, 1, 2, 3, 4] {
        cases.extend(both(&format!("depth {depth}"), "", json!({"maxDepth": depth})));
    }
    for most in
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36]
    {
        cases.extend(both(&format!("{most} entries"), "", json!({"maxEntries": most})));
    }
    for most in 1..12 {
        cases.extend(both(&format!("{most} folders"), "", json!({"maxDirectories": most})));
    }
    for most in 1..5 {
        cases.push(walk(&format!("{most} entries of c"), "c", json!({"maxEntries": most})));
        cases.push(walk(
            &format!("{most} folders of the empty"),
            "empty",
            json!({"maxDirectories": most, "maxEntries": most}),
        ));
        cases.push(walk(&format!("{most} folders of c"), "c", json!({"maxDirectories": most})));
    }
    for root in [
        "a",
        "l-file",
        "l-dir",
        "l-dir/",
        "l-dir/one",
        "nowhere",
        "circle",
        "circle/x",
        "fifo",
        "missing",
        "a/x",
        "empty",
        "l-up/l-up/d",
    ] {
        cases.extend(both(&format!("from {root}"), root, json!({})));
    }
    cases.extend(odd_names());
    cases
}

fn odd_names() -> Vec<Case> {
    let everything = || at("", json!({"options": options(json!({}))}));
    let entry = |name: &str, kind: &str| json!({"path": uri(name), "kind": kind});
    let no_text =
        [entry("a%09b%0Ac", "file"), entry("d%FE", "directory"), entry("x%FFy", "file"), entry("d%FE/in", "file")];
    vec![
        in_directory("a walk over odd names")
            .file("sp ace", "")
            .file("%41", "")
            .file("q?u#e", "")
            .file("ü", "")
            .file("~", "")
            .call("fs/walk", everything()),
        in_directory("a walk over names that are no text, or break lines")
            .file("a\tb\nc", "")
            .file(b"x\xffy", "")
            .file(b"d\xfe/in", "")
            .call("fs/walk", everything())
            .differs(
                DeclaredDifference::ByteExactNames,
                json!({"id": 2, "result": {"entries": no_text, "errors": [], "truncated": false}}),
            ),
        in_directory("a walk over 1,500 names").directory("d").files("d", 1500).call("fs/walk", everything()),
        in_directory("links to one folder twice")
            .file("real/x", "")
            .link("1", "real")
            .link("2", "real")
            .link("z", "1")
            .call("fs/walk", at("", json!({"options": options(json!({"followDirectorySymlinks": true}))}))),
        in_directory("a link to the root of the walk")
            .link("r/s/up", "../..")
            .call("fs/walk", at("r", json!({"options": options(json!({"followDirectorySymlinks": true}))}))),
        in_directory("a hidden link").file("r/x", "").link(".l", "r").call(
            "fs/walk",
            at(
                "",
                json!({"options": options(json!({"followDirectorySymlinks": true, "pruneHiddenDirectories": true}))}),
            ),
        ),
    ]
}
