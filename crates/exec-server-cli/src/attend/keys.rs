//! The keys that mean "leave it running": Ctrl-\ and then d. Pure.
//!
//! Ctrl-\ waits for the next key. Twice, it is one Ctrl-\ for the process; before any other key, both go through.

use bytes::Bytes;

/// Ctrl-\.
const PREFIX: u8 = 0x1c;

/// What was pressed so far.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The prefix was the last key.
    waiting: bool,
}

impl Keys {
    /// What of these is for the process, and whether we are to leave. What comes after the keys for that is dropped.
    pub(crate) fn sift(&mut self, pressed: Bytes) -> (Bytes, bool) {
        if !self.waiting && !pressed.contains(&PREFIX) {
            return (pressed, false);
        }
        let mut through = Vec::with_capacity(pressed.len() + 1);
        for key in &pressed {
            match (std::mem::take(&mut self.waiting), *key) {
                (true, b'd' | b'D') => return (through.into(), true),
                (true, PREFIX) => through.push(PREFIX),
                (true, key) => through.extend([PREFIX, key]),
                (false, PREFIX) => self.waiting = true,
                (false, key) => through.push(key),
            }
        }
        (through.into(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sift(presses: &[&'static str]) -> (String, bool) {
        let mut keys = Keys::default();
        let mut all = String::new();
        for pressed in presses {
            let (through, leave) = keys.sift(Bytes::from_static(pressed.as_bytes()));
            all.push_str(std::str::from_utf8(&through).expect("ASCII"));
            if leave {
                return (all, true);
            }
        }
        (all, false)
    }

    #[test]
    fn the_prefix_and_d_leave_in_one_read_or_in_two() {
        assert_eq!(sift(&["ls\x1cd"]), ("ls".into(), true));
        assert_eq!(sift(&["ls\x1c", "dx"]), ("ls".into(), true));
    }

    #[test]
    fn the_prefix_twice_is_one_for_the_process_and_does_not_leave() {
        assert_eq!(sift(&["\x1c\x1cd"]), ("\x1cd".into(), false));
        assert_eq!(sift(&["\x1c", "\x1c", "d"]), ("\x1cd".into(), false));
    }

    #[test]
    fn everything_else_goes_through_as_it_is() {
        assert_eq!(sift(&["d", "add\r"]), ("dadd\r".into(), false));
        assert_eq!(sift(&["\x1cx"]), ("\x1cx".into(), false));
    }
}
