//! What is shown of the log: the bytes themselves, or events as JSON.
//!
//! The names in the JSON are those of our wire (`kind`, `coreDumped`, `maxRssBytes`), so that who knows one knows the
//! other.

use base64_simd::STANDARD;
use bytes::Bytes;
use exec_core::{EntryBody, ExitCause, Exit, Gap, Page, Seq, ExitStatus, Stream};
use exec_env::process::{LogEvent, Terminated};
use serde::Serialize;

use super::output_thread::{OutputBatch, OutputChunk, OutputStream};

/// How to show, and what was missed.
#[derive(Debug)]
pub(crate) struct OutputFormatter {
    json: bool,
    /// In raw mode a line needs its carriage return.
    raw: bool,
    dropped_bytes: u64,
}

impl OutputFormatter {
    pub(crate) fn new(json: bool, raw: bool) -> Self {
        Self { json, raw, dropped_bytes: 0 }
    }

    /// Whether output was dropped before we could show it.
    pub(crate) fn saw_a_gap(&self) -> bool {
        self.dropped_bytes > 0
    }

    /// The child runs.
    pub(crate) fn started(&self, pid: u32) -> OutputBatch {
        if self.json { vec![to_stdout(JsonEvent::Started { pid }.encode())] } else { Vec::new() }
    }

    /// A page of the log.
    pub(crate) fn page(&mut self, page: Page) -> OutputBatch {
        LogEvent::of(page).filter_map(|event| self.event(event)).collect()
    }

    fn event(&mut self, event: LogEvent) -> Option<OutputChunk> {
        match event {
            LogEvent::Gap(gap) => self.gap(gap),
            LogEvent::Entry(entry) if self.json => Some(to_stdout(JsonEvent::of(entry.seq, &entry.body).encode())),
            LogEvent::Entry(entry) => match entry.body {
                EntryBody::Output { stream: Stream::Stderr, bytes } => Some(OutputChunk { to: OutputStream::Stderr, bytes }),
                EntryBody::Output { stream: Stream::Stdout | Stream::Pty, bytes } => {
                    Some(OutputChunk { to: OutputStream::Stdout, bytes })
                }
                EntryBody::Exited(_) | EntryBody::Closed => None,
            },
        }
    }

    fn gap(&mut self, gap: Gap) -> Option<OutputChunk> {
        // A server that numbers what it dropped anew must not stop us.
        let lost_bytes = gap.dropped_bytes.saturating_sub(self.dropped_bytes);
        self.dropped_bytes = gap.dropped_bytes;
        if self.json {
            let Gap { from_seq, to_seq, dropped_bytes } = gap;
            return Some(to_stdout(JsonEvent::Gap { from_seq, to_seq, dropped_bytes }.encode()));
        }
        let end = if self.raw { "\r\n" } else { "\n" };
        let message = format!(
            "exec-server: about {lost_bytes} bytes of output are lost here: they were read too slowly; raise --spool{end}"
        );
        // Told even if we are to be quiet: it is a failure.
        Some(OutputChunk { to: OutputStream::Stderr, bytes: message.into() })
    }

    /// What was ended at the end.
    pub(crate) fn left_behind(terminated: Terminated) -> Bytes {
        JsonEvent::LeftBehind { ended: terminated.ended, left: terminated.left }.encode()
    }

    /// The child was left to go on.
    pub(crate) fn detached(id: &str, pid: u32, at: &str, session: &str) -> Bytes {
        JsonEvent::Detached { id, pid, at, session }.encode()
    }

    /// There is no child, or we failed.
    pub(crate) fn failed(message: &str, exit_code: u8) -> Bytes {
        JsonEvent::Failed { message, exit_code }.encode()
    }
}

fn to_stdout(bytes: Bytes) -> OutputChunk {
    OutputChunk { to: OutputStream::Stdout, bytes }
}

/// One line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum JsonEvent<'a> {
    Started {
        pid: u32,
    },
    Output {
        seq: Seq,
        stream: &'static str,
        #[serde(flatten)]
        content: TextOrBase64<'a>,
    },
    Exited {
        seq: Seq,
        exit: ExitLine,
    },
    Closed {
        seq: Seq,
    },
    Gap {
        from_seq: Seq,
        to_seq: Seq,
        dropped_bytes: u64,
    },
    LeftBehind {
        ended: u32,
        left: u32,
    },
    Detached {
        id: &'a str,
        pid: u32,
        at: &'a str,
        session: &'a str,
    },
    Failed {
        message: &'a str,
        exit_code: u8,
    },
}

/// Text where it is text; an entry that cuts a character in two is not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum TextOrBase64<'a> {
    Text(&'a str),
    Base64(String),
}

/// How a process ended, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExitLine {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    core_dumped: bool,
    user_ms: u64,
    system_ms: u64,
    max_rss_bytes: u64,
}

impl<'a> JsonEvent<'a> {
    fn of(seq: Seq, body: &'a EntryBody) -> Self {
        match body {
            EntryBody::Exited(exit) => Self::Exited { seq, exit: ExitLine::of(exit) },
            EntryBody::Closed => Self::Closed { seq },
            EntryBody::Output { stream, bytes } => {
                let stream = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                    Stream::Pty => "pty",
                };
                let content = match std::str::from_utf8(bytes) {
                    Ok(text) => TextOrBase64::Text(text),
                    Err(_) => TextOrBase64::Base64(STANDARD.encode_to_string(bytes)),
                };
                Self::Output { seq, stream, content }
            }
        }
    }

    fn encode(&self) -> Bytes {
        let mut line = serde_json::to_vec(self).expect("strings and numbers, written to memory");
        line.push(b'\n');
        line.into()
    }
}

impl ExitLine {
    pub(crate) fn of(exit: &Exit) -> Self {
        let (code, signal, core_dumped) = match exit.status {
            ExitStatus::Code(code) => (Some(code), None, false),
            ExitStatus::Signal { number, core_dumped } => (None, Some(number), core_dumped),
            ExitStatus::Lost => (None, None, false),
        };
        let kind = match (exit.cause, exit.status) {
            (_, ExitStatus::Lost) => "lost",
            (ExitCause::TimedOut, _) => "timedOut",
            (ExitCause::Terminated, _) => "terminated",
            (ExitCause::OutOfMemory, _) => "outOfMemory",
            (ExitCause::Own, ExitStatus::Code(_)) => "exited",
            (ExitCause::Own, ExitStatus::Signal { .. }) => "signalled",
        };
        Self {
            kind,
            code,
            signal,
            core_dumped,
            user_ms: exit.usage.user.as_millis() as u64,
            system_ms: exit.usage.system.as_millis() as u64,
            max_rss_bytes: exit.usage.max_rss_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use exec_core::ResourceUsage;

    use super::*;

    fn line(body: EntryBody) -> String {
        String::from_utf8(JsonEvent::of(7, &body).encode().to_vec()).expect("JSON is UTF-8")
    }

    #[test]
    fn output_is_text_where_it_is_text_and_base64_elsewhere() {
        let output = |bytes: &'static [u8]| EntryBody::Output { stream: Stream::Stderr, bytes: Bytes::from_static(bytes) };
        assert_eq!(
            line(output(b"a\"\n\x1b")),
            "{\"event\":\"output\",\"seq\":7,\"stream\":\"stderr\",\"text\":\"a\\\"\\n\\u001b\"}\n"
        );
        assert_eq!(
            line(output(b"\xff\x00")),
            "{\"event\":\"output\",\"seq\":7,\"stream\":\"stderr\",\"base64\":\"/wA=\"}\n"
        );
    }

    #[test]
    fn an_end_is_told_with_the_names_of_the_wire() {
        let status = ExitStatus::Signal { number: 9, core_dumped: false };
        let exit = Exit { status, cause: ExitCause::TimedOut, usage: ResourceUsage::default() };
        assert_eq!(
            line(EntryBody::Exited(exit)),
            "{\"event\":\"exited\",\"seq\":7,\"exit\":{\"kind\":\"timedOut\",\"signal\":9,\"coreDumped\":false,\
             \"userMs\":0,\"systemMs\":0,\"maxRssBytes\":0}}\n"
        );
        assert_eq!(line(EntryBody::Closed), "{\"event\":\"closed\",\"seq\":7}\n");
    }
}
