//! WIRE 2.5: starts that are refused, and with which messages.

use serde_json::{Value, json};

use super::case::{Case, initialized, start, with};
use super::declared_differences::DeclaredDifference;

pub(super) fn cases() -> Vec<Case> {
    [params(), refusals(), working_directories(), unsupported(), ids()].concat()
}

fn one(name: &str, change: Value) -> Case {
    initialized(name).call("process/start", with(start("p", &["true"]), change)).alive()
}

fn params() -> Vec<Case> {
    let mut cases: Vec<Case> = ["processId", "argv", "cwd", "env", "tty"]
        .iter()
        .map(|member| one(&format!("a start without {member}"), json!({*member: "$ABSENT"})))
        .collect();
    cases.extend(["processId", "argv", "cwd", "env", "tty"].iter().map(|member| {
        let change = json!({*member: null});
        one(&format!("a start with {member} null"), change)
    }));
    cases.extend([
        one("argv of numbers", json!({"argv": [1]})),
        one("argv that is a text", json!({"argv": "true"})),
        one("env of numbers", json!({"env": {"A": 1}})),
        one("env with null", json!({"env": {"A": null}})),
        one("env that is a list", json!({"env": []})),
        one("tty that is a number", json!({"tty": 1})),
        one("tty that is a text", json!({"tty": "true"})),
        one("pipeStdin null", json!({"pipeStdin": null})),
        one("pipeStdin that is a number", json!({"pipeStdin": 1})),
        one("arg0 null", json!({"arg0": null})),
        one("arg0 that is a number", json!({"arg0": 1})),
        one("unknown members", json!({"colour": "red"})),
        one("metadata null", json!({"metadata": null})),
        one("metadata without members", json!({"metadata": {}})),
        one(
            "metadata of a Codex client",
            json!({"metadata": {"threadId": "01a1e081-ba9a-7963-adf8-a8df81a03aea", "toolCallId": "c1"}}),
        ),
        one("metadata with a bad thread id", json!({"metadata": {"threadId": "nope"}})),
        one("metadata that is a text", json!({"metadata": "m"})),
        one("an empty policy", json!({"envPolicy": {}})),
        one(
            "a policy of an unknown kind",
            json!({"envPolicy": {"inherit": "some", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []}}),
        ),
        one("enforceManagedNetwork alone", json!({"enforceManagedNetwork": true})),
        one("managedNetwork alone", json!({"managedNetwork": {"loopbackPorts": [1], "allowLocalBinding": true}})),
        one("managedNetwork with a bad port", json!({"managedNetwork": {"loopbackPorts": [70000]}})),
    ]);
    cases
}

fn refusals() -> Vec<Case> {
    vec![
        one("argv of nothing", json!({"argv": []})),
        one("an empty program", json!({"argv": [""]})),
        one("an empty program on a tty", json!({"argv": [""], "tty": true})),
        one("a program that is not there", json!({"argv": ["/no/such/program"]})),
        one("a program that is not there, on a tty", json!({"argv": ["/no/such/program"], "tty": true})),
        one("a program that is not in PATH", json!({"argv": ["no-such-program"]})),
        one("a program that is not in PATH, on a tty", json!({"argv": ["no-such-program"], "tty": true}))
            .start_differs(
                DeclaredDifference::PtyChildLikePipeChild,
                json!({"error": {"code": -32603, "message": "No such file or directory (os error 2)"}, "id": 2}),
            ),
        one("a program that is a directory", json!({"argv": ["/usr"]})),
        one("a program that is a directory, on a tty", json!({"argv": ["/usr"], "tty": true})),
        one("a program that is not executable", json!({"argv": ["/etc/passwd"]})),
        one("a program that is not executable, on a tty", json!({"argv": ["/etc/passwd"], "tty": true})),
        one("a program below a file", json!({"argv": ["/etc/passwd/x"]})),
        one("a relative program that is not there", json!({"argv": ["./no-such"]})),
        one("a NUL in the program", json!({"argv": ["tr\u{0}ue"]})),
        one("a NUL in an argument", json!({"argv": ["true", "a\u{0}b"]})),
        one("a NUL in an argument, on a tty", json!({"argv": ["true", "a\u{0}b"], "tty": true})),
        one("a NUL in a value", json!({"env": {"A": "a\u{0}b"}})),
        one("a NUL in a name", json!({"env": {"A\u{0}B": "x"}})),
        one("a NUL in arg0", json!({"arg0": "a\u{0}b"})),
        initialized("an argument that is too long")
            .call("process/start", start("p", &["/bin/true", &"x".repeat(200_000)]))
            .alive(),
    ]
}

fn working_directories() -> Vec<Case> {
    vec![
        one("a cwd that is not there", json!({"cwd": "file:///no/such/folder"})),
        one("a cwd that is not there, on a tty", json!({"cwd": "file:///no/such/folder", "tty": true})).start_differs(
            DeclaredDifference::CwdOfPtyChild,
            json!({"error": {"code": -32603, "message": "No such file or directory (os error 2)"}, "id": 2}),
        ),
        one("a cwd that is a file", json!({"cwd": "file:///etc/passwd"})),
        one("a cwd of Windows", json!({"cwd": "file:///C:/Users/me"})),
        one("a cwd of another host", json!({"cwd": "file://host/share"})),
        one("a cwd that is a plain path", json!({"cwd": "/tmp"})),
        one("a cwd that is relative", json!({"cwd": "tmp"})),
        one("an empty cwd", json!({"cwd": ""})),
        one("a cwd of http", json!({"cwd": "http://localhost/tmp"})),
        one("a cwd of localhost", json!({"cwd": "file://localhost/tmp"})),
        one("a cwd with a query", json!({"cwd": "file:///tmp?x=1"})),
        one("a cwd with a fragment", json!({"cwd": "file:///tmp#x"})),
        one("a cwd with escapes", json!({"cwd": "file:///%74mp"})),
        one("a cwd with dots", json!({"cwd": "file:///usr/../tmp"})),
        one("a cwd with a NUL", json!({"cwd": "file:///tmp/%00"})),
        one("a cwd with a trailing slash", json!({"cwd": "file:///tmp/"})),
    ]
}

fn unsupported() -> Vec<Case> {
    let shell = |name: &str, scope: &str| json!({"shellSnapshot": {"scopeId": scope, "shell": {"name": name, "path": "/bin/sh"}}});
    vec![
        one("a snapshot that is ignored", shell("bash", "s")),
        one("a snapshot with an empty scope", shell("bash", "")),
        one("a snapshot with a scope of 256 bytes", shell("bash", &"s".repeat(256))),
        one("a snapshot with a scope of 257 bytes", shell("bash", &"s".repeat(257))),
        one("a snapshot of another shell, for another program", shell("fish", "s")),
        one("a snapshot of another shell", with(shell("fish", "s"), json!({"argv": ["/bin/sh", "-lc", "true"]}))),
        one(
            "a snapshot of another shell, without a script",
            with(shell("fish", "s"), json!({"argv": ["/bin/sh", "-lc"]})),
        ),
        one("a snapshot of a shell by another path", with(shell("fish", "s"), json!({"argv": ["sh", "-lc", "true"]}))),
        one(
            "a snapshot with more arguments",
            with(shell("fish", "s"), json!({"argv": ["/bin/sh", "-lc", "true", "x"]})),
        ),
        one("a snapshot without a shell", json!({"shellSnapshot": {"scopeId": "s"}})),
        one("a sandbox of null", json!({"sandbox": null})),
        one("a sandbox that is disabled", json!({"sandbox": {"permissions": {"type": "disabled"}}})),
        one("a sandbox of an unknown kind", json!({"sandbox": {"permissions": {"type": "other"}}})),
        one("a sandbox that is a text", json!({"sandbox": "all"})),
        one("a proxy without members", json!({"networkProxy": {}})),
    ]
}

fn ids() -> Vec<Case> {
    let again = |name: &str, id: &str| {
        let params = || start(id, &["sleep", "1000"]);
        initialized(name).call("process/start", params()).call("process/start", params())
    };
    vec![
        again("an id in use", "p"),
        again("an empty id", ""),
        again("an id with odd characters", "a b/ü\n\"'"),
        again("a long id", &"i".repeat(300)),
        initialized("an id of a process that was closed just now").sh("p", "true").log("p").sh("p", "true"),
        initialized("a failed start frees its id").start("p", &["/no/such"]).sh("p", "echo two").log("p"),
        initialized("an id that was terminated just now")
            .sh("p", "exec sleep 1000")
            .call("process/terminate", json!({"processId": "p"}))
            .log("p")
            .sh("p", "true"),
    ]
}
