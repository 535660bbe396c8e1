//! Log, lifecycle and quota together, as a mover uses them: bytes, ends and the exit in any order, readers at any
//! moment.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use exec_core::flow::{Quota, SpaceDecision};
use exec_core::lifecycle::{Append, Lifecycle, StreamSet};
use exec_core::limits::{ENTRY_BYTES, PUNCH_BYTES, RECORD_BYTES, SPOOL_MIN_BYTES};
use exec_core::{Entry, EntryBody, Exit, ExitCause, ExitStatus, Log, Overflow, Page, ResourceUsage, Seq, Stream};
use proptest::prelude::*;

/// What can happen next.
#[derive(Debug, Clone)]
enum Happening {
    Bytes(Stream, u32),
    End(Stream),
    Exit(i32),
    /// Reader `n` looks, with this budget.
    Look(usize, u64),
    /// The mover dies and another one goes on from its notes.
    Takeover,
}

const READERS: usize = 3;

fn happening() -> impl Strategy<Value = Happening> {
    let stream = prop_oneof![
        3 => Just(Stream::Stdout),
        3 => Just(Stream::Stderr),
        1 => Just(Stream::Pty)
    ];
    let size = prop_oneof![1..=3_u32, 1..=ENTRY_BYTES, Just(ENTRY_BYTES)];
    prop_oneof![
        20 => (stream.clone(), size).prop_map(|(stream, bytes)| Happening::Bytes(stream, bytes)),
        1 => stream.prop_map(Happening::End),
        1 => (0..256).prop_map(Happening::Exit),
        6 => (0..READERS, 0..400_000_u64).prop_map(|(who, budget)| Happening::Look(who, budget)),
        1 => Just(Happening::Takeover),
    ]
}

fn quota() -> impl Strategy<Value = Quota> {
    let overflow = prop_oneof![3 => Just(Overflow::DropOldest), 1 => Just(Overflow::Block)];
    (SPOOL_MIN_BYTES..3 * SPOOL_MIN_BYTES, overflow).prop_map(|(cap_bytes, overflow)| Quota { cap_bytes, overflow })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever happens: every seq is read once or told as lost, one exit, closed last, and no byte is unaccounted for.
    #[test]
    fn every_seq_is_delivered_once_or_declared_lost(
        streams in prop_oneof![Just(StreamSet::PIPES), Just(StreamSet::PTY), Just(StreamSet::NONE)],
        quota in quota(),
        happenings in prop::collection::vec(happening(), 0..400),
    ) {
        let mut world = World::new(streams, quota);
        for happening in happenings {
            world.step(happening)?;
            world.check()?;
        }
        world.wind_up(streams)?;
    }

    /// A mover's notes are enough to go on.
    #[test]
    fn a_log_found_again_is_the_same_log(
        quota in quota(),
        happenings in prop::collection::vec(happening(), 0..200),
        stalled in any::<bool>(),
    ) {
        let mut world = World::new(StreamSet::PIPES, quota);
        for happening in happenings {
            world.step(happening)?;
            prop_assert_eq!(&Log::resume(&world.log.head(stalled.then_some(exec_core::Stall::Disk))), &world.log);
        }
    }

    /// StreamSet and exit in any order end in the same way: exited, then closed, each once.
    #[test]
    fn ends_in_any_order_give_exited_then_closed(
        ends in Just(vec![Some(Stream::Stdout), Some(Stream::Stderr), None]).prop_shuffle(),
        doubles in prop::collection::vec(0..3_usize, 0..4),
    ) {
        let mut lifecycle = Lifecycle::new(StreamSet::PIPES);
        let mut appended = Vec::new();
        let news = doubles.iter().map(|index| ends[*index]);
        for end in ends.iter().copied().chain(news) {
            prop_assert_eq!(lifecycle.closed(), appended.last() == Some(&Append::Closed));
            match end {
                Some(stream) => appended.extend(lifecycle.on_eof(stream)),
                None => {
                    let (exited, closed) = lifecycle.on_exit(exit(3));
                    appended.extend(exited.into_iter().chain(closed));
                }
            }
        }
        prop_assert_eq!(appended, [Append::Exited(exit(3)), Append::Closed]);
        prop_assert!(lifecycle.exited() && lifecycle.closed() && lifecycle.open().is_empty());
    }
}

/// A mover and its readers, all in one thread.
struct World {
    log: Log,
    lifecycle: Lifecycle,
    quota: Quota,
    held: VecDeque<Entry>,
    written_bytes: u64,
    readers: [Reader; READERS],
}

/// What one reader has seen.
#[derive(Default)]
struct Reader {
    cursor: Seq,
    seen: Vec<Seq>,
    lost: u64,
    exits: u32,
    closed: bool,
}

impl World {
    fn new(streams: StreamSet, quota: Quota) -> Self {
        Self {
            log: Log::default(),
            lifecycle: Lifecycle::new(streams),
            quota,
            held: VecDeque::new(),
            written_bytes: 0,
            readers: Default::default(),
        }
    }

    fn step(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Bytes(stream, bytes) => self.bytes(stream, bytes),
            Happening::End(stream) => {
                let closed = self.lifecycle.on_eof(stream);
                self.append(closed);
            }
            Happening::Exit(code) => {
                let (exited, closed) = self.lifecycle.on_exit(exit(code));
                self.append(exited);
                self.append(closed);
            }
            Happening::Look(who, budget) => self.look(who, budget)?,
            Happening::Takeover => {
                self.log = Log::resume(&self.log.head(None));
                self.lifecycle =
                    Lifecycle::resume(self.lifecycle.open(), self.lifecycle.exited(), self.lifecycle.closed());
            }
        }
        Ok(())
    }

    /// Moves bytes as a mover does: never from a stream that ended, and only while there is room.
    fn bytes(&mut self, stream: Stream, bytes: u32) {
        if !self.lifecycle.open().contains(stream) {
            return;
        }
        if self.quota.decide_space(self.log.cost_bytes(), 0) == SpaceDecision::Wait {
            return;
        }
        let seq = self.log.append_output(bytes);
        self.written_bytes += u64::from(bytes);
        let bytes = Bytes::from(vec![0; bytes as usize]);
        self.held.push_back(Entry { seq, body: EntryBody::Output { stream, bytes } });
        if let SpaceDecision::Drop { bytes } = self.quota.decide_space(self.log.cost_bytes(), 0) {
            self.drop_oldest(bytes);
        }
    }

    fn drop_oldest(&mut self, at_least: u64) {
        let before = self.log.cost_bytes();
        while before - self.log.cost_bytes() < at_least {
            let Some(entry) = self.held.pop_front() else {
                return;
            };
            self.log.drop_first(output_bytes(&entry.body));
        }
    }

    fn append(&mut self, what: Option<Append>) {
        let (seq, body) = match what {
            None => return,
            Some(Append::Exited(exit)) => (self.log.append_exit(exit), EntryBody::Exited(exit)),
            Some(Append::Closed) => (self.log.append_closed(), EntryBody::Closed),
        };
        self.held.push_back(Entry { seq, body });
    }

    /// One look of one reader, as an environment answers it.
    fn look(&mut self, who: usize, budget: u64) -> Result<(), TestCaseError> {
        let after = self.readers[who].cursor;
        let head = self.log.head(None);
        let mut page = Page { entries: Vec::new(), gap: head.gap(after), head };
        let mut bytes = 0;
        let from = page.cursor(after);
        for entry in self.held.iter().filter(|entry| entry.seq > from) {
            bytes += u64::from(output_bytes(&entry.body));
            if bytes > budget && !page.entries.is_empty() {
                break;
            }
            page.entries.push(entry.clone());
        }
        let news = page.gap.is_some() || !page.entries.is_empty() || head.closed;
        prop_assert_eq!(head.has_news(after), news);
        self.readers[who].take(page)
    }

    /// What holds after every step.
    fn check(&self) -> Result<(), TestCaseError> {
        let head = self.log.head(None);
        prop_assert_eq!(head.held_bytes + head.dropped_bytes, self.written_bytes);
        prop_assert_eq!(head.next_seq - head.first_seq, self.held.len() as u64);
        let held: u64 = self.held.iter().map(|entry| u64::from(output_bytes(&entry.body))).sum();
        prop_assert_eq!(head.held_bytes, held);
        prop_assert_eq!(self.log.cost_bytes(), held + self.held.len() as u64 * RECORD_BYTES);
        prop_assert_eq!(head.exit.is_some(), self.lifecycle.exited());
        prop_assert_eq!(head.closed, self.lifecycle.closed());
        prop_assert_eq!(head.closed, self.lifecycle.exited() && self.lifecycle.open().is_empty());
        match self.quota.overflow {
            // Exit and closed are never refused for want of room; they may stand over the cap.
            Overflow::DropOldest => prop_assert!(self.log.cost_bytes() <= self.quota.cap_bytes + 2 * RECORD_BYTES),
            Overflow::Block => {
                prop_assert_eq!((head.dropped_bytes, head.first_seq), (0, 1));
                let one_more = u64::from(ENTRY_BYTES) + 3 * RECORD_BYTES;
                prop_assert!(self.log.cost_bytes() <= self.quota.cap_bytes + one_more);
            }
        }
        Ok(())
    }

    /// Ends everything; then every reader can account for every seq.
    fn wind_up(&mut self, streams: StreamSet) -> Result<(), TestCaseError> {
        self.step(Happening::Exit(0))?;
        for stream in streams.iter() {
            self.step(Happening::End(stream))?;
        }
        self.check()?;
        let head = self.log.head(None);
        prop_assert!(head.closed);
        prop_assert_eq!(self.held.back().map(|entry| &entry.body), Some(&EntryBody::Closed));
        for who in 0..READERS {
            while !self.readers[who].closed {
                self.look(who, 100_000)?;
            }
            let reader = &self.readers[who];
            prop_assert_eq!(reader.seen.len() as u64 + reader.lost, head.next_seq - 1);
            prop_assert!(reader.exits <= 1);
            prop_assert!(reader.exits == 1 || reader.lost > 0);
            prop_assert!(reader.lost == 0 || head.dropped_bytes > 0);
            prop_assert_eq!(head.gap(reader.cursor), None);
        }
        Ok(())
    }
}

impl Reader {
    fn take(&mut self, page: Page) -> Result<(), TestCaseError> {
        if let Some(gap) = page.gap {
            prop_assert_eq!(gap.from_seq, self.cursor + 1);
            prop_assert_eq!(gap.to_seq + 1, page.head.first_seq);
            prop_assert_eq!(gap.dropped_bytes, page.head.dropped_bytes);
            self.lost += gap.to_seq - gap.from_seq + 1;
        }
        let after = self.cursor;
        for entry in &page.entries {
            prop_assert!(!self.closed, "nothing follows closed");
            self.exits += u32::from(matches!(entry.body, EntryBody::Exited(_)));
            self.closed = entry.body == EntryBody::Closed;
            self.seen.push(entry.seq);
        }
        self.cursor = page.cursor(after);
        let last = page.entries.last().map(|entry| entry.seq);
        prop_assert_eq!(self.cursor, last.or(page.gap.map(|gap| gap.to_seq)).unwrap_or(after));
        let rising = self.seen.windows(2).all(|pair| pair[0] < pair[1]);
        prop_assert!(rising, "each seq once and in order");
        Ok(())
    }
}

#[test]
fn a_position_beyond_every_log_is_legal() {
    let mut log = Log::default();
    log.append_output(5);
    for after in [1, 2, 1000, Seq::MAX - 1] {
        let head = log.head(None);
        assert!(!head.has_news(after), "after {after}");
        assert_eq!(head.gap(after), None, "after {after}");
    }
}

#[test]
fn a_forgotten_exit_stays_known() {
    let mut log = Log::default();
    let seq = log.append_exit(exit(4));
    log.drop_first(0);
    log.append_output(1);
    assert_eq!(log.head(None).exit, Some((seq, exit(4))));
    assert_eq!(log.head(None).first_seq, 2);
}

#[test]
fn a_drop_frees_at_least_what_was_asked_and_in_whole_steps() {
    let mut world = World::new(StreamSet::PIPES, Quota { cap_bytes: 8 * PUNCH_BYTES, overflow: Overflow::DropOldest });
    while world.log.head(None).dropped_bytes == 0 {
        world.bytes(Stream::Stdout, ENTRY_BYTES);
    }
    let head = world.log.head(None);
    let freed = head.dropped_bytes + (head.first_seq - 1) * RECORD_BYTES;
    assert!(freed >= PUNCH_BYTES, "{head:?}");
    assert!(freed < PUNCH_BYTES + u64::from(ENTRY_BYTES) + RECORD_BYTES);
}

fn output_bytes(body: &EntryBody) -> u32 {
    match body {
        EntryBody::Output { bytes, .. } => bytes.len() as u32,
        EntryBody::Exited(_) | EntryBody::Closed => 0,
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        status: ExitStatus::Code(code),
        cause: ExitCause::Own,
        usage: ResourceUsage { user: Duration::from_millis(1), ..ResourceUsage::default() },
        limits_reached: exec_core::LimitSet::NONE,
    }
}
