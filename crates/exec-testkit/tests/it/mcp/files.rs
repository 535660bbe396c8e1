//! The tools over files, and the looks at sessions that are computed where the log is.

use serde_json::{Value, json};

use super::server::{Account, McpProcess, Protocol};
use crate::durability::support::run;

/// The smallest image, in base64.
pub(super) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What a client that shows models the structure sees, and one that shows them the text.
async fn call(server: &mut McpProcess, tool: &str, arguments: Value) -> (Value, String) {
    let answer = server.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
    assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
    let text = answer["result"]["content"][0]["text"].as_str().expect("there is a text").to_owned();
    (answer["result"]["structuredContent"].clone(), text)
}

async fn refusal(server: &mut McpProcess, tool: &str, arguments: Value) -> String {
    let answer = server.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
    assert_eq!(answer["result"]["isError"], true, "{tool}: {answer}");
    answer["result"]["content"][0]["text"].as_str().expect("it is told").to_owned()
}

#[test]
fn a_model_reads_edits_patches_and_searches_files() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let path = |name: &str| account.path().join(name);
        let written = json!({"path": "src/a.txt", "contents": "one\ntwo\nthree\n", "make_directories": true});
        let (written, text) = call(&mut server, "write_file", written).await;
        assert!(text.contains("created"), "{text}");

        let (read, text) = call(&mut server, "read_file", json!({"path": "src/a.txt", "from_line": 2})).await;
        assert_eq!((&read["total_lines"], &read["hash"]), (&json!(3), &written["hash"]));
        assert!(text.contains("2\ttwo") && !text.contains("1\tone") && read["text"] == text, "{text}");

        let edit = json!({"path": "src/a.txt", "old": "two", "new": "2", "if_hash": read["hash"]});
        let (edited, _) = call(&mut server, "edit_file", edit.clone()).await;
        assert_eq!((&edited["replacements"], &edited["lines"]), (&json!(1), &json!([2])));
        let why = refusal(&mut server, "edit_file", edit).await;
        assert!(why.contains("hash"), "the file has changed since: {why}");
        let why = refusal(&mut server, "edit_file", json!({"path": "src/a.txt", "old": "tree", "new": "x"})).await;
        assert!(why.contains("three"), "a similar place is shown: {why}");

        let patch = "*** Begin Patch\n*** Update File: src/a.txt\n@@\n one\n-2\n+zwei\n*** Add File: b.txt\n+new\n*** End Patch";
        let (patched, text) = call(&mut server, "apply_patch", json!({"patch": patch})).await;
        assert!(
            text.starts_with("Success.") && patched["files"].as_array().is_some_and(|files| files.len() == 2),
            "{text}"
        );
        assert_eq!(std::fs::read_to_string(path("src/a.txt")).expect("it is there"), "one\nzwei\nthree\n");

        let changes = json!([
            {"change": "replace", "path": "src/a.txt", "old": "zwei", "new": "deux"},
            {"change": "write", "path": "c.txt", "contents": "c\n", "if_absent": true},
            {"change": "rename", "path": "b.txt", "to": "d.txt"},
            {"change": "remove", "path": "missing.txt"},
        ]);
        let why = refusal(&mut server, "edit_files", json!({"changes": changes})).await;
        assert!(why.contains("missing.txt"), "{why}");
        assert!(path("b.txt").exists() && !path("c.txt").exists(), "none was made");
        let three = json!({"changes": changes.as_array().expect("they are four")[..3]});
        call(&mut server, "edit_files", three).await;
        assert!(path("d.txt").exists() && path("c.txt").exists() && !path("b.txt").exists(), "all were made");

        let (found, text) = call(&mut server, "search_files", json!({"pattern": "d.ux", "globs": ["*.txt"]})).await;
        assert!(found["count"] == 1 && text.contains("deux"), "{text}");
        let (found, text) = call(&mut server, "find_files", json!({"patterns": ["**/*.txt"]})).await;
        assert!(found["count"] == 3 && text.contains("src/a.txt"), "{text}");
        let (_, text) = call(&mut server, "list_directory", json!({"depth": 2})).await;
        assert!(text.contains("a.txt") && text.contains("d.txt"), "{text}");
        server.leave().await;
    });
}

#[test]
fn an_image_is_shown_as_an_image_and_nothing_else_is() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let png = base64_simd::STANDARD.decode_to_vec(PIXEL).expect("it is base64");
        std::fs::write(account.path().join("pixel"), &png).expect("it is ours");
        std::fs::write(account.path().join("words.png"), "words").expect("it is ours");
        let answer = server.request("tools/call", json!({"name": "view_image", "arguments": {"path": "pixel"}})).await;
        let content = answer["result"]["content"].as_array().expect("there is content");
        let image = content.iter().find(|block| block["type"] == "image").expect("there is an image");
        assert_eq!((&image["mimeType"], &image["data"]), (&json!("image/png"), &json!(PIXEL)));
        assert!(
            answer["result"].get("structuredContent").is_none(),
            "some clients would show it in place of the image"
        );
        let why = refusal(&mut server, "view_image", json!({"path": "words.png"})).await;
        assert!(why.contains("words.png"), "{why}");
        server.leave().await;
    });
}

#[test]
fn output_is_searched_where_it_is_and_a_screen_is_what_a_person_sees() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let cmd = "seq 1 200000; printf '\\033[31mred alert\\033[0m\\n'; printf '10%%\\r20%%\\r30%%\\n'";
        let started = json!({"cmd": cmd, "login": false, "yield_time_ms": 30_000});
        let (run, _) = call(&mut server, "exec_command", started).await;
        let session = &run["session_id"];
        let searched = json!({"session_id": session, "pattern": "^1999..$|alert", "last_lines": 3});
        let (found, text) = call(&mut server, "search_output", searched).await;
        assert_eq!(found["matches"], 101, "{text}");
        assert!(text.contains("199999") && text.contains("red alert") && !text.contains('\u{1b}'), "{text}");
        let (_, text) = call(&mut server, "search_output", json!({"session_id": session, "last_lines": 1})).await;
        assert!(text.contains("30%") && !text.contains("10%"), "{text}");
        let range = json!({"session_id": session, "first_line": 500, "last_line": 501});
        let (_, text) = call(&mut server, "search_output", range).await;
        assert!(text.contains("500: 500\n501: 501\n"), "{text}");
        let why = refusal(&mut server, "search_output", json!({"session_id": session, "pattern": "("})).await;
        assert!(why.contains('('), "{why}");

        let cmd = "printf 'first\\nsecond\\033[1;1HFIRST'; read answer";
        let terminal = json!({"cmd": cmd, "login": false, "tty": true, "yield_time_ms": 250});
        let (terminal, _) = call(&mut server, "exec_command", terminal).await;
        let session = terminal["session_id"].clone();
        call(
            &mut server,
            "wait_for",
            json!({"session_id": session, "until": "pattern", "pattern": "FIRST", "timeout_ms": 1}),
        )
        .await;
        let (screen, _) = loop {
            let shown = call(&mut server, "show_screen", json!({"session_id": session})).await;
            if shown.0["screen"].as_str().is_some_and(|screen| screen.starts_with("FIRST\nsecond\n")) {
                break shown;
            }
        };
        assert_eq!((&screen["cursor_row"], &screen["cursor_column"]), (&json!(0), &json!(5)));
        let uri = format!("exec://session/{session}/screen");
        let resource = server.request("resources/read", json!({"uri": uri})).await;
        let text = resource["result"]["contents"][0]["text"].as_str().expect("it is text");
        assert!(text.starts_with("FIRST\nsecond\n"), "{text}");
        let why = refusal(&mut server, "show_screen", json!({"session_id": run["session_id"]})).await;
        assert!(why.contains("terminal"), "{why}");
        call(&mut server, "kill_session", json!({"session_id": session, "grace_ms": 0})).await;
        server.leave().await;
    });
}
