//! What a person is told: one line on stderr that begins with our name, so that it is not taken for the child's.
//!
//! A stderr that nobody reads any more is no reason to fail, so nothing here can.

use std::io::Write;

/// One line on stderr.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "exec-server: {text}");
}

/// Text on stdout, whole. A reader that has seen enough (`| head`) is not an error.
pub(crate) fn answer(text: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// `1 process`, `2 processes`.
pub(crate) fn processes(count: u32) -> String {
    format!("{count} {}", if count == 1 { "process" } else { "processes" })
}
