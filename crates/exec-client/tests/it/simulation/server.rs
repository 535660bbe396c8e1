//! A model of a server with one process: its log, how it is read, how it forgets.

use std::collections::BTreeMap;

use bytes::Bytes;
use exec_client::session::SeededRng;
use exec_core::{EntryBody, Exit, Seq, Stream};
use exec_wire::base64::Base64;
use exec_wire::process::{self as wire, Chunk, LogHead, ReadResult};

/// A server with one process. `plain` ones are like the original: they push nothing that was missed, tell no head and
/// forget silently.
pub(super) struct Server {
    pub(super) plain: bool,
    pub(super) log: BTreeMap<Seq, EntryBody>,
    pub(super) next_seq: Seq,
    dropped_bytes: u64,
    exit: Option<(Seq, Exit)>,
    pub(super) closed: bool,
    pub(super) session_alive: bool,
}

/// The contents of entry `seq`, so that every reader can check it.
pub(super) fn content(seq: Seq) -> Bytes {
    Bytes::from(vec![(seq % 251) as u8; 1 + (seq * 37 % 300) as usize])
}

impl Server {
    pub(super) fn new(plain: bool) -> Self {
        Self {
            plain,
            log: BTreeMap::new(),
            next_seq: 1,
            dropped_bytes: 0,
            exit: None,
            closed: false,
            session_alive: false,
        }
    }

    pub(super) fn print(&mut self, rng: &mut SeededRng) {
        if self.closed {
            return;
        }
        let body = match (self.exit, rng.below(100)) {
            (None, 0) => {
                let exit = Exit::LOST;
                self.exit = Some((self.next_seq, exit));
                EntryBody::Exited(exit)
            }
            (Some(_), 0..5) => {
                self.closed = true;
                EntryBody::Closed
            }
            _ => EntryBody::Output { stream: Stream::Stdout, bytes: content(self.next_seq) },
        };
        self.log.insert(self.next_seq, body);
        self.next_seq += 1;
    }

    pub(super) fn finish(&mut self) {
        if self.exit.is_none() {
            self.exit = Some((self.next_seq, Exit::LOST));
            self.log.insert(self.next_seq, EntryBody::Exited(Exit::LOST));
            self.next_seq += 1;
        }
        if !self.closed {
            self.closed = true;
            self.log.insert(self.next_seq, EntryBody::Closed);
            self.next_seq += 1;
        }
    }

    /// Drops the oldest output; a plain server keeps `exited`, ours may drop it too.
    pub(super) fn forget(&mut self, count: u64) {
        for _ in 0..count {
            let Some((seq, body)) = self.log.first_key_value() else { return };
            let seq = *seq;
            match body {
                EntryBody::Output { bytes, .. } => self.dropped_bytes += bytes.len() as u64,
                EntryBody::Closed => return,
                EntryBody::Exited(_) if self.plain => return,
                EntryBody::Exited(_) => {}
            }
            self.log.remove(&seq);
        }
    }

    pub(super) fn read(&self, after: Seq) -> ReadResult {
        let first_seq = self.log.keys().next().copied().unwrap_or(self.next_seq);
        // Our server limits its pages; the original never does.
        let most = if self.plain { usize::MAX } else { 5 };
        let held = self.log.range(after.saturating_add(1)..);
        let chunks: Vec<Chunk> = held
            .filter_map(|(seq, body)| match body {
                EntryBody::Output { bytes, .. } => {
                    Some(Chunk { seq: *seq, stream: wire::Stream::Stdout, chunk: Base64(bytes.clone()) })
                }
                _ => None,
            })
            .take(most)
            .collect();
        let head = LogHead {
            first_seq,
            next_seq: self.next_seq,
            held_bytes: 0,
            dropped_bytes: self.dropped_bytes,
            exit_seq: self.exit.map(|(seq, _)| seq),
            closed: self.closed,
            stalled: false,
            stalled_by: None,
        };
        ReadResult {
            next_seq: if chunks.len() == most { chunks.last().map_or(0, |chunk| chunk.seq) + 1 } else { self.next_seq },
            chunks,
            exited: self.exit.is_some(),
            exit_code: self.exit.map(|_| -1),
            closed: self.closed,
            failure: None,
            sandbox_denied: false,
            first_seq: None,
            dropped_bytes: None,
            exit: None,
            head: (!self.plain).then_some(head),
        }
    }
}
