//! The rules of [`WaitCondition::Output`](super::WaitCondition::Output): where a match may begin, and which one counts. They are
//! the same for whoever reads a log from its files and whoever is sent it.

use bytes::Bytes;
use exec_core::Seq;
use regex::bytes::Regex;

/// How much of a stream is searched together, at least: a match may span entries, but not more than this.
pub const MATCH_WINDOW_BYTES: usize = 128 << 10;
/// What is returned of a match.
const MATCH_BYTES: usize = 4096;

/// Consecutive output of one stream: the end of what was searched, and what was not.
#[derive(Debug, Default)]
pub struct MatchWindow {
    bytes: Vec<u8>,
    /// So many bytes no match may begin with. They say whether a line begins behind them.
    context: usize,
    /// In so many bytes nothing is new, and no match that counts ends.
    searched: usize,
    /// Where each new entry ends, and its number.
    new_ends: Vec<(usize, Seq)>,
}

impl MatchWindow {
    /// The window that follows this byte, if it is known.
    pub fn behind(byte: Option<u8>) -> Self {
        let bytes: Vec<u8> = byte.into_iter().collect();
        Self { context: bytes.len(), searched: bytes.len(), bytes, new_ends: Vec::new() }
    }

    /// Adds entries, which end in these places of `bytes`. Those up to `searched_upto` are not new.
    pub fn push(&mut self, bytes: &[u8], ends: &[(usize, Seq)], searched_upto: Seq) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        for (end, seq) in ends {
            match *seq > searched_upto {
                true => self.new_ends.push((before + end, *seq)),
                false => self.searched = before + end,
            }
        }
        // Now and then, because what is kept is moved for it.
        if self.new_ends.is_empty() && self.has_enough() {
            self.keep_end();
        }
    }

    /// Whether so much is new that to search the rest again costs little beside it.
    pub fn has_enough(&self) -> bool {
        self.bytes.len() >= 2 * MATCH_WINDOW_BYTES
    }

    /// The first match that a new entry completes: that entry, and what matched. If there is none, only so much is kept as may
    /// begin one.
    pub fn search(&mut self, regex: &Regex) -> Option<(Seq, Bytes)> {
        let (_, last) = *self.new_ends.last()?;
        let mut at = self.context;
        while let Some(found) = regex.find_at(&self.bytes, at) {
            if found.end() > self.searched {
                let completed = self.new_ends.iter().find(|(end, _)| *end >= found.end()).map_or(last, |(_, seq)| *seq);
                return Some((completed, Bytes::copy_from_slice(&found.as_bytes()[..found.len().min(MATCH_BYTES)])));
            }
            at = found.end().max(at + 1);
        }
        self.searched = self.bytes.len();
        self.new_ends.clear();
        self.keep_end();
        None
    }

    /// Of what was searched, nothing but the end is needed.
    fn keep_end(&mut self) {
        let passed = self.bytes.len().saturating_sub(MATCH_WINDOW_BYTES + 1);
        if passed > 0 {
            self.bytes.drain(..passed);
            self.context = 1;
            self.searched = self.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(window: &mut MatchWindow, pattern: &str) -> Option<(Seq, Bytes)> {
        window.search(&Regex::new(pattern).expect("a test's expression is good"))
    }

    #[test]
    fn a_match_ends_in_what_is_new_and_may_begin_before_it() {
        let window = || {
            let mut window = MatchWindow::behind(Some(b'x'));
            window.push(b"ready\nnot ", &[(6, 3), (10, 4)], 4);
            window.push(b"ready\n", &[(6, 5)], 4);
            window
        };
        assert_eq!(found(&mut window(), "ready"), Some((5, Bytes::from_static(b"ready"))));
        assert_eq!(found(&mut window(), "not r"), Some((5, Bytes::from_static(b"not r"))));
        assert_eq!(found(&mut window(), "(?m)^ready$"), None, "no line begins with it");
        let mut searched = window();
        assert_eq!(found(&mut searched, "never"), None);
        assert_eq!(found(&mut searched, "ready"), None, "nothing is new any more");
    }

    #[test]
    fn it_holds_no_more_than_a_match_may_span() {
        let mut window = MatchWindow::default();
        window.push(&vec![b'-'; 3 * MATCH_WINDOW_BYTES], &[(3 * MATCH_WINDOW_BYTES, 1)], 1);
        assert!(!window.has_enough());
        window.push(b"!", &[(1, 2)], 1);
        assert_eq!(found(&mut window, "^-"), None, "it does not begin there");
        window.push(b"?", &[(1, 3)], 2);
        assert_eq!(
            found(&mut window, &format!("(?s)-.{{{}}}!\\?", 1000)),
            Some((3, [vec![b'-'; 1001], b"!?".to_vec()].concat().into()))
        );
    }
}
