//! WIRE 2.14: folders are made, listed and removed.

use serde_json::{Value, json};

use super::case::Case;
use super::case_directory::in_directory;

pub(super) fn cases() -> Vec<Case> {
    [making(), listing(), removing()].concat()
}

fn with_files(name: &str) -> Case {
    in_directory(name)
        .file("a", "a")
        .directory("empty")
        .directory("full/deep/deeper")
        .file("full/x", "x")
        .file("full/deep/y", "y")
        .link("full/out", "../a")
        .link("to-file", "a")
        .link("to-empty", "empty")
        .link("to-full", "full")
        .link("nowhere", "missing")
        .link("circle", "circle")
        .fifo("fifo")
}

const NAMES: &[&str] = &[
    "a",
    "a/x",
    "empty",
    "empty/",
    "full",
    "to-file",
    "to-empty",
    "to-full",
    "to-full/",
    "to-full/new",
    "to-full/deep",
    "nowhere",
    "nowhere/x",
    "circle",
    "circle/x",
    "fifo",
    "missing",
    "missing/x/y",
    "full/deep/deeper/new",
    "",
];

/// Each name with each of these, in a folder of its own.
fn each(verb: &str, mores: &[Value]) -> Vec<Case> {
    let mut cases = Vec::new();
    for more in mores {
        for name in NAMES.iter().filter(|name| verb != "remove" || !name.is_empty()) {
            cases.push(with_files(&format!("{verb} {name:?} {more}")).fs(verb, name, more.clone()).snapshot());
        }
    }
    cases
}

fn making() -> Vec<Case> {
    let mut cases = each(
        "createDirectory",
        &[
            json!({}),
            json!({"recursive": true}),
            json!({"recursive": false}),
            json!({"followSymlinks": false}),
            json!({"recursive": false, "followSymlinks": false}),
        ],
    );
    cases.extend([
        in_directory("the root is there already").call("fs/createDirectory", json!({"path": "file:///"})),
        in_directory("the root, not recursively")
            .call("fs/createDirectory", json!({"path": "file:///", "recursive": false})),
        in_directory("a folder where none can be").call("fs/createDirectory", json!({"path": "file:///proc/x/y"})),
        in_directory("a long name of a folder").fs("createDirectory", &"n".repeat(256), json!({})).snapshot(),
        in_directory("a folder with null for everything")
            .fs("createDirectory", "x/y", json!({"recursive": null, "followSymlinks": null, "sandbox": null}))
            .snapshot(),
    ]);
    cases
}

fn listing() -> Vec<Case> {
    let mut everywhere =
        with_files("listings of everything").fifo("full/fifo").socket("full/socket").directory("full/.hidden");
    for name in NAMES.iter().filter(|name| !name.is_empty()) {
        everywhere = everywhere.fs("readDirectory", name, json!({}));
    }
    vec![
        everywhere,
        in_directory("a listing of links").link("d/l", "$ROOT").link("d/f", "../x").file("x", "").fs(
            "readDirectory",
            "d",
            json!({}),
        ),
        in_directory("a listing of odd names").file("sp ace ü %20", "").file(".dot", "").fs(
            "readDirectory",
            "",
            json!({}),
        ),
        in_directory("a listing of a name that is no text").file(b"x\xff\x80y", "").fs("readDirectory", "", json!({})),
        in_directory("a listing of many").directory("d").files("d", 1500).fs("readDirectory", "d", json!({})),
        in_directory("a listing of a folder nobody may read").directory("d").mode("d", 0).fs(
            "readDirectory",
            "d",
            json!({}),
        ),
    ]
}

fn removing() -> Vec<Case> {
    let mut cases = each(
        "remove",
        &[
            json!({}),
            json!({"recursive": false}),
            json!({"force": false}),
            json!({"recursive": false, "force": false}),
            json!({"followSymlinks": true}),
            json!({"followSymlinks": false}),
            json!({"recursive": false, "followSymlinks": false}),
            json!({"recursive": false, "followSymlinks": false, "force": false}),
        ],
    );
    cases.extend([
        in_directory("removing a socket").socket("s").fs("remove", "s", json!({})).snapshot(),
        in_directory("removing twice")
            .file("a", "")
            .fs("remove", "a", json!({}))
            .fs("remove", "a", json!({}))
            .snapshot(),
        in_directory("removing the folder by a dot").file("d", "").fs("remove", "./d", json!({})).snapshot(),
        in_directory("removing what is read only")
            .file("d/f", "")
            .mode("d", 0o555)
            .fs("remove", "d", json!({}))
            .snapshot(),
        in_directory("removing what the kernel makes up").call("fs/remove", json!({"path": "file:///proc/self/stat"})),
        in_directory("removing null for everything")
            .file("a", "")
            .fs("remove", "a", json!({"recursive": null, "force": null, "followSymlinks": null}))
            .snapshot(),
    ]);
    cases
}
