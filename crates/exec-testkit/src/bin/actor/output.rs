//! What an actor prints. Nothing is buffered, because a test that reads entries must know which write made them.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use exec_testkit::test_data::{SeededBytes, SeededRng};
use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};

use crate::program::{VerbCall, fail};

pub(crate) fn run(call: &VerbCall) -> bool {
    match call.verb.as_str() {
        "say" => line(stdout(), call.text().as_bytes()),
        "err" => line(stderr(), call.text().as_bytes()),
        "out-raw" => write_all(stdout(), call.text().as_bytes()),
        "err-raw" => write_all(stderr(), call.text().as_bytes()),
        "flood" => flood(call),
        "lines" => lines(call.number(0)),
        "bytes1" => (0..call.number::<u64>(0)).for_each(|index| write_all(stdout(), &[b'a' + (index % 26) as u8])),
        "close-stdin" => check_replaced(rustix::stdio::dup2_stdin(null())),
        "close-stdout" => check_replaced(rustix::stdio::dup2_stdout(null())),
        "close-stderr" => check_replaced(rustix::stdio::dup2_stderr(null())),
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
            Err(Errno::PIPE) => crate::signals::die_by(signal_hook::consts::SIGPIPE),
            Err(error) => {
                eprintln!("actor: cannot write: {error}");
                std::process::exit(74)
            }
        }
    }
}

/// `flood STREAM BYTES SEED BLOCKMAX`
fn flood(call: &VerbCall) {
    let to = match call.argument(0).to_str() {
        Some("stdout") => stdout(),
        Some("stderr") => stderr(),
        _ => fail("flood goes to stdout or stderr"),
    };
    let (total, seed): (u64, u64) = (call.number(1), call.number(2));
    let block_max = call.number::<usize>(3).max(1);
    let (content, mut rng) = (SeededBytes::new(seed), SeededRng::new(seed));
    let mut block = vec![0; block_max];
    let mut offset = 0;
    while offset < total {
        let length = (1 + rng.below(block_max)).min((total - offset) as usize);
        content.fill(offset, &mut block[..length]);
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
        .unwrap_or_else(|error| fail(&format!("cannot open /dev/null: {error}")))
}

fn check_replaced(outcome: rustix::io::Result<()>) {
    if let Err(error) = outcome {
        fail(&format!("cannot replace a stream: {error}"));
    }
}
