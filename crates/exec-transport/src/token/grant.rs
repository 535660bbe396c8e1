//! What a connection may do, as its token says. Pure.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TokenScope;

/// What a connection may do. That is enforced by whoever serves it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Grant {
    /// Its token does not say, or none was asked for.
    #[default]
    Everything,
    /// What the scope of its token says, and the handshake without which there is no connection.
    Scope(TokenScope),
}

impl Grant {
    /// What a scope permits. One that means nothing is an error, because to ignore a part of it would give more than the
    /// token does.
    pub(crate) fn from_scope(scope: &TokenScope) -> Result<Self, &'static str> {
        match scope {
            TokenScope { roots: Some(roots), .. } if roots.is_empty() => Err("the scope of this token has no roots"),
            TokenScope { roots: None, weakest_sandbox: Some(WeakestSandbox::WorkspaceWrite), .. } => {
                Err("this token asks for workspace-write and does not say by its roots where the workspace is")
            }
            scope => Ok(Self::Scope(scope.clone())),
        }
    }
}

/// A place that a connection may reach, and all below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Root {
    /// Absolute.
    Path(PathBuf),
    /// What programs need to run at all, to be read: system programs, libraries and their configuration.
    SystemFiles,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no root: write an absolute path without `..`, or `{SYSTEM_FILES}` for what programs need to run")]
pub struct RootError(String);

/// How [`Root::SystemFiles`] is written.
const SYSTEM_FILES: &str = "system-files";

impl FromStr for Root {
    type Err = RootError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = Path::new(text);
        let is_plain =
            path.is_absolute() && !text.contains('\0') && !path.components().any(|part| part == Component::ParentDir);
        match text {
            SYSTEM_FILES => Ok(Self::SystemFiles),
            _ if is_plain => Ok(Self::Path(path.to_owned())),
            _ => Err(RootError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Root {
    type Error = RootError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Root> for String {
    fn from(root: Root) -> Self {
        root.to_string()
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::SystemFiles => f.write_str(SYSTEM_FILES),
        }
    }
}

/// The sandbox that must at least be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeakestSandbox {
    /// Files are restricted, and those outside the roots are not written.
    WorkspaceWrite,
    /// Nothing is written.
    ReadOnly,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no sandbox: write `workspace-write` or `read-only`")]
pub struct WeakestSandboxError(String);

impl WeakestSandbox {
    pub fn name(self) -> &'static str {
        match self {
            Self::WorkspaceWrite => "workspace-write",
            Self::ReadOnly => "read-only",
        }
    }
}

impl FromStr for WeakestSandbox {
    type Err = WeakestSandboxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = [Self::WorkspaceWrite, Self::ReadOnly].into_iter().find(|sandbox| sandbox.name() == text);
        found.ok_or_else(|| WeakestSandboxError(text.to_owned()))
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
