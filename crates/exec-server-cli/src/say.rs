//! What a person is told: one line on stderr that begins with our name, so that it is not taken for the child's.
//!
//! A stderr that nobody reads any more is no reason to fail, so nothing here can.

use std::io::Write;

/// One line on stderr.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "exec-server: {text}");
}

/// An error and what caused it. A cause that is already in the words before it is not said twice.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.is_empty() {
        true => cause,
        false if said.ends_with(&cause) => said,
        false => format!("{said}: {cause}"),
    })
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

/// One line on stderr of a terminal in raw mode, where somebody else's text may stand.
pub(crate) fn raw_note(text: impl std::fmt::Display) {
    let _ = write!(std::io::stderr(), "\r\nexec-server: {text}\r\n");
}

/// Milliseconds since 1970, by our clock.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// The standard library's own randomness: enough that two runs of ours do not choose the same name.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
