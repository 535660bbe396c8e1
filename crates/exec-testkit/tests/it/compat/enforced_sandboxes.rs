//! WIRE 4: contexts that have to be enforced. Codex starts a helper for most of these calls, a tenth of a second each.

use serde_json::{Value, json};

use super::case::{Case, start, with};
use super::case_directory::{in_directory, uri};
use super::sandboxes::{restricted, special};

fn entry(name: &str, access: &str) -> Value {
    json!({"path": {"type": "path", "path": uri(name)}, "access": access})
}

fn glob(pattern: &str) -> Value {
    json!({"path": {"type": "glob_pattern", "pattern": pattern}, "access": "deny"})
}

/// What Codex's preset of a writable workspace consists of.
fn preset() -> Vec<Value> {
    let protected = [".git", ".agents", ".codex", ".aws"].map(|name| {
        json!({"path": {"type": "special", "value": {"kind": "project_roots", "subpath": name}}, "access": "read", "missing_path_behavior": "skip"})
    });
    let mut entries = vec![special("root", "read"), special("project_roots", "write")];
    entries.extend(protected);
    entries
}

/// A workspace with links, in which two places tell by being written which roots count.
fn workspace(name: &str) -> Case {
    in_directory(name)
        .file("a", "text")
        .file("one/x", "x")
        .file("one/sub/y", "y")
        .directory("two")
        .link("to-a", "a")
        .link("to-one", "one")
}

fn roots(names: &[&str]) -> Value {
    names.iter().map(|name| json!(uri(name))).collect()
}

pub(super) fn cases() -> Vec<Case> {
    [contexts(), masks(), changes(), vec![rights(), beside_what_is_open(), traces_of_a_process()]].concat()
}

/// Which members of a context say what its dynamic entries mean: for files, and for a process.
fn contexts() -> Vec<Case> {
    let policy_context = |names: &[&str]| json!({"cwd": uri(""), "workspaceRoots": roots(names)});
    let one_of_policy = json!({"policyContext": policy_context(&["one"])});
    let both = |names: &[&str], beside: &[&str]| json!({"policyContext": policy_context(names), "cwd": uri(""), "workspaceRoots": roots(beside)});
    let mut relative = preset();
    relative.push(glob("**/y"));
    let temporary = [special("root", "read"), special("tmpdir", "write")];
    [
        ("roots beside the profile", preset(), json!({"cwd": uri(""), "workspaceRoots": roots(&["one"])})),
        ("roots of a policy context", preset(), one_of_policy.clone()),
        ("roots of a policy context before others", preset(), both(&["one"], &["two"])),
        ("a policy context without roots", preset(), both(&[], &["two"])),
        ("a policy context without a cwd", preset(), json!({"policyContext": {"workspaceRoots": roots(&["one"])}})),
        ("roots without a cwd", preset(), json!({"workspaceRoots": roots(&["one"])})),
        ("nothing beside the profile", preset(), json!({})),
        ("a relative glob of a policy context", relative.clone(), one_of_policy),
        ("a relative glob without a cwd", relative, json!({})),
        ("temporary directories of a client", temporary.to_vec(), json!({"temporaryDirectories": roots(&["one"])})),
    ]
    .into_iter()
    .map(|(name, entries, members)| {
        let sandbox = with(restricted(json!(entries)), members);
        let write = |case: Case, to: &str| case.fs("writeFile", to, json!({"dataBase64": "eA==", "sandbox": sandbox}));
        let script = "for at in one two; do (echo x > $at/made) 2>/dev/null && echo $at; done; cat one/sub/y 2>&1";
        let process = with(
            start("p", &["/bin/sh", "-c", script]),
            json!({"sandbox": sandbox, "cwd": uri(""), "env": {"PATH": "/usr/bin:/bin"}}),
        );
        let case = write(write(workspace(name), "one/new"), "two/new");
        case.fs("readFile", "one/sub/y", json!({"sandbox": sandbox})).call("process/start", process).log("p")
    })
    .collect()
}

/// What of denied and hidden things can be seen.
fn masks() -> Vec<Case> {
    let options = json!({"maxDepth": 2, "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": false});
    [
        ("a denied file", vec![special("root", "read"), entry("a", "deny")], &["a", "to-a"][..]),
        ("a denied folder", vec![special("root", "read"), entry("one", "deny")], &["one", "one/x", "to-one/x"]),
        ("a folder on the way", vec![special("minimal", "read"), entry("one/sub", "read")], &["one", "one/x"]),
    ]
    .into_iter()
    .map(|(name, entries, paths)| {
        let sandbox = restricted(json!(entries));
        paths.iter().fold(workspace(name), |case, path| {
            case.fs("readFile", path, json!({"sandbox": sandbox}))
                .fs("canonicalize", path, json!({"sandbox": sandbox}))
                .fs("readDirectory", path, json!({"sandbox": sandbox}))
                .fs("walk", path, json!({"options": options, "sandbox": sandbox}))
        })
    })
    .collect()
}

/// Every change of a name.
fn changing(case: Case, name: &str, sandbox: &Value) -> Case {
    let copy = json!({"sourcePath": uri("a"), "destinationPath": uri(name), "recursive": false, "sandbox": sandbox});
    case.fs("writeFile", name, json!({"dataBase64": "eA==", "sandbox": sandbox}))
        .fs("open", name, json!({"handleId": name, "mode": "replace", "sandbox": sandbox}))
        .fs("createDirectory", name, json!({"sandbox": sandbox}))
        .fs("createDirectory", name, json!({"recursive": false, "sandbox": sandbox}))
        .call("fs/copy", copy)
        .fs("remove", name, json!({"recursive": false, "sandbox": sandbox}))
        .fs("remove", name, json!({"force": false, "sandbox": sandbox}))
        .fs("remove", name, json!({"sandbox": sandbox}))
}

/// What is protected, read-only or denied in a writable folder and in one that is not.
fn changes() -> Vec<Case> {
    let taken_away = [entry("a-file", "read"), entry("one", "read"), entry("empty", "read"), entry("no-file", "deny")];
    let taken_away = [&taken_away[..], &[entry("two", "deny"), glob("**/*.key")]].concat();
    let writable = [preset(), taken_away.clone()].concat();
    let read_only = [&[special("root", "read")][..], &taken_away].concat();
    let names = [
        ("protected and missing", preset(), &[".git", ".git/config", ".git/a/b", ".aws/x"][..]),
        (
            "taken away from a writable folder",
            writable,
            &["a-file", "empty", "no-file", "one", "one/x", "two", "x.key", "keys"],
        ),
        ("denied in a read-only folder", read_only, &["a-file", "no-file", "two", "x.key"]),
        ("a writable folder in another", vec![special("root", "read"), entry("empty", "write")], &["empty"]),
    ];
    let cases = names.into_iter().map(|(name, entries, names)| {
        let sandbox = with(restricted(json!(entries)), json!({"cwd": uri(""), "workspaceRoots": roots(&[""])}));
        let case = workspace(name)
            .file("a-file", "text")
            .file("no-file", "text")
            .file("x.key", "text")
            .file("keys/a.key", "text");
        names.iter().fold(case.directory("empty"), |case, name| changing(case, name, &sandbox)).snapshot()
    });
    cases.collect()
}

/// A call under a policy has no capabilities, but where everything may be read, the server itself reads.
fn rights() -> Case {
    let writable = with(restricted(json!(preset())), json!({"cwd": uri(""), "workspaceRoots": roots(&[""])}));
    let read_only = restricted(json!([special("root", "read")]));
    let denying = restricted(json!([special("root", "read"), entry("two", "deny")]));
    let options = json!({"maxDepth": 2, "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": false});
    let case = workspace("rights of a call").mode("a", 0).mode("one", 0);
    let case = [("w", &writable), ("r", &read_only), ("d", &denying)].into_iter().fold(case, |case, (id, sandbox)| {
        case.fs("readFile", "a", json!({"sandbox": sandbox}))
            .fs("readFile", "one/x", json!({"sandbox": sandbox}))
            .fs("readDirectory", "one", json!({"sandbox": sandbox}))
            .fs("walk", "", json!({"options": options, "sandbox": sandbox}))
            .fs("canonicalize", "one/x", json!({"sandbox": sandbox}))
            .fs("open", "a", json!({"handleId": id, "sandbox": sandbox}))
    });
    let copy = json!({"sourcePath": uri("a"), "destinationPath": uri("copy"), "recursive": false, "sandbox": writable});
    case.call("fs/copy", copy)
        .fs("writeFile", "a", json!({"dataBase64": "eA==", "sandbox": writable}))
        .fs("writeFile", "one/new", json!({"dataBase64": "eA==", "sandbox": writable}))
        .fs("open", "a", json!({"handleId": "replaced", "mode": "replace", "sandbox": writable}))
        .fs("createDirectory", "one/made", json!({"sandbox": writable}))
        .fs("remove", "one/x", json!({"sandbox": writable}))
        .fs("remove", "a", json!({"sandbox": writable}))
        .mode("one", 0o755)
        .snapshot()
}

/// What is denied is opened again for writing, and not for reading.
fn beside_what_is_open() -> Case {
    let open =
        |access: &str| restricted(json!([special("root", "read"), entry("one", "deny"), entry("one/sub", access)]));
    let everything = restricted(json!([special("root", "deny"), special("minimal", "read"), entry("one/sub", "read")]));
    let deep = |access: &str| {
        restricted(json!([special("root", "read"), entry("one", "deny"), entry("one/way/to/sub", access)]))
    };
    let case = workspace("something open in what is denied").file("one/way/to/sub/z", "z").file("one/way/x", "x");
    let policies = [open("read"), open("write"), everything, deep("read"), deep("write")];
    let names =
        ["one", "one/x", "one/no", "one/sub", "one/sub/y", "one/way", "one/way/to", "one/way/x", "one/way/to/sub/z"];
    policies.into_iter().fold(case, |case, sandbox| {
        let case = names.into_iter().fold(case, |case, name| {
            case.fs("readFile", name, json!({"sandbox": sandbox})).fs("canonicalize", name, json!({"sandbox": sandbox}))
        });
        let case = ["one/way", "one/way/to"]
            .into_iter()
            .fold(case, |case, name| case.fs("readDirectory", name, json!({"sandbox": sandbox})));
        case.fs("writeFile", "one/sub/y", json!({"dataBase64": "eQ==", "sandbox": sandbox}))
    })
}

/// Protected folders that do not exist are there as long as the process is, and gone when its end is told.
fn traces_of_a_process() -> Case {
    let sandbox = with(restricted(json!(preset())), json!({"cwd": uri(""), "workspaceRoots": roots(&[""])}));
    let process = |id: &str| {
        with(
            start(id, &["/bin/sh", "-c", "test -d .git && test -d .aws && echo there"]),
            json!({"sandbox": sandbox, "cwd": uri(""), "env": {"PATH": "/usr/bin:/bin"}}),
        )
    };
    ["p", "q", "r"].into_iter().fold(workspace("the workspace after a process"), |case, id| {
        case.call("process/start", process(id)).log(id).snapshot()
    })
}
