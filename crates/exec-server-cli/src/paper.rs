//! What the file commands print on stdout: gathered, written off the runtime's thread, coloured and escaped where a
//! person reads it.
//!
//! On a terminal, control characters in names and contents are shown, not obeyed: they come from files that anybody may
//! have named. In a pipe every byte is itself. A reader that has left is [`NobodyReads`], which is quiet.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use base64_simd::STANDARD;
use serde::Serialize;

/// Gathered before it is written: a line each would be a system call each.
const SHEET_BYTES: usize = 64 << 10;

/// The reader has seen enough and left.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads our output any more")]
pub(crate) struct NobodyReads;

/// Lines on their way to stdout.
#[derive(Debug)]
pub(crate) struct Paper {
    gathered: Vec<u8>,
    person: bool,
    colours: bool,
}

/// What may be coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Path,
    Number,
    Match,
    Faint,
}

impl Paper {
    pub(crate) fn new() -> Self {
        let person = std::io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { gathered: Vec::new(), person, colours: person && !no_colour && !dumb }
    }

    /// Whether a person reads it, as far as a terminal says so.
    pub(crate) fn is_for_a_person(&self) -> bool {
        self.person
    }

    /// Text of ours.
    pub(crate) fn put(&mut self, text: &str) {
        self.gathered.extend_from_slice(text.as_bytes());
    }

    /// Bytes of others.
    pub(crate) fn put_foreign(&mut self, bytes: &[u8]) {
        match self.person {
            true => self.gathered.extend_from_slice(harmless(bytes).as_bytes()),
            false => self.gathered.extend_from_slice(bytes),
        }
    }

    /// Bytes of others, in a colour.
    pub(crate) fn put_inked(&mut self, bytes: &[u8], ink: Ink) {
        let code = match ink {
            Ink::Path => "35",
            Ink::Number => "32",
            Ink::Match => "1;31",
            Ink::Faint => "2",
        };
        if self.colours {
            self.put(&format!("\x1b[{code}m"));
        }
        self.put_foreign(bytes);
        if self.colours {
            self.put("\x1b[0m");
        }
    }

    /// One object.
    pub(crate) fn put_json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.gathered, value).context("cannot encode an answer")?;
        self.gathered.push(b'\n');
        Ok(())
    }

    /// Writes what is gathered, if it is enough.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        match self.gathered.len() < SHEET_BYTES {
            true => Ok(()),
            false => self.flush().await,
        }
    }

    /// Writes what is gathered.
    pub(crate) async fn flush(&mut self) -> anyhow::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        write(std::mem::take(&mut self.gathered).into()).await
    }
}

/// Bytes to stdout, as they are. A reader that is slow holds up its own answer and nothing else.
pub(crate) async fn write(bytes: bytes::Bytes) -> anyhow::Result<()> {
    let written = tokio::task::spawn_blocking(move || {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&bytes).and_then(|()| stdout.flush())
    });
    match written.await.context("the writing thread is gone")? {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(NobodyReads.into()),
        other => other.context("cannot write to stdout"),
    }
}

/// Text in which nothing moves a terminal's cursor: control characters and bytes that are no text are written out.
pub(crate) fn harmless(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => shown.push(c),
                c if c.is_control() => shown.extend(c.escape_default()),
                c => shown.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    shown
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
        assert_eq!(harmless(b"a\x1b[2J\nb\xff\tc\xc3\xa9"), "a\\u{1b}[2J\\nb\\xff\tc\u{e9}");
    }

    #[test]
    fn a_name_that_is_no_text_is_base64_for_programs() {
        let line = |bytes: &[u8]| serde_json::to_string(&Text::of(bytes)).expect("it is plain data");
        assert_eq!(line(b"a"), "\"a\"");
        assert_eq!(line(b"\xff"), r#"{"base64":"/w=="}"#);
    }
}
