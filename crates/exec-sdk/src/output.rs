//! The output of a process, page by page, as events that a language hands out one by one.
//!
//! An event is a short list, because there are many: `["stdout" | "stderr" | "pty", bytes, seq]`, `["gap", bytes lost, seq]`
//! or `["exit", exit, seq]`. After the log has closed, a page is null.

use std::collections::VecDeque;

use exec_server::process::{LogEvent, LogFollower, ProcessError};
use exec_server::{Bytes, Entry, EntryBody, ProcessId, Seq, SharedEnvironment, Stream};
use futures_util::future::BoxFuture;

use crate::Value;
use crate::call::Outcome;
use crate::limits::{JOIN_BYTES, PAGE_BYTES, PAGE_EVENTS};
use crate::pages::ReadPages;
use crate::process::shown_exit;

/// A place in a log.
pub(crate) struct Output {
    follower: Box<dyn LogFollower>,
    /// Read, and not yet handed out.
    waiting: VecDeque<Event>,
}

enum Event {
    Output { stream: Stream, bytes: Bytes, seq: Seq },
    Other(Value),
}

impl Output {
    pub(crate) async fn open(machine: SharedEnvironment, id: ProcessId, after: Seq) -> Result<Self, ProcessError> {
        let follower = machine.processes().follow(&id, after).await?;
        Ok(Self { follower, waiting: VecDeque::new() })
    }

    fn push(&mut self, event: LogEvent) {
        let event = match event {
            LogEvent::Gap(gap) => {
                Event::Other(Value::list([Value::from("gap"), gap.dropped_bytes.into(), gap.to_seq.into()]))
            }
            LogEvent::Entry(Entry { seq, body: EntryBody::Exited(exit) }) => {
                Event::Other(Value::list([Value::from("exit"), shown_exit(&exit), seq.into()]))
            }
            LogEvent::Entry(Entry { body: EntryBody::Closed, .. }) => return,
            LogEvent::Entry(Entry { seq, body: EntryBody::Output { stream, bytes } }) => {
                if let Some(Event::Output { stream: last_stream, bytes: last, seq: last_seq }) = self.waiting.back_mut()
                    && *last_stream == stream
                    && last.len() + bytes.len() <= JOIN_BYTES
                {
                    *last = [&last[..], &bytes[..]].concat().into();
                    *last_seq = seq;
                    return;
                }
                Event::Output { stream, bytes, seq }
            }
        };
        self.waiting.push_back(event);
    }
}

impl ReadPages for Output {
    fn next(&mut self) -> BoxFuture<'_, Outcome> {
        Box::pin(async {
            while self.waiting.is_empty() {
                let Some(page) = self.follower.next(PAGE_BYTES).await? else { return Ok(Value::Null) };
                LogEvent::of(page).for_each(|event| self.push(event));
            }
            let some = self.waiting.len().min(PAGE_EVENTS);
            Ok(Value::list(self.waiting.drain(..some)))
        })
    }
}

impl From<Event> for Value {
    fn from(event: Event) -> Self {
        match event {
            Event::Other(value) => value,
            Event::Output { stream, bytes, seq } => {
                let stream = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                    Stream::Pty => "pty",
                };
                Value::list([Value::from(stream), bytes.into(), seq.into()])
            }
        }
    }
}
