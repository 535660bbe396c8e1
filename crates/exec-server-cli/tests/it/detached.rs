//! `run --detach`, and the commands on detached processes: ps, logs, attach, kill.

use std::process::Output;

use rustix::process::Signal;

use super::server::{Server, Transport};
use super::support::{Running, code, is_running, stderr, stdout};

/// Prints its pid, and answers lines until its stdin ends.
const ECHO: &str = "echo pid $$; echo oops >&2; while read x; do echo \"got $x\"; done; exit 7";

#[test]
fn a_detached_process_is_listed_read_attached_to_and_its_code_is_ours() {
    for transport in [Transport::WebSocket, Transport::Unix] {
        let server = Server::start(transport);
        let id = server.detach(&[], ECHO);
        assert!(id.starts_with("sh-"), "{id}");
        let listed = server.only_process();
        assert_eq!((listed["id"].as_str(), listed["state"].as_str()), (Some(id.as_str()), Some("running")));

        let mut attached = Running::start(&mut server.command(&["attach", &id]));
        assert!(attached.line().starts_with("pid "));
        attached.type_in("one\n");
        assert_eq!(attached.line(), "got one");
        attached.close_stdin();
        assert_eq!(attached.end(), (String::new(), "oops\n".to_owned(), 7), "{transport:?}");

        let listed = server.only_process();
        assert_eq!((listed["state"].as_str(), listed["exit"]["code"].as_i64()), (Some("exited"), Some(7)));
        let logs = server.finish(&["logs", &id]);
        assert!(stdout(&logs).ends_with("\ngot one\n"), "{logs:?}");
        assert_eq!((stderr(&logs), code(&logs)), ("oops\n", 0));
    }
}

#[test]
fn ps_is_a_table_for_people() {
    let server = Server::start(Transport::Unix);
    let none = server.finish(&["ps"]);
    assert_eq!((stdout(&none), code(&none)), ("", 0));
    assert!(stderr(&none).contains("no detached processes"), "{none:?}");
    let id = server.detach(&[], ECHO);
    let output = server.finish(&["ps"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(head, ["ID", "WHERE", "STATE", "PID", "STARTED", "OUTPUT", "COMMAND"]);
    assert!(lines[1].starts_with(&id) && lines[1].contains("running") && lines[1].contains("sh -c"), "{lines:?}");
}

#[test]
fn a_process_that_waits_for_its_reader_says_so_and_its_reader_misses_nothing() {
    let server = Server::start(Transport::Unix);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = super::support::fifo(folder.path());
    let script = format!("echo ready; read x < {}; head -c 64M /dev/zero; exit 3", fifo.display());
    let id = server.detach(&["--no-stdin", "--spool", "1M"], &script);
    // Whoever attaches and then takes nothing, like a pager.
    let mut pager = Running::start(&mut server.command(&["attach", &id]));
    assert_eq!(pager.line(), "ready");
    std::fs::write(&fifo, "go\n").expect("it waits for us");
    let stalled = loop {
        let listed = server.only_process();
        assert_eq!(listed["state"], "running", "nothing may be dropped that somebody reads: {listed}");
        if !listed["stalled"].is_null() {
            break listed;
        }
    };
    assert_eq!(stalled["stalled"], "waits for its reader");
    let table = server.finish(&["ps"]);
    assert!(stdout(&table).contains("stalled: waits for its reader"), "{table:?}");
    let logs = server.finish(&["logs", "--tail", "1", &id]);
    let note = format!("{id} has more to print and waits: waits for its reader");
    assert!(stderr(&logs).contains(&note), "{:?}", stderr(&logs));
    // Its reader takes the rest, and has missed nothing.
    let (out, err, code) = pager.end();
    assert_eq!((out.len(), err.as_str(), code), (64 << 20, "", 3));
    assert_eq!(server.only_process()["state"], "exited");
}

#[test]
fn logs_follow_until_the_end_and_begin_where_they_are_told() {
    let server = Server::start(Transport::WebSocket);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = super::support::fifo(folder.path());
    let id = server.detach(&["--no-stdin"], &format!("echo first; read x < {}; echo last", fifo.display()));
    let mut following = Running::start(&mut server.command(&["logs", "--follow", &id]));
    assert_eq!(following.line(), "first");
    std::fs::write(&fifo, "go\n").expect("it waits for us");
    assert_eq!(following.line(), "last");
    assert_eq!(following.end(), (String::new(), String::new(), 0));

    let rest = server.finish(&["logs", "--since-seq", "1", &id]);
    assert_eq!(stdout(&rest), "last\n");
    let json = server.finish(&["logs", "--json", "--since-seq", "1", &id]);
    let events: Vec<serde_json::Value> =
        stdout(&json).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(events[0], serde_json::json!({"event": "output", "seq": 2, "stream": "stdout", "text": "last\n"}));
    assert_eq!(events[2], serde_json::json!({"event": "closed", "seq": 4}));
}

#[test]
fn logs_show_the_end_what_matches_and_what_is_recent_and_say_what_they_leave_out() {
    let server = Server::start(Transport::WebSocket);
    let id = server.detach(&["--no-stdin"], r"seq 1 100; printf '\033[31mred\033[0m 10%%\rdone\n'; echo oops >&2");
    let complete = server.finish(&["logs", "--follow", &id]);
    assert_eq!(code(&complete), 0);
    let logs = |args: &[&str]| server.finish(&[&["logs", &id], args].concat());
    let tail = logs(&["--tail", "2", "--plain"]);
    let (out, err) = (stdout(&tail).to_owned() + stderr(&tail), stderr(&tail));
    assert!(out.contains("done\n") && out.contains("oops\n") && !out.contains('\u{1b}'), "{tail:?}");
    assert!(
        err.contains(&format!("100 lines, 292 bytes before these are not shown: `exec-server logs {id}`")),
        "{err}"
    );
    assert_eq!(stdout(&logs(&["--grep", "^[35]0$"])), "30\n50\n");
    assert_eq!(stdout(&logs(&["--grep", "^5", "--tail", "1", "-C", "1"])), "60\n");
    assert_eq!(stdout(&logs(&["--grep", "DONE", "-i", "--plain"])), "done\n");
    assert_eq!(stdout(&logs(&["--since", "1h"])), stdout(&complete));
    assert_eq!(stdout(&logs(&["--since", "1h", "--since-seq", "100000"])), "");
    let bad = logs(&["--grep", "("]);
    assert!(code(&bad) != 0 && stderr(&bad).contains("bad regular expression"), "{bad:?}");
}

#[test]
fn logs_that_follow_begin_with_the_tail_and_show_only_what_matches() {
    let server = Server::start(Transport::Unix);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = super::support::fifo(folder.path());
    let script =
        format!("echo hit 1; echo hit 2; echo miss; read x < {}; printf 'hi'; echo 't 3'; echo miss", fifo.display());
    let id = server.detach(&["--no-stdin"], &script);
    std::iter::repeat_with(|| server.finish(&["logs", &id])).find(|logs| stdout(logs).ends_with("miss\n"));
    let mut following =
        Running::start(&mut server.command(&["logs", "--follow", "--tail", "1", "--grep", "^hit", &id]));
    assert_eq!(following.line(), "hit 2");
    std::fs::write(&fifo, "go\n").expect("it waits for us");
    assert_eq!(following.line(), "hit 3");
    assert_eq!(following.end(), (String::new(), String::new(), 0));
}

/// The program was in the middle of a line when the logs were asked for.
#[test]
fn logs_that_follow_judge_a_line_when_it_has_ended() {
    let server = Server::start(Transport::Unix);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = super::support::fifo(folder.path());
    let script = format!(
        r"printf 'early\nerr 1, '; printf 'warn\033[3' >&2; read x < {}; printf '1mred\033[0m\n' >&2; printf '50%%\r100%%\nlast'",
        fifo.display()
    );
    // Each case with what is shown first, and then.
    let cases: [(&[&str], &str, &str, &str); 4] = [
        (&["--grep", "err.*50|early"], "early", "err 1, 50%\r100%\n", ""),
        (&["--grep", "err|early"], "early", "err 1, 50%\r100%\n", ""),
        (&["--plain"], "early", "100%\nlast", "warnred\n"),
        (&["--tail", "3", "--plain", "--grep", "red|y$|la"], "early", "last", "warnred\n"),
    ];
    for (args, first, rest, err) in cases {
        let id = server.detach(&["--no-stdin"], &script);
        let is_there = |logs: &Output| stdout(logs).ends_with(", ") && stderr(logs).ends_with('3');
        std::iter::repeat_with(|| server.finish(&["logs", &id])).find(is_there);
        let mut following = Running::start(&mut server.command(&[&["logs", "-f", &id], args].concat()));
        assert_eq!(following.line(), first, "{args:?}");
        std::fs::write(&fifo, "go\n").expect("it waits for us");
        assert_eq!(following.end(), (rest.to_owned(), err.to_owned(), 0), "{args:?}");
    }
}

/// Some were there when the logs were asked for, and some came later.
#[test]
fn logs_that_follow_show_all_the_lines_around_a_match() {
    let server = Server::start(Transport::Unix);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = super::support::fifo(folder.path());
    let script = format!(r"printf 'miss\nhit\none\ntw'; read x < {}; printf 'o\nthree\nfour'", fifo.display());
    for (context, first, rest) in [
        ("0", &["hit"][..], ""),
        ("1", &["miss", "hit", "one"], ""),
        ("2", &["miss", "hit", "one"], "two\n"),
        ("3", &["miss", "hit", "one"], "two\nthree\n"),
        ("9", &["miss", "hit", "one"], "two\nthree\nfour"),
    ] {
        let id = server.detach(&["--no-stdin"], &script);
        std::iter::repeat_with(|| server.finish(&["logs", &id])).find(|logs| stdout(logs).ends_with("tw"));
        let mut following = Running::start(&mut server.command(&["logs", "-f", &id, "--grep", "hit", "-C", context]));
        for line in first {
            assert_eq!(following.line(), *line, "-C {context}");
        }
        std::fs::write(&fifo, "go\n").expect("it waits for us");
        assert_eq!(following.end(), (rest.to_owned(), String::new(), 0), "-C {context}");
    }
}

#[test]
fn screen_shows_what_a_terminal_shows_now_and_earlier() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&["--tty"], r"printf 'one\033[3;3H\033[31mthree\033[0m'; read x");
    let shown = |args: &[&str]| server.finish(&[&["screen", &id], args].concat());
    let drawn = std::iter::repeat_with(|| shown(&[])).find(|screen| !stdout(screen).is_empty());
    let drawn = drawn.expect("it is drawn sooner or later");
    assert_eq!((stdout(&drawn), stderr(&drawn), code(&drawn)), ("one\n\n  three\n", "", 0));
    assert_eq!(stdout(&shown(&["--colors"])), "one\n\n  \u{1b}[38;5;1mthree\u{1b}[0m\n");
    assert_eq!(stdout(&shown(&["--seq", "0"])), "");
    let json: serde_json::Value = serde_json::from_slice(&shown(&["--json"]).stdout).expect("it is JSON");
    assert_eq!(json["cursor"], serde_json::json!({"row": 2, "col": 7, "visible": true}));
    assert_eq!(json["rows"][2]["text"], "  three");
    let piped = server.detach(&[], "read x");
    let refused = server.finish(&["screen", &piped]);
    assert!(code(&refused) != 0 && stderr(&refused).contains("has no terminal"), "{refused:?}");
}

#[test]
fn whoever_cannot_be_told_the_id_by_stdout_is_told_it_with_the_failure() {
    let server = Server::start(Transport::Unix);
    for (name, json) in [("plain", &[][..]), ("lines", &["--json"][..])] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("every Linux has it");
        let args = ["run", "--connect", &server.url, "--detach", "--name", name];
        let mut command = server.command(&[&args, json, &["--", "sleep", "1000"]].concat());
        let output = command.stdout(full).output().expect("the binary can be started");
        let said =
            format!("exec-server: cannot write to stdout: No space left on device (os error 28); {name} goes on\n");
        assert_eq!((code(&output), stderr(&output)), (125, said.as_str()));
        assert_eq!(code(&server.finish(&["kill", name])), 0);
    }
}

/// Nobody was attached while it printed more than its spool holds.
#[test]
fn output_that_nobody_could_read_in_time_is_missed_aloud() {
    let server = Server::start(Transport::Unix);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = super::support::fifo(folder.path());
    let script = format!("head -c 20000000 /dev/zero; echo last; echo printed > {}", fifo.display());
    let id = server.detach(&["--spool", "1M"], &script);
    assert_eq!(std::fs::read_to_string(&fifo).expect("the child writes it"), "printed\n");
    let (out, err, code) = Running::start(&mut server.command(&["attach", &id])).end();
    assert!(out.len() < 20_000_000 && out.ends_with("last\n"), "{} bytes", out.len());
    assert!(err.contains("bytes of output are lost here") && err.contains("raise --spool"), "{err}");
    assert_eq!(code, 0, "the program's own");
}

#[test]
fn kill_ends_the_tree_and_says_how_many() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&[], "setsid sleep 1000 & echo $!; exec sleep 1000");
    let mut following = Running::start(&mut server.command(&["logs", "--follow", &id]));
    let sleeper = following.line();
    following.signal(Signal::KILL);
    following.abandon();

    let output = server.finish(&["kill", "--json", &id]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a line is JSON");
    let expected = serde_json::json!({"id": id, "wasRunning": true, "ended": 2, "left": 0, "forgotten": false});
    assert_eq!((line, code(&output)), (expected, 0));
    assert!(!is_running(&sleeper));
    let again = server.finish(&["kill", "--forget", &id]);
    assert_eq!(stdout(&again), format!("{id}: had already ended; forgotten\n"));
    assert_eq!(server.detached_files(), Vec::<std::path::PathBuf>::new());
    let gone = server.finish(&["kill", &id]);
    assert_eq!(code(&gone), 1);
    assert!(stderr(&gone).contains("no detached process is called"), "{gone:?}");
}

#[test]
fn a_process_outlives_its_server_between_detach_and_attach() {
    let mut server = Server::start_durable();
    let id = server.detach(&[], ECHO);
    server.crash_and_return();
    let mut attached = Running::start(&mut server.command(&["attach", &id]));
    assert!(attached.line().starts_with("pid "));
    attached.type_in("two\n");
    assert_eq!(attached.line(), "got two");
    attached.close_stdin();
    assert_eq!(attached.end().2, 7);
}

#[test]
fn a_process_that_its_server_never_heard_of_is_told_and_no_longer_listed() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&[], ECHO);
    let other = Server::start(Transport::Unix);
    // The same record, with the address of another server.
    let path = &server.detached_files()[0];
    let text = std::fs::read(path).expect("it is there");
    let mut note: serde_json::Value = serde_json::from_slice(&text).expect("a note is JSON");
    note["at"] = serde_json::json!({ "url": other.url });
    std::fs::write(path, note.to_string()).expect("it is ours");
    let gone = server.finish(&["attach", &id]);
    assert_eq!(code(&gone), 125);
    assert!(stderr(&gone).contains(&format!("{id} is gone")), "{gone:?}");
    let listed = server.finish(&["ps", "--json"]);
    assert_eq!((stdout(&listed), code(&listed)), ("", 0));
}

#[test]
fn a_server_that_does_not_answer_leaves_its_processes_listed() {
    let server = Server::start(Transport::Unix);
    server.detach(&[], ECHO);
    let path = &server.detached_files()[0];
    let text = std::fs::read_to_string(path).expect("it is there");
    let nowhere = format!("unix://{}", server.home.path().join("nobody").display());
    std::fs::write(path, text.replace(&server.url, &nowhere)).expect("it is ours");
    let listed = server.only_process();
    assert_eq!(listed["state"].as_str(), Some("unreachable"));
    assert!(listed["message"].as_str().is_some_and(|text| text.contains("is `exec-server serve` running there?")));
    assert_eq!(server.detached_files().len(), 1);
}

#[test]
fn two_places_do_not_fight_over_a_process() {
    let server = Server::start(Transport::WebSocket);
    let id = server.detach(&[], ECHO);
    let mut first = Running::start(&mut server.command(&["attach", &id]));
    assert!(first.line().starts_with("pid "));
    let listed = server.only_process();
    assert_eq!((listed["state"].as_str(), listed["driver"].as_str()), (Some("running"), Some("exec-server-cli")));
    let second = server.finish(&["logs", &id]);
    assert_eq!(code(&second), 0, "{second:?}");
    assert!(stdout(&second).starts_with("pid "), "{second:?}");
    let second = server.finish(&["attach", &id]);
    assert_eq!(code(&second), 125);
    let way_out = format!("exec-server-cli is driving {id}: say --take-over to take it, or --observe to look on");
    assert!(stderr(&second).contains(&way_out), "{second:?}");
    // None of that affected the first.
    first.type_in("still\n");
    assert_eq!(first.line(), "got still");
    let taken = server.finish(&["logs", "--take-over", &id]);
    assert!(stdout(&taken).ends_with("got still\n"), "{taken:?}");
    let (_, err, code) = first.end();
    assert_eq!(code, 125);
    assert!(err.contains(&format!("another exec-server has taken {id} over")), "{err}");
}

#[test]
fn a_hangup_leaves_the_process_running_and_other_signals_reach_it() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&[], "trap 'echo bye; exit 8' TERM; echo ready; while :; do sleep 0.02; done");
    let mut attached = Running::start(&mut server.command(&["attach", &id]));
    assert_eq!(attached.line(), "ready");
    attached.signal(Signal::HUP);
    let (_, err, code) = attached.end();
    assert_eq!(code, 0);
    assert!(err.contains(&format!("left {id} running")), "{err}");
    let mut attached = Running::start(&mut server.command(&["attach", &id]));
    assert_eq!(attached.line(), "ready");
    attached.signal(Signal::TERM);
    assert_eq!(attached.line(), "bye");
    assert_eq!(attached.end().2, 8);
}

// That one is started where it can be is judged in tests/ssh/account.rs.
#[test]
fn detach_where_no_server_can_be_started_says_where_it_was_tried() {
    let home = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(home.path().join("daemon"), "in the way").expect("the folder is ours");
    let mut command = super::support::exec_server(&["run", "--detach", "--", "true"]);
    super::server::at_home(&mut command, &home);
    let output = super::support::finish(&mut command);
    assert_eq!(code(&output), 125);
    let place = format!("the server of this account in {}/daemon", home.path().display());
    assert!(stderr(&output).contains(&place), "{output:?}");
}

#[test]
fn what_cannot_start_there_leaves_no_record() {
    let server = Server::start(Transport::Unix);
    let output = server.run(&["--detach", "--", "no-such-program-anywhere"]);
    assert_eq!((stdout(&output), code(&output)), ("", 127));
    assert_eq!(server.detached_files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn results_are_kept_as_long_as_was_asked_for_and_no_longer() {
    let server = Server::start(Transport::Unix);
    let short = server.detach(&["--keep", "1s"], "echo short");
    let long = server.detach(&[], "echo long");
    let mut following = Running::start(&mut server.command(&["logs", "--follow", &short]));
    assert_eq!(following.line(), "short");
    assert_eq!(following.end().2, 0);
    // The server looks every few seconds.
    let gone = std::iter::repeat_with(|| server.finish(&["logs", &short])).find(|output| code(output) != 0);
    let gone = gone.expect("it repeats until it is found");
    assert!(stderr(&gone).contains("its server has let go of it"), "{gone:?}");
    assert_eq!(stdout(&server.finish(&["logs", &long])), "long\n");
}
