//! The kernel's refusals in words.
//!
//! The words of an errno come from the C library and differ between libraries, but what a client is told must not
//! depend on how the server was linked. Where the libraries differ, musl's words are used, which existing clients know.
//! Deliberately absent: numbers that no verb of ours can return.

use std::fmt;

/// An errno as text: `No such file or directory (os error 2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrnoText(pub i32);

impl fmt::Display for ErrnoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match musl_words(self.0) {
            Some(words) => write!(f, "{words} (os error {})", self.0),
            None => write!(f, "{}", std::io::Error::from_raw_os_error(self.0)),
        }
    }
}

/// Linux numbers (x86-64 and arm64), and only those for which the C libraries differ.
fn musl_words(errno: i32) -> Option<&'static str> {
    Some(match errno {
        5 => "I/O error",
        12 => "Out of memory",
        16 => "Resource busy",
        18 => "Cross-device link",
        24 => "No file descriptors available",
        25 => "Not a tty",
        29 => "Invalid seek",
        36 => "Filename too long",
        40 => "Symbolic link loop",
        75 => "Value too large for data type",
        95 => "Not supported",
        122 => "Quota exceeded",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_do_not_depend_on_the_c_library() {
        assert_eq!(ErrnoText(2).to_string(), "No such file or directory (os error 2)");
        assert_eq!(ErrnoText(40).to_string(), "Symbolic link loop (os error 40)");
        assert_eq!(ErrnoText(36).to_string(), "Filename too long (os error 36)");
    }
}
