//! The ids that callers choose: of a process (not its pid) and of a stdin write.

use std::fmt;
use std::sync::Arc;

use crate::limits::{PROCESS_ID_BYTES, WRITE_ID_BYTES};

/// The id that whoever started a process gave it. Cheap to clone; may be empty, as the protocol allows.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    #[error("an id of {found_bytes} bytes is too long: use at most {limit_bytes}")]
    TooLong { found_bytes: usize, limit_bytes: usize },
    #[error("a write id must not be empty")]
    Empty,
}

impl ProcessId {
    pub fn new(id: impl AsRef<str>) -> Result<Self, BadId> {
        let id = id.as_ref();
        check_length(id, PROCESS_ID_BYTES)?;
        Ok(Self(id.into()))
    }

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

/// The caller's key of one stdin write: writes with the same key happen once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WriteId(Arc<str>);

impl WriteId {
    pub fn new(id: impl AsRef<str>) -> Result<Self, BadId> {
        let id = id.as_ref();
        if id.is_empty() {
            return Err(BadId::Empty);
        }
        check_length(id, WRITE_ID_BYTES)?;
        Ok(Self(id.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check_length(id: &str, limit_bytes: usize) -> Result<(), BadId> {
    if id.len() > limit_bytes {
        return Err(BadId::TooLong { found_bytes: id.len(), limit_bytes });
    }
    Ok(())
}
