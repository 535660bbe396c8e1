//! File calls under a sandbox, in the words that Codex 0.166.0 answered to the same calls on the same files, as root with
//! bubblewrap. They were recorded by hand: the comparison with Codex itself runs it from a home below the temporary
//! directory, from where its helper does not start.

use std::path::Path;

use serde_json::{Value, json};

use super::plain_client::{PlainClient, uri};
use crate::durability::support::run;

fn restricted(entries: Value) -> Value {
    json!({
        "permissions": {"type": "managed", "network": "restricted",
            "file_system": {"type": "restricted", "entries": entries}},
        "windowsSandboxLevel": "disabled",
    })
}

fn root() -> Value {
    json!({"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"})
}

fn entry(path: &Path, access: &str) -> Value {
    json!({"path": {"type": "path", "path": uri(path)}, "access": access})
}

#[test]
fn answers_under_a_sandbox_are_those_of_the_original() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().canonicalize().expect("it exists");
        for file in ["w/f", "w/.git/c", "w/denied/s", "w/sub/k.key", "outside/f"] {
            let path = top.join(file);
            std::fs::create_dir_all(path.parent().expect("it is below")).expect("the folder is ours");
            std::fs::write(path, "x").expect("the folder is ours");
        }
        let w = top.join("w");
        std::os::unix::fs::symlink(top.join("outside"), w.join("out")).expect("the folder is ours");

        let read_only = restricted(json!([root()]));
        let workspace = restricted(json!([root(), entry(&w, "write")]));
        let one = restricted(json!([root(), entry(&w.join("sub"), "write")]));
        let keys =
            json!({"path": {"type": "glob_pattern", "pattern": format!("{}/**/*.key", w.display())}, "access": "deny"});
        let denied = restricted(json!([root(), entry(&w, "write"), entry(&w.join("denied"), "deny"), keys]));
        let minimal = json!({"path": {"type": "special", "value": {"kind": "minimal"}}, "access": "read"});
        let limited = restricted(json!([entry(&w, "write"), minimal]));

        let read_only_fs = json!([-32603, "Read-only file system (os error 30)"]);
        let permission = json!([-32600, "Permission denied (os error 13)"]);
        let not_found = json!([-32004, "No such file or directory (os error 2)"]);
        let bytes = json!({"dataBase64": "eA=="});
        let read = |path: &str| ("fs/readFile", json!({"path": uri(&top.join(path))}));
        let write = |path: &str| {
            let mut params = bytes.clone();
            params["path"] = json!(uri(&top.join(path)));
            ("fs/writeFile", params)
        };
        let make = |path: &str, recursive: bool| {
            ("fs/createDirectory", json!({"path": uri(&top.join(path)), "recursive": recursive}))
        };
        let remove = |path: &str, force: bool| ("fs/remove", json!({"path": uri(&top.join(path)), "force": force}));
        let list = |path: &str| ("fs/readDirectory", json!({"path": uri(&top.join(path))}));
        let open =
            |path: &str, mode: &str| ("fs/open", json!({"path": uri(&top.join(path)), "handleId": "h", "mode": mode}));
        let copy = |from: &str, to: &str| {
            let (from, to) = (uri(&top.join(from)), uri(&top.join(to)));
            ("fs/copy", json!({"sourcePath": from, "destinationPath": to, "recursive": true}))
        };
        let done = json!({});
        let x = json!({"dataBase64": "eA=="});
        let calls = [
            (&read_only, write("w/f"), &read_only_fs),
            (&read_only, write("w/no/f"), &not_found),
            (&read_only, make("w/sub", false), &json!([-32603, "File exists (os error 17)"])),
            (&read_only, make("w/sub", true), &done),
            (&read_only, remove("w/zz", true), &done),
            (&read_only, remove("w/zz", false), &not_found),
            (&read_only, remove("w/f", true), &read_only_fs),
            (&workspace, write("w/n"), &done),
            (&workspace, write("w/.git/c"), &read_only_fs),
            (&workspace, make("w/.codex/x", true), &read_only_fs),
            (&workspace, make("w/sub/.git", true), &done),
            (&workspace, write("w/out/f"), &read_only_fs),
            (&workspace, open("w/.git/c", "replace"), &read_only_fs),
            (&workspace, copy("w/f", "outside/g"), &read_only_fs),
            (&one, remove("w", true), &read_only_fs),
            (&denied, read("w/denied/s"), &permission),
            (&denied, read("w/denied/zz"), &permission),
            (&denied, list("w/denied"), &permission),
            (&denied, read("w/sub/k.key"), &permission),
            (&denied, write("w/denied/s"), &permission),
            (&denied, remove("w/denied", true), &permission),
            (&denied, copy("w", "elsewhere"), &read_only_fs),
            (&denied, copy("w/denied/s", "w/zzz"), &permission),
            (&denied, open("w/denied/s", "read"), &permission),
            (&limited, read("w/f"), &x),
            (&limited, read("outside/f"), &not_found),
            (&limited, write("outside/f"), &not_found),
            (&limited, read("w/out/f"), &not_found),
            (&limited, open("outside/f", "read"), &not_found),
        ];
        let mut client = PlainClient::connected().await;
        for (sandbox, (method, mut params), expected) in calls {
            params["sandbox"] = sandbox.clone();
            let answer = client.call(method, params.clone()).await;
            assert_eq!(&answer, expected, "{method} {params}");
        }
        // The name of what is denied can be seen, and a directory on the way to what may be read.
        for (sandbox, path, key) in
            [(&denied, "w/denied", "isDirectory"), (&denied, "w/sub/k.key", "isFile"), (&limited, "", "isDirectory")]
        {
            let params = json!({"path": uri(&top.join(path)), "sandbox": sandbox});
            assert_eq!(client.call("fs/getMetadata", params).await[key], true, "{path}");
        }
        let busy = client.call("fs/remove", json!({"path": uri(&w.join("sub")), "sandbox": one})).await;
        assert_eq!(busy[0], -32603);
    });
}
