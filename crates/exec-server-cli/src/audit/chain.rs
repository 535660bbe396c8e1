//! The lines of an audit log, and the chain that they form. Pure.
//!
//! ```text
//! {"seq":7,"prev":"HASH OF LINE 6","atMs":1794787524000,"event":"…",…,"hash":"HASH OF ALL BEFORE THIS MEMBER"}
//! ```
//!
//! A hash is the BLAKE3 of the line's bytes before `,"hash":`. So each line vouches for itself and, by `prev`, for all before
//! it, across files. Numbers begin with 1 and have no holes. Nothing here is secret: whoever can write the file can make a
//! chain of his own from some line on, which only a hash that was kept elsewhere shows.

use exec_rpc::audit::AuditEvent;
use serde::{Deserialize, Serialize};

/// What stands for the hash before the first line.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const HASH_MEMBER: &str = ",\"hash\":\"";

/// Where a chain stands: the last line's number and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainEnd {
    pub(super) seq: u64,
    pub(super) hash: String,
}

impl Default for ChainEnd {
    fn default() -> Self {
        Self { seq: 0, hash: NO_HASH.to_owned() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewLine<'a> {
    seq: u64,
    prev: &'a str,
    at_ms: u64,
    #[serde(flatten)]
    event: &'a AuditEvent,
}

/// What is read of a line; the event's own members are left to whoever prints them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadLine {
    pub(super) seq: u64,
    pub(super) prev: String,
    pub(super) at_ms: u64,
    pub(super) event: String,
    pub(super) hash: String,
}

impl ChainEnd {
    /// The line of an event that comes next, with its newline, and where the chain stands then.
    pub(super) fn next_line(&self, at_ms: u64, event: &AuditEvent) -> serde_json::Result<(Vec<u8>, Self)> {
        let seq = self.seq + 1;
        let mut line = serde_json::to_vec(&NewLine { seq, prev: &self.hash, at_ms, event })?;
        // The brace at the end makes room for the hash.
        line.pop();
        let hash = blake3::hash(&line).to_string();
        line.extend_from_slice(HASH_MEMBER.as_bytes());
        line.extend_from_slice(hash.as_bytes());
        line.extend_from_slice(b"\"}\n");
        Ok((line, Self { seq, hash }))
    }
}

/// A line, without its newline, that vouches for itself.
pub(super) fn read_line(line: &[u8]) -> Result<ReadLine, &'static str> {
    let at = line.windows(HASH_MEMBER.len()).rposition(|window| window == HASH_MEMBER.as_bytes());
    let at = at.ok_or("it is no line of an audit log")?;
    let hash = blake3::hash(&line[..at]).to_string();
    if line[at + HASH_MEMBER.len()..] != *format!("{hash}\"}}").as_bytes() {
        return Err("its hash is not that of what it says: it was changed");
    }
    let read: ReadLine = serde_json::from_slice(line).map_err(|_| "it is no line of an audit log")?;
    // A member that stands twice could be read in two ways; serde refuses it for those that count.
    if read.hash == hash { Ok(read) } else { Err("its hash is not that of what it says: it was changed") }
}

/// A log as it is read, line after line, file after file.
#[derive(Debug, Default)]
pub(super) struct Verifier {
    /// `None` before the first line.
    last: Option<ChainEnd>,
    pub(super) lines: u64,
    /// The number of the first line that was given.
    pub(super) first_seq: u64,
}

impl Verifier {
    /// Takes the next line. What is wrong with it is wrong with the log.
    pub(super) fn take(&mut self, line: &[u8]) -> Result<ReadLine, String> {
        let read = read_line(line).map_err(str::to_owned)?;
        match &self.last {
            None if read.seq == 1 && read.prev != NO_HASH => {
                return Err("it is the first, and says that there was one before it".to_owned());
            }
            None => self.first_seq = read.seq,
            Some(last) if read.seq != last.seq + 1 => {
                return Err(format!(
                    "it has the number {}, after {}: lines are missing or out of order",
                    read.seq, last.seq
                ));
            }
            Some(last) if read.prev != last.hash => {
                return Err("it does not follow the line before it, which was replaced".to_owned());
            }
            Some(_) => {}
        }
        self.last = Some(ChainEnd { seq: read.seq, hash: read.hash.clone() });
        self.lines += 1;
        Ok(read)
    }

    pub(super) fn last(&self) -> Option<&ChainEnd> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log(count: u64) -> Vec<Vec<u8>> {
        let mut end = ChainEnd::default();
        let mut lines = Vec::new();
        for at in 0..count {
            let event = AuditEvent::FileChanged {
                environment: None,
                session: "s".to_owned(),
                method: "fs/writeFile",
                paths: vec![format!("file:///w/\u{202e}\"{at}")],
                outcome: exec_rpc::audit::Outcome::Done,
            };
            let (line, next) = end.next_line(at, &event).expect("plain data");
            lines.push(line);
            end = next;
        }
        lines
    }

    fn verify(lines: &[Vec<u8>]) -> Result<Option<ChainEnd>, String> {
        let mut verifier = Verifier::default();
        let text: Vec<u8> = lines.concat();
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Err("cut".to_owned()) };
            verifier.take(&rest[..end])?;
            rest = &rest[end + 1..];
        }
        Ok(verifier.last().cloned())
    }

    #[test]
    fn what_was_written_is_verified() {
        let lines = log(5);
        let last = verify(&lines).expect("nobody changed it").expect("it has lines");
        assert_eq!(last.seq, 5);
        assert_eq!(read_line(lines[4].trim_ascii_end()).expect("it is good").hash, last.hash);
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_found_wherever_it_is(at in any::<prop::sample::Index>(), to in any::<u8>()) {
            let mut lines = log(6);
            let (line, byte) = {
                let whole: usize = lines.iter().map(Vec::len).sum();
                let mut at = at.index(whole);
                let line = lines.iter().position(|line| match at.checked_sub(line.len()) {
                    Some(rest) => { at = rest; false }
                    None => true,
                });
                (line.expect("it is within"), at)
            };
            prop_assume!(lines[line][byte] != to);
            lines[line][byte] = to;
            prop_assert!(verify(&lines).is_err());
        }

        /// The last lines can be cut off so that nothing is missing; for that there is the hash that was kept elsewhere.
        #[test]
        fn a_line_that_is_dropped_doubled_or_moved_is_found(from in 0usize..6, to in 0usize..6, kind in 0..3) {
            let mut lines = log(6);
            match kind {
                0 => { lines.remove(from); }
                1 => { let copy = lines[from].clone(); lines.insert(to, copy); }
                _ => { let moved = lines.remove(from); lines.insert(to, moved); prop_assume!(from != to); }
            }
            let kept = read_line(log(6)[5].trim_ascii_end()).expect("it is good").hash;
            let first = read_line(log(6)[0].trim_ascii_end()).expect("it is good").seq;
            // What was cut off at an end leaves a whole chain, which does not begin with 1 or does not end with what was kept.
            let is_whole = |last: Option<ChainEnd>| {
                let begins = read_line(lines[0].trim_ascii_end()).is_ok_and(|line| line.seq == first);
                begins && last.is_some_and(|last| last.hash == kept)
            };
            prop_assert!(!verify(&lines).is_ok_and(is_whole));
        }
    }
}
