//! Twenty children that print when the test lets them, and what their logs must hold in the end.
//!
//! Each waits at a semaphore before every piece that it prints, so that they print and end all through a series of
//! kills, however fast or slow the machine is.

use std::path::Path;

use exec_core::{Command, ExitStatus, Io, Stream, TerminalSize};
use exec_testkit::checked_log::CheckedLog;
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_data::{SeededBytes, SeededRng};

use crate::environments::ACTOR;

pub(crate) const CHILDREN: usize = 20;

pub(crate) struct PrintingChild {
    pub(crate) id: String,
    semaphore: FifoSemaphore,
    io: &'static str,
    script: String,
    expected: [Vec<u8>; 2],
    status: ExitStatus,
    /// Its leader leaves a descendant behind, and prints who that is.
    announces: bool,
}

/// Children that print between one and `pieces` pieces each, and then end.
pub(crate) fn create_all(directory: &Path, rng: &mut SeededRng, pieces: usize) -> Vec<PrintingChild> {
    (0..CHILDREN).map(|at| PrintingChild::new(directory, at, rng, pieces)).collect()
}

/// The children as a file for the owner's command `start-all`.
pub(crate) fn start_all_file(children: &[PrintingChild]) -> String {
    children.iter().map(|child| format!("{} {} {ACTOR} {}\n", child.id, child.io, child.script)).collect()
}

impl PrintingChild {
    fn new(directory: &Path, at: usize, rng: &mut SeededRng, pieces: usize) -> Self {
        let id = format!("child-{at}");
        let semaphore = FifoSemaphore::new(directory.join(format!("semaphore-{at}")));
        let pieces = 1 + rng.below(pieces);
        let (io, streams): (_, &[&str]) = match at % 5 {
            0 => ("pipes", &["stdout"]),
            1 => ("pipes", &["stdout", "stderr"]),
            2 => ("pty", &["stdout"]),
            3 => ("stdin", &["stderr"]),
            _ => ("pipes", &["stderr", "stdout", "stdout"]),
        };
        let mut expected = [Vec::new(), Vec::new()];
        let mut print = String::new();
        for _ in 0..pieces {
            print += &format!("{} ; ", semaphore.acquire());
            let stream = streams[rng.below(streams.len())];
            let bytes = piece_bytes(rng);
            let (seed, block_max) = (rng.below(1 << 40), 1 + rng.below(9000));
            print += &format!("flood {stream} {bytes} {seed} {block_max} ; ");
            expected[usize::from(stream == "stderr")].extend(SeededBytes::new(seed as u64).bytes(bytes));
        }
        let code = 1 + at as i32;
        let announces = at % 5 == 3;
        let (script, status) = match at % 5 {
            3 => (format!("fork [ {print} exit 0 ] ; exit {code}"), ExitStatus::Code(code)),
            4 => (format!("{print} signal-self 9"), ExitStatus::Signal { number: 9, core_dumped: false }),
            _ => (format!("{print} exit {code}"), ExitStatus::Code(code)),
        };
        if io == "pty" {
            expected[0] = as_a_terminal_shows(&expected[0]);
        }
        let script = script.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { id, semaphore, io, script, expected, status, announces }
    }

    pub(crate) fn command(&self) -> Command {
        let argv = std::iter::once(ACTOR).chain(self.script.split(' '));
        let io = match self.io {
            "pty" => Io::Pty(TerminalSize::default()),
            io => Io::Pipes { stdin: io == "stdin" },
        };
        Command { io, ..Command::new(argv, "/") }
    }

    pub(crate) fn print_next_piece(&self) {
        self.semaphore.release();
    }

    /// Asserts that the log holds every byte of both streams and the exit, and dropped nothing.
    pub(crate) fn check(&self, seen: &CheckedLog) {
        let id = &self.id;
        let first = if self.io == "pty" { Stream::Pty } else { Stream::Stdout };
        let mut found = [seen.bytes(first), seen.bytes(Stream::Stderr)];
        if self.announces {
            let line = String::from_utf8_lossy(&found[0]).into_owned();
            assert!(line.starts_with("pid ") && line.ends_with('\n'), "{id} announces a descendant, not {line:?}");
            found[0].clear();
        }
        for (at, (found, expected)) in found.iter().zip(&self.expected).enumerate() {
            let same = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
            assert!(
                found == expected,
                "stream {at} of {id} has {} of {} bytes and differs from {same} on",
                found.len(),
                expected.len()
            );
        }
        assert_eq!(seen.exit().status, self.status, "{id}");
        assert_eq!(seen.gaps, [], "{id}");
        let head = seen.head.expect("pages were read");
        assert_eq!((head.first_seq, head.dropped_bytes), (1, 0), "{id}");
    }
}

/// Mostly a few writes, sometimes a few bytes, sometimes more than a pipe and a terminal hold.
fn piece_bytes(rng: &mut SeededRng) -> usize {
    1 + match rng.below(8) {
        0 => rng.below(300_000),
        1 => rng.below(3),
        _ => rng.below(20_000),
    }
}

fn as_a_terminal_shows(bytes: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if *byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    shown
}
