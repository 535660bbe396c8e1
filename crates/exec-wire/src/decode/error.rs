//! Why a value is not what its place demands, in the words of the original server.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

/// Structs to which we have added members, with the number the original has. The number is part of the text that
/// answers an array where an object belongs. Such a struct also has `#[serde(expecting = "struct Name")]`.
const EXTENDED: [(&str, usize); 8] = [
    ("InitializeParams", 2),
    ("SignalParams", 2),
    ("TerminateParams", 1),
    ("WireExecParams", 14),
    ("WireFsCopyParams", 4),
    ("WireFsCreateDirectoryParams", 4),
    ("WireFsOpenParams", 4),
    ("WireFsWriteFileParams", 4),
];

/// Why a value is not what its place demands, in the words of the original server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DecodeError {
    reason: String,
}

impl DecodeError {
    /// An error with these words.
    pub(crate) fn new(reason: String) -> Self {
        Self { reason }
    }

    /// The words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid type: {}, expected {expected}", Found(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid value: {}, expected {expected}", Found(found)))
    }
}

impl DecodeError {
    /// Completes the complaint about a short array where a struct belongs. The types in question bring the original's
    /// name of the struct (`expecting`) but cannot bring the number of its members.
    pub(super) fn with_members(mut self, members: usize) -> Self {
        let Some((_, name)) = self.reason.split_once(", expected struct ") else {
            return self;
        };
        if !self.reason.starts_with("invalid length ") || name.contains(' ') {
            return self;
        }
        let original = EXTENDED.iter().find(|(extended, _)| *extended == name);
        let members = original.map_or(members, |(_, members)| *members);
        let plural = if members == 1 { "" } else { "s" };
        self.reason.push_str(&format!(" with {members} element{plural}"));
        self
    }
}

/// Serde's name for what was found, but `null` for the unit.
struct Found<'a>(Unexpected<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Unit => f.write_str("null"),
            other => other.fmt(f),
        }
    }
}
