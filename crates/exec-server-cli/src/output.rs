//! What is printed: text that others wrote made harmless ([`visible`], [`json_line`]), and the stdout of the file
//! commands, buffered, written outside the runtime's thread and coloured.
//!
//! A server, and whoever named a file on it, could send a terminal escape sequences, text that runs backwards or
//! characters that nobody sees. So all text passes [`visible`] before it reaches a terminal, whoever wrote it: messages
//! and tables always, names and contents where stdout is a terminal. In a pipe those are printed byte for byte. Only
//! words in our own source ([`StdoutBuffer::push`]), the output of programs and `fs cat` go past it.
//!
//! A reader that has closed the pipe is the error [`BrokenPipe`], for which no message is printed.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::sync::LazyLock;

use anyhow::Context;
use base64_simd::STANDARD;
use exec_core::text::is_misleading;
use exec_wire::text::OsText;
use serde::Serialize;

use crate::stdio;

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

    /// Appends words of our own source.
    pub(crate) fn push(&mut self, text: &'static str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Appends text that is for people, in a pipe too.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.buffer.extend_from_slice(visible(text.as_bytes()).as_bytes());
    }

    /// Appends names or contents; on a terminal, escaped.
    pub(crate) fn push_untrusted(&mut self, bytes: &[u8]) {
        match self.is_terminal {
            true => self.buffer.extend_from_slice(visible(bytes).as_bytes()),
            false => self.buffer.extend_from_slice(bytes),
        }
    }

    /// Appends names or contents in a colour.
    pub(crate) fn push_styled(&mut self, bytes: &[u8], style: Style) {
        let code = match style {
            Style::Path => "35",
            Style::Number => "32",
            Style::Match => "1;31",
            Style::Faint => "2",
        };
        if self.colours {
            self.buffer.extend_from_slice(format!("\x1b[{code}m").as_bytes());
        }
        self.push_untrusted(bytes);
        if self.colours {
            self.push("\x1b[0m");
        }
    }

    /// Appends one line of JSON.
    pub(crate) fn push_json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        self.buffer.extend_from_slice(&json_line(value).context("cannot encode an answer")?);
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
    let written = tokio::task::spawn_blocking(move || stdio::stdout().write_all(&bytes));
    match written.await.context("the writing thread is gone")? {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(BrokenPipe.into()),
        other => other.context("cannot write to stdout"),
    }
}

/// Text as a terminal may have it: what it would act on, turn around or not show is written out, and so are bytes that are
/// not UTF-8.
pub(crate) fn visible(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_misleading(c) {
                true => escaped.extend(c.escape_default()),
                false => escaped.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| escaped.push_str(&format!("\\x{byte:02x}")));
    }
    escaped
}

/// One line of JSON. JSON escapes some of what [`visible`] does; on a terminal, the rest is escaped in its way.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    static ON_A_TERMINAL: LazyLock<bool> = LazyLock::new(|| std::io::stdout().is_terminal());
    let line = serde_json::to_string(value)?;
    let line = if *ON_A_TERMINAL { visible_json(line) } else { line };
    Ok((line + "\n").into_bytes())
}

/// Outside of its strings, JSON is ASCII without controls, so whatever is escaped here stands in one.
fn visible_json(line: String) -> String {
    if !line.contains(is_misleading) {
        return line;
    }
    let mut escaped = String::with_capacity(line.len());
    for c in line.chars() {
        match is_misleading(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}"))),
            false => escaped.push(c),
        }
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
        assert_eq!(visible(b"a\x1b[2J\nb\xff\tc\xc3\xa9"), "a\\u{1b}[2J\\nb\\xff\tc\u{e9}");
        let hidden = "\u{9b}2J\u{7f}\u{202e}exe.gnp\u{2069}\u{200b}\u{e0041}\u{2028}";
        let shown = "\\u{9b}2J\\u{7f}\\u{202e}exe.gnp\\u{2069}\\u{200b}\\u{e0041}\\u{2028}";
        assert_eq!(visible(hidden.as_bytes()), shown);
        let ordinary = "na\u{ef}ve \u{65e5}\u{672c} \u{5d0} \u{1f600}";
        assert_eq!(visible(ordinary.as_bytes()), ordinary);
    }

    #[test]
    fn json_on_a_terminal_means_the_same() {
        let text = "\u{9b}2J\u{7f}\u{202e}\u{e0041}\u{e9}\u{1b}";
        let line = visible_json(serde_json::to_string(text).expect("it is text"));
        assert_eq!(line, "\"\\u009b2J\\u007f\\u202e\\udb40\\udc41\u{e9}\\u001b\"");
        assert_eq!(serde_json::from_str::<String>(&line).expect("it is JSON"), text);
    }

    #[test]
    fn a_name_that_is_no_text_is_base64_for_programs() {
        let line = |bytes: &[u8]| serde_json::to_string(&os_text(OsStr::from_bytes(bytes))).expect("it is plain data");
        assert_eq!(line(b"a"), "\"a\"");
        assert_eq!(line(b"\xff"), r#"{"base64":"/w=="}"#);
    }
}
