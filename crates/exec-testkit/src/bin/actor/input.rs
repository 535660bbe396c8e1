//! What an actor reads: its stdin, and permits of a test's semaphore.

use std::os::fd::{AsFd, BorrowedFd};

use exec_testkit::test_data::Checksum;
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};

use crate::ActorState;
use crate::output::{line, write_all};
use crate::program::{VerbCall, fail};

pub(crate) fn run(state: &mut ActorState, call: &VerbCall) -> bool {
    match call.verb.as_str() {
        "cat" => read_all(state, |bytes| write_all(stdout(), bytes)),
        "cat-count" => {
            let mut count = 0;
            read_all(state, |bytes| count += bytes.len());
            line(stdout(), format!("{count} bytes").as_bytes());
        }
        "digest" => {
            let (mut count, mut checksum) = (0, Checksum::default());
            read_all(state, |bytes| {
                count += bytes.len();
                checksum.update(bytes);
            });
            line(stdout(), format!("{count} bytes {checksum}").as_bytes());
        }
        "echo-lines" => while echo_line(state) {},
        "read-line" => drop(read_line(state)),
        "acquire" => acquire(state, call),
        _ => return false,
    }
    true
}

/// Hands all of stdin, up to its end, to `take`.
fn read_all(state: &mut ActorState, mut take: impl FnMut(&[u8])) {
    let mut block = [0; 64 << 10];
    loop {
        match read(state, stdin(), &mut block) {
            0 => return,
            count => take(&block[..count]),
        }
    }
}

fn echo_line(state: &mut ActorState) -> bool {
    let read = read_line(state);
    if let Some(read) = &read {
        line(stdout(), read);
    }
    read.is_some()
}

/// One line without its end; `None` at the end of stdin. Byte by byte, so that the next verb finds what follows.
fn read_line(state: &mut ActorState) -> Option<Vec<u8>> {
    let mut read_bytes = Vec::new();
    let mut byte = [0];
    while read(state, stdin(), &mut byte) > 0 {
        if byte == *b"\n" {
            return Some(read_bytes);
        }
        read_bytes.push(byte[0]);
    }
    (!read_bytes.is_empty()).then_some(read_bytes)
}

/// `acquire PATH`: waits until the test lets one actor go on. The test holds both ends of the FIFO, so that opening
/// it never waits and its end never comes.
fn acquire(state: &mut ActorState, call: &VerbCall) {
    let path = call.argument(0);
    let fifo =
        std::fs::File::open(path).unwrap_or_else(|error| fail(&format!("cannot open semaphore {path:?}: {error}")));
    if read(state, fifo.as_fd(), &mut [0]) == 0 {
        fail(&format!("the test that held semaphore {path:?} is gone"));
    }
}

fn read(state: &mut ActorState, from: BorrowedFd<'_>, into: &mut [u8]) -> usize {
    loop {
        state.handlers.wait(Some(from), None);
        match rustix::io::read(from, &mut *into) {
            Ok(count) => return count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A terminal answers this when its other side is gone.
            Err(Errno::IO) => return 0,
            Err(error) => fail(&format!("cannot read: {error}")),
        }
    }
}
