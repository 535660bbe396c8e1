//! `fs/watch`, `fs/unwatch` and `fs/changed`.

use std::path::Path;

use serde_json::json;

use super::case::{Case, calls};

fn write(root: &Path, name: &str) {
    std::fs::write(root.join(name), "text").expect("it is ours");
}

fn rename(root: &Path, from: &str, to: &str) {
    std::fs::rename(root.join(from), root.join(to)).expect("it is ours");
}

/// Once more, with its folders: Codex, which looks for one after the other, may have missed one of them, and then does not hear
/// of the file for ever.
fn write_deep(root: &Path) {
    let folder = root.join("no/such");
    if folder.join("file").exists() {
        std::fs::remove_dir_all(root.join("no")).expect("it is ours");
        std::fs::create_dir_all(folder).expect("it is ours");
    }
    write(root, "no/such/file");
}

fn prepare(root: &Path) {
    for name in ["wf", "wd", "missing", "no", "replaced"] {
        let _ = std::fs::remove_file(root.join(name));
        let _ = std::fs::remove_dir_all(root.join(name));
    }
    std::fs::create_dir_all(root.join("wd/sub")).expect("it is ours");
    write(root, "wf");
}

pub(super) fn cases() -> Vec<Case> {
    let watch = |id: &str, path: &str| json!({ "watchId": id, "path": format!("$ROOT/{path}") });
    let unwatch = |id: &str| json!({ "watchId": id });
    let mut cases = calls(
        "fs/watch",
        [
            json!({ "watchId": "a", "path": "relative" }),
            json!({ "watchId": 1, "path": "/tmp" }),
            json!({ "path": "/tmp" }),
            json!({ "watchId": "a" }),
            json!({ "watchId": null, "path": "relative" }),
            json!(["a", "relative"]),
            json!(["a"]),
        ],
    );
    cases.extend(calls("fs/unwatch", [json!({ "watchId": "never watched" }), json!({ "watchId": null })]));
    cases.extend([
        Case::new("a file")
            .does(prepare)
            .call("fs/watch", watch("f", "wf"))
            .call("fs/watch", watch("f", "wd"))
            .does(|root| write(root, "wf"))
            .changed(&[("f", "wf")])
            .does(|root| {
                write(root, "sibling");
                rename(root, "wf", "moved");
                rename(root, "moved", "wf");
            })
            .changed(&[("f", "wf")])
            .call("fs/unwatch", unwatch("f"))
            .call("fs/unwatch", unwatch("f")),
        Case::new("a folder")
            .does(prepare)
            .call("fs/watch", watch("d", "wd/"))
            .does(|root| write(root, "wd/new"))
            .changed(&[("d", "wd/new")])
            .does(|root| {
                write(root, "wd/sub/deep");
                rename(root, "wd/new", "wd/renamed");
            })
            .changed(&[("d", "wd/new"), ("d", "wd/renamed")])
            .does(|root| rename(root, "wd/renamed", "out"))
            .changed(&[("d", "wd/renamed")])
            .does(|root| std::fs::create_dir(root.join("wd/made")).expect("it is ours"))
            .changed(&[("d", "wd/made")])
            .does(|root| {
                for name in ["3", "1", "2"] {
                    write(root, &format!("wd/{name}"));
                }
            })
            .changed(&[("d", "wd/1"), ("d", "wd/2"), ("d", "wd/3")])
            .call("fs/unwatch", unwatch("d")),
        Case::new("what is missing")
            .does(prepare)
            .call("fs/watch", watch("m", "missing"))
            .does(|root| write(root, "missing"))
            .changed(&[("m", "missing")])
            .does(|root| write(root, "missing"))
            .changed(&[("m", "missing")])
            .call("fs/unwatch", unwatch("m"))
            .call("fs/watch", watch("deep", "no/such/file"))
            .does(|root| std::fs::create_dir_all(root.join("no/such")).expect("it is ours"))
            .changed_by(write_deep, &[("deep", "no/such/file")])
            .call("fs/unwatch", unwatch("deep")),
        Case::new("two watches of one file, and odd paths")
            .does(prepare)
            .call("fs/watch", watch("one", "wf"))
            .call("fs/watch", watch("two", "wd/../wf"))
            .call("fs/watch", watch("", "wf"))
            .call("fs/unwatch", unwatch(""))
            .call("fs/watch", watch("below a file", "wf/x"))
            .does(|root| write(root, "wf"))
            .changed(&[("one", "wf"), ("two", "wf")])
            .call("fs/unwatch", unwatch("one"))
            .call("fs/unwatch", unwatch("two"))
            .call("fs/unwatch", unwatch("below a file")),
        Case::new("paths that lead nowhere")
            .does(prepare)
            .does(|root| {
                let _ = std::fs::remove_file(root.join("turning"));
                std::os::unix::fs::symlink("turning", root.join("turning")).expect("it is ours");
            })
            .call("fs/watch", watch("loop", "turning"))
            .call("fs/unwatch", unwatch("loop"))
            .call("fs/watch", watch("long", &"x".repeat(300)))
            .call("fs/unwatch", unwatch("long"))
            .call("fs/watch", watch("deep", &"x/".repeat(2100)))
            .call("fs/unwatch", unwatch("deep"))
            .call("fs/watch", watch("nul", "a\0b"))
            .call("fs/watch", watch("nul", "wf"))
            .call("fs/unwatch", unwatch("nul")),
        Case::new("a file that becomes a folder")
            .does(prepare)
            .call("fs/watch", watch("becomes", "missing"))
            .does(|root| std::fs::create_dir(root.join("missing")).expect("it is ours"))
            .changed(&[("becomes", "missing")])
            .call("fs/unwatch", unwatch("becomes")),
        Case::new("an id that is free again")
            .does(prepare)
            .call("fs/watch", watch("again", "wf"))
            .call("fs/unwatch", unwatch("again"))
            .call("fs/watch", watch("again", "wd"))
            .does(|root| write(root, "wd/q"))
            .changed(&[("again", "wd/q")])
            .call("fs/unwatch", unwatch("again")),
        Case::new("our own writes")
            .does(prepare)
            .call("fs/watch", watch("w", "wd"))
            .call("fs/writeFile", json!({ "path": "$ROOT/wd/written", "dataBase64": "eA==" }))
            .changed(&[("w", "wd/written")])
            .call("fs/unwatch", unwatch("w")),
    ]);
    cases
}
