//! Names: of a process (chosen by its owner, not the pid) and of a stdin write.

use std::fmt;
use std::sync::Arc;

use crate::limits::{PROCESS_ID_BYTES, WRITE_ID_BYTES};

/// What a process is called by whoever started it. Cheap to clone; empty is allowed, as on the wire.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(Arc<str>);

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// Too long to keep in memory and in log lines.
    #[error("an id of {found_bytes} bytes is too long: use at most {limit_bytes}")]
    TooLong {
        /// What came.
        found_bytes: usize,
        /// What is allowed.
        limit_bytes: usize,
    },
    /// A write id must name something.
    #[error("a write id must not be empty")]
    Empty,
}

impl ProcessId {
    /// Checks the length and keeps the name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, BadId> {
        let name = name.as_ref();
        within(name, PROCESS_ID_BYTES)?;
        Ok(Self(name.into()))
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// The caller's key of one stdin write: the same key is applied once, however often it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WriteId(Arc<str>);

impl WriteId {
    /// Checks that the key says something and is not a novel.
    pub fn new(key: impl AsRef<str>) -> Result<Self, BadId> {
        let key = key.as_ref();
        if key.is_empty() {
            return Err(BadId::Empty);
        }
        within(key, WRITE_ID_BYTES)?;
        Ok(Self(key.into()))
    }

    /// The key as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn within(name: &str, limit_bytes: usize) -> Result<(), BadId> {
    if name.len() > limit_bytes {
        return Err(BadId::TooLong { found_bytes: name.len(), limit_bytes });
    }
    Ok(())
}
