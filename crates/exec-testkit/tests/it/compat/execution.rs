//! WIRE 2.5.1: how a program runs.

use serde_json::{Value, json};

use super::case::{Case, initialized, start, with};
use super::declared_differences::DeclaredDifference;

pub(super) fn cases() -> Vec<Case> {
    [environment(), lookup(), names(), descendant(), streams(), ends()].concat()
}

fn run(name: &str, argv: &[&str], change: Value) -> Case {
    initialized(name).call("process/start", with(start("p", argv), change)).log("p")
}

fn refused(name: &str, argv: &[&str], change: Value) -> Case {
    initialized(name).call("process/start", with(start("p", argv), change)).alive()
}

fn environment() -> Vec<Case> {
    let env = |name: &str, change: Value| {
        initialized(name).call("process/start", with(start("p", &["/usr/bin/env"]), change)).sorted_output("p")
    };
    vec![
        env("an empty environment", json!({"env": {}})),
        env("exactly what is asked for", json!({"env": {"A": "1", "B": "two words", "Ü": "ü"}})),
        env("a terminal adds SHELL", json!({"env": {"A": "1"}, "tty": true})),
        env("a terminal leaves SHELL alone", json!({"env": {"SHELL": "/bin/mine"}, "tty": true})),
        env("a terminal leaves an empty SHELL alone", json!({"env": {"SHELL": ""}, "tty": true})),
        env("TERM is the caller's", json!({"env": {"TERM": "vt100"}, "tty": true})),
        env("an empty value", json!({"env": {"A": ""}})),
        env("a value with equals signs", json!({"env": {"A": "b=c=d"}})),
        env("values of many lines", json!({"env": {"A": "1\n2"}})),
        env(
            "names that are never passed on",
            json!({"env": {"NODE_REPL_AUTH_TOKEN": "x", "node_repl_auth_token": "y", "A": "1"}}),
        ),
        env(
            "all names that are never passed on",
            json!({"env": {
            "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "1", "OPENAI_FEDERATION_RULE_ID": "1", "OPENAI_IDENTITY_TOKEN_FILE": "1",
            "OPENAI_WORKLOAD_IDENTITY_CONTEXT": "1", "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE": "1", "LAST": "1"}}),
        ),
        env("an empty name", json!({"env": {"": "x", "A": "1"}})),
        env("a name with an equals sign", json!({"env": {"A=B": "x", "C": "1"}})),
        run("PWD is not set", &["/usr/bin/printenv", "PWD"], json!({"env": {}})),
    ]
}

fn lookup() -> Vec<Case> {
    vec![
        run("a name is found in the child's PATH", &["true"], json!({"env": {"PATH": "/usr/bin:/bin"}})),
        run("a name is found without PATH", &["echo", "found"], json!({"env": {}})),
        initialized("a name without PATH, on a tty")
            .call("process/start", with(start("p", &["echo", "found"]), json!({"env": {}, "tty": true})))
            .differs(
                DeclaredDifference::PtyChildLikePipeChild,
                json!({"id": 2, "result": {"processId": "p", "sandboxType": "none"}}),
            ),
        refused("an empty PATH finds nothing", &["echo", "found"], json!({"env": {"PATH": ""}})),
        refused("a PATH that leads elsewhere", &["echo", "found"], json!({"env": {"PATH": "/no/such"}})),
        run("a relative program is the cwd's", &["./sh", "-c", "echo $0"], json!({"cwd": "file:///bin"})),
        run("a relative program with a folder", &["bin/sh", "-c", "echo $0"], json!({"cwd": "file:///"})),
        run("a relative program on a tty", &["./sh", "-c", "echo $0"], json!({"cwd": "file:///bin", "tty": true})),
        run("the cwd in PATH", &["sh", "-c", "echo $0"], json!({"cwd": "file:///bin", "env": {"PATH": "."}})),
        refused("a script without a first line is refused", &["/etc/hostname"], json!({})),
    ]
}

fn names() -> Vec<Case> {
    let zero = r#"tr '\0' '|' < /proc/$$/cmdline"#;
    vec![
        run("argv reaches the child", &["/bin/sh", "-c", zero, "a b", "", "ü"], json!({})),
        run("argv reaches the child on a tty", &["/bin/sh", "-c", zero, "a b", "", "ü"], json!({"tty": true})),
        run("arg0 is what the child calls itself", &["/bin/sh", "-c", zero], json!({"arg0": "other"})),
        run("an empty arg0", &["/bin/sh", "-c", zero], json!({"arg0": ""})),
        run("arg0 on a tty", &["/bin/sh", "-c", "echo ran $0", "me"], json!({"tty": true, "arg0": "/bin/echo"}))
            .differs(
                DeclaredDifference::Arg0OfPtyChild,
                json!({"dense": true, "lines": [["pty", "ran me\r\n"], ["exited", 0, false], ["closed"]]}),
            ),
        run("the cwd is the cwd", &["/bin/pwd"], json!({"cwd": "file:///usr/bin"})),
        run("the cwd on a tty", &["/bin/pwd"], json!({"cwd": "file:///usr/bin", "tty": true})),
        run("a cwd that is a link", &["/bin/pwd"], json!({"cwd": "file:///proc/self/root/usr"})),
    ]
}

fn descendant() -> Vec<Case> {
    let own = "set -- $(cat /proc/$$/stat); [ $1 = $5 ] && echo group; [ $1 = $6 ] && echo session; echo tty $7";
    vec![
        run("a child of pipes leads a session without a terminal", &["/bin/sh", "-c", own], json!({})),
        run(
            "a child on a terminal leads a session",
            &[
                "/bin/sh",
                "-c",
                "set -- $(cat /proc/$$/stat); [ $1 = $5 ] && echo group; [ $1 = $6 ] && echo session; [ $7 -ne 0 ] && echo tty",
            ],
            json!({"tty": true}),
        ),
        run("the umask is the server's", &["/bin/sh", "-c", "umask"], json!({})),
    ]
}

fn streams() -> Vec<Case> {
    vec![
        run("stdin is empty", &["/bin/sh", "-c", "cat; readlink /proc/$$/fd/0"], json!({})),
        run("stdout and stderr are apart", &["/bin/sh", "-c", "echo out"], json!({})),
        run("only stderr", &["/bin/sh", "-c", "echo err >&2"], json!({})),
        run("nothing is printed", &["/bin/true"], json!({})),
        run("bytes that are not text", &["/usr/bin/printf", "\\377\\000\\001x"], json!({})),
        run("a terminal is 24 by 80", &["/bin/sh", "-c", "stty size"], json!({"tty": true})),
        run("a terminal's modes", &["/bin/sh", "-c", "stty -a"], json!({"tty": true})),
        run("a terminal turns line ends", &["/bin/sh", "-c", "echo a; echo b >&2"], json!({"tty": true})),
        run(
            "all three are the terminal",
            &["/bin/sh", "-c", "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes"],
            json!({"tty": true}),
        ),
        run("a terminal can be opened by name", &["/bin/sh", "-c", "echo hi > /dev/tty"], json!({"tty": true})),
        run("100 KB over a pipe", &["/bin/sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x"], json!({})),
        run("20 KB over a terminal", &["/bin/sh", "-c", "head -c 20000 /dev/zero | tr '\\0' x"], json!({"tty": true})),
        run(
            "a tty with pipeStdin",
            &["/bin/sh", "-c", "[ -t 0 ] && echo tty"],
            json!({"tty": true, "pipeStdin": true}),
        ),
    ]
}

fn ends() -> Vec<Case> {
    let signalled = |code: i32| json!({"dense": true, "lines": [["exited", code, false], ["closed"]]});
    let mut cases = Vec::new();
    for code in [0, 1, 2, 127, 128, 255] {
        let script = format!("exit {code}");
        cases.push(run(&format!("exit {code}"), &["/bin/sh", "-c", &script], json!({})));
        cases.push(run(&format!("exit {code} on a tty"), &["/bin/sh", "-c", &script], json!({"tty": true})));
    }
    for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("HUP", 1), ("INT", 2)] {
        let script = format!("kill -{name} $$");
        cases.push(run(&format!("killed by {name}"), &["/bin/sh", "-c", &script], json!({})));
        let on_tty = run(&format!("killed by {name} on a tty"), &["/bin/sh", "-c", &script], json!({"tty": true}));
        cases.push(on_tty.differs(DeclaredDifference::SignalOfPtyChild, signalled(128 + number)));
    }
    cases.push(
        initialized("exit does not wait for a grandchild that holds stdout")
            .sh_with_stdin("p", "exec 3<&0; echo early; read y; { read x <&3; echo late; } & exit 4")
            .printed("p", "early\n")
            // Between output and exit: which of the two Codex numbers first is chance when they come together.
            .write("p", "0", "end\n")
            .exited("p")
            .read("p", json!({"afterSeq": 1}))
            .write("p", "1", "go\n")
            .exact_log("p"),
    );
    cases
}
