//! WIRE 2.14: folders are made, listed and removed.

use serde_json::{Value, json};

use super::folder::inside;
use super::script::Case;

pub(super) fn cases() -> Vec<Case> {
    [making(), listing(), removing()].concat()
}

fn furnished(name: &str) -> Case {
    inside(name)
        .file("a", "a")
        .folder("empty")
        .folder("full/deep/deeper")
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
            cases.push(furnished(&format!("{verb} {name:?} {more}")).fs(verb, name, more.clone()).look());
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
        inside("the root is there already").call("fs/createDirectory", json!({"path": "file:///"})),
        inside("the root, not recursively").call("fs/createDirectory", json!({"path": "file:///", "recursive": false})),
        inside("a folder where none can be").call("fs/createDirectory", json!({"path": "file:///proc/x/y"})),
        inside("a long name of a folder").fs("createDirectory", &"n".repeat(256), json!({})).look(),
        inside("a folder with null for everything")
            .fs("createDirectory", "x/y", json!({"recursive": null, "followSymlinks": null, "sandbox": null}))
            .look(),
    ]);
    cases
}

fn listing() -> Vec<Case> {
    let mut everywhere =
        furnished("listings of everything").fifo("full/fifo").socket("full/socket").folder("full/.hidden");
    for name in NAMES.iter().filter(|name| !name.is_empty()) {
        everywhere = everywhere.fs("readDirectory", name, json!({}));
    }
    vec![
        everywhere,
        inside("a listing of links").folder("d").link("d/l", "$ROOT").link("d/f", "../x").file("x", "").fs(
            "readDirectory",
            "d",
            json!({}),
        ),
        inside("a listing of odd names").file("sp ace ü %20", "").file(".dot", "").fs("readDirectory", "", json!({})),
        inside("a listing of a name that is no text").file(b"x\xff\x80y", "").fs("readDirectory", "", json!({})),
        inside("a listing of many").folder("d").files("d", 1500).fs("readDirectory", "d", json!({})),
        inside("a listing of a folder nobody may read").folder("d").mode("d", 0).fs("readDirectory", "d", json!({})),
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
        inside("removing a socket").socket("s").fs("remove", "s", json!({})).look(),
        inside("removing twice").file("a", "").fs("remove", "a", json!({})).fs("remove", "a", json!({})).look(),
        inside("removing the folder by a dot").file("d", "").fs("remove", "./d", json!({})).look(),
        inside("removing what is read only")
            .folder("d")
            .file("d/f", "")
            .mode("d", 0o555)
            .fs("remove", "d", json!({}))
            .look(),
        inside("removing what the kernel makes up").call("fs/remove", json!({"path": "file:///proc/self/stat"})),
        inside("removing null for everything")
            .file("a", "")
            .fs("remove", "a", json!({"recursive": null, "force": null, "followSymlinks": null}))
            .look(),
    ]);
    cases
}
