//! Descendants, in the shapes that escape careless parents.
//!
//! Each verb takes a program in brackets, which the descendant performs (it waits to be killed, if there is none). The
//! leader prints `pid N` once the descendant has reached its shape, and goes on. A descendant's stdin is `/dev/null`;
//! its stdout and stderr are the leader's, unless its shape says otherwise.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::stdio::{stdin, stdout};

use crate::script::{Step, reject};
use crate::speech::line;

pub(crate) fn perform(step: &Step) -> bool {
    match step.verb.as_str() {
        "fork" => bring_along(&["announce"], step.program()),
        "setsid" => bring_along(&["new-session", ";", "announce"], step.program()),
        "nohup" => bring_along(&["ignore-hup", ";", "announce"], step.program()),
        "double-fork" => bring_along_by_proxy(&[], &["announce"], step.program()),
        "daemonise" => bring_along_by_proxy(
            &["new-session", ";"],
            &["close-stdout", ";", "close-stderr", ";", "announce"],
            step.program(),
        ),
        "hold-stdout" => {
            let delay = step.number::<u64>(0).to_string();
            drop(spawn(["sleep", &delay, ";", "say", "held"].map(OsString::from), Stdio::null()));
        }
        "exec" => exec(step.program()),
        "new-session" => {
            if let Err(error) = rustix::process::setsid() {
                reject(&format!("cannot make a session: {error}"));
            }
        }
        "relay" => drop(spawn(step.program(), Stdio::inherit())),
        "announce" => announce(),
        _ => return false,
    }
    true
}

/// Starts a descendant that first performs `shape`, which must announce it.
fn bring_along(shape: &[&str], program: Vec<OsString>) {
    // Not reaped: a parent that forgets its children is part of the shape.
    drop(introduce(then(shape, program)));
}

/// Starts a descendant through a process in between, which ends at once and leaves it without a parent.
fn bring_along_by_proxy(proxy: &[&str], shape: &[&str], program: Vec<OsString>) {
    let mut relay: Vec<OsString> = proxy.iter().map(OsString::from).collect();
    relay.extend(["relay", "["].map(OsString::from));
    relay.extend(then(shape, program));
    relay.push("]".into());
    let mut proxy = introduce(relay);
    if let Err(error) = proxy.wait() {
        reject(&format!("cannot wait for the process in between: {error}"));
    }
}

/// Starts `program` with a socket as its stdin, waits until somebody announces a pid on it, and prints that.
fn introduce(program: impl IntoIterator<Item = OsString>) -> Child {
    let (ours, theirs) =
        UnixStream::pair().unwrap_or_else(|error| reject(&format!("cannot make a socket pair: {error}")));
    let child = spawn(program, Stdio::from(OwnedFd::from(theirs)));
    let mut name = String::new();
    match BufReader::new(ours).read_line(&mut name) {
        Ok(count) if count > 0 => line(stdout(), name.trim_end().as_bytes()),
        _ => reject("a descendant ended before it announced itself"),
    }
    child
}

/// Tells the leader who this is, over the socket that is stdin until then.
fn announce() {
    line(stdin(), format!("pid {}", std::process::id()).as_bytes());
    let null =
        std::fs::File::open("/dev/null").unwrap_or_else(|error| reject(&format!("cannot open /dev/null: {error}")));
    if let Err(error) = rustix::stdio::dup2_stdin(null) {
        reject(&format!("cannot replace stdin: {error}"));
    }
}

fn exec(program: Vec<OsString>) {
    let error = Command::new(myself()).args(program).exec();
    reject(&format!("cannot execute again: {error}"));
}

fn spawn(program: impl IntoIterator<Item = OsString>, stdin: Stdio) -> Child {
    Command::new(myself())
        .args(program)
        .stdin(stdin)
        .spawn()
        .unwrap_or_else(|error| reject(&format!("cannot start a descendant: {error}")))
}

fn then(shape: &[&str], program: Vec<OsString>) -> Vec<OsString> {
    let mut whole: Vec<OsString> = shape.iter().map(OsString::from).collect();
    whole.push(";".into());
    whole.extend(program);
    whole
}

fn myself() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|error| reject(&format!("cannot find my own program: {error}")))
}
