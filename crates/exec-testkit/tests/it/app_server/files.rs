//! `fs/*` with native paths.

use std::path::Path;

use serde_json::json;

use super::case::{Case, calls};

fn prepare(root: &Path) {
    use std::os::unix::fs::symlink;
    let root = root.join("files");
    let _ = std::fs::remove_dir_all(&root);
    let work = || -> std::io::Result<()> {
        std::fs::create_dir_all(root.join("d/e"))?;
        std::fs::create_dir(root.join("empty"))?;
        std::fs::write(root.join("f"), "hello")?;
        std::fs::write(root.join("d/in"), "in")?;
        std::fs::write(root.join("d/e/deep"), "deep")?;
        std::fs::File::create(root.join("big"))?.set_len(513 << 20)?;
        symlink("f", root.join("to-file"))?;
        symlink("d", root.join("to-folder"))?;
        symlink("nowhere", root.join("dangling"))?;
        symlink("loop", root.join("loop"))?;
        symlink("f/x", root.join("below-file"))?;
        for name in ["sp ace", "new\nline", "ünï", ".hidden", "quote\"", "back\\slash"] {
            std::fs::write(root.join(name), name)?;
        }
        let old = std::time::UNIX_EPOCH - std::time::Duration::from_secs(1_000_000_000);
        let ancient = std::fs::File::create(root.join("ancient"))?;
        ancient.set_times(std::fs::FileTimes::new().set_modified(old))?;
        std::fs::create_dir(root.join("links"))?;
        symlink("nowhere", root.join("links/dangling"))?;
        symlink("../f", root.join("links/to-file"))?;
        Ok(())
    };
    work().expect("a scratch folder can be filled");
    let done = std::process::Command::new("mkfifo").arg(root.join("fifo")).status();
    assert!(done.is_ok_and(|status| status.success()), "mkfifo works");
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("files").does(prepare)];
    for method in [
        "fs/readFile",
        "fs/writeFile",
        "fs/createDirectory",
        "fs/getMetadata",
        "fs/readDirectory",
        "fs/remove",
        "fs/copy",
        "fs/watch",
        "fs/unwatch",
    ] {
        cases.push(
            Case::new("params")
                .call(method, json!({}))
                .call(method, json!([]))
                .call(method, json!({ "path": 1, "watchId": 1, "sourcePath": 1 })),
        );
    }
    let odd_paths = [
        "relative",
        "",
        "file:///etc/passwd",
        "~/x",
        "/a\0b",
        "$ROOT/files/nope",
        "$ROOT/files/f/x",
        "$ROOT/files/loop",
        "$ROOT/files/dangling",
    ];
    for method in ["fs/readFile", "fs/getMetadata", "fs/readDirectory"] {
        cases.extend(calls(method, odd_paths.map(|path| json!({ "path": path }))));
    }
    let path = |name: &str| json!({ "path": format!("$ROOT/files/{name}") });
    cases.extend(calls("fs/readFile", ["f", "d", "to-file", "fifo", "d/../f", "/./f", "f/", "big", "empty"].map(path)));
    cases.extend(calls("fs/readFile", ["/dev/null", "/dev/zero", "/etc/passwd"].map(|path| json!({ "path": path }))));
    let odd_names = [
        "sp ace",
        "new\nline",
        "ünï",
        ".hidden",
        "quote\"",
        "back\\slash",
        "below-file",
        "links/to-file",
        "links/dangling",
        "nope/../f",
        "//f",
        "d//in",
        "*",
        "%66",
        "f ",
        "links",
        "ancient",
    ];
    for method in ["fs/readFile", "fs/getMetadata", "fs/readDirectory"] {
        cases.extend(calls(method, odd_names.map(path)));
        cases.extend(calls(method, [255, 256, 4100].map(|length| path(&"x".repeat(length)))));
        cases.extend(calls(method, [json!({ "path": format!("/{}", "x/".repeat(2100)) })]));
        cases.extend(
            calls(method, ["/", "/dev/null", "/proc/version"].map(|path| json!({ "path": path }))).into_iter().filter(
                // The machine's root is not for two servers at a time to read: others write to it.
                |_| method != "fs/readDirectory",
            ),
        );
    }
    cases.extend(calls("fs/readFile", [json!({ "path": format!("/{}", "x".repeat(300)) })]));
    cases.extend(calls("fs/getMetadata", ["f", "d", "to-file", "to-folder", "fifo", "d/"].map(path)));
    cases.extend(calls("fs/getMetadata", [json!({ "path": "/dev/null" })]));
    cases.extend(calls("fs/readDirectory", ["", "d", "f", "to-folder", "empty"].map(path)));

    let write = |name: &str, text: &str| json!({ "path": format!("$ROOT/files/{name}"), "dataBase64": text });
    let mut writing = Case::new("writing");
    for (name, text) in [
        ("w", "!!"),
        ("w", "eA"),
        ("w", "bmV3"),
        ("w", ""),
        ("no/w", ""),
        ("d", ""),
        ("to-file", "dmlh"),
        ("dangling", "dmlh"),
        ("f/x", ""),
        ("w/", "eA=="),
        ("w", "eA==\n"),
        ("w", "e_-="),
        ("w", "eB=="),
        ("w", "/w=="),
        ("links/dangling", "eA=="),
        ("loop", "eA=="),
        ("below-file", "eA=="),
        ("new name\n", "eA=="),
        ("", "eA=="),
    ] {
        writing = writing.call("fs/writeFile", write(name, text)).call("fs/readFile", path("w"));
    }
    cases.push(
        writing
            .call("fs/readFile", path("f"))
            .call("fs/readFile", path("nowhere"))
            .call("fs/writeFile", json!({ "path": "relative", "dataBase64": "" }))
            .call("fs/writeFile", json!({ "path": "$ROOT/files/w", "dataBase64": null }))
            .call("fs/writeFile", path("w"))
            .call("fs/writeFile", json!({ "path": format!("/{}", "x/".repeat(2100)), "dataBase64": "" }))
            .call("fs/writeFile", json!({ "path": "/proc/version", "dataBase64": "eA==" }))
            .call("fs/writeFile", json!({ "path": "/a\0b", "dataBase64": "" }))
            .call("fs/writeFile", json!({ "path": "/a\0b", "dataBase64": "!" }))
            .call("fs/writeFile", json!(["relative", ""]))
            .call("fs/writeFile", json!(["/x", "", 1])),
    );

    let create = |name: &str, recursive: serde_json::Value| json!({ "path": format!("$ROOT/files/{name}"), "recursive": recursive });
    let mut creating = Case::new("creating").does(prepare);
    for params in [
        path("n1"),
        path("n1"),
        path("n2/a/b"),
        create("n3/a/b", json!(false)),
        create("n1", json!(false)),
        create("n4", json!(false)),
        path("f"),
        path("f/x"),
        create("n5", json!(null)),
        create("n5", json!(1)),
        path("to-folder"),
        json!({ "path": "relative" }),
        json!({ "path": "/a\0b" }),
        path("dangling"),
        path("dangling/x"),
        path("loop"),
        path("to-file"),
        path("to-folder/new"),
        create("to-folder", json!(false)),
        path(""),
        path(&"x".repeat(256)),
        json!({ "path": format!("$ROOT/files/{}", "y/".repeat(2100)) }),
        create(&"y/".repeat(2100), json!(false)),
        json!({ "path": "/proc/x" }),
        json!({ "path": "/dev/null/x" }),
        json!({ "path": "/" }),
        json!(["relative", true]),
    ] {
        creating = creating.call("fs/createDirectory", params);
    }
    cases.push(creating.call("fs/readDirectory", path("")));

    let copy = |from: &str, to: &str, recursive: bool| json!({ "sourcePath": format!("$ROOT/files/{from}"), "destinationPath": format!("$ROOT/files/{to}"), "recursive": recursive });
    let mut copying = Case::new("copying").does(prepare);
    for (from, to, recursive) in [
        ("f", "c1", false),
        ("f", "c1", true),
        ("d", "c2", false),
        ("d", "c2", true),
        ("d", "c2", true),
        ("d", "d/x", true),
        ("d", "d", true),
        ("nope", "x", false),
        ("nope", "x", true),
        ("f", "no/x", false),
        ("f", "d", false),
        ("to-file", "c3", false),
        ("to-file", "c3", false),
        ("dangling", "c4", false),
        ("fifo", "c5", false),
        ("d", "f", true),
        ("to-folder", "c7", true),
        ("to-folder", "c8", false),
        ("d/", "c9/", true),
        ("f", "dangling", false),
        ("links", "c10", true),
        ("d", "to-folder/x", true),
        ("d/e", "d", true),
        ("f/x", "c11", false),
        ("d", "no/such", true),
        ("f", "f/x", false),
        ("loop", "c12", false),
        ("empty", "c13", true),
        ("empty", "c13", true),
        ("new\nline", "c\n14", false),
    ] {
        copying = copying.call("fs/copy", copy(from, to, recursive));
    }
    cases.push(
        copying
            .call("fs/copy", json!({ "sourcePath": "relative", "destinationPath": "/x" }))
            .call("fs/copy", json!({ "sourcePath": "/x", "destinationPath": "relative" }))
            .call("fs/copy", json!({ "sourcePath": "/x", "destinationPath": "/y", "recursive": null }))
            .call("fs/getMetadata", path("c3"))
            .call("fs/getMetadata", path("c7"))
            .call("fs/readDirectory", path("c2"))
            .call("fs/readFile", path("c1"))
            .call("fs/readFile", path("nowhere"))
            .call("fs/readDirectory", path("c10"))
            .call("fs/copy", json!({ "sourcePath": "/a\0b", "destinationPath": "/x" }))
            .call("fs/copy", json!({ "sourcePath": "/etc/passwd", "destinationPath": "/x\0y" }))
            .call("fs/copy", json!({ "sourcePath": "/etc/hostname", "destinationPath": "/proc/x" })),
    );
    cases.push(Case::new("a file onto itself").does(prepare).call("fs/copy", copy("f", "f", false)).differs(
        "copy-onto-itself",
        json!({ "error": { "code": -32600, "message": "fs/copy cannot copy a file onto itself" } }),
    ));

    let remove = |name: &str, recursive: serde_json::Value, force: serde_json::Value| json!({ "path": format!("$ROOT/files/{name}"), "recursive": recursive, "force": force });
    let (yes, no, null) = (json!(true), json!(false), json!(null));
    let mut removing = Case::new("removing").does(prepare);
    for params in [
        path("big"),
        path("big"),
        remove("big", yes.clone(), no.clone()),
        remove("big", null.clone(), null.clone()),
        remove("d", no.clone(), yes.clone()),
        remove("d", no.clone(), no.clone()),
        remove("empty", no.clone(), no.clone()),
        path("to-folder"),
        path("f/x"),
        remove("f/x", yes.clone(), no.clone()),
        path("dangling"),
        path("fifo"),
        path("loop"),
        remove("f", no.clone(), no.clone()),
        remove("nope/x", no.clone(), no),
        path("d/"),
        json!({ "path": "relative" }),
        json!({ "path": "/a\0b" }),
        remove("x", json!(1), yes),
        path("links/to-file"),
        path("links/dangling"),
        path("below-file"),
        path("new\nline"),
        path(&"x".repeat(256)),
        json!({ "path": format!("$ROOT/files/{}", "y/".repeat(2100)) }),
        json!({ "path": "/proc/version" }),
        json!({ "path": "/dev/null/x" }),
    ] {
        removing = removing.call("fs/remove", params);
    }
    cases.push(removing.call("fs/readDirectory", path("")));
    cases
}
