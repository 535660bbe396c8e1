//! WIRE 2.14, `fs/copy`: files, folders, links, and what may not be copied.
//!
//! Deliberately absent: a file copied to a FIFO, since Codex then waits for somebody to read it; and what is left
//! of a folder whose copy failed half way, since Codex goes by the order of the disk.

use serde_json::{Value, json};

use super::case::Case;
use super::case_directory::{in_directory, uri};
use super::declared_differences::DeclaredDifference;

const NAMES: &[&str] = &[
    "a",
    "b",
    "d",
    "d/sub",
    "e",
    "to-a",
    "to-d",
    "nowhere",
    "fifo",
    "missing",
    "missing/x",
    "a/x",
    "d/new",
    "to-d/new",
];

pub(super) fn cases() -> Vec<Case> {
    [everything(), onto_itself(), folders(), files()].concat()
}

fn with_files(name: &str) -> Case {
    in_directory(name)
        .file("a", "from a")
        .mode("a", 0o741)
        .file("b", "from b, longer")
        .directory("d/sub")
        .file("d/x", "x")
        .file("d/sub/y", "y")
        .link("d/l", "x")
        .fifo("d/fifo")
        .directory("e/sub")
        .file("e/x", "old x")
        .file("e/own", "own")
        .link("to-a", "a")
        .link("to-d", "d")
        .link("nowhere", "missing")
        .fifo("fifo")
}

impl Case {
    fn copy(self, from: &str, to: &str, recursive: bool) -> Self {
        let (from, to) = (uri(from), uri(to));
        self.call("fs/copy", json!({"sourcePath": from, "destinationPath": to, "recursive": recursive}))
    }

    fn copy_tree(self, from: &str, to: &str) -> Self {
        self.copy(from, to, true)
    }
}

/// Everything to everywhere.
fn everything() -> Vec<Case> {
    let mut cases = Vec::new();
    for from in NAMES {
        for to in NAMES {
            let file = matches!(*from, "a" | "b");
            if file && (*to == "fifo" || is_same(from, to)) {
                continue;
            }
            for recursive in [false, true] {
                let case = with_files(&format!("copy {from:?} to {to:?}, recursive {recursive}"));
                cases.push(case.copy(from, to, recursive).snapshot());
            }
        }
    }
    cases
}

fn is_same(from: &str, to: &str) -> bool {
    from == to || (from == "a" && to == "to-a")
}

fn onto_itself() -> Vec<Case> {
    let refusal = json!({"error": {"code": -32600, "message": "fs/copy cannot copy a file onto itself"}, "id": 2});
    let contents = json!({"id": 3, "result": {"dataBase64": "ZnJvbSBh"}});
    [("a", "a", false), ("a", "a", true), ("a", "to-a", false), ("a", "d/../a", false)]
        .into_iter()
        .map(|(from, to, recursive)| {
            with_files(&format!("copy {from:?} to {to:?}, recursive {recursive}, which is the same"))
                .copy(from, to, recursive)
                .differs(DeclaredDifference::CopyOntoItself, refusal.clone())
                .fs("readFile", "a", json!({}))
                .differs(DeclaredDifference::CopyOntoItself, contents.clone())
        })
        .collect()
}

fn folders() -> Vec<Case> {
    let private = json!([["d", "folder", "700", null], ["new", "folder", "700", null]]);
    vec![
        with_files("a folder into itself").copy_tree("d", "d/deep/deeper").snapshot(),
        with_files("a folder beside itself").copy_tree("d", "dd").snapshot(),
        with_files("a folder far from itself").copy_tree("d", "far/away/from").snapshot(),
        with_files("a folder onto its parent").copy_tree("d/sub", "d").snapshot(),
        with_files("a folder into itself by a link").copy_tree("d", "to-d/x").snapshot(),
        with_files("a folder into itself by a linked source").link("out", "d/sub").copy_tree("d", "out/x").snapshot(),
        with_files("a folder with a slash behind it").copy_tree("d/", "new/").snapshot(),
        with_files("a link to a folder with a slash behind it").copy_tree("to-d/", "new").snapshot(),
        with_files("a folder onto a link to itself").link("ring", "ring").copy_tree("d", "ring").snapshot(),
        with_files("a folder below a file in itself").copy_tree("d", "d/x/y").snapshot(),
        with_files("a folder below a link that leads nowhere").copy_tree("d", "nowhere/x").snapshot(),
        with_files("a folder over a file in the way").file("e/sub2", "").directory("d/sub2").copy_tree("d", "e"),
        with_files("a file over a folder in the way").directory("e/x2").file("d/x2", "").copy_tree("d", "e"),
        with_files("a link over a file in the way").file("e/l", "").copy_tree("d", "e"),
        with_files("a file over a link in the way").link("e/z", "../b").file("d/z", "z").copy_tree("d", "e").snapshot(),
        with_files("a folder over a link to a folder")
            .directory("other")
            .link("e/s", "../other")
            .file("d/s/q", "q")
            .copy_tree("d", "e")
            .snapshot(),
        in_directory("a private folder")
            .directory("d")
            .mode("d", 0o700)
            .copy_tree("d", "new")
            .snapshot()
            .differs(DeclaredDifference::FolderMode, private),
    ]
}

fn files() -> Vec<Case> {
    let from_to = |name: &str, from: &str, to: &str| {
        let params = json!({"sourcePath": from, "destinationPath": to, "recursive": false});
        with_files(name).call("fs/copy", params).snapshot()
    };
    vec![
        with_files("a file with a slash behind it").copy("a/", "new", true).snapshot(),
        with_files("a file to a name with a slash behind it").copy("a", "new/", false).snapshot(),
        with_files("a hidden file").file(".h", "h").copy(".h", ".i", false).snapshot(),
        with_files("a file of other permissions").mode("b", 0o600).copy("a", "b", false).snapshot(),
        with_files("a file with special bits").mode("a", 0o4755).copy("a", "new", false).snapshot(),
        with_files("an empty file").file("empty", "").copy("empty", "b", false).snapshot(),
        with_files("a file through a link that leads nowhere").copy("a", "nowhere", false).snapshot(),
        from_to("from what the kernel makes up", "file:///proc/sys/kernel/ostype", &uri("new")),
        from_to("from a device", "file:///dev/null", &uri("new")),
        from_to("to a device", &uri("a"), "file:///dev/null"),
        from_to("from Windows", "file:///C:/x", &uri("new")),
        from_to("to Windows", &uri("a"), "file:///C:/x"),
        from_to("from nowhere to Windows", &uri("missing"), "file:///C:/x"),
        with_files("null for recursive").call("fs/copy", copying_null()),
    ]
}

fn copying_null() -> Value {
    json!({"sourcePath": uri("a"), "destinationPath": uri("new"), "recursive": null})
}
