//! What an actor prints. Every call writes at once: a test that reads entries must know which write made them.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use exec_testkit::pattern::{Dice, Pattern};
use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};

use crate::script::{Step, reject};

pub(crate) fn perform(step: &Step) -> bool {
    match step.verb.as_str() {
        "say" => line(stdout(), step.text().as_bytes()),
        "err" => line(stderr(), step.text().as_bytes()),
        "out-raw" => write_all(stdout(), step.text().as_bytes()),
        "err-raw" => write_all(stderr(), step.text().as_bytes()),
        "flood" => flood(step),
        "lines" => lines(step.number(0)),
        "bytes1" => (0..step.number::<u64>(0)).for_each(|index| write_all(stdout(), &[b'a' + (index % 26) as u8])),
        "close-stdin" => replaced(rustix::stdio::dup2_stdin(null())),
        "close-stdout" => replaced(rustix::stdio::dup2_stdout(null())),
        "close-stderr" => replaced(rustix::stdio::dup2_stderr(null())),
        _ => return false,
    }
    true
}

/// One line in one write.
pub(crate) fn line(to: BorrowedFd<'_>, text: &[u8]) {
    let mut bytes = text.to_vec();
    bytes.push(b'\n');
    write_all(to, &bytes);
}

pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Rust's runtime ignores SIGPIPE; a plain program would die of it, and so does this one.
            Err(Errno::PIPE) => crate::fate::die_by(signal_hook::consts::SIGPIPE),
            Err(error) => {
                eprintln!("actor: cannot write: {error}");
                std::process::exit(74)
            }
        }
    }
}

/// `flood STREAM BYTES SEED BLOCKMAX`
fn flood(step: &Step) {
    let to = match step.argument(0).to_str() {
        Some("stdout") => stdout(),
        Some("stderr") => stderr(),
        _ => reject("flood goes to stdout or stderr"),
    };
    let (total, seed): (u64, u64) = (step.number(1), step.number(2));
    let block_max = step.number::<usize>(3).max(1);
    let (pattern, mut dice) = (Pattern::new(seed), Dice::new(seed));
    let mut block = vec![0; block_max];
    let mut offset = 0;
    while offset < total {
        let length = (1 + dice.below(block_max)).min((total - offset) as usize);
        pattern.fill(offset, &mut block[..length]);
        write_all(to, &block[..length]);
        offset += length as u64;
    }
}

fn lines(count: u64) {
    for number in 1..=count {
        line(stdout(), format!("line {number}").as_bytes());
    }
}

/// A stream is closed by putting `/dev/null` in its place, as daemons do: the pipe loses this writer, and no file
/// opened later can take the number by accident.
fn null() -> std::fs::File {
    std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap_or_else(|error| reject(&format!("cannot open /dev/null: {error}")))
}

fn replaced(outcome: rustix::io::Result<()>) {
    if let Err(error) = outcome {
        reject(&format!("cannot replace a stream: {error}"));
    }
}
