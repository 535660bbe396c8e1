//! Text that others wrote and people read, or that is typed into a terminal.

/// Whether a person would see something else than what is there: a terminal acts on the character (controls of both sets; a
/// tab does no harm), turns text around because of it, or does not show it (the format characters of Unicode, and its
/// ends of lines).
pub fn is_misleading(c: char) -> bool {
    match c {
        '\t' => false,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' => {
            true
        }
        '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' => true,
        '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// Whether a terminal that collects lines is within one after this was typed. Control characters end a line, deliver what there
/// is of it, or discard it; those that only change it (the erase characters) are taken for the latter.
pub fn ends_within_line(typed: &[u8]) -> bool {
    typed.last().is_some_and(|byte| *byte == b'\t' || !byte.is_ascii_control())
}

#[cfg(test)]
mod tests {
    use super::{ends_within_line, is_misleading};

    #[test]
    fn a_line_ends_with_a_control_character() {
        for typed in ["", "a\n", "a\r", "a\x04", "a\x03"] {
            assert!(!ends_within_line(typed.as_bytes()), "{typed:?}");
        }
        for typed in ["a", "a\nb", "a\t", "\x04é"] {
            assert!(ends_within_line(typed.as_bytes()), "{typed:?}");
        }
    }

    #[test]
    fn what_is_acted_on_turned_around_or_not_shown_misleads_and_nothing_else() {
        for c in "\n\r\u{1b}\u{7f}\u{9b}\u{ad}\u{202e}\u{2069}\u{200b}\u{2028}\u{3164}\u{feff}\u{e0041}".chars() {
            assert!(is_misleading(c), "{c:?}");
        }
        for c in "\t aZ~é漢🦀\u{a0}\u{301}".chars() {
            assert!(!is_misleading(c), "{c:?}");
        }
    }
}
