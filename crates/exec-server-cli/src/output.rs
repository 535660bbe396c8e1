//! What the file commands print on stdout: buffered, written outside the runtime's thread, coloured and escaped on a
//! terminal.
//!
//! On a terminal, control characters in names and contents are escaped, because anybody may have named those files. In a
//! pipe, every byte is printed as it is. A reader that has closed the pipe is the error [`BrokenPipe`], for which no
//! message is printed.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};

use anyhow::Context;
use base64_simd::STANDARD;
use exec_wire::text::OsText;
use serde::Serialize;

/// So much is collected before it is written: a write per line would be a system call per line.
const FLUSH_BYTES: usize = 64 << 10;

/// Whoever read our stdout has closed it.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads our output any more")]
pub(crate) struct BrokenPipe;

#[derive(Debug)]
pub(crate) struct StdoutBuffer {
    buffer: Vec<u8>,
    is_terminal: bool,
    colours: bool,
}

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

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Appends text of our own.
    pub(crate) fn push_str(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Appends bytes that come from elsewhere; on a terminal, escaped.
    pub(crate) fn push_untrusted(&mut self, bytes: &[u8]) {
        match self.is_terminal {
            true => self.buffer.extend_from_slice(escape_control(bytes).as_bytes()),
            false => self.buffer.extend_from_slice(bytes),
        }
    }

    /// Appends bytes that come from elsewhere, in a colour.
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

    /// Appends one line of JSON.
    pub(crate) fn push_json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.buffer, value).context("cannot encode an answer")?;
        self.buffer.push(b'\n');
        Ok(())
    }

    pub(crate) async fn flush_if_full(&mut self) -> anyhow::Result<()> {
        match self.buffer.len() < FLUSH_BYTES {
            true => Ok(()),
            false => self.flush().await,
        }
    }

    pub(crate) async fn flush(&mut self) -> anyhow::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        write_stdout(std::mem::take(&mut self.buffer).into()).await
    }
}

/// Writes bytes to stdout as they are. A slow reader blocks a thread of the blocking pool, not the runtime.
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

/// Escapes control characters, which could move the cursor of a terminal, and bytes that are not UTF-8.
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

/// Contents in a line of JSON: `"text"` if they are UTF-8, else `"base64"`. Contents that are cut within a character are
/// not UTF-8.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TextOrBase64<'a> {
    Text(&'a str),
    Base64(String),
}

impl<'a> TextOrBase64<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Base64(STANDARD.encode_to_string(bytes)),
        }
    }
}

/// A name or a line in JSON: a string if it is UTF-8, else an object with its base64.
pub(crate) fn os_text(text: impl AsRef<OsStr>) -> OsText {
    text.as_ref().into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn what_a_name_may_not_do_to_a_terminal_is_written_out() {
        assert_eq!(escape_control(b"a\x1b[2J\nb\xff\tc\xc3\xa9"), "a\\u{1b}[2J\\nb\\xff\tc\u{e9}");
    }

    #[test]
    fn a_name_that_is_no_text_is_base64_for_programs() {
        let line = |bytes: &[u8]| serde_json::to_string(&os_text(OsStr::from_bytes(bytes))).expect("it is plain data");
        assert_eq!(line(b"a"), "\"a\"");
        assert_eq!(line(b"\xff"), r#"{"base64":"/w=="}"#);
    }
}
