//! Logs go to stderr: warnings, and what `RUST_LOG` selects. What others wrote in them does nothing to a terminal.
//!
//! A thread writes them, because whoever started us may never read our stderr, and a full pipe must not stop a server for
//! its clients. Records for which the [`LogQueue`] has no room are left out and counted.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use serde_json::json;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::args::LogFormat;
use crate::output::visible;
use crate::stdio;

/// Records that wait to be written, in bytes: enough for a burst, and little beside the rest of a server.
const QUEUE_BYTES: usize = 1 << 20;

/// How long [`finish`] waits for a stderr that takes nothing.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

static QUEUE: LogQueue = LogQueue::new();
static THREAD: Once = Once::new();

pub(crate) fn init(format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| QueuedStderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => {
            QUEUE.lock().note = json_note;
            logs.json().init();
        }
    }
}

/// Waits until what was logged is written, but not for a stderr that takes nothing.
pub(crate) fn finish() {
    QUEUE.wait_until_written(FINISH_TIMEOUT);
}

/// Stderr, for records of whole lines. Colours pass; other people's text can do no more than change colours.
struct QueuedStderr;

impl Write for QueuedStderr {
    fn write(&mut self, record: &[u8]) -> std::io::Result<usize> {
        THREAD.call_once(start_thread);
        QUEUE.push(harmless(record));
        Ok(record.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The thread ends with our process. Where none can be had, nothing is logged, which is better than to wait for a reader.
fn start_thread() {
    let write = || {
        loop {
            let record = QUEUE.next();
            // It fails if nobody reads our stderr any more, or its disk is full. There is nobody else to tell.
            let _ = stdio::stderr().write_all(&record);
            QUEUE.written();
        }
    };
    let _ = std::thread::Builder::new().name("log".into()).spawn(write);
}

fn text_note(left_out: u64) -> String {
    format!("exec-server: {left_out} log records are left out here, because nobody read this\n")
}

/// The same as a record like the others.
fn json_note(left_out: u64) -> String {
    let message = format!("{left_out} log records are left out here, because nobody read this");
    format!("{}\n", json!({"level": "WARN", "fields": {"message": message}, "target": "exec_server"}))
}

fn harmless(record: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(record.len());
    for line in record.split_inclusive(|byte| *byte == b'\n') {
        let (line, end) = line.strip_suffix(b"\n").map_or((line, &b""[..]), |line| (line, b"\n"));
        let mut rest = line;
        while !rest.is_empty() {
            let colour = colour_len(rest);
            shown.extend_from_slice(&rest[..colour]);
            rest = &rest[colour..];
            let until = (0..rest.len()).find(|at| colour_len(&rest[*at..]) > 0).unwrap_or(rest.len());
            shown.extend_from_slice(visible(&rest[..until]).as_bytes());
            rest = &rest[until..];
        }
        shown.extend_from_slice(end);
    }
    shown
}

/// The length of the colour sequence (`ESC [ 1 ; 31 m`) that the bytes begin with; 0 if they do not.
fn colour_len(bytes: &[u8]) -> usize {
    let Some(parameters) = bytes.strip_prefix(b"\x1b[") else { return 0 };
    let digits = parameters.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    if parameters.get(digits) == Some(&b'm') { digits + 3 } else { 0 }
}

/// Records on their way from whoever logs to the thread that writes.
struct LogQueue {
    state: Mutex<QueueState>,
    /// A record was added, or written.
    changed: Condvar,
}

struct QueueState {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Records for which there was no room after the last of these.
    left_out: u64,
    /// What is said of them.
    note: fn(u64) -> String,
    is_writing: bool,
}

impl LogQueue {
    const fn new() -> Self {
        let state = QueueState { records: VecDeque::new(), bytes: 0, left_out: 0, note: text_note, is_writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Never waits for a reader of stderr.
    fn push(&self, record: Vec<u8>) {
        let mut state = self.lock();
        if state.bytes + record.len() > QUEUE_BYTES {
            state.left_out += 1;
            return;
        }
        if let Some(note) = state.take_note() {
            state.add(note);
        }
        state.add(record);
        self.changed.notify_all();
    }

    /// Waits for the next record, which is written from here on. One after which others were left out says how many.
    fn next(&self) -> Vec<u8> {
        let waited = self.changed.wait_while(self.lock(), |state| state.records.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let mut record = state.records.pop_front().expect("waited for above");
        state.bytes -= record.len();
        state.is_writing = true;
        if state.records.is_empty()
            && let Some(note) = state.take_note()
        {
            record.extend_from_slice(&note);
        }
        record
    }

    fn written(&self) {
        self.lock().is_writing = false;
        self.changed.notify_all();
    }

    fn wait_until_written(&self, timeout: Duration) {
        let is_waiting = |state: &mut QueueState| state.is_writing || !state.records.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), timeout, is_waiting));
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn add(&mut self, record: Vec<u8>) {
        self.bytes += record.len();
        self.records.push_back(record);
    }

    /// What is to be said of records that were left out, if any were.
    fn take_note(&mut self) -> Option<Vec<u8>> {
        let left_out = std::mem::take(&mut self.left_out);
        (left_out > 0).then(|| (self.note)(left_out).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_left_out_and_counted_behind_the_last_record_that_had() {
        let queue = LogQueue::new();
        for number in 0..3 {
            queue.push(vec![b'0' + number; QUEUE_BYTES / 2]);
        }
        assert_eq!(queue.next(), vec![b'0'; QUEUE_BYTES / 2]);
        let last = queue.next();
        let note = last.strip_prefix(&[b'1'; QUEUE_BYTES / 2][..]).expect("the second had room");
        assert_eq!(note, b"exec-server: 1 log records are left out here, because nobody read this\n");
        queue.push(b"again\n".to_vec());
        assert_eq!(queue.next(), b"again\n");
    }

    #[test]
    fn the_count_stands_where_they_are_missing_and_has_the_format_of_the_records() {
        let queue = LogQueue::new();
        queue.lock().note = json_note;
        queue.push(vec![b'a'; QUEUE_BYTES / 2]);
        queue.push(vec![b'b'; QUEUE_BYTES / 2]);
        queue.push(b"no room".to_vec());
        assert_eq!(queue.next(), vec![b'a'; QUEUE_BYTES / 2]);
        queue.push(b"room".to_vec());
        assert_eq!(queue.next(), vec![b'b'; QUEUE_BYTES / 2]);
        let note: serde_json::Value = serde_json::from_slice(&queue.next()).expect("it is JSON");
        assert_eq!(note["fields"]["message"], "1 log records are left out here, because nobody read this");
        assert_eq!(queue.next(), b"room");
    }

    #[test]
    fn an_end_waits_for_records_but_not_for_ever() {
        let queue = LogQueue::new();
        queue.wait_until_written(Duration::MAX);
        queue.push(b"one\n".to_vec());
        queue.wait_until_written(Duration::from_millis(1));
        queue.next();
        queue.wait_until_written(Duration::from_millis(1));
        queue.written();
        queue.wait_until_written(Duration::MAX);
    }
}
