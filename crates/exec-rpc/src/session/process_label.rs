//! The label that we give a process, which the environment keeps beside its log. By it the session of a process is found
//! again after a restart of the server.

use std::time::Duration;

/// Labels of the first version, which an older server has written, have no key of the start.
const FIRST_VERSION: u8 = 1;
const VERSION: u8 = 2;

/// Bits of the second byte.
const SANDBOXED: u8 = 1;
const HAS_KEEP: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessLabel {
    pub(crate) session: String,
    pub(crate) wire_id: String,
    pub(crate) sandboxed: bool,
    /// How long the client wants it to be kept after its end.
    pub(crate) keep: Option<Duration>,
    /// What identifies the request that started it; empty if nothing does.
    pub(crate) start_key: String,
    /// The label that the client itself gave the process.
    pub(crate) client_label: Vec<u8>,
}

impl ProcessLabel {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flags = if self.sandboxed { SANDBOXED } else { 0 } | if self.keep.is_some() { HAS_KEEP } else { 0 };
        let mut bytes = vec![VERSION, flags];
        if let Some(keep) = self.keep {
            bytes.extend_from_slice(&(keep.as_millis() as u64).to_le_bytes());
        }
        for text in [&self.session, &self.wire_id, &self.start_key] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&self.client_label);
        bytes
    }

    /// `None` for a process that was not started by a server like this one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [version @ (FIRST_VERSION | VERSION), flags, rest @ ..] = bytes else { return None };
        let (keep, rest) = match flags & HAS_KEEP {
            0 => (None, rest),
            _ => {
                let (millis, rest) = rest.split_first_chunk::<8>()?;
                (Some(Duration::from_millis(u64::from_le_bytes(*millis))), rest)
            }
        };
        let (session, rest) = text(rest)?;
        let (wire_id, rest) = text(rest)?;
        let (start_key, rest) = if *version == VERSION { text(rest)? } else { (String::new(), rest) };
        let sandboxed = flags & SANDBOXED != 0;
        Some(Self { session, wire_id, sandboxed, keep, start_key, client_label: rest.to_vec() })
    }
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(text).ok()?.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_reads_as_it_was_written() {
        for keep in [None, Some(Duration::from_millis(86_400_001))] {
            let label = ProcessLabel {
                session: "s".into(),
                wire_id: "ü/1".into(),
                sandboxed: true,
                keep,
                start_key: "scope 7".into(),
                client_label: b"\x00mine".to_vec(),
            };
            assert_eq!(ProcessLabel::decode(&label.encode()), Some(label));
        }
        assert_eq!(ProcessLabel::decode(b"\x01\x00\xff\xff\xff\xff"), None);
        let older = ProcessLabel::decode(b"\x01\x00\x01\0\0\0s\x01\0\0\0pmine").expect("an older server wrote it");
        assert_eq!((older.wire_id, older.start_key, older.client_label), ("p".into(), String::new(), b"mine".to_vec()));
        assert_eq!(ProcessLabel::decode(b"not ours"), None);
    }
}
