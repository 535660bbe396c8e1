//! Paths on the wire: `file:` URLs, byte-exact both ways.
//!
//! Reading is WHATWG parsing (the `url` crate) with the rules of the original on top: no query, no fragment, a drive
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
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

/// Where the original puts paths that have no URL of their own.
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
    /// It is a URL of something else.
    #[error("unsupported path URI scheme `{0}`")]
    Scheme(String),
    /// It asks a question.
    #[error("query parameters are not allowed in path URIs")]
    Query,
    /// It points into the file.
    #[error("fragments are not allowed in path URIs")]
    Fragment,
    /// It has a NUL byte, which no path has.
    #[error("'{0}' is invalid on '{HOST_OS}'")]
    Nul(String),
}

/// A path of another operating system, or an ordinary one in disguise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{uri}' is invalid on '{HOST_OS}'")]
pub struct ForeignPath {
    /// The path.
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
        // `file://h//C:/x` keeps its host and loses a slash, and what it has become then loses its host too; a line end
        // between a drive and a dot hides the dot. A canonical spelling must be its own.
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
        let nul = percent_decoded(uri.path()).contains(&0);
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
        let decoded = PathBuf::from(OsString::from_vec(percent_decoded(path)));
        Ok(decoded.components().collect())
    }

    /// The URI as it is written.
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
                percent_encode(name.as_bytes(), &mut uri);
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

/// The same question about a native path.
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

fn percent_encode(name: &[u8], uri: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in name {
        let kept = byte.is_ascii_graphic()
            && !matches!(byte, b'"' | b'#' | b'%' | b'/' | b'<' | b'>' | b'?' | b'\\' | b'`' | b'{' | b'}');
        if kept {
            uri.push(char::from(byte));
        } else {
            uri.push('%');
            uri.push(char::from(HEX[usize::from(byte >> 4)]));
            uri.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// A `%` without two digits behind it stands for itself, as in every browser.
fn percent_decoded(path: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, digit(tail.first()), digit(tail.get(1))) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

struct PathUriVisitor;

impl Visitor<'_> for PathUriVisitor {
    type Value = PathUri;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PathUri, E> {
        PathUri::parse(text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PathUriVisitor)
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
