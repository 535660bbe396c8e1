//! WIRE 2.14, `fs/copy`: files, folders, links, and what may not be copied.
//!
//! Deliberately absent: a file copied to a FIFO, since the original then waits for somebody to read it; and what is left
//! of a folder whose copy failed half way, since the original goes by the order of the disk.

use serde_json::{Value, json};

use super::folder::{inside, uri};
use super::rows::Row;
use super::script::Case;

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

fn furnished(name: &str) -> Case {
    inside(name)
        .file("a", "from a")
        .mode("a", 0o741)
        .file("b", "from b, longer")
        .folder("d/sub")
        .file("d/x", "x")
        .file("d/sub/y", "y")
        .link("d/l", "x")
        .fifo("d/fifo")
        .folder("e/sub")
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
                let case = furnished(&format!("copy {from:?} to {to:?}, recursive {recursive}"));
                cases.push(case.copy(from, to, recursive).look());
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
            furnished(&format!("copy {from:?} to {to:?}, recursive {recursive}, which is the same"))
                .copy(from, to, recursive)
                .better(Row::CopyOntoItself, refusal.clone())
                .fs("readFile", "a", json!({}))
                .better(Row::CopyOntoItself, contents.clone())
        })
        .collect()
}

fn folders() -> Vec<Case> {
    let private = json!([["d", "folder", "700", null], ["new", "folder", "700", null]]);
    vec![
        furnished("a folder into itself").copy_tree("d", "d/deep/deeper").look(),
        furnished("a folder beside itself").copy_tree("d", "dd").look(),
        furnished("a folder far from itself").copy_tree("d", "far/away/from").look(),
        furnished("a folder onto its parent").copy_tree("d/sub", "d").look(),
        furnished("a folder into itself by a link").copy_tree("d", "to-d/x").look(),
        furnished("a folder into itself by a linked source").link("out", "d/sub").copy_tree("d", "out/x").look(),
        furnished("a folder with a slash behind it").copy_tree("d/", "new/").look(),
        furnished("a link to a folder with a slash behind it").copy_tree("to-d/", "new").look(),
        furnished("a folder below a link that leads nowhere").copy_tree("d", "nowhere/x").look(),
        furnished("a folder over a file in the way").file("e/sub2", "").folder("d/sub2").copy_tree("d", "e"),
        furnished("a file over a folder in the way").folder("e/x2").file("d/x2", "").copy_tree("d", "e"),
        furnished("a link over a file in the way").file("e/l", "").copy_tree("d", "e"),
        furnished("a file over a link in the way").link("e/z", "../b").file("d/z", "z").copy_tree("d", "e").look(),
        furnished("a folder over a link to a folder")
            .folder("other")
            .link("e/s", "../other")
            .folder("d/s")
            .file("d/s/q", "q")
            .copy_tree("d", "e")
            .look(),
        inside("a private folder")
            .folder("d")
            .mode("d", 0o700)
            .copy_tree("d", "new")
            .look()
            .better(Row::FolderMode, private),
    ]
}

fn files() -> Vec<Case> {
    let from_to = |name: &str, from: &str, to: &str| {
        let params = json!({"sourcePath": from, "destinationPath": to, "recursive": false});
        furnished(name).call("fs/copy", params).look()
    };
    vec![
        furnished("a file with a slash behind it").copy("a/", "new", true).look(),
        furnished("a file to a name with a slash behind it").copy("a", "new/", false).look(),
        furnished("a hidden file").file(".h", "h").copy(".h", ".i", false).look(),
        furnished("a file of other permissions").mode("b", 0o600).copy("a", "b", false).look(),
        furnished("a file with special bits").mode("a", 0o4755).copy("a", "new", false).look(),
        furnished("an empty file").file("empty", "").copy("empty", "b", false).look(),
        furnished("a file through a link that leads nowhere").copy("a", "nowhere", false).look(),
        from_to("from what the kernel makes up", "file:///proc/sys/kernel/ostype", &uri("new")),
        from_to("from a device", "file:///dev/null", &uri("new")),
        from_to("to a device", &uri("a"), "file:///dev/null"),
        from_to("from Windows", "file:///C:/x", &uri("new")),
        from_to("to Windows", &uri("a"), "file:///C:/x"),
        from_to("from nowhere to Windows", &uri("missing"), "file:///C:/x"),
        furnished("null for recursive").call("fs/copy", copying_null()),
    ]
}

fn copying_null() -> Value {
    json!({"sourcePath": uri("a"), "destinationPath": uri("new"), "recursive": null})
}
