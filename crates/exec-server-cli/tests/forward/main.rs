//! `exec-server forward` as its users meet it: real servers, real programs at both ends, and what happens when one of them
//! goes away.

mod breaks;
mod mistakes;
mod ports;
mod preview;
#[allow(dead_code, reason = "shared with the other tests of the binary, which need all of it")]
#[path = "../it/server.rs"]
mod server;
#[allow(dead_code, reason = "shared with the other tests of the binary, which need all of it")]
#[path = "../it/support.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running `forward --json`.
struct Forwarding {
    child: Child,
    events: BufReader<ChildStdout>,
}

impl Forwarding {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let events = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, events }
    }

    /// `forward --connect` to a server.
    fn to(server: &server::Server, args: &[&str]) -> Self {
        Self::start(&mut server.command(&[&["forward", "--connect", &server.url], args].concat()))
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.events.read_line(&mut line).expect("the pipe can be read");
        match serde_json::from_str(&line) {
            Ok(event) => event,
            Err(error) => {
                let mut said = String::new();
                let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
                panic!("{error} in {line:?}; it said {said:?}")
            }
        }
    }

    /// Where it listens, by its next event.
    fn listening(&mut self) -> String {
        let event = self.event();
        event["listen"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned()
    }

    /// The next note, which says all of this.
    fn note(&mut self, words: &[&str]) -> String {
        let event = self.event();
        let message = event["message"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned();
        assert!(words.iter().all(|word| message.contains(word)), "{words:?} in {message:?}");
        message
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child and not waited for");
    }

    /// Ends it as Ctrl-C does; its code.
    fn end(self) -> Option<i32> {
        self.end_by(Signal::INT)
    }

    fn end_by(mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("it is our child").code()
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child that is killed with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that answers each connection with what it heard, once that has ended.
fn answering() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    // It ends with the test.
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut heard = Vec::new();
                if stream.read_to_end(&mut heard).is_ok() {
                    let _ = stream.write_all(&heard);
                }
            });
        }
    });
    port
}

/// A port on which nobody listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("there is one").port()
}

/// Says something and ends; what comes back until the other end does.
fn ask(address: &str, said: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(said)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard)?;
    Ok(heard)
}

fn curl(args: &[&str]) -> std::process::Output {
    // Not by a proxy of whoever runs the tests.
    let output = Command::new("curl").args(["--silent", "--show-error", "--noproxy", "*"]).args(args).output();
    output.expect("curl is installed")
}
