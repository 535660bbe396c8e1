//! What was pushed and not yet read: one window per process, each seq once, in order, within bounds.
//!
//! A follower is a place in a log. If its next entry is in the window, it takes it from there; if the log is known to be
//! longer but the entry is not here, it fetches it by `process/read`; otherwise it waits. So an entry that finds the
//! window full is simply let go of: the server keeps the log. A hole in what is pushed (a log that forgot its oldest
//! entries, a break) is the same case, and the fetch tells the gap with its numbers.
//!
//! Room is made at the expense of the slow: entries that the fastest follower has passed are let go of first, those it
//! has not are kept. Pure: no waiting, no clock; the driver wakes followers.

use std::collections::{BTreeMap, HashMap};

use exec_core::{EntryBody, Entry, Head, Page, ProcessId, Seq};

use crate::limits::{ENTRY_OVERHEAD_BYTES, WINDOW_BYTES, WINDOWS_BYTES};
use crate::page::PageBudget;

/// The windows of all processes of a link.
#[derive(Debug)]
pub struct Inbox {
    windows: HashMap<ProcessId, Window>,
    limits: InboxLimits,
    held_bytes: usize,
    next_reader: u64,
}

/// How much may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxLimits {
    /// Per process.
    pub window_bytes: usize,
    /// In all.
    pub total_bytes: usize,
}

impl Default for InboxLimits {
    fn default() -> Self {
        Self { window_bytes: WINDOW_BYTES, total_bytes: WINDOWS_BYTES }
    }
}

/// A follower, as the inbox knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReaderId(u64);

/// What became of a pushed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// It is held.
    Held,
    /// It was seen before, or everybody is past it.
    Duplicate,
    /// There was no room; it will be fetched.
    Dropped,
    /// Nobody has asked for this process.
    NotOpen,
}

/// What a follower should do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextRead {
    /// Read this.
    Page(Page),
    /// Fetch what comes after its place.
    Fetch,
    /// Wait for a push.
    Wait,
    /// The log is complete and read.
    End,
    /// The process is not known here.
    Unknown,
}

#[derive(Debug)]
struct Window {
    held: BTreeMap<Seq, EntryBody>,
    held_bytes: usize,
    /// What is known of the log; between two fetches its bytes are an estimate.
    head: Head,
    /// Whether something may have happened that was not pushed.
    stale: bool,
    /// The place of each follower.
    readers: HashMap<ReaderId, Seq>,
    /// Whether anybody has followed it yet. Until then the beginning is kept, because it will be asked for.
    followed: bool,
    /// The highest seq that was pushed.
    pushed: Seq,
    /// `closed` was pushed. The head says so once the exit is known, too: whoever reads of the end must learn how it ended.
    ended: bool,
}

impl Inbox {
    /// An inbox with so much room.
    pub fn new(limits: InboxLimits) -> Self {
        Self { windows: HashMap::new(), limits, held_bytes: 0, next_reader: 0 }
    }

    /// Begins to take what is pushed of `id`. One that is open already stays as it is.
    pub fn open(&mut self, id: &ProcessId) {
        self.windows.entry(id.clone()).or_insert_with(Window::new);
    }

    /// Lets go of everything about `id`.
    pub fn close(&mut self, id: &ProcessId) {
        if let Some(window) = self.windows.remove(id) {
            self.held_bytes -= window.held_bytes;
        }
    }

    /// Whether `id` is open.
    pub fn is_open(&self, id: &ProcessId) -> bool {
        self.windows.contains_key(id)
    }

    /// What is known of the log of `id`.
    pub fn head(&self, id: &ProcessId) -> Option<Head> {
        self.windows.get(id).map(|window| window.head)
    }

    /// An entry was pushed.
    pub fn push(&mut self, id: &ProcessId, entry: Entry) -> PushOutcome {
        let Some(window) = self.windows.get_mut(id) else { return PushOutcome::NotOpen };
        window.observe(&entry);
        let abandoned = window.followed && window.readers.is_empty();
        if abandoned || entry.seq <= window.fastest() || window.held.contains_key(&entry.seq) {
            return PushOutcome::Duplicate;
        }
        let cost = cost_bytes(&entry.body);
        let before = window.held_bytes;
        let has_room = window.make_room(cost, self.limits, self.held_bytes);
        self.held_bytes -= before - window.held_bytes;
        if !has_room {
            return PushOutcome::Dropped;
        }
        window.held.insert(entry.seq, entry.body);
        window.held_bytes += cost;
        self.held_bytes += cost;
        PushOutcome::Held
    }

    /// A new follower of `id`, which must be open, at `after`.
    pub fn add_reader(&mut self, id: &ProcessId, after: Seq) -> Option<ReaderId> {
        let window = self.windows.get_mut(id)?;
        let reader = ReaderId(self.next_reader);
        self.next_reader += 1;
        window.readers.insert(reader, after);
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

    /// A follower has read up to `place`.
    pub fn advance_reader(&mut self, id: &ProcessId, reader: ReaderId, position: Seq) {
        if let Some(window) = self.windows.get_mut(id) {
            window.readers.insert(reader, position);
            self.held_bytes -= window.trim();
        }
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

    /// The log of `id` was looked at.
    pub fn update_head(&mut self, id: &ProcessId, head: Head) {
        if let Some(window) = self.windows.get_mut(id) {
            window.update_head(head);
        }
    }

    /// Something of `id` may have been missed.
    pub fn mark_stale(&mut self, id: &ProcessId) {
        if let Some(window) = self.windows.get_mut(id) {
            window.stale = true;
        }
    }

    /// The session was found again. The push goes on behind the places in `asked`, if the server has granted them;
    /// everything else may have been missed.
    pub fn resume(&mut self, asked: &BTreeMap<String, Seq>, granted: Option<&BTreeMap<String, Seq>>) {
        for (id, window) in &mut self.windows {
            let place = asked.get(id.as_str());
            let goes_on = place.is_some() && granted.and_then(|granted| granted.get(id.as_str())) == place;
            window.stale |= !goes_on && !window.head.closed;
        }
    }

    /// Per process whose log is not complete, the place behind which the push should go on after a break.
    pub fn resume_points(&self) -> impl Iterator<Item = (&ProcessId, Seq)> {
        let open = self.windows.iter().filter(|(_, window)| !window.head.closed);
        open.map(|(id, window)| (id, window.resume_point()))
    }

    /// Bytes held for followers.
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
        let head = Head {
            first_seq: 1,
            next_seq: 1,
            held_bytes: 0,
            dropped_bytes: 0,
            exit: None,
            closed: false,
            stalled: false,
        };
        Self {
            held: BTreeMap::new(),
            held_bytes: 0,
            head,
            stale: false,
            readers: HashMap::new(),
            followed: false,
            pushed: 0,
            ended: false,
        }
    }

    /// What the entry says of the log, be it held or not.
    fn observe(&mut self, entry: &Entry) {
        self.pushed = self.pushed.max(entry.seq);
        let news = entry.seq >= self.head.next_seq;
        self.head.next_seq = self.head.next_seq.max(entry.seq.saturating_add(1));
        match &entry.body {
            EntryBody::Output { bytes, .. } if news => self.head.held_bytes += bytes.len() as u64,
            EntryBody::Output { .. } => {}
            EntryBody::Exited(exit) => self.head.exit = self.head.exit.or(Some((entry.seq, *exit))),
            EntryBody::Closed => {
                self.ended = true;
                // If `exited` was missed, whoever reads must ask before the log may be called complete.
                self.stale |= self.head.exit.is_none();
            }
        }
        self.update_closed();
    }

    /// The end and how it came may be heard of in any order, from pushes and from looks.
    fn update_closed(&mut self) {
        self.head.closed |= self.ended && self.head.exit.is_some();
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
        self.readers.values().copied().max().unwrap_or(0)
    }

    /// Where the push should go on: what was pushed before is here or will be fetched.
    fn resume_point(&self) -> Seq {
        self.pushed.max(self.fastest()).min(self.head.next_seq - 1)
    }

    /// Makes room for `cost` bytes by letting go of what the fastest follower has passed; whether there is enough.
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

    /// Lets go of what nobody will read: how many bytes.
    fn trim(&mut self) -> usize {
        let before = self.held_bytes;
        let passed = match self.readers.values().min() {
            Some(slowest) => *slowest,
            None => Seq::MAX,
        };
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

    #[test]
    fn an_end_that_is_heard_of_before_the_exit_is_an_end_once_both_are_known() {
        let id = ProcessId::new("p").expect("a short name");
        let mut inbox = Inbox::new(InboxLimits::default());
        inbox.open(&id);
        inbox.push(&id, Entry { seq: 3, body: EntryBody::Closed });
        let before = inbox.head(&id).expect("it is open");
        assert!(!before.closed, "how it ended is not known yet");
        // The answer to a look from before the end.
        let exit = convert::exit_of_code(Some(8));
        inbox.update_head(&id, Head { exit: Some((1, exit)), next_seq: 3, ..before });
        let after = inbox.head(&id).expect("it is open");
        assert!(after.closed && after.next_seq == 4, "{after:?}");
    }
}
