//! Messages for the user on stderr, and short answers on stdout.
//!
//! A message begins with our name, so that nobody takes it for output of the child. It is one line without escape
//! sequences, whoever wrote its parts. Writing one cannot fail: a stderr that nobody reads any more is no reason to stop.

use std::io::Write;

use anyhow::Context;

use crate::output::{json_line, visible};
use crate::stdio;

pub(crate) fn print_note(text: impl std::fmt::Display) {
    print_stderr(&format!("exec-server: {}\n", visible(undrawn(&text.to_string()).as_bytes())));
}

/// What is wrong with a regular expression comes as a drawing over several lines: the expression, and a caret below the
/// mistake. On one line only the words make sense.
fn undrawn(text: &str) -> String {
    const BEGIN: &str = "regex parse error:\n";
    const END: &str = "\nerror: ";
    match text.split_once(BEGIN).and_then(|(before, drawn)| Some((before, drawn.rsplit_once(END)?.1))) {
        Some((before, why)) => format!("{before}{why}"),
        None => text.to_owned(),
    }
}

fn print_stderr(text: &str) {
    let _ = stdio::stderr().write_all(text.as_bytes());
}

/// An error and its causes. A cause that the text before it already ends with is left out.
pub(crate) fn error_chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.is_empty() {
        true => cause,
        false if text.ends_with(&cause) => text,
        false => format!("{text}: {cause}"),
    })
}

/// Prints to stdout. A reader that has closed the pipe (`| head`) is not an error.
pub(crate) fn print_stdout(text: &[u8]) -> std::io::Result<()> {
    match stdio::stdout().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// `1 process`, `2 processes`.
pub(crate) fn process_count(count: u32) -> String {
    format!("{count} {}", if count == 1 { "process" } else { "processes" })
}

/// Like [`print_note`], for a terminal in raw mode: the cursor may be anywhere, and a newline does not return it.
pub(crate) fn print_raw_note(text: impl std::fmt::Display) {
    print_stderr(&format!("\r\nexec-server: {}\r\n", visible(text.to_string().as_bytes())));
}

/// Prints one line of JSON to stdout.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let line = json_line(value).context("cannot encode an answer")?;
    print_stdout(&line).context("cannot write to stdout")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_regular_expression_is_told_in_words_on_one_line() {
        let drawn =
            "cannot search \"x\": bad pattern: regex parse error:\n    a\nerror: (\n    ^\nerror: unclosed group";
        assert_eq!(undrawn(drawn), "cannot search \"x\": bad pattern: unclosed group");
        for other in ["regex parse error: so", "one\nerror: two", ""] {
            assert_eq!(undrawn(other), other);
        }
    }
}
