//! What survives: ssh killed, the server there killed, both while output runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use exec_testkit::far::{Far, read_until, wait_until};

/// Prints numbered lines, as long as a line comes in for each hundred of them.
const COUNT: &str = "i=0; while read go; do n=0; while [ $n -lt 100 ]; do i=$((i+1)); n=$((n+1)); echo line $i of many; done; done; \
                     echo end; exit 9";

/// A client, and what it has printed so far.
struct Counting {
    client: Child,
    output: BufReader<std::process::ChildStdout>,
    seen: Vec<String>,
}

impl Counting {
    fn start(far: &Far) -> Self {
        let mut command = far.client(&["ssh", "far", "--", "sh", "-c", COUNT]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = command.spawn().expect("the binary can be started");
        let output = BufReader::new(client.stdout.take().expect("piped"));
        Self { client, output, seen: Vec::new() }
    }

    fn go_on(&mut self) {
        self.client.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
    }

    fn see(&mut self, lines: usize) {
        for _ in 0..lines {
            let mut line = String::new();
            self.output.read_line(&mut line).expect("a pipe can be read");
            self.seen.push(line);
        }
    }

    /// Every line once, in order, and then the end.
    fn finish(mut self, lines: usize) {
        drop(self.client.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        let all = self.seen.concat() + &rest;
        let expected: String = (1..=lines).map(|number| format!("line {number} of many\n")).collect();
        assert!(all == expected + "end\n", "{} lines of {lines} came", all.lines().count());
        assert_eq!(self.client.wait().expect("it is our child").code(), Some(9));
    }
}

#[test]
fn when_ssh_is_killed_nothing_is_lost_and_nothing_comes_twice() {
    let far = Far::ready();
    let mut counting = Counting::start(&far);
    for round in 0..4 {
        counting.go_on();
        // At the beginning of a hundred, in its middle, and after it.
        counting.see([1, 50, 150, 100][round]);
        far.kill_ssh();
    }
    counting.go_on();
    counting.finish(500);
}

#[test]
fn when_the_server_there_is_killed_it_is_started_again_and_nothing_is_lost() {
    let far = Far::ready();
    let mut counting = Counting::start(&far);
    for _ in 0..2 {
        counting.go_on();
        counting.see(50);
        far.kill_server();
    }
    counting.go_on();
    counting.finish(300);
    assert_eq!(far.servers().len(), 1);
}

#[test]
fn a_network_that_is_away_for_a_while_only_costs_time() {
    let far = Far::ready();
    let mut counting = Counting::start(&far);
    counting.go_on();
    counting.see(100);
    // Nobody gets in any more, and whoever is in is thrown out.
    let (key, hidden) = (far.path("authorized_keys"), far.path("hidden_keys"));
    std::fs::rename(&key, &hidden).expect("ours");
    far.kill_ssh();
    // Two attempts have failed.
    for _ in 0..2 {
        wait_until("it dials", || !far.ssh_clients().is_empty());
        wait_until("it was refused", || far.ssh_clients().is_empty());
    }
    std::fs::rename(&hidden, &key).expect("ours");
    counting.go_on();
    counting.finish(200);
}

#[test]
fn whoever_waits_for_a_connection_at_a_terminal_can_leave() {
    let far = Far::ready();
    // `run --tty` gives the client a terminal of its own.
    let client = exec_testkit::far::binary().to_str().expect("text");
    let mut command = far.client(&["run", "--tty", "--", client, "ssh", "-t", "far", "--", "cat"]);
    let mut terminal = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary can be started");
    let (mut keys, mut screen) = (terminal.stdin.take().expect("piped"), terminal.stdout.take().expect("piped"));
    keys.write_all(b"hello\n").expect("it reads");
    // Once by the terminal, once by cat: it runs, and the terminal is raw.
    read_until(&mut screen, |seen| seen.matches("hello").count() >= 2);
    std::fs::remove_file(far.path("authorized_keys")).expect("ours");
    far.kill_ssh();
    let presses = std::thread::spawn(move || {
        while keys.write_all(b"\x03").is_ok() {
            // not a wait: a person presses it again and again until something happens.
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let mut rest = String::new();
    screen.read_to_string(&mut rest).expect("text");
    assert_eq!(terminal.wait().expect("it is our child").code(), Some(130), "{rest}");
    assert!(rest.contains("ps --all --connect ssh://far"), "{rest}");
    presses.join().expect("no panic");
}

#[test]
fn a_connection_is_looked_for_as_long_as_was_asked_for() {
    let far = Far::ready();
    let mut command =
        far.client(&["ssh", "--reconnect-timeout", "500ms", "far", "--", "sh", "-c", "echo here; exec cat"]);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let client = client.as_mut().expect("the binary can be started");
    let mut line = String::new();
    BufReader::new(client.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a pipe can be read");
    assert_eq!(line, "here\n");
    std::fs::remove_file(far.path("authorized_keys")).expect("ours");
    far.kill_ssh();
    let mut told = String::new();
    client.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
    assert_eq!(client.wait().expect("it is our child").code(), Some(125), "{told}");
    assert!(told.contains("gave up after 500ms") && told.contains("Permission denied"), "{told}");
}
