//! Descendants of every kind that escapes a careless parent.
//!
//! Each verb takes a program in brackets, which the descendant runs (it waits to be killed, if there is none). The
//! leader prints `pid N` once the descendant is set up, and goes on. A descendant's stdin is `/dev/null`; its stdout
//! and stderr are the leader's, unless its kind says otherwise.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::stdio::{stdin, stdout};

use crate::output::line;
use crate::program::{VerbCall, fail};

pub(crate) fn run(call: &VerbCall) -> bool {
    match call.verb.as_str() {
        "fork" => spawn_descendant(&["announce"], call.program()),
        "setsid" => spawn_descendant(&["new-session", ";", "announce"], call.program()),
        "nohup" => spawn_descendant(&["ignore-hup", ";", "announce"], call.program()),
        "double-fork" => spawn_through_intermediate(&[], &["announce"], call.program()),
        "daemonise" => spawn_through_intermediate(
            &["new-session", ";"],
            &["close-stdout", ";", "close-stderr", ";", "announce"],
            call.program(),
        ),
        "hold-stdout" => {
            let delay = call.number::<u64>(0).to_string();
            drop(spawn(["sleep", &delay, ";", "say", "held"].map(OsString::from), Stdio::null()));
        }
        "exec" => exec(call.program()),
        "new-session" => {
            if let Err(error) = rustix::process::setsid() {
                fail(&format!("cannot make a session: {error}"));
            }
        }
        "relay" => drop(spawn(call.program(), Stdio::inherit())),
        "announce" => announce(),
        _ => return false,
    }
    true
}

/// Starts a descendant that first runs `setup`, which must announce it.
fn spawn_descendant(setup: &[&str], program: Vec<OsString>) {
    // Not reaped, because a parent that forgets its children is part of the case.
    drop(spawn_and_print_pid(concat(setup, program)));
}

/// Starts a descendant through an intermediate process, which ends at once and leaves it without a parent.
fn spawn_through_intermediate(intermediate: &[&str], setup: &[&str], program: Vec<OsString>) {
    let mut relay: Vec<OsString> = intermediate.iter().map(OsString::from).collect();
    relay.extend(["relay", "["].map(OsString::from));
    relay.extend(concat(setup, program));
    relay.push("]".into());
    let mut intermediate = spawn_and_print_pid(relay);
    if let Err(error) = intermediate.wait() {
        fail(&format!("cannot wait for the process in between: {error}"));
    }
}

/// Starts `program` with a socket as its stdin, waits until somebody announces a pid on it, and prints that.
fn spawn_and_print_pid(program: impl IntoIterator<Item = OsString>) -> Child {
    let (ours, theirs) =
        UnixStream::pair().unwrap_or_else(|error| fail(&format!("cannot make a socket pair: {error}")));
    let child = spawn(program, Stdio::from(OwnedFd::from(theirs)));
    let mut name = String::new();
    match BufReader::new(ours).read_line(&mut name) {
        Ok(count) if count > 0 => line(stdout(), name.trim_end().as_bytes()),
        _ => fail("a descendant ended before it announced itself"),
    }
    child
}

/// Tells the leader who this is, over the socket that is stdin until then.
fn announce() {
    line(stdin(), format!("pid {}", std::process::id()).as_bytes());
    let null =
        std::fs::File::open("/dev/null").unwrap_or_else(|error| fail(&format!("cannot open /dev/null: {error}")));
    if let Err(error) = rustix::stdio::dup2_stdin(null) {
        fail(&format!("cannot replace stdin: {error}"));
    }
}

fn exec(program: Vec<OsString>) {
    let error = Command::new(myself()).args(program).exec();
    fail(&format!("cannot execute again: {error}"));
}

fn spawn(program: impl IntoIterator<Item = OsString>, stdin: Stdio) -> Child {
    Command::new(myself())
        .args(program)
        .stdin(stdin)
        .spawn()
        .unwrap_or_else(|error| fail(&format!("cannot start a descendant: {error}")))
}

fn concat(setup: &[&str], program: Vec<OsString>) -> Vec<OsString> {
    let mut whole: Vec<OsString> = setup.iter().map(OsString::from).collect();
    whole.push(";".into());
    whole.extend(program);
    whole
}

fn myself() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|error| fail(&format!("cannot find my own program: {error}")))
}
