//! WIRE 5: path URIs of every odd shape, as a name to read, and as the working directory of a process.

use serde_json::json;

use super::case::{Case, start, with};
use super::case_directory::in_directory;
use super::declared_differences::DeclaredDifference;

/// Texts that are, or are not, path URIs. Not among them: `file://host//C:/x`, which Codex repeats in a spelling that
/// it would itself read differently.
const SHAPES: &[&str] = &[
    "",
    " ",
    "/tmp",
    "tmp",
    "./tmp",
    "../tmp",
    "~",
    "C:\\x",
    "C:/x",
    "file",
    "file:",
    "file:/",
    "file://",
    "file:///",
    "file:////",
    "file:tmp",
    "file:/tmp",
    "file:////tmp",
    "file://///tmp",
    "file:///tmp/",
    "file:///tmp//",
    "file:///tmp/.",
    "file:///tmp/./",
    "file:///tmp/..",
    "file:///tmp/../tmp",
    "file:///../../tmp",
    "file:///%2e%2e/tmp",
    "file:///tmp/%2e%2E/tmp",
    "file:///tmp/.%2e/tmp",
    "file:///tmp/%2E",
    "file:///tmp/...",
    "FILE:///tmp",
    "File:///tmp",
    "file://localhost/tmp",
    "file://LOCALHOST/tmp",
    "file://LocalHost",
    "file://localhost:80/tmp",
    "file://127.0.0.1/tmp",
    "file://host/tmp",
    "file://HOST/Share/x",
    "file://host",
    "file://host/",
    "file://host/C:/x",
    "file://h%6Fst/x",
    "file://ho st/x",
    "file://[::1]/x",
    "file://[bad/x",
    "file://user@host/x",
    "file://user:pw@host/x",
    "file://@/x",
    "file://:80/x",
    "file://./x",
    "file://../x",
    "file:///C:",
    "file:///C:/",
    "file:///c:/x",
    "file:///C|/x",
    "file:///C%3A/x",
    "file:///c%3a/x",
    "file:///C%7C/x",
    "file:///1:/x",
    "file:///CC:/x",
    "file:///tmp/C:/x",
    "file:C:/x",
    "file:/C:/x",
    "file://C:/x",
    "file://c|/x",
    "file:///C:/../x",
    "file:\\\\\\tmp",
    "file:///tmp\\x",
    "file:\\tmp",
    "\\tmp",
    "file:///tmp%2F",
    "file:///tmp%2Fno-such",
    "file:///%2Ftmp",
    "file:///%2F",
    "file:///tmp%5Cx",
    "file:///tmp%",
    "file:///tmp%2",
    "file:///tmp%zz",
    "file:///tmp/%FF",
    "file:///tmp/%ff%FE",
    "file:///tmp/\u{fc}",
    "file:///tmp/%C3%BC",
    "file:///tmp/no such",
    "file:///tmp/no%20such",
    "file:///tmp/no+such",
    "file:///tmp/no\tsuch",
    "file:///tmp/no\nsuch",
    "  file:///tmp  ",
    "\tfile:///tmp\n",
    "file:///tmp/\u{0}",
    "file:///tmp/%00",
    "file:///%00",
    "file:///%00/bad/path/",
    "file:///%00/bad/path/L3RtcA",
    "file:///%00/bad/path/L3RtcA==",
    "file:///%00/bad/path/L0M6L3g",
    "file:///%00/bad/path/L3RtcC94AHk",
    "file:///%00/bad/path/***",
    "file:///%00/bad/path/dG1w",
    "file:///%00/bad/path/L3RtcA/x",
    "file:///%00/bad/path/QwA6AFwAeAA",
    "file:///tmp?",
    "file:///tmp?q",
    "file:///tmp?q=1#f",
    "file:///tmp#",
    "file:///tmp#f",
    "file:///tmp%3F",
    "file:///tmp%23",
    "http://localhost/tmp",
    "https:///tmp",
    "ftp:x",
    "data:,x",
    "unix:/tmp",
    "fil%65:///tmp",
    "file :///tmp",
    "1file:///tmp",
    ":",
    "://",
    "://tmp",
    "//tmp",
    "?",
    "#",
    "file:?",
    "file:#",
    "file://\u{e4}/x",
    "file:///tmp/\u{202e}x",
    "file:///tmp/%F0%9F%98%80",
    "file:///tmp/😀",
    "file:///tmp/a;b,c=d&e$f!g*h'i(j)",
    "file:///tmp/a%3Bb",
    "file:///tmp/a\"b<c>d`e{f}g|h^i",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (at, shape) in SHAPES.iter().enumerate() {
        let path = json!({"path": shape});
        let mut case = in_directory(&format!("the path {shape:?}"))
            .call("fs/canonicalize", path.clone())
            .call("fs/getMetadata", with(path.clone(), json!({"path": format!("{shape}/no-such")})))
            .call("fs/readFile", path.clone())
            .call("fs/open", json!({"handleId": "h", "path": shape}));
        let process = format!("p{at}");
        case = case.call("process/start", with(start(&process, &["/bin/true"]), json!({"cwd": shape})));
        cases.push(case);
    }
    cases.extend([
        in_directory("names in other clothes")
            .file("a", "a")
            .file("d/x", "x")
            .file("%41", "percent")
            .file(b"n\xff", "bytes")
            .file("b\\c", "backslash")
            .file("t\tab", "tab")
            .file("q?", "question")
            .link("l", "d")
            .fs("readFile", "%61", json!({}))
            .fs("readFile", "d%2Fx", json!({}))
            .fs("readFile", "d%2fx", json!({}))
            .fs("readFile", "%41", json!({}))
            .fs("readFile", "%2541", json!({}))
            .fs("readFile", "n%FF", json!({}))
            .fs("readFile", "n%ff", json!({}))
            .fs("readFile", "b%5Cc", json!({}))
            .fs("readFile", "b\\c", json!({}))
            .fs("readFile", "t%09ab", json!({}))
            .fs("readFile", "t\tab", json!({}))
            .fs("readFile", "q%3F", json!({}))
            .fs("readFile", "d//x", json!({}))
            .fs("readFile", "d/./x", json!({}))
            .fs("readFile", "d/%2e/x", json!({}))
            .fs("readFile", "l/../a", json!({}))
            .fs("readFile", "l/%2e%2e/a", json!({}))
            .fs("readFile", "l%2F..%2Fa", json!({}))
            .fs("readFile", "missing/../a", json!({}))
            .fs("readFile", "a/../a", json!({}))
            .fs("readFile", "d/x/", json!({})),
        in_directory("a path that climbs and has no other URI")
            .call("fs/canonicalize", json!({"path": "file:///%00/bad/path/L3RtcC8uLi90bXA"}))
            .differs(DeclaredDifference::Added, json!({"id": 2, "result": {"path": "file:///tmp"}})),
        in_directory("lists of paths")
            .fs("canonicalize", "%2e", json!({}))
            .call("fs/copy", json!({"sourcePath": "tmp", "destinationPath": "tmp", "recursive": true}))
            .call("fs/copy", json!({"sourcePath": "file:///tmp/no", "destinationPath": "tmp", "recursive": true}))
            .call("fs/watchMissing", json!({"watchId": 1, "missing": ["tmp"], "present": null}))
            .call("fs/watchMissing", json!({"watchId": 2, "missing": ["file:///C:/x"], "present": null}))
            .call("fs/watchMissing", json!({"watchId": 3, "missing": [], "present": "file://host/x"}))
            .call("capabilityRoots/discoverV1", json!({"roots": [{"id": "r", "path": "tmp"}]}))
            .call("capabilityRoots/discoverV1", json!({"roots": [{"id": "r", "path": "file:///C:/x"}]})),
    ]);
    cases
}
