//! What the file commands print on stdout: gathered, written off the runtime's thread, coloured and escaped where a
//! person reads it.
//!
//! On a terminal, control characters in names and contents are shown, not obeyed: they come from files that anybody may
//! have named. In a pipe every byte is itself. A reader that has left is [`BrokenPipe`], which is quiet.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use base64_simd::STANDARD;
use serde::Serialize;

/// Gathered before it is written: a line each would be a system call each.
const FLUSH_BYTES: usize = 64 << 10;

/// The reader has seen enough and left.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads our output any more")]
pub(crate) struct BrokenPipe;

/// Lines on their way to stdout.
#[derive(Debug)]
pub(crate) struct StdoutBuffer {
    buffer: Vec<u8>,
    is_terminal: bool,
    colours: bool,
}

/// What may be coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Path,
    Number,
    Match,
    Faint,
}

impl StdoutBuffer {
    pub(crate) fn new() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { buffer: Vec::new(), is_terminal, colours: is_terminal && !no_colour && !dumb }
    }

    /// Whether a person reads it, as far as a terminal says so.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Text of ours.
    pub(crate) fn push_str(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Bytes of others.
    pub(crate) fn push_untrusted(&mut self, bytes: &[u8]) {
        match self.is_terminal {
            true => self.buffer.extend_from_slice(escape_control(bytes).as_bytes()),
            false => self.buffer.extend_from_slice(bytes),
        }
    }

    /// Bytes of others, in a colour.
    pub(crate) fn push_styled(&mut self, bytes: &[u8], style: Style) {
        let code = match style {
            Style::Path => "35",
            Style::Number => "32",
            Style::Match => "1;31",
            Style::Faint => "2",
        };
        if self.colours {
            self.push_str(&format!("\x1b[{code}m"));
        }
        self.push_untrusted(bytes);
        if self.colours {
            self.push_str("\x1b[0m");
        }
    }

    /// One object.
    pub(crate) fn push_json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.buffer, value).context("cannot encode an answer")?;
        self.buffer.push(b'\n');
        Ok(())
    }

    /// Writes what is gathered, if it is enough.
    pub(crate) async fn flush_if_full(&mut self) -> anyhow::Result<()> {
        match self.buffer.len() < FLUSH_BYTES {
            true => Ok(()),
            false => self.flush().await,
        }
    }

    /// Writes what is gathered.
    pub(crate) async fn flush(&mut self) -> anyhow::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        write_stdout(std::mem::take(&mut self.buffer).into()).await
    }
}

/// Bytes to stdout, as they are. A reader that is slow holds up its own answer and nothing else.
pub(crate) async fn write_stdout(bytes: bytes::Bytes) -> anyhow::Result<()> {
    let written = tokio::task::spawn_blocking(move || {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&bytes).and_then(|()| stdout.flush())
    });
    match written.await.context("the writing thread is gone")? {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(BrokenPipe.into()),
        other => other.context("cannot write to stdout"),
    }
}

/// Text in which nothing moves a terminal's cursor: control characters and bytes that are no text are written out.
pub(crate) fn escape_control(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => escaped.push(c),
                c if c.is_control() => escaped.extend(c.escape_default()),
                c => escaped.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| escaped.push_str(&format!("\\x{byte:02x}")));
    }
    escaped
}

/// Bytes for a program: as text where they are, else in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Plain(String),
    Encoded { base64: String },
}

impl Text {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Plain(text.to_owned()),
            Err(_) => Self::Encoded { base64: STANDARD.encode_to_string(bytes) },
        }
    }

    pub(crate) fn name(name: impl AsRef<OsStr>) -> Self {
        Self::of(name.as_ref().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_may_not_do_to_a_terminal_is_written_out() {
        assert_eq!(escape_control(b"a\x1b[2J\nb\xff\tc\xc3\xa9"), "a\\u{1b}[2J\\nb\\xff\tc\u{e9}");
    }

    #[test]
    fn a_name_that_is_no_text_is_base64_for_programs() {
        let line = |bytes: &[u8]| serde_json::to_string(&Text::of(bytes)).expect("it is plain data");
        assert_eq!(line(b"a"), "\"a\"");
        assert_eq!(line(b"\xff"), r#"{"base64":"/w=="}"#);
    }
}
