//! What a process carries so that its session is found again: written on its label, beside its log.

use exec_core::ProcessId;

const VERSION: u8 = 1;

/// Whose process it is, by what name, and the client's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessLabel {
    pub(crate) session: String,
    pub(crate) wire_id: String,
    pub(crate) sandboxed: bool,
    pub(crate) client_label: Vec<u8>,
}

impl ProcessLabel {
    /// The environment's name for the process: unique over all sessions.
    pub(crate) fn process_id(&self) -> Result<ProcessId, exec_core::id::BadId> {
        ProcessId::new(format!("{}/{}", self.session, self.wire_id))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.sandboxed)];
        for text in [&self.session, &self.wire_id] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&self.client_label);
        bytes
    }

    /// `None` for a process somebody else started in the same environment.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [VERSION, sandboxed, rest @ ..] = bytes else { return None };
        let (session, rest) = text(rest)?;
        let (wire_id, client_label) = text(rest)?;
        Some(Self { session, wire_id, sandboxed: *sandboxed != 0, client_label: client_label.to_vec() })
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
        let label = ProcessLabel {
            session: "s".into(),
            wire_id: "ü/1".into(),
            sandboxed: true,
            client_label: b"\x00mine".to_vec(),
        };
        assert_eq!(ProcessLabel::decode(&label.encode()), Some(label));
        assert_eq!(ProcessLabel::decode(b"\x01\x00\xff\xff\xff\xff"), None);
        assert_eq!(ProcessLabel::decode(b"not ours"), None);
    }
}
