//! Plain values, as every language has them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use exec_server::Bytes;

use crate::Object;

/// What goes into a call, or comes out of it.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing: `None`, `null`, `undefined`.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any number; durations and times are in seconds.
    Float(f64),
    /// Text.
    Text(String),
    /// A path, a name or a word of a command line: text that may have bytes that are none.
    Os(OsString),
    /// Bytes, shared.
    Bytes(Bytes),
    /// Several.
    List(Vec<Value>),
    /// Several with names, in the order in which they were put in.
    Map(Vec<(String, Value)>),
    /// Something to call.
    Object(Arc<Object>),
}

impl Value {
    /// A map of names that are known when it is written.
    pub(crate) fn map<const N: usize>(fields: [(&str, Value); N]) -> Self {
        Self::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Any number of the same.
    pub(crate) fn list<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $made:expr),* $(,)?) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $made
            }
        })*
    };
}

from! {
    bool => |value| Self::Bool(value),
    i32 => |value| Self::Int(value.into()),
    u16 => |value| Self::Int(value.into()),
    u32 => |value| Self::Int(value.into()),
    // What a language cannot count is a number all the same; no counter of ours gets there.
    u64 => |value| Self::Int(i64::try_from(value).unwrap_or(i64::MAX)),
    f64 => |value| Self::Float(value),
    &str => |value| Self::Text(value.to_owned()),
    String => |value| Self::Text(value),
    OsString => |value| Self::Os(value),
    PathBuf => |value| Self::Os(value.into()),
    Bytes => |value| Self::Bytes(value),
    Vec<u8> => |value| Self::Bytes(value.into()),
    Duration => |value| Self::Float(value.as_secs_f64()),
    Object => |value| Self::Object(Arc::new(value)),
    () => |_nothing| Self::Null,
}

impl From<SystemTime> for Value {
    /// Seconds since 1970; negative before.
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::Float(after.as_secs_f64()),
            Err(before) => Self::Float(-before.duration().as_secs_f64()),
        }
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
