//! What was pushed and not yet read: one window per process, each seq once, in order, within bounds.
//!
//! Each follower has a position in a log. If its next entry is in the window, it takes it from there; if the log is known
//! to be longer but the entry is not here, it fetches it with `process/read`; otherwise it waits. So an entry that does
//! not fit the window can be dropped: the server keeps the log. A hole in what is pushed (a log that forgot its oldest
//! entries, a break) is the same case, and the fetched page tells the gap with its seqs.
//!
//! The server keeps what its client has not acknowledged, and that is what the slowest follower has not read. The inbox
//! knows what the server was told and what it should be told next ([`Inbox::acknowledgement`]); the link tells it.
//!
//! A full window drops the entries that the fastest follower has read, so that only the slower ones must fetch them. Pure:
//! no waiting, no clock; the driver wakes followers.

use std::collections::{BTreeMap, HashMap};

use exec_core::{Entry, EntryBody, Head, Page, ProcessId, Seq};

use crate::limits::{ENTRY_OVERHEAD_BYTES, WINDOW_BYTES, WINDOWS_BYTES};
use crate::page::PageBudget;

/// The windows of all processes of a link.
#[derive(Debug, Default)]
pub struct Inbox {
    windows: HashMap<ProcessId, Window>,
    limits: InboxLimits,
    held_bytes: usize,
    next_reader: u64,
}

/// How many bytes may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxLimits {
    /// For one process.
    pub window_bytes: usize,
    /// For all processes together.
    pub total_bytes: usize,
}

impl Default for InboxLimits {
    fn default() -> Self {
        Self { window_bytes: WINDOW_BYTES, total_bytes: WINDOWS_BYTES }
    }
}

/// Identifies a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReaderId(u64);

/// What a follower should do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextRead {
    /// Read this page.
    Page(Page),
    /// Fetch what comes after its position.
    Fetch,
    /// Wait for a push.
    Wait,
    /// The log is complete and read.
    End,
    /// The process is not open.
    Unknown,
}

/// The head of a log without entries.
pub(crate) const EMPTY_HEAD: Head =
    Head { first_seq: 1, next_seq: 1, held_bytes: 0, dropped_bytes: 0, exit: None, closed: false, stalled: None };

#[derive(Debug)]
struct Window {
    held: BTreeMap<Seq, EntryBody>,
    held_bytes: usize,
    /// What is known of the log; between two fetches its number of bytes is an estimate.
    head: Head,
    /// Whether entries may exist that were not pushed.
    stale: bool,
    readers: HashMap<ReaderId, Reader>,
    /// Whether anybody has followed it yet. Until then the beginning is kept, because the first follower wants it.
    followed: bool,
    /// The highest seq that was pushed.
    pushed: Seq,
    /// Whether `closed` was pushed. The head says so only once the exit is known, too, so that nobody sees the log closed
    /// without knowing the exit.
    closed_pushed: bool,
    /// What the server was last told on this connection.
    told: Option<Acknowledgement>,
}

/// What the server is told; `None` if there is no follower.
pub type Acknowledgement = Option<ReadPositions>;

/// How far the followers of a process have read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPositions {
    /// The last seq that every follower has done with: what comes after it, the server must keep.
    pub slowest: Seq,
    /// The last seq that some follower was given: what comes after it, the server may push.
    pub fastest: Seq,
}

/// A follower's position.
#[derive(Debug, Clone, Copy)]
struct Reader {
    /// The last seq it was given.
    read: Seq,
    /// The last seq it has done with. The same, unless it acknowledges by itself.
    acknowledged: Seq,
    acknowledges_itself: bool,
    /// What it was given since the server was last told.
    untold_bytes: usize,
}

impl Inbox {
    /// An inbox in which no process is open.
    pub fn new(limits: InboxLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Begins to hold what is pushed of `id`. Has no effect if it is open already.
    pub fn open(&mut self, id: &ProcessId) {
        self.windows.entry(id.clone()).or_insert_with(Window::new);
    }

    /// Drops everything about `id`.
    pub fn close(&mut self, id: &ProcessId) {
        if let Some(window) = self.windows.remove(id) {
            self.held_bytes -= window.held_bytes;
        }
    }

    /// What is known of the log of `id`.
    pub fn head(&self, id: &ProcessId) -> Option<Head> {
        self.windows.get(id).map(|window| window.head)
    }

    /// An entry was pushed. It is dropped if the process is not open, if it was seen or read before, or if there is no
    /// room for it; followers fetch what they miss.
    pub fn push(&mut self, id: &ProcessId, entry: Entry) {
        let Some(window) = self.windows.get_mut(id) else { return };
        window.observe(&entry);
        let abandoned = window.followed && window.readers.is_empty();
        if abandoned || entry.seq <= window.fastest() || window.held.contains_key(&entry.seq) {
            return;
        }
        let cost = cost_bytes(&entry.body);
        let before = window.held_bytes;
        let has_room = window.make_room(cost, self.limits, self.held_bytes);
        self.held_bytes -= before - window.held_bytes;
        if has_room {
            window.held.insert(entry.seq, entry.body);
            window.held_bytes += cost;
            self.held_bytes += cost;
        }
    }

    /// A new follower of `id`, which must be open, at `after`.
    pub fn add_reader(&mut self, id: &ProcessId, after: Seq) -> Option<ReaderId> {
        let window = self.windows.get_mut(id)?;
        let reader = ReaderId(self.next_reader);
        self.next_reader += 1;
        let new = Reader { read: after, acknowledged: after, acknowledges_itself: false, untold_bytes: 0 };
        window.readers.insert(reader, new);
        window.followed = true;
        self.held_bytes -= window.trim();
        Some(reader)
    }

    /// A follower is gone.
    pub fn remove_reader(&mut self, id: &ProcessId, reader: ReaderId) {
        if let Some(window) = self.windows.get_mut(id) {
            window.readers.remove(&reader);
            self.held_bytes -= window.trim();
        }
    }

    /// A follower has read up to `position`.
    pub fn advance_reader(&mut self, id: &ProcessId, reader: ReaderId, position: Seq) {
        if let Some(window) = self.windows.get_mut(id)
            && let Some(reader) = window.readers.get_mut(&reader)
        {
            reader.read = position;
            if !reader.acknowledges_itself {
                reader.acknowledged = position;
            }
            self.held_bytes -= window.trim();
        }
    }

    /// A follower was given these entries.
    pub(crate) fn count_read(&mut self, id: &ProcessId, reader: ReaderId, entries: &[Entry]) {
        if let Some(reader) = self.windows.get_mut(id).and_then(|window| window.readers.get_mut(&reader)) {
            reader.untold_bytes += entries.iter().map(|entry| cost_bytes(&entry.body)).sum::<usize>();
        }
    }

    /// Whether it was not removed.
    pub(crate) fn has_reader(&self, id: &ProcessId, reader: ReaderId) -> bool {
        self.windows.get(id).is_some_and(|window| window.readers.contains_key(&reader))
    }

    /// A follower has done with everything up to `upto`. From now on only this counts, and not what it is given. One that
    /// only keeps a position for somebody else never takes anything, and nothing is held for it.
    pub(crate) fn acknowledge_reader(&mut self, id: &ProcessId, reader: ReaderId, upto: Seq) {
        if let Some(reader) = self.windows.get_mut(id).and_then(|window| window.readers.get_mut(&reader)) {
            reader.acknowledged = upto;
            reader.acknowledges_itself = true;
            reader.read = reader.read.max(upto);
        }
        if let Some(window) = self.windows.get_mut(id) {
            self.held_bytes -= window.trim();
        }
    }

    /// What the server should be told of `id`, if it is not told yet and if `least_bytes` more were read.
    pub fn acknowledgement(&self, id: &ProcessId, least_bytes: usize) -> Option<Acknowledgement> {
        self.windows.get(id).and_then(|window| window.acknowledgement(least_bytes))
    }

    /// The server was told so.
    pub fn acknowledged(&mut self, id: &ProcessId, told: Acknowledgement) {
        if let Some(window) = self.windows.get_mut(id) {
            window.told = Some(told);
            for reader in window.readers.values_mut() {
                reader.untold_bytes = 0;
            }
        }
    }

    /// The server may not know what it was told of `id`, or of any process if `None`: the connection or the process is
    /// another.
    pub fn tell_again(&mut self, id: Option<&ProcessId>) {
        match id {
            Some(id) => self.windows.get_mut(id).into_iter().for_each(|window| window.told = None),
            None => self.windows.values_mut().for_each(|window| window.told = None),
        }
    }

    pub(crate) fn limits(&self) -> InboxLimits {
        self.limits
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ProcessId> {
        self.windows.keys()
    }

    /// What a follower at `after` should do, if it wants about `max_bytes`.
    pub fn next(&self, id: &ProcessId, after: Seq, max_bytes: usize) -> NextRead {
        let Some(window) = self.windows.get(id) else { return NextRead::Unknown };
        let mut budget = PageBudget::new(max_bytes);
        let mut entries = Vec::new();
        for (expected, (seq, body)) in (after.saturating_add(1)..).zip(window.held.range(after.saturating_add(1)..)) {
            if *seq != expected || !budget.accepts(body) {
                break;
            }
            entries.push(Entry { seq: *seq, body: body.clone() });
        }
        if !entries.is_empty() {
            return NextRead::Page(Page { entries, gap: None, head: window.head });
        }
        let read = after.saturating_add(1) >= window.head.next_seq;
        match (read, window.head.closed, window.stale) {
            (true, true, _) => NextRead::End,
            (true, false, false) => NextRead::Wait,
            (false, _, _) | (true, false, true) => NextRead::Fetch,
        }
    }

    /// The log of `id` was read, and this was its head.
    pub fn update_head(&mut self, id: &ProcessId, head: Head) {
        if let Some(window) = self.windows.get_mut(id) {
            window.update_head(head);
        }
    }

    /// Entries of `id` may have been missed.
    pub fn mark_stale(&mut self, id: &ProcessId) {
        if let Some(window) = self.windows.get_mut(id) {
            window.stale = true;
        }
    }

    /// The session was resumed. The push goes on after the seqs in `requested`, if the server has granted them; all other
    /// entries may have been missed.
    pub fn resume(&mut self, requested: &BTreeMap<String, Seq>, granted: Option<&BTreeMap<String, Seq>>) {
        for (id, window) in &mut self.windows {
            let after = requested.get(id.as_str());
            let goes_on = after.is_some() && granted.and_then(|granted| granted.get(id.as_str())) == after;
            window.stale |= !goes_on && !window.head.closed;
        }
    }

    /// For each process whose log is not complete, the seq after which the push should go on after a break.
    pub fn resume_points(&self) -> impl Iterator<Item = (&ProcessId, Seq)> {
        let open = self.windows.iter().filter(|(_, window)| !window.head.closed);
        open.map(|(id, window)| (id, window.resume_point()))
    }

    /// Bytes held for followers, overhead included.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Entries that are known and not yet read by the fastest follower, over all processes that are followed.
    pub fn lag_entries(&self) -> u64 {
        let followed = self.windows.values().filter(|window| !window.readers.is_empty());
        followed.map(|window| (window.head.next_seq - 1).saturating_sub(window.fastest())).sum()
    }
}

impl Window {
    fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            held_bytes: 0,
            head: EMPTY_HEAD,
            stale: false,
            readers: HashMap::new(),
            followed: false,
            pushed: 0,
            closed_pushed: false,
            told: None,
        }
    }

    /// Learns from a pushed entry about the log, whether the entry will be held or not.
    fn observe(&mut self, entry: &Entry) {
        self.pushed = self.pushed.max(entry.seq);
        let is_new = entry.seq >= self.head.next_seq;
        self.head.next_seq = self.head.next_seq.max(entry.seq.saturating_add(1));
        match &entry.body {
            EntryBody::Output { bytes, .. } if is_new => self.head.held_bytes += bytes.len() as u64,
            EntryBody::Output { .. } => {}
            EntryBody::Exited(exit) => self.head.exit = self.head.exit.or(Some((entry.seq, *exit))),
            EntryBody::Closed => {
                self.closed_pushed = true;
                // If `exited` was missed, followers must fetch it before the log counts as complete.
                self.stale |= self.head.exit.is_none();
            }
        }
        self.update_closed();
    }

    /// `closed` and the exit may become known in any order, from pushes and from reads.
    fn update_closed(&mut self) {
        self.head.closed |= self.closed_pushed && self.head.exit.is_some();
    }

    fn update_head(&mut self, head: Head) {
        self.stale = false;
        let ours = self.head;
        let held_bytes = if head.next_seq >= ours.next_seq { head.held_bytes } else { ours.held_bytes };
        self.head = Head {
            first_seq: head.first_seq.max(ours.first_seq),
            next_seq: head.next_seq.max(ours.next_seq),
            held_bytes,
            dropped_bytes: head.dropped_bytes.max(ours.dropped_bytes),
            exit: ours.exit.or(head.exit),
            closed: head.closed || ours.closed,
            stalled: head.stalled,
        };
        self.update_closed();
    }

    fn fastest(&self) -> Seq {
        self.readers.values().map(|reader| reader.read).max().unwrap_or(0)
    }

    fn acknowledgement(&self, least_bytes: usize) -> Option<Acknowledgement> {
        let slowest = self.readers.values().min_by_key(|reader| reader.acknowledged);
        let now = slowest.map(|reader| ReadPositions { slowest: reader.acknowledged, fastest: self.fastest() });
        let due = match (self.told, now) {
            // Nobody has followed it yet. The server keeps the beginning for a while.
            _ if !self.followed => false,
            (Some(told), _) if told == now => false,
            (Some(Some(told)), Some(now)) if told.slowest <= now.slowest && told.fastest <= now.fastest => {
                self.readers.values().any(|reader| reader.untold_bytes >= least_bytes)
            }
            // A follower has come, or the last one has gone.
            _ => true,
        };
        due.then_some(now)
    }

    /// The seq after which the push should go on. What was pushed before is held, or will be fetched.
    fn resume_point(&self) -> Seq {
        self.pushed.max(self.fastest()).min(self.head.next_seq - 1)
    }

    /// Makes room for `cost` bytes by dropping what the fastest follower has read; returns whether there is enough.
    fn make_room(&mut self, cost: usize, limits: InboxLimits, total_held_bytes: usize) -> bool {
        let fastest = self.fastest();
        let others = total_held_bytes - self.held_bytes;
        loop {
            if self.held_bytes + cost <= limits.window_bytes && others + self.held_bytes + cost <= limits.total_bytes {
                return true;
            }
            match self.held.first_entry() {
                Some(oldest) if *oldest.key() <= fastest => self.held_bytes -= cost_bytes(&oldest.remove()),
                _ => return false,
            }
        }
    }

    /// Drops what every follower has read; returns how many bytes that were.
    fn trim(&mut self) -> usize {
        let before = self.held_bytes;
        let passed = self.readers.values().map(|reader| reader.read).min().unwrap_or(Seq::MAX);
        while let Some(oldest) = self.held.first_entry() {
            if *oldest.key() > passed {
                break;
            }
            self.held_bytes -= cost_bytes(&oldest.remove());
        }
        before - self.held_bytes
    }
}

fn cost_bytes(body: &EntryBody) -> usize {
    let bytes = match body {
        EntryBody::Output { bytes, .. } => bytes.len(),
        EntryBody::Exited(_) | EntryBody::Closed => 0,
    };
    bytes + ENTRY_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert;

    fn output(seq: Seq, bytes: usize) -> Entry {
        let body = EntryBody::Output { stream: exec_core::Stream::Stdout, bytes: vec![b'x'; bytes].into() };
        Entry { seq, body }
    }

    fn told(slowest: Seq, fastest: Seq) -> Acknowledgement {
        Some(ReadPositions { slowest, fastest })
    }

    #[test]
    fn the_server_is_told_what_the_slowest_and_the_fastest_follower_have_read() {
        let id = ProcessId::new("p").expect("a short name");
        let mut inbox = Inbox::new(InboxLimits::default());
        inbox.open(&id);
        assert_eq!(inbox.acknowledgement(&id, 0), None, "nobody has followed it yet");
        let slow = inbox.add_reader(&id, 0).expect("it is open");
        let fast = inbox.add_reader(&id, 0).expect("it is open");
        assert_eq!(inbox.acknowledgement(&id, 1000), Some(told(0, 0)), "it is followed now");
        inbox.acknowledged(&id, told(0, 0));
        inbox.count_read(&id, fast, &[output(1, 900)]);
        inbox.advance_reader(&id, fast, 1);
        assert_eq!(inbox.acknowledgement(&id, 1000), None, "it is not worth a message");
        assert_eq!(inbox.acknowledgement(&id, 996), Some(told(0, 1)));
        inbox.acknowledged(&id, told(0, 1));
        inbox.count_read(&id, slow, &[output(1, 900)]);
        inbox.advance_reader(&id, slow, 1);
        assert_eq!(inbox.acknowledgement(&id, 996), Some(told(1, 1)));
        inbox.acknowledged(&id, told(1, 1));
        inbox.tell_again(None);
        assert_eq!(inbox.acknowledgement(&id, 996), Some(told(1, 1)), "another connection");
        inbox.acknowledged(&id, told(1, 1));
        inbox.remove_reader(&id, slow);
        assert_eq!(inbox.acknowledgement(&id, 0), None);
        inbox.remove_reader(&id, fast);
        assert_eq!(inbox.acknowledgement(&id, 1000), Some(None), "nobody is left");
    }

    #[test]
    fn a_follower_that_acknowledges_by_itself_is_not_taken_to_have_done_with_what_it_was_given() {
        let id = ProcessId::new("p").expect("a short name");
        let mut inbox = Inbox::new(InboxLimits::default());
        inbox.open(&id);
        let reader = inbox.add_reader(&id, 0).expect("it is open");
        inbox.acknowledge_reader(&id, reader, 0);
        inbox.acknowledged(&id, told(0, 0));
        inbox.advance_reader(&id, reader, 9);
        assert_eq!(inbox.acknowledgement(&id, 0), Some(told(0, 9)));
        inbox.acknowledge_reader(&id, reader, 4);
        assert_eq!(inbox.acknowledgement(&id, 0), Some(told(4, 9)));
    }

    #[test]
    fn an_end_that_is_heard_of_before_the_exit_is_an_end_once_both_are_known() {
        let id = ProcessId::new("p").expect("a short name");
        let mut inbox = Inbox::new(InboxLimits::default());
        inbox.open(&id);
        inbox.push(&id, Entry { seq: 3, body: EntryBody::Closed });
        let before = inbox.head(&id).expect("it is open");
        assert!(!before.closed, "how it ended is not known yet");
        // The answer to a read from before the end.
        let exit = convert::exit_of_code(Some(8));
        inbox.update_head(&id, Head { exit: Some((1, exit)), next_seq: 3, ..before });
        let after = inbox.head(&id).expect("it is open");
        assert!(after.closed && after.next_seq == 4, "{after:?}");
    }
}
