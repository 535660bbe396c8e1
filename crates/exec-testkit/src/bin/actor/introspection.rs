//! What an actor finds out about itself and prints: pid, arguments, environment, descriptors, terminal.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use exec_testkit::os_process::OsProcess;
use rustix::fs::{CWD, Dir, Mode, OFlags};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcgetwinsize};

use crate::output::line;
use crate::program::{VerbCall, fail};

pub(crate) fn run(call: &VerbCall) -> bool {
    match call.verb.as_str() {
        "pid" => say(&format!("pid {}", std::process::id())),
        "args" => std::env::args_os().for_each(|argument| line(stdout(), argument.as_bytes())),
        "cwd" => match std::env::current_dir() {
            Ok(cwd) => line(stdout(), &cwd.into_os_string().into_vec()),
            Err(error) => fail(&format!("cannot tell my folder: {error}")),
        },
        "env" => environment(),
        "fds" => descriptors(),
        "tty" => terminal(),
        _ => return false,
    }
    true
}

/// `size ROWS COLS`, or `size none` without a terminal.
pub(crate) fn size(of: BorrowedFd<'_>) {
    match tcgetwinsize(of) {
        Ok(size) => say(&format!("size {} {}", size.ws_row, size.ws_col)),
        Err(_) => say("size none"),
    }
}

/// One `NAME=VALUE` a line, as the kernel has it: doubles and odd entries included.
fn environment() {
    let block = std::fs::read("/proc/self/environ")
        .unwrap_or_else(|error| fail(&format!("cannot read my environment: {error}")));
    for entry in block.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        line(stdout(), entry);
    }
}

/// One number a line, in order, without the descriptor that is used to look.
fn descriptors() {
    let mut numbers =
        open_descriptor_numbers().unwrap_or_else(|error| fail(&format!("cannot list my descriptors: {error}")));
    numbers.sort_unstable();
    for number in numbers {
        say(&number.to_string());
    }
}

fn open_descriptor_numbers() -> rustix::io::Result<Vec<i32>> {
    let directory =
        rustix::fs::openat(CWD, "/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut directory = Dir::new(directory)?;
    let own = directory.fd()?.as_raw_fd();
    let mut numbers = Vec::new();
    while let Some(entry) = directory.read() {
        let entry = entry?;
        let number: Option<i32> = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        numbers.extend(number.filter(|number| *number != own));
    }
    Ok(numbers)
}

/// Which descriptors are terminals, and this process's part in the session and in the foreground.
fn terminal() {
    let terminals = [isatty(stdin()), isatty(stdout()), isatty(stderr())];
    say(&format!("isatty {}", terminals.map(yes_or_no).join(" ")));
    size(stdin());
    let Some(own) = OsProcess::of(std::process::id()) else { fail("/proc does not know me") };
    let controlled = std::fs::File::open("/dev/tty").is_ok();
    let in_front = tcgetpgrp(stdin()).ok().and_then(|group| u32::try_from(group.as_raw_pid()).ok());
    let foreground = in_front.is_some() && in_front == own.group();
    print_fact("session-leader", own.session() == Some(own.pid));
    print_fact("group-leader", own.group() == Some(own.pid));
    print_fact("controlling-terminal", controlled);
    print_fact("foreground", foreground);
}

fn print_fact(fact: &str, holds: bool) {
    say(&format!("{fact} {}", yes_or_no(holds)));
}

fn yes_or_no(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

fn say(text: &str) {
    line(stdout(), text.as_bytes());
}
