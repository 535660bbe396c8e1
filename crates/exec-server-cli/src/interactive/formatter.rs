//! Formats the log for output: as the bytes themselves, or as events in JSON.
//!
//! The names and types in the JSON are those of our wire where it has them (`kind`, `coreDumped`, `maxRssBytes`).

use bytes::Bytes;
use exec_core::{EntryBody, Gap, Page, Seq, Stream};
use exec_env::process::LogEvent;
use exec_wire::process as wire;
use serde::Serialize;

use super::output_thread::{OutputBatch, OutputChunk, OutputStream};
use crate::output::{TextOrBase64, json_line};

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

    pub(crate) fn started(&self, pid: u32) -> OutputBatch {
        if self.json { vec![JsonEvent::Started { pid }.to_chunk()] } else { Vec::new() }
    }

    pub(crate) fn page(&mut self, page: Page) -> OutputBatch {
        LogEvent::of(page).filter_map(|event| self.event(event)).collect()
    }

    fn event(&mut self, event: LogEvent) -> Option<OutputChunk> {
        match event {
            LogEvent::Gap(gap) => Some(self.gap(gap)),
            LogEvent::Entry(entry) if self.json => Some(JsonEvent::new(entry.seq, &entry.body).to_chunk()),
            LogEvent::Entry(entry) => match entry.body {
                EntryBody::Output { stream, bytes } => {
                    let to = match stream {
                        Stream::Stderr => OutputStream::Stderr,
                        Stream::Stdout | Stream::Pty => OutputStream::Stdout,
                    };
                    Some(OutputChunk { to, bytes })
                }
                EntryBody::Exited(_) | EntryBody::Closed => None,
            },
        }
    }

    fn gap(&mut self, gap: Gap) -> OutputChunk {
        // A server that has restarted its count must not make this underflow.
        let lost_bytes = gap.dropped_bytes.saturating_sub(self.dropped_bytes);
        self.dropped_bytes = gap.dropped_bytes;
        if self.json {
            let Gap { from_seq, to_seq, dropped_bytes } = gap;
            return JsonEvent::Gap { from_seq, to_seq, dropped_bytes }.to_chunk();
        }
        let end = if self.raw { "\r\n" } else { "\n" };
        let message = format!(
            "exec-server: about {lost_bytes} bytes of output are lost here: they were read too slowly; raise --spool{end}"
        );
        // It is shown with --quiet, too: it is a failure.
        OutputChunk { to: OutputStream::Stderr, bytes: message.into() }
    }
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum JsonEvent<'a> {
    Started {
        pid: u32,
    },
    Output {
        seq: Seq,
        stream: wire::Stream,
        #[serde(flatten)]
        content: TextOrBase64<'a>,
    },
    Exited {
        seq: Seq,
        exit: wire::Exit,
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

impl<'a> JsonEvent<'a> {
    fn new(seq: Seq, body: &'a EntryBody) -> Self {
        match body {
            EntryBody::Exited(exit) => Self::Exited { seq, exit: (*exit).into() },
            EntryBody::Closed => Self::Closed { seq },
            EntryBody::Output { stream, bytes } => {
                Self::Output { seq, stream: (*stream).into(), content: TextOrBase64::new(bytes) }
            }
        }
    }

    fn to_chunk(&self) -> OutputChunk {
        let line = json_line(self).expect("strings and numbers, written to memory");
        OutputChunk { to: OutputStream::Stdout, bytes: Bytes::from(line) }
    }
}

#[cfg(test)]
mod tests {
    use exec_core::{Exit, ExitCause, ExitStatus};

    use super::*;

    fn line(body: EntryBody) -> String {
        String::from_utf8(JsonEvent::new(7, &body).to_chunk().bytes.to_vec()).expect("JSON is UTF-8")
    }

    #[test]
    fn output_is_text_where_it_is_text_and_base64_elsewhere() {
        let output =
            |bytes: &'static [u8]| EntryBody::Output { stream: Stream::Stderr, bytes: Bytes::from_static(bytes) };
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
        let exit = Exit { status, cause: ExitCause::TimedOut, ..Exit::LOST };
        assert_eq!(
            line(EntryBody::Exited(exit)),
            "{\"event\":\"exited\",\"seq\":7,\"exit\":{\"kind\":\"timedOut\",\"signal\":9,\"coreDumped\":false,\
             \"userMs\":0,\"systemMs\":0,\"maxRssBytes\":0}}\n"
        );
        assert_eq!(line(EntryBody::Closed), "{\"event\":\"closed\",\"seq\":7}\n");
    }
}
