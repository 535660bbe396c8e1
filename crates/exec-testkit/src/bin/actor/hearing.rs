//! What an actor reads: its stdin, and gates that a test opens.

use std::os::fd::{AsFd, BorrowedFd};

use exec_testkit::pattern::Digest;
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};

use crate::Stage;
use crate::script::{Step, reject};
use crate::speech::{line, write_all};

pub(crate) fn perform(stage: &mut Stage, step: &Step) -> bool {
    match step.verb.as_str() {
        "cat" => hear(stage, |bytes| write_all(stdout(), bytes)),
        "cat-count" => {
            let mut count = 0;
            hear(stage, |bytes| count += bytes.len());
            line(stdout(), format!("{count} bytes").as_bytes());
        }
        "digest" => {
            let (mut count, mut digest) = (0, Digest::default());
            hear(stage, |bytes| {
                count += bytes.len();
                digest.update(bytes);
            });
            line(stdout(), format!("{count} bytes {digest}").as_bytes());
        }
        "echo-lines" => while echo_line(stage) {},
        "read-line" => drop(read_line(stage)),
        "gate" => gate(stage, step),
        _ => return false,
    }
    true
}

/// Shows all of stdin, up to its end, to `take`.
fn hear(stage: &mut Stage, mut take: impl FnMut(&[u8])) {
    let mut block = [0; 64 << 10];
    loop {
        match read(stage, stdin(), &mut block) {
            0 => return,
            count => take(&block[..count]),
        }
    }
}

fn echo_line(stage: &mut Stage) -> bool {
    let heard = read_line(stage);
    if let Some(heard) = &heard {
        line(stdout(), heard);
    }
    heard.is_some()
}

/// One line without its end; `None` at the end of stdin. Byte by byte, so that the next verb finds what follows.
fn read_line(stage: &mut Stage) -> Option<Vec<u8>> {
    let mut heard = Vec::new();
    let mut byte = [0];
    while read(stage, stdin(), &mut byte) > 0 {
        if byte == *b"\n" {
            return Some(heard);
        }
        heard.push(byte[0]);
    }
    (!heard.is_empty()).then_some(heard)
}

/// `gate PATH`: waits until the test lets one actor through. The test holds both ends of the FIFO, so that opening
/// it never waits and its end never comes.
fn gate(stage: &mut Stage, step: &Step) {
    let path = step.argument(0);
    let fifo = std::fs::File::open(path).unwrap_or_else(|error| reject(&format!("cannot open gate {path:?}: {error}")));
    if read(stage, fifo.as_fd(), &mut [0]) == 0 {
        reject(&format!("the test that held gate {path:?} is gone"));
    }
}

fn read(stage: &mut Stage, from: BorrowedFd<'_>, into: &mut [u8]) -> usize {
    loop {
        stage.watches.rest(Some(from), None);
        match rustix::io::read(from, &mut *into) {
            Ok(count) => return count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            // What a terminal says whose other side is gone.
            Err(Errno::IO) => return 0,
            Err(error) => reject(&format!("cannot read: {error}")),
        }
    }
}
