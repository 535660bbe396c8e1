//! Paths on the wire: `file:` URLs, byte-exact both ways.
//!
//! Reading is WHATWG parsing (the `url` crate) with the rules of Codex's server added: no query, no fragment, a drive
//! letter or a host means Windows. Such a foreign path is well formed, so it decodes; only whoever wants to use it here
//! is told that it is invalid on this machine. Writing escapes every byte that a URL path would not keep.
//!
//! A path that no ordinary URL can say faithfully (a NUL byte, a first component like a drive, `..` that must not be
//! resolved before the file system is asked) travels as `file:///%00/bad/path/<base64url of its bytes>`. That form is
//! taken back only for such paths, or two names would mean the same file.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use base64_simd::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

/// What a URL path would not keep as it is; bytes beyond ASCII are always escaped.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// Where Codex's server puts paths that have no URL of their own.
const OPAQUE: &str = "file:///%00/bad/path/";

/// The operating system in the texts below; ours runs on this one only.
const HOST_OS: &str = "linux";

/// A path as a canonical `file:` URL. It may be foreign: one that only Windows could have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathUri(String);

/// Why a text is no path URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathUriError {
    /// It is no URL at all; a native path, most likely.
    #[error("invalid URI: {0}")]
    NotAUrl(url::ParseError),
    #[error("unsupported path URI scheme `{0}`")]
    Scheme(String),
    #[error("query parameters are not allowed in path URIs")]
    Query,
    #[error("fragments are not allowed in path URIs")]
    Fragment,
    #[error("'{0}' is invalid on '{HOST_OS}'")]
    Nul(String),
}

/// A path of another operating system, or an ordinary path that is spelled as an opaque one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{uri}' is invalid on '{HOST_OS}'")]
pub struct ForeignPath {
    pub uri: PathUri,
}

/// A path that depends on a working directory cannot be sent to another machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path {0:?} is not absolute: give a full path")]
pub struct RelativePath(pub PathBuf);

impl PathUri {
    /// Reads a URI as a peer wrote it.
    pub fn parse(text: &str) -> Result<Self, PathUriError> {
        let url = Url::parse(text).map_err(PathUriError::NotAUrl)?;
        // Parsed twice, because parsing is not idempotent: `file://h//C:/x` keeps its host and loses a slash, and the
        // result loses its host in turn; a line end between a drive and a dot hides the dot. Parsing a canonical URI
        // must give the same URI.
        let url = Url::parse(url.as_str()).map_err(PathUriError::NotAUrl)?;
        if url.scheme() != "file" {
            return Err(PathUriError::Scheme(url.scheme().to_owned()));
        }
        if url.query().is_some() {
            return Err(PathUriError::Query);
        }
        if url.fragment().is_some() {
            return Err(PathUriError::Fragment);
        }
        let uri = Self(with_uppercase_drive(url.into()));
        let nul = percent_decode_str(uri.path()).any(|byte| byte == 0);
        if nul && uri.opaque_bytes().is_none() {
            return Err(PathUriError::Nul(uri.0));
        }
        Ok(uri)
    }

    /// The URI of a path of this machine.
    pub fn from_path(path: &Path) -> Result<Self, RelativePath> {
        if !path.is_absolute() {
            return Err(RelativePath(path.to_owned()));
        }
        Ok(Self::from_absolute_bytes(path.as_os_str().as_bytes()))
    }

    /// The path on this machine, without doubled or trailing slashes.
    pub fn to_path(&self) -> Result<PathBuf, ForeignPath> {
        let foreign = || ForeignPath { uri: self.clone() };
        if let Some(bytes) = self.opaque_bytes() {
            let genuine = bytes.starts_with(b"/") && Self::from_absolute_bytes(&bytes) == *self;
            return match genuine {
                true => Ok(OsString::from_vec(bytes).into()),
                false => Err(foreign()),
            };
        }
        let path = self.path();
        if !self.0.starts_with("file:///") || drive_letter(path).is_some() {
            return Err(foreign());
        }
        let decoded = PathBuf::from(OsString::from_vec(percent_decode_str(path).collect()));
        Ok(decoded.components().collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `bytes` is an absolute path.
    fn from_absolute_bytes(bytes: &[u8]) -> Self {
        let path = Path::new(std::ffi::OsStr::from_bytes(bytes));
        let climbs = path.components().any(|part| part == Component::ParentDir);
        if climbs || bytes.contains(&0) || has_drive(path) {
            let mut uri = OPAQUE.to_owned();
            uri.push_str(&URL_SAFE_NO_PAD.encode_to_string(bytes));
            return Self(uri);
        }
        let mut uri = String::with_capacity("file://".len() + bytes.len() + 8);
        uri.push_str("file://");
        for part in path.components() {
            if let Component::Normal(name) = part {
                uri.push('/');
                uri.extend(percent_encode(name.as_bytes(), ESCAPED));
            }
        }
        if uri.len() == "file://".len() {
            uri.push('/');
        }
        Self(uri)
    }

    /// The part after scheme and host.
    fn path(&self) -> &str {
        let after = self.0.strip_prefix("file://").unwrap_or(&self.0);
        after.find('/').map_or("", |slash| &after[slash..])
    }

    /// The bytes of a path that has no URL of its own.
    fn opaque_bytes(&self) -> Option<Vec<u8>> {
        let payload = self.0.strip_prefix(OPAQUE)?;
        let bytes = URL_SAFE_NO_PAD.decode_to_vec(payload).ok()?;
        (!bytes.is_empty()).then_some(bytes)
    }
}

impl fmt::Display for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A drive letter at the root of a URL path: `/c:` or `/c%3a`, and then a slash or nothing.
fn drive_letter(path: &str) -> Option<char> {
    let first = path.strip_prefix('/')?.split('/').next()?;
    let mut characters = first.chars();
    let letter = characters.next().filter(char::is_ascii_alphabetic)?;
    let colon = characters.as_str();
    (colon == ":" || colon.eq_ignore_ascii_case("%3a")).then_some(letter)
}

/// The same for a native path.
fn has_drive(path: &Path) -> bool {
    let first = path.components().find_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    matches!(first, Some([letter, b':']) if letter.is_ascii_alphabetic())
}

/// `file:///c:/x` names the same file as `file:///C:/x`; the large letter is the canonical one.
fn with_uppercase_drive(mut url: String) -> String {
    const ROOT: &str = "file://";
    if let Some(path) = url.strip_prefix(ROOT)
        && drive_letter(path).is_some()
    {
        let letter = ROOT.len() + 1;
        let large = url[letter..=letter].to_ascii_uppercase();
        url.replace_range(letter..=letter, &large);
    }
    url
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Serialize for PathUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl JsonSchema for PathUri {
    fn schema_name() -> Cow<'static, str> {
        "PathUri".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uri", "pattern": "^[Ff][Ii][Ll][Ee]:" })
    }
}
