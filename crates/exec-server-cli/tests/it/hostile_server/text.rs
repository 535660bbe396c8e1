//! What a server writes is shown, and does nothing to the terminal that shows it.

use std::path::Path;

use exec_testkit::hostile_server::{Action, HostileServer, welcome};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Ended, metadata, path, run, run_on_terminal};

/// A title for the window, a cleared screen, the same with a C1 control, a line of its own, text that runs backwards, a
/// character that is not seen, one that deletes.
const EVIL: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\nexec-server: \u{202e}gnp.exe\u{2066}\u{200b}\u{7f}\u{8}\u{feff}\u{e0041}\u{2028}";

/// A server that has nothing but such text, in every place where text can stand.
async fn evil_server() -> HostileServer {
    HostileServer::start(|method, params| {
        let result = match method {
            "initialize" => {
                let mut result = welcome(&[]);
                let info = &mut result["environmentInfo"];
                info["shell"] = json!({ "name": EVIL, "path": EVIL });
                info["platformOs"] = json!(EVIL);
                info["executorVersion"] = json!(EVIL);
                info["cwd"] = json!("file:///evil");
                result
            }
            "fs/getMetadata" if path(params).contains("missing") => return Some(vec![Action::Refuse(EVIL.into())]),
            "fs/getMetadata" if path(params).contains("tree") => metadata("directory", 0),
            "fs/getMetadata" => metadata("file", 1 << 40),
            "fs/readDirectory" => json!({ "entries": [{
                "fileName": EVIL, "isDirectory": false, "isFile": true, "isSymlink": true,
            }]}),
            "fs/readLink" => json!({ "target": EVIL }),
            "fs/canonicalize" => json!({ "path": format!("file://{}", path(params)) }),
            "fs/glob" => json!({ "paths": ["file:///evil/tree/%1B%5B2J%C2%9B"], "truncated": false }),
            "fs/walk" => json!({
                "entries": [{ "path": "file:///evil/tree/%1B%5B2J%C2%9B", "kind": "file", "isSymlink": false }],
                "errors": [{ "path": "file:///evil/tree/%1B%5B2J", "message": EVIL }],
                "truncated": false,
            }),
            "fs/search" => {
                let id = params["searchId"].clone();
                let line = json!({ "number": 1, "offset": 0, "text": EVIL, "spans": [[0, 3]] });
                let files = json!([{ "path": "file:///evil/tree/%1B%5B2J%C2%9B", "lines": [line] }]);
                let problems = json!([{ "path": "file:///evil/tree/%1B%5B2J", "message": EVIL }]);
                let done = json!({
                    "files": 1, "filesMatched": 1, "matches": 1, "truncated": true, "problems": problems,
                    "problemCount": 9,
                });
                let found = json!({ "searchId": id, "seq": 1, "files": files, "done": done });
                return Some(vec![
                    Action::Result(json!({ "searchId": id })),
                    Action::Send(json!({ "method": "fs/found", "params": found })),
                ]);
            }
            "fs/watch" => {
                let id = params["watchId"].clone();
                let change = json!({ "kind": "created", "path": "file:///evil/tree/%1B%5B2J%C2%9B%E2%80%AE" });
                let changed = json!({ "watchId": id, "changes": [change], "ended": true });
                return Some(vec![
                    Action::Result(json!({ "watchId": id })),
                    Action::Send(json!({ "method": "fs/changed", "params": changed })),
                ]);
            }
            "session/list" => json!({ "sessions": [{
                "sessionId": EVIL, "clientName": EVIL, "openedAtMs": 1, "processes": 1, "processIds": [EVIL],
                "attached": true, "peer": EVIL, "state": "attached",
                "attachment": { "state": "attached", "peer": EVIL },
            }]}),
            "session/close" => json!({}),
            _ => return Some(vec![Action::Refuse(EVIL.to_owned())]),
        };
        Some(vec![Action::Result(result)])
    })
    .await
}

/// Nothing that moves the cursor, hides, or turns text around; lines end as the terminal ends them.
fn assert_harmless(ended: &Ended, command: &[&str]) {
    for (stream, text) in [("stdout", ended.stdout()), ("stderr", ended.stderr.clone())] {
        for line in text.split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            assert!(!line.chars().any(is_harmful), "{stream} of {command:?}: {line:?}");
            assert!(!line.starts_with("exec-server: \\u{202e}"), "a line of the server's own in {stream}: {line:?}");
        }
    }
}

fn is_harmful(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    std::fs::write(home.path().join("file"), "mine").expect("it is new");
    home
}

#[tokio::test]
async fn no_command_passes_escapes_of_a_server_on_to_a_terminal() {
    let server = evil_server().await;
    let (home, url) = (home(), server.url());
    let commands: &[&[&str]] = &[
        &["fs", "ls", ":/evil/tree"],
        &["fs", "ls", "-1", ":/evil/tree"],
        &["fs", "ls", "--json", ":/evil/tree"],
        &["fs", "stat", ":/evil/file"],
        &["fs", "stat", ":/evil/missing"],
        &["fs", "stat", "--json", ":/evil/file", ":/evil/missing"],
        &["fs", "cat", ":/evil/file"],
        &["fs", "cat", "--json", ":/evil/file"],
        &["fs", "find", ":/evil/tree"],
        &["fs", "find", "--json", ":/evil/tree"],
        &["fs", "find", "-t", "f", ":/evil/tree"],
        &["fs", "grep", "x", ":/evil/tree"],
        &["fs", "grep", "-l", "x", ":/evil/tree"],
        &["fs", "grep", "--json", "x", ":/evil/tree"],
        &["fs", "watch", ":/evil/tree"],
        &["fs", "watch", "--json", ":/evil/tree"],
        &["fs", "rm", "-r", ":/evil/file"],
        &["fs", "rm", "--json", "-r", ":/evil/file"],
        &["fs", "mkdir", ":/evil/new"],
        &["fs", "mv", ":/evil/file", ":/evil/other"],
        &["cp", "file", ":/evil/file"],
        &["cp", "-r", ":/evil/tree", "copy"],
        &["cp", "--json", "-r", ":/evil/tree", "copy"],
        &["cp", ":/evil/missing", "copy"],
        &["ps"],
        &["ps", "--json"],
        &["run", "--", "true"],
        &["run", "--json", "--", "true"],
        &["run", "--detach", "--", "true"],
    ];
    for words in commands {
        let at = if words[0] == "fs" { 2 } else { 1 };
        let command = [&words[..at], &["--connect", url], &words[at..]].concat();
        assert_harmless(&run_on_terminal(home.path(), &command).await, words);
    }
    for words in [&["env", "check", url][..], &["env", "check", "--json", url]] {
        assert_harmless(&run_on_terminal(home.path(), words).await, words);
    }
}

#[tokio::test]
async fn tables_and_messages_are_harmless_in_a_pipe_too() {
    let server = evil_server().await;
    let (home, url) = (home(), server.url());
    for words in [
        &["ps", "--connect", url][..],
        &["env", "check", url],
        &["run", "--connect", url, "--", "true"],
        &["fs", "ls", "--connect", url, "-l", ":/evil/tree"],
        &["fs", "stat", "--connect", url, ":/evil/file"],
    ] {
        assert_harmless(&run(home.path(), words).await, words);
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_is_told_without_escapes() {
    let home = home();
    let close = HostileServer::start(|_, _| Some(vec![Action::Close(EVIL.chars().take(40).collect())])).await;
    let refuse = HostileServer::start(|_, _| Some(vec![Action::Refuse(EVIL.to_owned())])).await;
    for server in [close, refuse] {
        for words in [&["fs", "ls", "--connect", server.url(), ":/"][..], &["env", "check", server.url()]] {
            let ended = run_on_terminal(home.path(), words).await;
            assert_harmless(&ended, words);
            assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        }
    }
    let url = refusing_web_server().await;
    let words = ["fs", "ls", "--connect", &url, ":/"];
    let ended = run_on_terminal(home.path(), &words).await;
    assert_harmless(&ended, &words);
    assert!(ended.stderr.contains("403"), "{}", ended.stderr);
}

/// Answers every connection with a refusal of its own words.
async fn refusing_web_server() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let length = EVIL.len();
            let answer =
                format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{EVIL}");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("ws://{address}")
}

/// Records a detached process, as `run --detach` does.
fn detached(home: &Path, url: &str) {
    let record = json!({
        "id": "make-aaaa", "session": "00000000-0000-4000-8000-000000000000", "at": { "url": url },
        "argv": [format!("make{EVIL}")], "tty": false, "startedMs": 1,
    });
    std::fs::create_dir(home.join("detached")).expect("it is new");
    std::fs::write(home.join("detached/make-aaaa.json"), record.to_string()).expect("it is new");
}

#[tokio::test]
async fn commands_on_a_detached_process_are_harmless_too() {
    for refuses_at in ["initialize", "process/list", "process/read"] {
        let server = HostileServer::start(move |method, _| match method {
            method if method == refuses_at => Some(vec![Action::Refuse(EVIL.to_owned())]),
            "process/list" => Some(vec![Action::Result(json!({ "processes": [process()] }))]),
            "initialize" | "session/close" => None,
            _ => Some(vec![Action::Refuse(EVIL.to_owned())]),
        })
        .await;
        let home = home();
        detached(home.path(), server.url());
        for words in [
            &["ps"][..],
            &["ps", "--json"],
            &["logs", "make-aaaa"],
            &["attach", "-n", "make-aaaa"],
            &["kill", "make-aaaa"],
        ] {
            assert_harmless(&run_on_terminal(home.path(), words).await, words);
        }
    }
}

fn process() -> Value {
    json!({
        "processId": "make-aaaa", "pid": 7, "argv": [EVIL], "cwd": "file:///evil", "tty": false, "stdinOpen": false,
        "startedAtMs": 1, "state": "running", "firstSeq": 1, "nextSeq": 1, "heldBytes": 0, "droppedBytes": 0,
        "stalled": false,
    })
}
