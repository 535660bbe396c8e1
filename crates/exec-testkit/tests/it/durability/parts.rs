//! Twenty children that print in step with the test, and what their logs must hold in the end.
//!
//! Each waits at a gate before every piece it prints, so that they print and end all through a history of kills,
//! however fast or slow the machine is.

use std::path::Path;

use exec_core::{Command, Io, TerminalSize, ExitStatus, Stream};
use exec_testkit::gate::Gate;
use exec_testkit::pattern::{Dice, Pattern};
use exec_testkit::transcript::Transcript;

use crate::environments::ACTOR;

/// How many print at once.
pub(crate) const PARTS: usize = 20;

/// One child.
pub(crate) struct Part {
    pub(crate) id: String,
    gate: Gate,
    io: &'static str,
    script: String,
    expected: [Vec<u8>; 2],
    status: ExitStatus,
    /// Its leader leaves a descendant behind, and prints who that is.
    announces: bool,
}

/// A cast whose members print between one and `pieces` pieces each, and then end.
pub(crate) fn cast(folder: &Path, dice: &mut Dice, pieces: usize) -> Vec<Part> {
    (0..PARTS).map(|at| Part::new(folder, at, dice, pieces)).collect()
}

/// The cast as a file for an owner.
pub(crate) fn roster(parts: &[Part]) -> String {
    parts.iter().map(|part| format!("{} {} {ACTOR} {}\n", part.id, part.io, part.script)).collect()
}

impl Part {
    fn new(folder: &Path, at: usize, dice: &mut Dice, pieces: usize) -> Self {
        let id = format!("part-{at}");
        let gate = Gate::new(folder.join(format!("gate-{at}")));
        let pieces = 1 + dice.below(pieces);
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
            print += &format!("{} ; ", gate.wait());
            let stream = streams[dice.below(streams.len())];
            let bytes = piece_bytes(dice);
            let (seed, block_max) = (dice.below(1 << 40), 1 + dice.below(9000));
            print += &format!("flood {stream} {bytes} {seed} {block_max} ; ");
            expected[usize::from(stream == "stderr")].extend(Pattern::new(seed as u64).bytes(bytes));
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
        Self { id, gate, io, script, expected, status, announces }
    }

    /// The child as a command.
    pub(crate) fn command(&self) -> Command {
        let argv = std::iter::once(ACTOR).chain(self.script.split(' '));
        let io = match self.io {
            "pty" => Io::Pty(TerminalSize::default()),
            io => Io::Pipes { stdin: io == "stdin" },
        };
        Command { io, ..Command::new(argv, "/") }
    }

    /// Lets it print its next piece.
    pub(crate) fn prompt(&self) {
        self.gate.open_once();
    }

    /// Every byte of both streams, the exit, nothing dropped.
    pub(crate) fn judge(&self, seen: &Transcript) {
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

/// Mostly a few writes, sometimes a crumb, sometimes more than a pipe and a terminal hold.
fn piece_bytes(dice: &mut Dice) -> usize {
    1 + match dice.below(8) {
        0 => dice.below(300_000),
        1 => dice.below(3),
        _ => dice.below(20_000),
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
