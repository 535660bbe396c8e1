//! Whether a program has the whole screen, as editors and pagers do: told by the sequences that it prints for it.
//!
//! While it has, no line of the terminal is ours to write a note on.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::stdio;

/// The modes of the alternate screen: xterm's, and the two older ones.
const MODES: [&[u8]; 3] = [b"1049", b"1047", b"47"];

/// The user's screen again, a visible cursor, plain text, and none of the ways of keys and mouse that such programs set.
const GIVE_BACK: &[u8] =
    b"\x1b[?1049l\x1b[?25h\x1b[0m\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l";

/// The longest sequence `ESC [ ? … h` that is looked at. A longer one sets many modes at once, which no program does here.
const SEQUENCE_BYTES: usize = 64;

/// Clones tell the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct FullScreen(Arc<AtomicBool>);

/// Reads what the program prints.
#[derive(Debug, Default)]
pub(crate) struct FullScreenDetector {
    state: FullScreen,
    /// A sequence whose end has not come yet, without its ESC.
    begun: Option<Vec<u8>>,
}

impl FullScreen {
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Gives the user's screen back, if the program still has it: we have left it, or it was killed.
    pub(crate) fn leave(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            let _ = stdio::stdout().write_all(GIVE_BACK);
        }
    }
}

impl FullScreenDetector {
    pub(crate) fn state(&self) -> FullScreen {
        self.state.clone()
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            if self.begun.is_none() {
                let Some(escape) = memchr::memchr(0x1b, bytes) else { return };
                bytes = &bytes[escape + 1..];
                self.begun = Some(Vec::new());
            }
            let Some(sequence) = &mut self.begun else { return };
            let Some((byte, rest)) = bytes.split_first() else { return };
            sequence.push(*byte);
            bytes = rest;
            let is_open = match sequence.as_slice() {
                [b'['] | [b'[', b'?'] => true,
                [b'[', b'?', .., last] => matches!(last, b'0'..=b'9' | b';') && sequence.len() < SEQUENCE_BYTES,
                _ => false,
            };
            if is_open {
                continue;
            }
            let ended_by_escape = sequence.last() == Some(&0x1b);
            if let [b'[', b'?', modes @ .., switch @ (b'h' | b'l')] = sequence.as_slice()
                && modes.split(|byte| *byte == b';').any(|mode| MODES.contains(&mode))
            {
                self.state.0.store(*switch == b'h', Ordering::Relaxed);
            }
            self.begun = ended_by_escape.then(Vec::new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pieces: &[&str]) -> bool {
        let mut detector = FullScreenDetector::default();
        for piece in pieces {
            detector.feed(piece.as_bytes());
        }
        detector.state().is_on()
    }

    #[test]
    fn an_editor_takes_the_screen_and_gives_it_back() {
        assert!(after(&["hello\x1b[?1049h\x1b[22;0;0t\x1b[1;24r"]));
        assert!(!after(&["\x1b[?1049hdrawn\x1b[?1049l\x1b[?25h"]));
        assert!(after(&["\x1b[?47h"]));
        assert!(after(&["\x1b[?1;1047;25h"]));
    }

    #[test]
    fn a_sequence_may_come_in_any_pieces() {
        let text = "a\x1b[31mb\x1b[?25l\x1b[?1049h";
        for first in 0..text.len() {
            for second in first..text.len() {
                assert!(after(&[&text[..first], &text[first..second], &text[second..]]), "{first} {second}");
            }
        }
    }

    #[test]
    fn what_only_looks_like_it_changes_nothing() {
        for text in ["[?1049h", "\x1b[1049h", "\x1b[?11049h", "\x1b[?1049x", "\x1b\x1b", "\x1b[?\x1b[?25h"] {
            assert!(!after(&[text]), "{text:?}");
        }
        assert!(after(&["\x1b[?2\x1b[?1049h"]), "a sequence that was broken off by the next");
        assert!(!after(&[&format!("\x1b[?{}1049h", "1;".repeat(200))]), "too long to be true");
    }
}
