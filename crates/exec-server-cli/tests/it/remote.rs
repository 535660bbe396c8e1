//! `run` in a remote environment: the same as locally, over every transport.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use super::server::{Server, Transport, at_home};
use super::support::{Running, code, exec_server, finish, is_running, stderr, stdout};

const WAYS: [Transport; 2] = [Transport::WebSocket, Transport::Unix];

#[test]
fn streams_and_codes_come_back_as_they_are() {
    for transport in WAYS {
        let server = Server::start(transport);
        let output = server.run(&["--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!((stdout(&output), stderr(&output), code(&output)), ("out\n", "err\n", 3), "{transport:?}");
        let killed = server.run(&["--quiet", "--", "sh", "-c", "kill -9 $$"]);
        assert_eq!(code(&killed), 137, "{transport:?}");
    }
}

#[test]
fn stdin_goes_there_whole_and_ends_there() {
    let text: Vec<u8> = (0..3_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let directly = fed(&mut Command::new("sha256sum"), &text);
    for transport in WAYS {
        let server = Server::start(transport);
        let there = fed(&mut server.command(&["run", "--connect", &server.url, "--", "sha256sum"]), &text);
        assert_eq!((stdout(&there), code(&there)), (stdout(&directly), 0), "{transport:?}");
    }
}

/// The command with this on its stdin, to its end. For commands that print nothing before they have read it all.
fn fed(command: &mut Command, text: &[u8]) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    child.stdin.take().expect("piped").write_all(text).expect("it is read");
    child.wait_with_output().expect("it is our child")
}

#[test]
fn a_program_that_cannot_run_there_is_told_as_here() {
    let server = Server::start(Transport::Unix);
    let missing = server.run(&["--", "no-such-program-anywhere"]);
    assert_eq!(code(&missing), 127);
    assert!(stderr(&missing).contains("was not found"), "{}", stderr(&missing));
    let folder = server.run(&["--cwd", "/no/such/folder", "--", "true"]);
    assert_eq!(code(&folder), 125);
    assert!(stderr(&folder).contains("working directory \"/no/such/folder\" does not exist"), "{}", stderr(&folder));
}

#[test]
fn time_limits_background_and_json_work_there_too() {
    let server = Server::start(Transport::WebSocket);
    let late = server.run(&["--timeout", "300ms", "--", "sh", "-c", "echo begun; exec sleep 1000"]);
    assert_eq!((stdout(&late), code(&late)), ("begun\n", 124));
    let background = server.run(&["--", "sh", "-c", "setsid sleep 1000 & echo $!"]);
    assert!(stderr(&background).contains("left 1 process running in the background: ended"), "{background:?}");
    assert!(!is_running(stdout(&background).trim_end()));
    let json = server.run(&["--json", "--", "sh", "-c", "echo hi"]);
    let events: Vec<serde_json::Value> =
        stdout(&json).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["started", "output", "exited", "closed"]);
}

#[test]
fn a_signal_to_us_reaches_the_program_there() {
    let server = Server::start(Transport::Unix);
    let script = "trap 'echo bye; exit 8' TERM; echo ready; while :; do sleep 0.02; done";
    let mut running = Running::start(&mut server.command(&["run", "--connect", &server.url, "--", "sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    assert_eq!(running.line(), "bye");
    assert_eq!(running.end().2, 8);
}

#[test]
fn a_run_goes_on_when_the_server_dies_and_returns() {
    let mut server = Server::start_durable();
    let script = "echo ready; read x; echo \"got $x\"; exit 6";
    let mut running = Running::start(&mut server.command(&["run", "--connect", &server.url, "--", "sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    server.crash_and_return();
    running.type_in("it\n");
    assert_eq!(running.line(), "got it");
    let (_, err, code) = running.end();
    assert_eq!((err.as_str(), code), ("", 6));
}

#[test]
fn nothing_stays_there_after_a_run() {
    let server = Server::start(Transport::Unix);
    assert_eq!(code(&server.run(&["--", "true"])), 0);
    let output = server.finish(&["ps", "--connect", &server.url, "--json"]);
    assert_eq!((stdout(&output), code(&output)), ("", 0), "no session but that of ps itself");
}

#[test]
fn environments_are_chosen_by_flag_variable_and_file() {
    let server = Server::start(Transport::WebSocket);
    let shell = ["--", "sh", "-c", "echo $THERE"];
    // By a variable.
    let run = [&["run", "--env", "THERE=far"], &shell[..]].concat();
    let output = finish(server.command(&run).env("EXEC_SERVER_URL", &server.url));
    assert_eq!((stdout(&output), code(&output)), ("far\n", 0));
    let none = finish(server.command(&run).env("EXEC_SERVER_URL", "none"));
    assert_eq!(code(&none), 125);
    assert!(stderr(&none).contains("no environment is the default, says EXEC_SERVER_URL"), "{}", stderr(&none));
    // By a file.
    let file = server.home.path().join("environments.toml");
    let text = format!("[[environments]]\nid = \"far\"\nurl = \"{}\"\n", server.url);
    std::fs::write(&file, text).expect("the folder is ours");
    let output = server.finish(&["run", "--environment", "far", "--", "sh", "-c", "exit 9"]);
    assert_eq!(code(&output), 9);
    let unknown = server.finish(&["run", "--environment", "fra", "--", "true"]);
    assert_eq!(code(&unknown), 125);
    let said = format!(
        "exec-server: environment `fra` is not configured; there is `local`, `far`: they come from {}\n",
        file.display()
    );
    assert_eq!(stderr(&unknown), said);
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_line_before_anything_runs() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let file = home.path().join("environments.toml");
    std::fs::write(&file, "\n[[environments]]\nid = \"a\"\n").expect("the folder is ours");
    for args in [&["run", "--", "true"][..], &["env", "list"], &["env", "check"]] {
        let mut command = exec_server(args);
        at_home(&mut command, &home);
        let output = finish(&mut command);
        let said =
            format!("exec-server: {}:3: environment `a` must set exactly one of url or program\n", file.display());
        assert_eq!(stderr(&output), said, "{args:?}");
        assert_ne!(code(&output), 0, "{args:?}");
    }
}

#[test]
fn a_program_over_stdio_is_an_environment_but_not_one_to_detach_in() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let own = env!("CARGO_BIN_EXE_exec-server");
    let text = format!(
        "default = \"pipe\"\n[[environments]]\nid = \"pipe\"\nprogram = \"{own}\"\nargs = [\"serve\", \"--listen\", \"stdio\"]\n"
    );
    std::fs::write(home.path().join("environments.toml"), text).expect("the folder is ours");
    let command = |args: &[&str]| {
        let mut command = exec_server(args);
        at_home(&mut command, &home);
        finish(&mut command)
    };
    let output = command(&["run", "--", "sh", "-c", "echo there; exit 2"]);
    assert_eq!((stdout(&output), stderr(&output), code(&output)), ("there\n", "", 2));
    let detached = command(&["run", "--detach", "--", "true"]);
    assert_eq!(code(&detached), 125);
    assert!(stderr(&detached).contains("--detach needs a server that stays when we leave"), "{}", stderr(&detached));
}

#[test]
fn a_pipe_that_reads_slowly_gets_every_byte_of_a_flood_many_times_the_spool() {
    const BYTES: usize = 40 << 20;
    for transport in [Transport::Unix, Transport::WebSocket] {
        let server = Server::start(transport);
        let flood = format!("yes 0123456789abcde | head -c {BYTES}");
        let mut command =
            server.command(&["run", "--connect", &server.url, "--spool", "1MiB", "--", "sh", "-c", &flood]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let mut output = child.stdout.take().expect("piped");
        let (mut read, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            let count = output.read(&mut buffer).expect("a pipe can be read");
            if count == 0 {
                break;
            }
            for (at, byte) in buffer[..count].iter().enumerate() {
                assert_eq!(*byte, b"0123456789abcde\n"[(read + at) % 16], "at {}, over {transport:?}", read + at);
            }
            read += count;
            if read < BYTES / 4 {
                // not a wait: this reader is slow
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        let ended = child.wait_with_output().expect("it is our child");
        assert_eq!((read, stderr(&ended), code(&ended)), (BYTES, "", 0), "over {transport:?}");
    }
}
