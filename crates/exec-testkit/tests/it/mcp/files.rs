//! The tools over files, and the looks at sessions that are computed where the log is.

use std::process::Stdio;

use exec_testkit::binaries;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

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

/// What finds nothing without a word is taken for a proof that nothing is there.
#[test]
fn a_model_is_told_where_a_search_could_not_look() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let path = |name: &str| account.path().join(name);
        std::fs::create_dir(path("src")).expect("it is new");
        std::fs::write(path("src/a.rs"), "needle\n").expect("it is ours");
        std::fs::write(path("min.json"), format!("{}needle", "x".repeat(1_200_000))).expect("it is ours");

        for pattern in ["./src/*.rs".to_owned(), path("src/*.rs").display().to_string()] {
            let (found, text) = call(&mut server, "find_files", json!({"patterns": [pattern]})).await;
            assert!(found["count"] == 1 && text.contains("\nsrc/a.rs\n"), "{pattern}: {text}");
            let search = json!({"pattern": "needle", "globs": [pattern]});
            let (found, text) = call(&mut server, "search_files", search).await;
            assert_eq!((&found["count"], &found["unread_count"]), (&json!(1), &json!(0)), "{pattern}: {text}");
        }
        for pattern in ["../*.rs", "/usr/*", "~/*.rs"] {
            let why = refusal(&mut server, "find_files", json!({"patterns": [pattern]})).await;
            assert!(why.contains("relative to `path`"), "{pattern}: {why}");
        }

        let (found, text) = call(&mut server, "search_files", json!({"pattern": "needle"})).await;
        assert_eq!((&found["count"], &found["unread_count"]), (&json!(1), &json!(1)), "{text}");
        assert_eq!(found["unread"][0]["path"], path("min.json").display().to_string());
        assert!(found["unread"][0]["why"].as_str().is_some_and(|why| why.contains("a line of more than")), "{found}");
        assert!(text.contains("1 could not be read whole: search it with a command]\n  min.json: it has"), "{text}");
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

/// A log whose entries are longer than one answer: going on by the call that a note names shows each line once.
#[test]
fn a_long_view_goes_on_line_by_line_and_says_what_it_leaves_out() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let started = json!({"cmd": "seq 1 3000", "login": false, "yield_time_ms": 30_000});
        let (run, _) = call(&mut server, "exec_command", started).await;
        let session = &run["session_id"];
        let (mut shown, mut next) = (Vec::new(), 1);
        for _ in 0..20 {
            let arguments = json!({"session_id": session, "first_line": next});
            let (view, _) = call(&mut server, "search_output", arguments).await;
            let output = view["output"].as_str().expect("there is some").to_owned();
            let lines = output.lines().filter(|line| !line.starts_with('['));
            shown.extend(lines.map(|line| line.rsplit(": ").next().expect("it has a number").to_owned()));
            let Some((_, behind)) = output.split_once("the same call with first_line=") else { break };
            next = behind.split(' ').next().and_then(|line| line.parse().ok()).expect("a line is named");
        }
        assert_eq!(shown, (1..=3000).map(|line| line.to_string()).collect::<Vec<_>>());
        let (_, text) =
            call(&mut server, "search_output", json!({"session_id": session, "pattern": "0", "first_line": 2990}))
                .await;
        assert!(text.contains("2990: 2990\n3000: 3000\n") && !text.contains("goes on"), "{text}");
        let range = json!({"session_id": session, "pattern": "0", "first_line": 2980, "last_line": 2995});
        let (_, text) = call(&mut server, "search_output", range).await;
        assert!(text.contains("2980: 2980\n2990: 2990\n") && !text.contains("goes on"), "{text}");
        let (_, text) = call(&mut server, "search_output", json!({"session_id": session, "last_lines": 1})).await;
        assert!(text.contains("[before this 2999 lines, 13888 bytes are left out: more last_lines"), "{text}");
        for (bad, why) in [
            (json!({"session_id": session, "last_lines": 0}), "at least 1"),
            (json!({"session_id": session, "last_lines": 1, "first_line": 1}), "give last_lines, or"),
            (json!({"session_id": session, "first_line": 7, "last_line": 5}), "before first_line"),
        ] {
            let refused = refusal(&mut server, "search_output", bad).await;
            assert!(refused.contains(why), "{refused}");
        }
        server.leave().await;
    });
}

/// What a note in a view says of what is left out.
fn left_out(output: &str) -> Option<&str> {
    output.lines().find(|line| line.starts_with('[') && line.contains(" left out: "))
}

/// The call that a note names, by whoever has made the call with these arguments.
fn named_call(arguments: &Value, note: &str) -> Value {
    let number = |name: &str| -> Option<u64> {
        let (_, behind) = note.split_once(&format!("{name}="))?;
        behind.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
    };
    let mut named = arguments.clone();
    named["first_line"] = json!(number("first_line").unwrap_or_else(|| panic!("a line is named: {note}")));
    if let Some(entry) = number("after_seq") {
        named["after_seq"] = json!(entry);
    }
    if let Some((_, without)) = note.split_once("in place of").or_else(|| note.split_once("without")) {
        for name in ["last_lines", "since_seconds"].into_iter().filter(|name| without.contains(name)) {
            named[name] = Value::Null;
        }
    }
    named
}

/// The texts of the lines of a view.
fn texts(output: &str) -> Vec<String> {
    let lines = output.lines().filter(|line| !line.starts_with('['));
    // A line has a number where the lines before it were counted.
    lines.map(|line| line.split_once(": ").map_or(line, |(_, text)| text).to_owned()).collect()
}

fn numbers(texts: &[String]) -> Vec<u64> {
    texts.iter().map(|text| text.parse().expect("it is a number")).collect()
}

async fn view(server: &mut McpProcess, arguments: &Value) -> String {
    let (view, _) = call(server, "search_output", arguments.clone()).await;
    view["output"].as_str().expect("there is some").to_owned()
}

/// The lines of a view and of those that go on from it.
async fn all_texts(server: &mut McpProcess, mut arguments: Value) -> Vec<String> {
    let mut shown = Vec::new();
    loop {
        let output = view(server, &arguments).await;
        assert!(!output.contains("were dropped"), "it begins where it is told: {output:.500}");
        shown.extend(texts(&output));
        match left_out(&output).filter(|note| !note.ends_with("they are not what was asked for]")) {
            Some(note) => arguments = named_call(&arguments, note),
            None => return shown,
        }
    }
}

#[test]
fn what_is_left_out_before_the_last_lines_is_shown_by_the_call_that_is_named() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let started = json!({"cmd": "seq 1 3000", "login": false, "yield_time_ms": 30_000});
        let (run, _) = call(&mut server, "exec_command", started).await;
        let session = &run["session_id"];
        let all: Vec<String> = (1..=3000).map(|line| line.to_string()).collect();

        let few = json!({"session_id": session, "last_lines": 2});
        let output = view(&mut server, &few).await;
        let note = left_out(&output).expect("more is left out").to_owned();
        assert!(note.contains(": more last_lines show more of them, first_line=1 in place of last_lines"), "{note}");
        let more = view(&mut server, &json!({"session_id": session, "last_lines": 20})).await;
        assert_eq!((texts(&output), texts(&more)), (all[2998..].to_vec(), all[2980..].to_vec()));
        assert_eq!(all_texts(&mut server, named_call(&few, &note)).await, all);

        // Not so many fit, so more last_lines would show no more.
        let many = json!({"session_id": session, "last_lines": 2900});
        let output = view(&mut server, &many).await;
        let note = left_out(&output).expect("they do not fit").to_owned();
        let shown = texts(&output);
        assert!(shown.len() < 2900 && all.ends_with(&shown) && !note.contains("more last_lines"), "{note}");
        assert_eq!(all_texts(&mut server, named_call(&many, &note)).await, all);

        // Matches that are shown are all that was asked for, with what is around them or without.
        for (context, pattern, expected) in [
            (0, "^(7|700)$", &["7", "700"][..]),
            (1, "^(1|700)$", &["1", "2- 2", "699- 699", "700", "701- 701"]),
            (1, "^nothing$", &[]),
        ] {
            let search = json!({"session_id": session, "pattern": pattern, "context_lines": context, "last_lines": 10});
            let output = view(&mut server, &search).await;
            let note = left_out(&output).expect("other lines are left out");
            assert!(note.ends_with(" bytes are left out: they are not what was asked for]"), "{note}");
            assert_eq!(texts(&output), expected);
        }
        // The last matches are not all, and of what is around the first of them some may be missing.
        for (context, lines, expected) in [(0, 1, &["700"][..]), (1, 4, &["8- 8", "699- 699", "700", "701- 701"])] {
            let search =
                json!({"session_id": session, "pattern": "^(7|700)$", "context_lines": context, "last_lines": lines});
            let output = view(&mut server, &search).await;
            assert_eq!(texts(&output), expected);
            let note = left_out(&output).expect("a match is left out");
            assert!(note.contains("more last_lines show more of them, first_line=1 in place"), "{note}");
            let whole = view(&mut server, &named_call(&search, note)).await;
            assert!(whole.starts_with(if context == 0 { "7: 7\n700: 700\n" } else { "6- 6\n7: 7\n8- 8\n" }), "{whole}");
        }
        server.leave().await;
    });
}

/// By the time of the next call, the same seconds begin elsewhere.
#[test]
fn what_is_left_out_of_the_last_seconds_is_shown_when_they_are_over() {
    run(async {
        let account = Account::new();
        let mut server = account.start(Protocol::Stateless, false).await;
        let cmd = "first=1; while read -r line; do seq $first $((first + 2999)); first=$((first + 3000)); done";
        let started = json!({"cmd": cmd, "stdin": true, "login": false, "yield_time_ms": 250});
        let (run, _) = call(&mut server, "exec_command", started).await;
        let session = &run["session_id"];
        let next = json!({"session_id": session, "chars": "next\n", "yield_time_ms": 250});
        let over = json!({"session_id": session, "since_seconds": 1});
        for last in [json!(null), json!(5)] {
            // What was printed before that second is no part of it.
            call(&mut server, "write_stdin", next.clone()).await;
            while texts(&view(&mut server, &json!({"session_id": session, "last_lines": 1})).await).is_empty() {}
            while !view(&mut server, &over).await.is_empty() {}
            let recent = json!({"session_id": session, "since_seconds": 1, "last_lines": last});
            // On a slow machine the second may be over before we look; then there is more to print.
            let (output, note) = loop {
                call(&mut server, "write_stdin", next.clone()).await;
                let output = view(&mut server, &recent).await;
                if let Some(note) = left_out(&output) {
                    break (output.clone(), note.to_owned());
                }
            };
            while !view(&mut server, &over).await.is_empty() {}
            // The first line of a view may have begun before it.
            let seen = numbers(&texts(&output)[1..2])[0];
            let shown = numbers(&all_texts(&mut server, named_call(&recent, &note)).await[1..]);
            let end = shown[0] + shown.len() as u64;
            assert_eq!(shown, (shown[0]..end).collect::<Vec<_>>());
            match last.is_null() {
                true => assert_eq!(shown[0], seen + texts(&output).len() as u64, "it goes on behind what was shown"),
                false => assert!(3000 < shown[0] && shown[0] < seen && seen + 3 < end, "{} to {end}", shown[0]),
            }
        }
        server.leave().await;
    });
}

/// A call that is named counts lines from where the view began, as long as that is there; if it is not, it says so.
#[test]
fn lines_of_a_full_log_are_counted_from_what_is_left_of_it() {
    // Such lines are some thousand bytes long, so few views show all that is left.
    const SEQ: &str = "seq -f %0999.0f";
    run(async {
        let account = Account::new();
        let url = format!("unix://{}", account.path().join("far").display());
        let mut far = account.command(binaries::exec_server());
        far.args(["serve", "--max-spool-mib", "1", "--listen", &url]).stdout(Stdio::piped());
        let mut far = far.spawn().expect("it starts");
        let mut lines = BufReader::new(far.stdout.take().expect("it is piped")).lines();
        assert_eq!(lines.next_line().await.expect("it prints UTF-8"), Some(url.clone()));
        let mut server = account.start_with(&["--connect", &url], Protocol::Stateless, false).await;
        let cmd = format!("{SEQ} 1 3000; echo printed; read -r line; {SEQ} 3001 6000; echo printed");
        let started = json!({"cmd": cmd, "stdin": true, "login": false, "yield_time_ms": 250});
        let (run, _) = call(&mut server, "exec_command", started).await;
        let session = &run["session_id"];
        let printed = json!({"session_id": session, "until": "pattern", "pattern": "^printed$", "timeout_ms": 100_000});
        call(&mut server, "wait_for", printed).await;

        let log = json!({"session_id": session});
        let output = view(&mut server, &log).await;
        let (gap, _) = output.split_once('\n').expect("there are lines");
        assert!(gap.ends_with(" bytes before this were dropped from the full log]"), "{gap}");
        let going_on = named_call(&log, left_out(&output).expect("it is long"));
        let rest = all_texts(&mut server, going_on.clone()).await;
        assert_eq!(rest.last().map(String::as_str), Some("printed"));
        // The first line may have lost its beginning.
        let shown = numbers(&[&texts(&output)[1..], &rest[..rest.len() - 1]].concat());
        assert_eq!(shown, (shown[0]..=3000).collect::<Vec<_>>());
        // The same from the end.
        let tail = json!({"session_id": session, "last_lines": 3});
        let output = view(&mut server, &tail).await;
        let whole = all_texts(&mut server, named_call(&tail, left_out(&output).expect("more was printed"))).await;
        assert_eq!(numbers(&whole[1..whole.len() - 1]), shown);

        let end = json!({"session_id": session, "chars": "go on\n", "yield_time_ms": 30_000});
        call(&mut server, "write_stdin", end).await;
        call(&mut server, "wait_for", json!({"session_id": session, "until": "closed", "timeout_ms": 100_000})).await;
        let output = view(&mut server, &going_on).await;
        let (gap, _) = output.split_once('\n').expect("there are lines");
        let line = &going_on["first_line"];
        assert!(gap.contains(&format!("what an earlier view has called line {line} may come before this")), "{gap}");
        assert!(gap.ends_with("first_line=1 shows all that is left]"), "{gap}");
        let mut left = going_on;
        left["first_line"] = json!(1);
        let output = view(&mut server, &left).await;
        let rest = all_texts(&mut server, named_call(&left, left_out(&output).expect("it is long"))).await;
        let shown = numbers(&[&texts(&output)[1..], &rest[..rest.len() - 1]].concat());
        assert_eq!(shown, (shown[0]..=6000).collect::<Vec<_>>());
        server.leave().await;
        far.kill().await.expect("it is our child");
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
