//! What a user sees and can do while the connection is away.

use super::server::{Server, Transport};
use super::support::{code, stderr};
use super::terminal::Fixture;

/// What a program prints to take the whole screen, and to give it back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A program that takes the screen like an editor: a title at a place of its own, and keys that it answers there.
const EDITOR: &str = "stty raw -echo; printf '\\033[?1049h\\033[2J\\033[3;5H\\033[1mpage one\\033[0m'; \
                      while k=$(dd bs=1 count=1 2>/dev/null); do printf '\\033[9;1Hkey %s' \"$k\"; done";

#[test]
fn a_full_screen_program_is_not_painted_over_and_drawn_again_after() {
    let mut server = Server::start_durable();
    let id = server.detach(&["--tty"], EDITOR);
    let mut terminal = Fixture::open(&["attach", &id, "--reconnect-timeout", "1h"], server.home.path());
    terminal.until(ENTER);
    terminal.until("page one");
    terminal.press("a");
    terminal.until("key a");

    server.crash();
    let before = terminal.until("no connection, ");
    assert!(before.contains(LEAVE), "its screen is left before a note is written: {before:?}");
    terminal.until("more; Ctrl-C or Ctrl-\\ d leaves");
    server.come_back();
    terminal.until(ENTER);
    let drawn = terminal.until("key a");
    assert!(drawn.contains("\x1b[3;1H    \x1b[1mpage one\x1b[0m"), "{drawn:?}");
    terminal.press("b");
    terminal.until("key b");

    // Whoever leaves gets the own screen back.
    terminal.press("\x1cd");
    let left = terminal.until(&format!("left {id} running"));
    assert!(left.contains(LEAVE), "{left:?}");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_note_at_a_prompt_counts_down_and_leaves_no_trace() {
    let mut server = Server::start_durable();
    let id = server.detach(&["--tty"], "printf '$ '; while read x; do printf '%s\\n$ ' \"got-$x\"; done");
    let mut terminal = Fixture::open(&["attach", &id, "--reconnect-timeout", "50s"], server.home.path());
    terminal.until("$ ");
    server.crash();
    // A line of its own below the prompt, with the cursor's place kept.
    terminal.until("\n\x1b[A\x1b7\r\n\x1b[2Kexec-server: no connection, ");
    let seconds = |text: &str| {
        text.rsplit(' ').nth(1).and_then(|word| word.strip_suffix('s')?.parse::<u64>().ok()).expect("a number")
    };
    let first = seconds(&terminal.until("s more"));
    // It is written over, not under, and counts down.
    while {
        terminal.until("\r\x1b[2Kexec-server: no connection, ");
        seconds(&terminal.until("s more")) >= first
    } {}
    terminal.press("typed meanwhile\r");
    server.come_back();
    let gone = terminal.until("\r\x1b[2K\x1b8");
    assert!(!gone.contains("got-"), "the line is removed first: {gone:?}");
    terminal.until("got-typed meanwhile");
    terminal.press("\x04");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn keys_leave_while_there_is_no_connection() {
    let mut server = Server::start_durable();
    let id = server.detach(&["--tty"], "echo ready; cat");
    for keys in ["\x1cd", "typed first\x1cd"] {
        let mut terminal = Fixture::open(&["attach", &id, "--reconnect-timeout", "1h"], server.home.path());
        terminal.until("ready");
        server.crash();
        terminal.until("no connection, ");
        // Some keys are on their way already, and wait.
        terminal.press("x");
        terminal.press(keys);
        terminal.until(&format!("left {id} running"));
        assert_eq!(terminal.end(), Some(0));
        assert!(!terminal.is_raw());
        server.come_back();
    }
    let mut attached = Fixture::open(&["attach", &id, "--reconnect-timeout", "1h"], server.home.path());
    attached.until("ready");
    let url = server.url.clone();
    let run = ["run", "--tty", "--connect", &url, "--reconnect-timeout", "1h", "--", "sh", "-c", "echo ready; cat"];
    let mut run = Fixture::open(&run, server.home.path());
    run.until("ready");
    server.crash();
    for terminal in [&mut attached, &mut run] {
        terminal.until("no connection, ");
        terminal.press("x\x03");
        assert_eq!(terminal.end(), Some(130));
        assert!(!terminal.is_raw());
    }
    server.come_back();
    assert_eq!(server.only_process()["state"].as_str(), Some("running"));
}

#[test]
fn how_long_a_connection_is_looked_for_is_a_setting() {
    let mut server = Server::start(Transport::Unix);
    server.name("here");
    let file = server.home.path().join("environments.toml");
    let text = std::fs::read_to_string(&file).expect("it was written");
    std::fs::write(&file, format!("{text}reconnect_timeout_sec = 0.4\n")).expect("the folder is ours");
    let script = ["--", "sh", "-c", "echo ready; sleep 1000"];
    let url = server.url.clone();
    let by_file = ["run", "--environment", "here"];
    let by_flag = ["run", "--connect", &url, "--reconnect-timeout", "300ms"];
    let mut clients = Vec::new();
    for args in [&by_file[..], &by_flag[..]] {
        let mut client = super::support::Running::start(&mut server.command(&[args, &script].concat()));
        assert_eq!(client.line(), "ready");
        clients.push(client);
    }
    let mut by_variable = server.command(&[&["run", "--connect", &url], &script[..]].concat());
    let mut client = super::support::Running::start(by_variable.env("EXEC_SERVER_RECONNECT_TIMEOUT", "200ms"));
    assert_eq!(client.line(), "ready");
    clients.push(client);
    server.crash();
    for (client, after) in clients.into_iter().zip(["400ms", "300ms", "200ms"]) {
        let (_, notes, code) = client.end();
        assert_eq!(code, 125, "{notes}");
        assert!(notes.contains(&format!("gave up after {after}")), "{notes}");
    }
    let wrong = super::support::finish(
        server.command(&["run", "--connect", &url, "--", "true"]).env("EXEC_SERVER_RECONNECT_TIMEOUT", "soon"),
    );
    assert_eq!(code(&wrong), 125);
    assert!(stderr(&wrong).contains("EXEC_SERVER_RECONNECT_TIMEOUT is of no use"), "{}", stderr(&wrong));
}
