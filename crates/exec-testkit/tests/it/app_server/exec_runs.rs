//! `command/exec`: what programs find, what they print, how they end.

use serde_json::{Value, json};

use super::case::Case;
use super::exec_params::merge;

fn shell(script: &str, change: Value) -> Value {
    let base = json!({ "command": ["/bin/sh", "-c", script], "sandboxPolicy": { "type": "dangerFullAccess" } });
    merge(base, change)
}

fn case(script: &str, change: Value) -> Case {
    Case::new("command/exec").call("command/exec", shell(script, change))
}

pub(super) fn cases() -> Vec<Case> {
    let streamed = |change| merge(json!({ "processId": "p", "streamStdoutStderr": true }), change);
    let tty = |change| merge(json!({ "processId": "p", "tty": true }), change);
    let result = |stdout: &str| json!({ "result": { "exitCode": 0, "stdout": stdout, "stderr": "" } });
    vec![
        case("echo out; echo err >&2; exit 3", json!({})),
        case("echo $PLAIN $MY_API_KEY $lower", json!({})),
        case("echo $PLAIN $LOWER $lower $NEW", json!({ "env": { "PLAIN": null, "LOWER": null, "NEW": "new" } })),
        case("echo $PATH", json!({ "env": { "PATH": "/x" } })),
        case("cat; echo done; readlink /proc/self/fd/0", json!({})),
        case("pwd", json!({})),
        case("pwd", json!({ "cwd": "tmpdir/../tmpdir" })),
        case("pwd", json!({ "cwd": "/usr/.." })),
        case("kill -9 $$", json!({})),
        case("kill -15 $$", json!({})),
        case("kill -SEGV $$", json!({})),
        case("exit 255", json!({})),
        case("exit 256", json!({})),
        case("kill -HUP $$", json!({})),
        case("kill -INT $$", json!({})),
        case("kill -ABRT $$", json!({})),
        case("kill -PIPE $$", json!({})),
        case("kill -USR1 $$", tty(json!({}))),
        case("exit 137", tty(json!({}))),
        case("exec /nonexistent", json!({})),
        case("trap 'echo bye' EXIT; exit 3", json!({})),
        case("umask; nice; test -t 0; echo $?", json!({})),
        case("test -t 0 && test -t 1 && test -t 2; echo $?", tty(json!({}))),
        case("for fd in 0 1 2; do readlink /proc/self/fd/$fd | tr -d 0-9; done", streamed(json!({}))),
        case("ps -o pgid=,sid= -p $$ | awk -v p=$$ '{ print $1 == p, $2 == p }'", json!({})),
        case("ps -o pgid=,sid=,tpgid= -p $$ | awk -v p=$$ '{ print $1 == p, $2 == p, $3 == p }'", tty(json!({}))),
        case("grep -E 'SigBlk|NoNewPrivs' /proc/self/status", json!({})),
        case("exec >&- 2>&-; exit 6", streamed(json!({}))),
        case("echo a; echo b >&2", json!({ "outputBytesCap": 1 })),
        case("printf 123456", json!({ "outputBytesCap": u64::MAX })),
        case("head -c 1048577 /dev/zero | tr '\\0' x", streamed(json!({}))),
        case("head -c 1048576 /dev/zero | tr '\\0' x", streamed(json!({}))),
        case("echo ok", json!({ "timeoutMs": i64::MAX })),
        case("echo \"$A|$B\"", json!({ "env": { "A": "two\nlines", "B": "" } })),
        case("echo $HOME", json!({ "env": { "HOME": "/elsewhere" } })),
        case("echo $TERM", tty(json!({ "env": { "TERM": "dumb" } }))),
        case("echo $CODEX_SANDBOX_NETWORK_DISABLED", json!({ "env": { "CODEX_SANDBOX_NETWORK_DISABLED": "x" } })),
        Case::new("ids of many kinds")
            .call("command/exec", shell("echo x", json!({ "processId": "ü \"\n", "streamStdoutStderr": true })))
            .call("command/exec", shell("echo x", json!({ "processId": "", "streamStdoutStderr": true })))
            .call(
                "command/exec",
                shell("echo x", json!({ "processId": "x".repeat(1000), "streamStdoutStderr": true })),
            ),
        Case::new("two commands at a time, each ended by its id")
            .send("command/exec", shell("read line; echo 1$line", json!({ "processId": "a", "streamStdin": true })))
            .send("command/exec", shell("read line; echo 2$line", json!({ "processId": "b", "streamStdin": true })))
            .call("command/exec/write", json!({ "processId": "b", "deltaBase64": "eAo=" }))
            .answer(0)
            .call("command/exec/write", json!({ "processId": "a", "deltaBase64": "eQo=" }))
            .answer(1),
        case("echo a; sleep 5", json!({ "timeoutMs": 1000 })),
        case("sleep 5", json!({ "timeoutMs": 0 })),
        case("trap '' TERM; echo a; sleep 5; echo b", json!({ "timeoutMs": 1000 })),
        case("(sleep 0.3; echo late) & echo early", json!({})),
        case("sleep 20 & echo x", json!({})),
        case("sleep 20 >/dev/null 2>&1 & echo $!; exit 4", json!({ "outputBytesCap": 0 })),
        case("printf 123456789", json!({ "outputBytesCap": 5 })),
        case("printf 12345", json!({ "outputBytesCap": 5 })),
        case("printf 12345; printf e >&2", json!({ "outputBytesCap": 0 })),
        case("head -c 3000000 /dev/zero | tr '\\0' x", json!({})),
        case("head -c 3000000 /dev/zero | tr '\\0' x", json!({ "disableOutputCap": true })),
        case("printf 'a\\000b'", json!({})),
        case("printf '\\357\\273\\277bom'", json!({})),
        case("printf 'gr\\303\\274n'", json!({})),
        case("printf 'caf\\351'", json!({})).differs("text-encoding", result("caf\u{fffd}")),
        case("printf 'gr\\303\\274n'", json!({ "outputBytesCap": 3 })).differs("text-encoding", result("gr\u{fffd}")),
        case("printf 12345; sleep 0.2; printf e >&2", streamed(json!({}))),
        case("printf 12345; sleep 0.1; printf 678", streamed(json!({ "outputBytesCap": 3 }))),
        case("printf 12345; sleep 0.1; printf 678", streamed(json!({ "outputBytesCap": 5 }))),
        case("printf 12345", streamed(json!({ "outputBytesCap": 5 }))),
        case("printf 12345; sleep 0.1; printf 678", streamed(json!({ "outputBytesCap": 0 }))),
        case("printf 12345; sleep 0.1; printf 678 >&2", streamed(json!({ "outputBytesCap": 4 }))),
        case("echo a; sleep 5", streamed(json!({ "timeoutMs": 1000 }))),
        case("head -c 2500000 /dev/zero | tr '\\0' x", streamed(json!({}))),
        case("head -c 2500000 /dev/zero | tr '\\0' x", streamed(json!({ "disableOutputCap": true }))),
        case("printf 'a\\377'", streamed(json!({}))),
        case("stty size; echo err >&2; echo $TERM; exit 4", tty(json!({}))),
        case("stty size", tty(json!({ "size": { "rows": 10, "cols": 33 } }))),
        case("stty -a", tty(json!({}))),
        case("echo 123456789", tty(json!({ "outputBytesCap": 4 }))),
        case("echo a; sleep 5", tty(json!({ "timeoutMs": 1000 }))),
        case("kill -9 $$", tty(json!({}))),
        case("kill -15 $$", tty(json!({}))),
        case("sleep 20 & echo x", tty(json!({}))),
        case("echo $SHELL", tty(json!({ "env": { "SHELL": null } }))),
        case("true", json!({ "processId": "p" })),
        Case::new("the same id twice at a time")
            .send("command/exec", shell("sleep 5", json!({ "processId": "twice" })))
            .call("command/exec", shell("true", json!({ "processId": "twice" })))
            .call("command/exec/write", json!({ "processId": "twice", "deltaBase64": "eA==" }))
            .call("command/exec/resize", json!({ "processId": "twice", "size": { "rows": 3, "cols": 4 } }))
            .call("command/exec/terminate", json!({ "processId": "twice" }))
            .answer(0)
            .call("command/exec/terminate", json!({ "processId": "twice" }))
            .call("command/exec", shell("true", json!({ "processId": "twice" }))),
        Case::new("a program without a first line")
            .does(|root| write_program(root, "plain", "echo ran\n"))
            .call("command/exec", json!({ "command": ["./plain"], "sandboxPolicy": { "type": "dangerFullAccess" } })),
        Case::new("a program of the folder")
            .does(|root| write_program(root, "program", "#!/bin/sh\necho $0 $1\n"))
            .call(
                "command/exec",
                json!({ "command": ["./program", "argument"], "sandboxPolicy": { "type": "dangerFullAccess" } }),
            ),
    ]
}

fn write_program(root: &std::path::Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = root.join(name);
    std::fs::write(&path, text).expect("it is ours");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}
