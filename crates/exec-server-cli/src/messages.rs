//! What a person is told: one line on stderr that begins with our name, so that it is not taken for the child's.
//!
//! A stderr that nobody reads any more is no reason to fail, so nothing here can.

use std::io::Write;

use anyhow::Context;

/// One line on stderr.
pub(crate) fn print_note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "exec-server: {text}");
}

/// An error and what caused it. A cause that is already in the words before it is not said twice.
pub(crate) fn error_chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.is_empty() {
        true => cause,
        false if text.ends_with(&cause) => text,
        false => format!("{text}: {cause}"),
    })
}

/// Text on stdout, whole. A reader that has seen enough (`| head`) is not an error.
pub(crate) fn print_stdout(text: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// `1 process`, `2 processes`.
pub(crate) fn process_count(count: u32) -> String {
    format!("{count} {}", if count == 1 { "process" } else { "processes" })
}

/// One line on stderr of a terminal in raw mode, where somebody else's text may stand.
pub(crate) fn print_raw_note(text: impl std::fmt::Display) {
    let _ = write!(std::io::stderr(), "\r\nexec-server: {text}\r\n");
}

/// One line of JSON on stdout.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(value).context("cannot encode an answer")?;
    line.push(b'\n');
    print_stdout(&line).context("cannot write to stdout")
}
