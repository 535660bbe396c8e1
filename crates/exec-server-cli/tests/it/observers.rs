//! Looking over the shoulder of another client: `ps --all`, `logs -f`, `attach --observe`, and `attach`, which asks first.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::server::{Server, Transport};
use super::support::{Running, code, stderr, stdout};
use super::terminal::Fixture;

/// Prints its pid, and answers lines until its stdin ends.
const ECHO: &str = "echo ready; while read x; do echo \"got $x\"; done; exit 7";

/// A client that is none of ours: it has started a process and knows nothing of observers.
struct Agent {
    stream: BufReader<UnixStream>,
}

impl Agent {
    fn start(server: &Server, script: &str) -> Self {
        let path = server.url.trim_start_matches("unix://");
        let stream = BufReader::new(UnixStream::connect(path).expect("the server listens"));
        let mut agent = Self { stream };
        agent.call(1, "initialize", &json!({"clientName": "some agent"}));
        agent.send(&json!({"method": "initialized"}));
        let start = json!({
            "processId": "build/7", "argv": ["/bin/sh", "-c", script], "cwd": "file:///",
            "env": {"PATH": "/usr/bin:/bin"}, "tty": false, "pipeStdin": true,
        });
        assert_eq!(agent.call(2, "process/start", &start)["processId"], "build/7");
        agent
    }

    fn send(&mut self, message: &Value) {
        self.stream.get_mut().write_all(format!("{message}\n").as_bytes()).expect("the server reads");
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.stream.read_line(&mut line).expect("the socket can be read");
        (count > 0).then(|| serde_json::from_str(&line).expect("a line is JSON"))
    }

    fn call(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(&json!({"id": id, "method": method, "params": params}));
        loop {
            let mut message = self.next().expect("the connection lives");
            let method = message["method"].as_str().unwrap_or_default();
            assert!(!method.starts_with("session/"), "it does not know these: {message}");
            if message["id"] == id {
                return message["result"].take();
            }
        }
    }

    fn write(&mut self, id: u64, base64: &str) {
        let params = json!({"processId": "build/7", "chunk": base64, "writeId": id.to_string()});
        assert_eq!(self.call(id, "process/write", &params)["status"], "accepted");
    }

    /// Whether it was told that another has its session.
    fn hears_of_take_over(mut self) -> bool {
        std::iter::from_fn(|| self.next()).any(|message| message["method"] == "session/takenOver")
    }
}

#[test]
fn an_agents_processes_are_listed_and_seen_while_it_works() {
    let server = Server::start(Transport::Unix);
    let mut agent = Agent::start(&server, ECHO);
    let table = server.finish(&["ps", "--all", "--connect", &server.url]);
    let lines: Vec<&str> = stdout(&table).lines().collect();
    assert_eq!(lines.len(), 2, "{table:?}");
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(head, ["ID", "WHERE", "DRIVER", "STATE", "PID", "STARTED", "COMMAND"]);
    assert!(lines[1].contains("/build/7") && lines[1].contains("some agent"), "{table:?}");
    let id = lines[1].split_whitespace().next().expect("it begins with its id");
    let listed = server.finish(&["ps", "--all", "--json", "--connect", &server.url]);
    let session: Value = serde_json::from_slice(&listed.stdout).expect("one line of JSON");
    assert_eq!((&session["driver"]["clientName"], &session["processes"]), (&json!("some agent"), &json!(1)));
    assert_eq!(
        (&session["processList"][0]["id"], &session["processList"][0]["argv"][0]),
        (&json!("build/7"), &json!("/bin/sh"))
    );

    let mut following = Running::start(&mut server.command(&["logs", "-f", "--connect", &server.url, "build/7"]));
    let mut observing = Running::start(&mut server.command(&["attach", "--observe", "--connect", &server.url, id]));
    assert_eq!((following.line(), observing.line()), ("ready".to_owned(), "ready".to_owned()));
    // What we type reaches nobody.
    observing.type_in("mine\n");
    agent.write(10, "dGhlaXJzCg==");
    assert_eq!((following.line(), observing.line()), ("got theirs".to_owned(), "got theirs".to_owned()));
    agent.call(11, "process/terminate", &json!({"processId": "build/7"}));
    assert_eq!(following.end().2, 0);
    let (out, err, code) = observing.end();
    assert_eq!((out.as_str(), code), ("", 137), "as the process has");
    assert!(err.contains("looking on while some agent drives build/7"), "{err}");
}

#[test]
fn attach_does_not_take_an_agents_process_unasked() {
    let server = Server::start(Transport::Unix);
    let mut agent = Agent::start(&server, ECHO);
    let refused = server.finish(&["attach", "--connect", &server.url, "build/7"]);
    assert_eq!(code(&refused), 125);
    let way_out = "some agent is driving build/7: say --take-over to take it, or --observe to look on";
    assert!(stderr(&refused).contains(way_out), "{refused:?}");
    agent.write(10, "YQo=");

    let args = ["attach", "--connect", &server.url, "build/7"];
    let mut person = Fixture::open(&args, server.home.path());
    person.until("some agent is driving build/7; take over? [y/N] ");
    person.press("n\n");
    person.until("left build/7 to some agent");
    agent.write(11, "Ygo=");

    let mut person = Fixture::open(&args, server.home.path());
    person.until("take over? [y/N] ");
    person.press("y\n");
    person.until("attached to build/7");
    assert!(agent.hears_of_take_over());
    person.press("mine now\n");
    person.until("got mine now");
}

#[test]
fn what_nobody_drives_is_attached_to_without_a_question_and_what_is_not_there_is_told() {
    let server = Server::start(Transport::Unix);
    drop(Agent::start(&server, ECHO));
    let mut attached = Running::start(&mut server.command(&["attach", "--connect", &server.url, "build/7"]));
    assert_eq!(attached.line(), "ready");
    attached.type_in("one\n");
    assert_eq!(attached.line(), "got one");
    attached.close_stdin();
    assert_eq!(attached.end().2, 7);
    let nobody = server.finish(&["logs", "--connect", &server.url, "nobody"]);
    assert_eq!(code(&nobody), 1);
    assert!(stderr(&nobody).contains("is called \"nobody\": see `exec-server ps --all`"), "{nobody:?}");
}

/// Each command as a user would give it while somebody is attached in another terminal.
#[test]
fn commands_that_only_look_or_are_refused_leave_whoever_is_attached_alone() {
    for (options, answer) in [(&["--tty"][..], "got"), (&[], "got")] {
        let server = Server::start(Transport::Unix);
        let id = server.detach(
            options,
            "stty -echo 2>/dev/null; trap '' WINCH; echo ready; while read x; do echo \"got $x\"; done; exit 7",
        );
        let mut attached = Running::start(&mut server.command(&["attach", &id]));
        assert_eq!(attached.line().trim_end(), "ready");
        let is_tty = !options.is_empty();
        let refused = format!("exec-server-cli is driving {id}: have it leave first, or say --take-over");
        let cases: [(&[&str], i32, &str); 7] = [
            (&["screen", &id], i32::from(!is_tty), if is_tty { "" } else { "cannot draw the screen" }),
            (&["screen", "--take-over", &id], i32::from(!is_tty), ""),
            (&["kill", "-s", "WINCH", &id], 1, &refused),
            (&["kill", "-USR1", &id], 1, &refused),
            (&["wait", "--timeout", "10ms", &id], 124, "still runs"),
            (&["logs", &id], 0, ""),
            (&["ps"], 0, ""),
        ];
        for (number, (args, expected, said)) in cases.into_iter().enumerate() {
            let output = server.finish(args);
            assert_eq!(code(&output), expected, "{args:?}: {output:?}");
            assert!(stderr(&output).contains(said), "{args:?}: {output:?}");
            attached.type_in(&format!("{number}\n"));
            assert_eq!(attached.line().trim_end(), format!("{answer} {number}"), "after {args:?}");
        }
        attached.type_in(if is_tty { "\u{4}" } else { "" });
        attached.close_stdin();
        assert_eq!(attached.end().2, 7);
    }
}

#[test]
fn a_signal_is_sent_if_nobody_drives_or_if_the_drive_may_be_taken_which_is_handed_back() {
    let server = Server::start(Transport::Unix);
    let script = "trap 'echo one' USR1; trap 'echo two; exit 3' USR2; echo ready; while :; do sleep 0.02; done";
    let id = server.detach(&["--no-stdin"], script);
    let mut following = Running::start(&mut server.command(&["logs", "-f", &id]));
    assert_eq!(following.line(), "ready");
    // Who looks on does not drive.
    assert_eq!(code(&server.finish(&["kill", "-USR1", &id])), 0);
    assert_eq!(following.line(), "one");

    let mut attached = Running::start(&mut server.command(&["attach", "--no-stdin", &id]));
    assert_eq!(attached.line(), "ready");
    assert_eq!(code(&server.finish(&["kill", "-USR1", &id])), 1);
    assert_eq!(code(&server.finish(&["kill", "-USR2", "--take-over", &id])), 0);
    assert_eq!(following.line(), "two");
    assert_eq!(following.end().2, 0);
}

/// It has asked to be told of observers, and so it keeps its connection.
#[test]
fn a_client_that_knows_of_observers_has_the_drive_again_once_the_signal_is_sent() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&["--no-stdin"], "trap 'echo one' USR1; echo ready; while :; do sleep 0.02; done");
    let note = std::fs::read(&server.detached_files()[0]).expect("the note is ours");
    let session = serde_json::from_slice::<Value>(&note).expect("a note is JSON")["session"].clone();
    let path = server.url.trim_start_matches("unix://");
    let mut driver = Agent { stream: BufReader::new(UnixStream::connect(path).expect("the server listens")) };
    let hello = json!({"clientName": "a driver", "resumeSessionId": session, "role": "driver"});
    driver.send(&json!({"id": 1, "method": "initialize", "params": hello}));
    driver.send(&json!({"method": "initialized"}));
    let mut roles = std::iter::from_fn(|| driver.next())
        .filter(|message| message["method"] == "session/attached")
        .map(|message| message["params"]["role"].as_str().unwrap_or_default().to_owned());
    assert_eq!(roles.next().as_deref(), Some("driver"));
    assert_eq!(code(&server.finish(&["kill", "-USR1", "--take-over", &id])), 0);
    // It may be told of the present only, in which it drives.
    assert!(roles.any(|role| role == "driver"));
    drop(roles);
    let logs = std::iter::repeat_with(|| server.finish(&["logs", &id])).find(|logs| stdout(logs).ends_with("one\n"));
    assert!(logs.is_some());
    let busy = server.finish(&["kill", "-USR1", &id]);
    assert!(stderr(&busy).contains("a driver is driving"), "{busy:?}");
}
