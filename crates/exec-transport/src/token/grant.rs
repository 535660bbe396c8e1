//! What a connection may do, as its token says. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TokenScope;

/// What a connection may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Grant {
    /// Its token does not say, or none was asked for.
    #[default]
    Everything,
    /// These methods, and the handshake without which there is no connection.
    Methods(Vec<MethodPattern>),
}

impl Grant {
    /// What a scope permits. A restriction that this server cannot enforce is an error, because to ignore it would give
    /// more than the token does.
    pub(crate) fn from_scope(scope: &TokenScope) -> Result<Self, &'static str> {
        if scope.roots.is_some() {
            return Err("this server cannot enforce the path roots of this token yet");
        }
        if scope.weakest_sandbox.is_some() {
            return Err("this server cannot enforce the weakest sandbox of this token yet");
        }
        Ok(Self::Methods(scope.methods.clone()))
    }

    pub fn allows(&self, method: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Methods(patterns) => patterns.iter().any(|pattern| pattern.matches(method)),
        }
    }
}

/// The name of a method, or with `*` at its end the beginning of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MethodPattern(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no methods: write a name as `fs/readFile`, or a beginning as `process/*`")]
pub struct MethodPatternError(String);

impl MethodPattern {
    pub fn matches(&self, method: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => method.starts_with(beginning),
            None => method == self.0,
        }
    }
}

impl FromStr for MethodPattern {
    type Err = MethodPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'/');
        if text.is_empty() || !is_plain { Err(MethodPatternError(text.to_owned())) } else { Ok(Self(text.to_owned())) }
    }
}

impl TryFrom<String> for MethodPattern {
    type Error = MethodPatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MethodPattern> for String {
    fn from(pattern: MethodPattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for MethodPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_the_beginning_of_names() {
        let matches =
            |pattern: &str, method: &str| pattern.parse::<MethodPattern>().expect("well formed").matches(method);
        for (pattern, method, matched) in [
            ("fs/readFile", "fs/readFile", true),
            ("fs/readFile", "fs/readFileX", false),
            ("fs/read*", "fs/readFile", true),
            ("fs/read*", "fs/read", true),
            ("fs/read*", "fs/writeFile", false),
            ("*", "process/start", true),
            ("process/", "process/start", false),
        ] {
            assert_eq!(matches(pattern, method), matched, "{pattern} {method}");
        }
        for wrong in ["", "fs/*/x", "**", "fs/?", "fs/[a]", " fs/read", "fs/.."] {
            assert!(wrong.parse::<MethodPattern>().is_err(), "{wrong}");
        }
    }
}
