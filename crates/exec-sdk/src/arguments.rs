//! The arguments of a call, taken one by one by name, each checked as it is taken.
//!
//! What is left when the method begins is an argument that it does not know, and an error: a misspelt option must not be
//! ignored.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use exec_server::Bytes;

use crate::{Failure, Value};

/// Named values for one call.
#[derive(Debug, Default)]
pub struct Arguments(Vec<(String, Value)>);

impl Arguments {
    /// These; of two with the same name the last counts.
    pub fn new(arguments: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self(arguments.into_iter().collect())
    }

    /// The value of that name; one that is null is as good as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().rposition(|(found, _)| found == name)?;
        match self.0.remove(at).1 {
            Value::Null => None,
            value => Some(value),
        }
    }

    /// Refuses what nobody has taken.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.0.into_iter().find(|(_, value)| !matches!(value, Value::Null)) {
            Some((name, _)) => Err(Failure::bad_argument(&name, "there is no such argument")),
            None => Ok(()),
        }
    }

    pub(crate) fn flag(&mut self, name: &str, default: bool) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(Failure::bad_argument(name, "it must be true or false")),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, Failure> {
        self.optional_text(name)?.ok_or_else(|| Failure::bad_argument(name, "it is missing"))
    }

    pub(crate) fn optional_text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::bad_argument(name, "it must be text")),
        }
    }

    pub(crate) fn bytes(&mut self, name: &str) -> Result<Bytes, Failure> {
        self.optional_bytes(name)?.ok_or_else(|| Failure::bad_argument(name, "it is missing"))
    }

    pub(crate) fn optional_bytes(&mut self, name: &str) -> Result<Option<Bytes>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Value::Text(text)) => Ok(Some(text.into())),
            Some(_) => Err(Failure::bad_argument(name, "it must be bytes or text")),
        }
    }

    pub(crate) fn path(&mut self, name: &str) -> Result<PathBuf, Failure> {
        self.optional_path(name)?.ok_or_else(|| Failure::bad_argument(name, "it is missing"))
    }

    pub(crate) fn optional_path(&mut self, name: &str) -> Result<Option<PathBuf>, Failure> {
        let path = self.take(name).map(|value| os_text(name, value)).transpose()?;
        match path {
            Some(path) if path.is_empty() => Err(Failure::bad_argument(name, "the path is empty")),
            path => Ok(path.map(PathBuf::from)),
        }
    }

    /// Words that may have bytes that are no text.
    pub(crate) fn words(&mut self, name: &str) -> Result<Vec<OsString>, Failure> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::List(words)) => words.into_iter().map(|word| os_text(name, word)).collect(),
            Some(_) => Err(Failure::bad_argument(name, "it must be a list")),
        }
    }

    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, Failure> {
        let wrong = || Failure::bad_argument(name, "it must be a list of texts");
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::List(texts)) => texts
                .into_iter()
                .map(|text| match text {
                    Value::Text(text) => Ok(text),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    /// Names and values of variables or headers; a value may be null.
    pub(crate) fn pairs(&mut self, name: &str) -> Result<Vec<(String, Option<OsString>)>, Failure> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Map(pairs)) => pairs
                .into_iter()
                .map(|(key, value)| match value {
                    Value::Null => Ok((key, None)),
                    value => Ok((key, Some(os_text(name, value)?))),
                })
                .collect(),
            Some(_) => Err(Failure::bad_argument(name, "it must be a map of names to texts")),
        }
    }

    pub(crate) fn number<T: TryFrom<i64>>(&mut self, name: &str) -> Result<T, Failure> {
        self.optional_number(name)?.ok_or_else(|| Failure::bad_argument(name, "it is missing"))
    }

    pub(crate) fn optional_number<T: TryFrom<i64>>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let number = match self.take(name) {
            None => return Ok(None),
            Some(Value::Int(number)) => number,
            // Where a language has only one kind of number.
            Some(Value::Float(number)) if number.fract() == 0.0 && number.abs() < 9e15 => number as i64,
            Some(_) => return Err(Failure::bad_argument(name, "it must be a whole number")),
        };
        match T::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Failure::bad_argument(name, &format!("{number} is not within its bounds"))),
        }
    }

    /// Seconds.
    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>, Failure> {
        let seconds = match self.take(name) {
            None => return Ok(None),
            Some(Value::Int(seconds)) => seconds as f64,
            Some(Value::Float(seconds)) => seconds,
            Some(_) => return Err(Failure::bad_argument(name, "it must be a number of seconds")),
        };
        let wrong = |_| Failure::bad_argument(name, "it must be a number of seconds, and not negative");
        Duration::try_from_secs_f64(seconds).map(Some).map_err(wrong)
    }
}

fn os_text(name: &str, value: Value) -> Result<OsString, Failure> {
    match value {
        Value::Text(text) => Ok(text.into()),
        Value::Os(text) => Ok(text),
        Value::Bytes(bytes) => Ok(OsString::from_vec(bytes.into())),
        _ => Err(Failure::bad_argument(name, "it must be text or a path")),
    }
}
