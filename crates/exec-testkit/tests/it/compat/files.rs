//! WIRE 2.14: whole files, what they are, and where they really are.

use serde_json::{Value, json};

use super::case::{Case, Transport, initialized};
use super::case_directory::{in_directory, uri};

pub(super) fn cases() -> Vec<Case> {
    [reads(), writes(), metadata(), real_names()].concat()
}

/// A folder with one of each kind.
fn with_files(name: &str) -> Case {
    in_directory(name)
        .file("a", "text\n")
        .file("empty", "")
        .file("binary", b"\x00\xff\xfe\r\n")
        .file("d/in", "inside")
        .link("to-file", "a")
        .link("to-folder", "d")
        .link("to-link", "to-file")
        .link("nowhere", "missing")
        .link("circle", "circle")
        .link("absolute", "$ROOT/d/in")
        .fifo("fifo")
        .socket("socket")
}

/// The names of all kinds, and some that are not there.
const NAMES: &[&str] = &[
    "a",
    "empty",
    "binary",
    "d",
    "d/",
    "d/in",
    "to-file",
    "to-folder",
    "to-folder/",
    "to-folder/in",
    "to-link",
    "nowhere",
    "circle",
    "circle/x",
    "absolute",
    "fifo",
    "socket",
    "missing",
    "missing/x",
    "a/x",
    "a/",
    "",
    "d/../a",
    "to-folder/../a",
];

/// The same call for every name, with and without following links.
fn everywhere(verb: &str, more: &Value) -> Vec<Case> {
    [Value::Null, json!(true), json!(false)]
        .into_iter()
        .map(|follow| {
            let mut case = with_files(&format!("{verb} of everything, followSymlinks {follow}"));
            // The original waits for a reader of the FIFO, and everything behind it waits too.
            let hangs = |name: &&&str| verb == "writeFile" && follow != false && **name == "fifo";
            for name in NAMES.iter().filter(|name| !hangs(name)) {
                let mut more = more.clone();
                more["followSymlinks"] = follow.clone();
                case = case.fs(verb, name, more);
            }
            case.snapshot()
        })
        .collect()
}

fn reads() -> Vec<Case> {
    let mut cases = everywhere("readFile", &json!({}));
    cases.extend([
        in_directory("reading what the kernel makes up")
            .call("fs/readFile", json!({"path": "file:///proc/sys/kernel/ostype"})),
        in_directory("reading a device").call("fs/readFile", json!({"path": "file:///dev/null"})),
        in_directory("reading a device without following")
            .call("fs/readFile", json!({"path": "file:///dev/null", "followSymlinks": false})),
        in_directory("reading a file nobody may read").file("a", "x").mode("a", 0).fs("readFile", "a", json!({})),
        in_directory("reading a long name").fs("readFile", &"n".repeat(256), json!({})),
        in_directory("reading a very long path").fs("readFile", &"n/".repeat(2500), json!({})),
        in_directory("reading 100,000 bytes").file("a", vec![b'x'; 100_000]).fs("readFile", "a", json!({})),
        initialized("reading over stdio").only(Transport::Stdio).file("a", "text").fs("readFile", "a", json!({})),
    ]);
    cases
}

fn writes() -> Vec<Case> {
    let data = |text: &str| json!({"dataBase64": base64_simd::STANDARD.encode_to_string(text)});
    let mut cases = everywhere("writeFile", &data("new"));
    cases.extend([
        in_directory("a new file").fs("writeFile", "new", data("hello")).snapshot(),
        in_directory("a new file without following")
            .fs("writeFile", "new", json!({"dataBase64": "aGk=", "followSymlinks": false}))
            .snapshot(),
        in_directory("an empty file").fs("writeFile", "new", data("")).snapshot(),
        in_directory("a shorter text takes the place of a longer")
            .file("a", "0123456789")
            .fs("writeFile", "a", data("x"))
            .snapshot(),
        in_directory("permissions are kept").file("a", "x").mode("a", 0o751).fs("writeFile", "a", data("y")).snapshot(),
        in_directory("a file that may not be written")
            .file("a", "x")
            .mode("a", 0o444)
            .fs("writeFile", "a", data("y"))
            .snapshot(),
        in_directory("a link that leads nowhere is followed")
            .link("l", "$ROOT/target")
            .fs("writeFile", "l", data("y"))
            .snapshot(),
        in_directory("a link into a folder that is missing")
            .link("l", "no/target")
            .fs("writeFile", "l", data("y"))
            .snapshot(),
        in_directory("a name of 255 bytes").fs("writeFile", &"n".repeat(255), data("x")),
        in_directory("a name of 256 bytes").fs("writeFile", &"n".repeat(256), data("x")).snapshot(),
        in_directory("writing to a device")
            .call("fs/writeFile", json!({"path": "file:///dev/null", "dataBase64": "eA=="})),
        in_directory("writing to what is no place")
            .call("fs/writeFile", json!({"path": "file:///proc/nothing", "dataBase64": "eA=="})),
        in_directory("writing to the root").call("fs/writeFile", json!({"path": "file:///", "dataBase64": "eA=="})),
    ]);
    for bad in
        ["*", "a", "YQ", "YQ=", "YQ==\n", " YQ==", "YQ== ", "Y Q==", "-_-_", "YR==", "====", "YQ==YQ==", "ü", "YWJjZ"]
    {
        let case = in_directory(&format!("base64 {bad:?}")).fs("writeFile", "new", json!({"dataBase64": bad}));
        cases.push(case.snapshot());
    }
    cases.push(
        in_directory("base64 is judged before the path is")
            .call("fs/writeFile", json!({"path": "file:///C:/x", "dataBase64": "*"}))
            .call("fs/writeFile", json!({"path": "file:///no/such/folder/x", "dataBase64": "*"})),
    );
    cases
}

fn metadata() -> Vec<Case> {
    [Value::Null, json!(false)]
        .into_iter()
        .map(|follow| {
            let mut case = with_files(&format!("metadata of everything, followSymlinks {follow}"));
            for name in ["a", "empty", "binary", "d", "d/in"] {
                case = case.changed_at(name, 1_234_567_890);
            }
            let files = NAMES.iter().filter(|name| !matches!(**name, "fifo" | "socket" | ""));
            for name in files {
                case = case.fs("getMetadata", name, json!({"followSymlinks": follow}));
            }
            case
        })
        .chain([
            in_directory("metadata of a file from before 1970's second").file("a", "x").changed_at("a", 0).fs(
                "getMetadata",
                "a",
                json!({}),
            ),
            in_directory("metadata of the root").call("fs/getMetadata", json!({"path": "file:///proc/self/fd/99"})),
            in_directory("metadata of what may not be read").file("a", "12345").mode("a", 0).changed_at("a", 5).fs(
                "getMetadata",
                "a",
                json!({}),
            ),
        ])
        .collect()
}

fn real_names() -> Vec<Case> {
    let mut case = with_files("the real name of everything").file("sp ace/ü%?#", "x");
    for name in NAMES {
        case = case.fs("canonicalize", name, json!({}));
    }
    vec![
        case.fs("canonicalize", "sp%20ace/%C3%BC%25%3F%23", json!({})).fs("canonicalize", "sp ace", json!({})),
        in_directory("the real name of a name that is no text")
            .file(b"x\xff\x80", "x")
            .fs("canonicalize", "x%FF%80", json!({}))
            .fs("canonicalize", "x%ff%80", json!({})),
        in_directory("the real name of odd letters").file("a;b=c@d!e$f&g'h(i)*+,j~k", "x").fs(
            "canonicalize",
            "a;b=c@d!e$f&g'h(i)*+,j~k",
            json!({}),
        ),
        in_directory("the real name of more odd letters").file("a\"b<c>d`e{f}g|h^i[j]k\\l\tm\nn\x7fo", "x").fs(
            "canonicalize",
            "a%22b%3Cc%3Ed%60e%7Bf%7Dg%7Ch%5Ei%5Bj%5Dk%5Cl%09m%0An%7Fo",
            json!({}),
        ),
        in_directory("the real name of the root").call("fs/canonicalize", json!({"path": "file:///"})),
        in_directory("a link out of the folder").link("l", "/usr/../usr/bin/..").fs("canonicalize", "l", json!({})),
        in_directory("the link itself").call("fs/canonicalize", json!({"path": uri(".")})),
    ]
}
