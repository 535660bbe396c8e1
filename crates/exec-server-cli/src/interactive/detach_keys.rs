//! The keys to leave a process running: Ctrl-\ and then d. Pure.
//!
//! After Ctrl-\, the next key decides. Ctrl-\ twice is one Ctrl-\ for the process; before any other key, both are passed on.

use bytes::Bytes;

/// Ctrl-\.
const PREFIX: u8 = 0x1c;

#[derive(Debug, Default)]
pub(crate) struct DetachKeys {
    /// The last key was Ctrl-\.
    after_prefix: bool,
}

impl DetachKeys {
    /// Returns the keys that are for the process, and whether to detach. Keys after the detach keys are dropped.
    pub(crate) fn filter(&mut self, pressed: Bytes) -> (Bytes, bool) {
        if !self.after_prefix && !pressed.contains(&PREFIX) {
            return (pressed, false);
        }
        let mut passed = Vec::with_capacity(pressed.len() + 1);
        for key in &pressed {
            match (std::mem::take(&mut self.after_prefix), *key) {
                (true, b'd' | b'D') => return (passed.into(), true),
                (true, PREFIX) => passed.push(PREFIX),
                (true, key) => passed.extend([PREFIX, key]),
                (false, PREFIX) => self.after_prefix = true,
                (false, key) => passed.push(key),
            }
        }
        (passed.into(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(presses: &[&'static str]) -> (String, bool) {
        let mut keys = DetachKeys::default();
        let mut all = String::new();
        for pressed in presses {
            let (passed, detach) = keys.filter(Bytes::from_static(pressed.as_bytes()));
            all.push_str(std::str::from_utf8(&passed).expect("ASCII"));
            if detach {
                return (all, true);
            }
        }
        (all, false)
    }

    #[test]
    fn the_prefix_and_d_leave_in_one_read_or_in_two() {
        assert_eq!(filter(&["ls\x1cd"]), ("ls".into(), true));
        assert_eq!(filter(&["ls\x1c", "dx"]), ("ls".into(), true));
    }

    #[test]
    fn the_prefix_twice_is_one_for_the_process_and_does_not_leave() {
        assert_eq!(filter(&["\x1c\x1cd"]), ("\x1cd".into(), false));
        assert_eq!(filter(&["\x1c", "\x1c", "d"]), ("\x1cd".into(), false));
    }

    #[test]
    fn everything_else_goes_through_as_it_is() {
        assert_eq!(filter(&["d", "add\r"]), ("dadd\r".into(), false));
        assert_eq!(filter(&["\x1cx"]), ("\x1cx".into(), false));
    }
}
