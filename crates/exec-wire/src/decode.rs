//! Typed values out of scanned text, and the words for values that do not fit their type.
//!
//! [`decode`] leaves the work to `serde_json`. Only when that fails is the value decoded a second time, from a tree,
//! because a client must read the words that Codex's server would send: those of a `serde_json::Value` with numbers of
//! any precision, which calls every number a `number`, says `invalid number` where one does not fit, and names no line
//! or column. Some values are decoded from the tree at once ([`needs_tree`]).
//!
//! Syntax, depth and repeated keys are not looked at here; [`RawJson`] says that the scanner has checked them.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, Deserializer, Error as _, Expected, IntoDeserializer, Unexpected, Visitor};

use crate::scan::{RawJson, plain_text_end};

/// Structs to which we have added members, with the number of members that Codex's server has. The number is part of the
/// text that answers an array where an object belongs. Such a struct also has `#[serde(expecting = "struct Name")]`.
const EXTENDED: [(&str, usize); 12] = [
    ("FsWatchMissingParams", 3),
    ("HttpRequestParams", 8),
    ("InitializeParams", 2),
    ("SignalParams", 2),
    ("TerminateParams", 1),
    ("WireExecParams", 14),
    ("WireFsCopyParams", 4),
    ("WireFsCreateDirectoryParams", 4),
    ("WireFsOpenParams", 4),
    ("WireFsReadDirectoryParams", 2),
    ("WireFsWalkParams", 3),
    ("WireFsWriteFileParams", 4),
];

/// Text with more bytes per value than this is mostly a base64 payload.
const LONG_STRING_BYTES: usize = 4 << 10;

/// Why a value does not fit its type, in the words of Codex's server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DecodeError {
    reason: String,
}

impl DecodeError {
    pub(crate) fn new(reason: String) -> Self {
        Self { reason }
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Completes the error about a short array where a struct belongs. The types in question bring Codex's name of the
    /// struct (`expecting`) but cannot bring the number of its members.
    fn with_members(mut self, members: usize) -> Self {
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

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Unit => Self::new(format!("invalid type: null, expected {expected}")),
            found => Self::new(format!("invalid type: {found}, expected {expected}")),
        }
    }
}

/// Whether a value must be decoded from a tree even if `serde_json` could read it. The tree takes `-0` for an integer and
/// tells integers beyond 64 bits from floats, as Codex's server does. And it finds the end of a long string a third
/// faster.
pub(crate) fn needs_tree(text_bytes: usize, values: usize, unusual_numbers: bool) -> bool {
    unusual_numbers || text_bytes / values > LONG_STRING_BYTES
}

/// Reads `raw` as a `T`.
pub(crate) fn decode<'de, T: Deserialize<'de>>(raw: RawJson<'de>) -> Result<T, DecodeError> {
    if !raw.by_tree()
        && let Ok(value) = serde_json::from_str(raw.as_str())
    {
        return Ok(value);
    }
    match (TreeParser { text: raw.as_str(), at: 0 }).value() {
        Some(tree) => T::deserialize(tree),
        // The scanner lets only whole JSON through, so nobody should ever read this.
        None => Err(DecodeError::custom("invalid JSON")),
    }
}

/// A value whose type is not known yet. Numbers stay text, because their precision depends on the type.
enum Tree<'de> {
    Null,
    Bool(bool),
    Number(&'de str),
    String(Cow<'de, str>),
    Array(Vec<Tree<'de>>),
    Object(Vec<(Cow<'de, str>, Tree<'de>)>),
}

/// Builds a tree in one pass over text that the scanner has checked.
struct TreeParser<'de> {
    text: &'de str,
    at: usize,
}

impl<'de> TreeParser<'de> {
    fn value(&mut self) -> Option<Tree<'de>> {
        Some(match self.peek()? {
            b'{' => {
                let mut members = Vec::new();
                self.at += 1;
                while self.peek()? != b'}' {
                    members.push((self.string()?, self.value()?));
                }
                self.at += 1;
                Tree::Object(members)
            }
            b'[' => {
                let mut items = Vec::new();
                self.at += 1;
                while self.peek()? != b']' {
                    items.push(self.value()?);
                }
                self.at += 1;
                Tree::Array(items)
            }
            b'"' => Tree::String(self.string()?),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.'));
                let word = &rest[..end.unwrap_or(rest.len())];
                self.at += word.len();
                match word {
                    "null" => Tree::Null,
                    "true" => Tree::Bool(true),
                    "false" => Tree::Bool(false),
                    "" => return None,
                    number => Tree::Number(number),
                }
            }
        })
    }

    /// The next byte that begins or ends a value. Commas and colons are passed like white space: the scanner has seen
    /// that they stand where they belong.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'))?;
        self.text.as_bytes().get(self.at).copied()
    }

    fn string(&mut self) -> Option<Cow<'de, str>> {
        self.peek()?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = plain_text_end(bytes, start + 1);
        let escaped = bytes.get(end) == Some(&b'\\');
        while bytes.get(end) == Some(&b'\\') {
            end = plain_text_end(bytes, end + 2);
        }
        self.at = end + 1;
        let quoted = self.text.get(start..=end)?;
        match escaped {
            false => Some(Cow::Borrowed(&quoted[1..quoted.len() - 1])),
            true => serde_json::from_str(quoted).ok().map(Cow::Owned),
        }
    }
}

impl<'de> Tree<'de> {
    fn wrong_type(&self, expected: &dyn Expected) -> DecodeError {
        let found = match self {
            Self::Null => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Number(_) => Unexpected::Other("number"),
            Self::String(text) => Unexpected::Str(text),
            Self::Array(_) => Unexpected::Seq,
            Self::Object(_) => Unexpected::Map,
        };
        DecodeError::invalid_type(found, expected)
    }
}

impl<'de> IntoDeserializer<'de, DecodeError> for Tree<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A number is parsed as the type that is asked for; one that does not fit is an `invalid number`, whatever is wrong.
macro_rules! numbers {
    ($($method:ident $visit:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            let Self::Number(number) = self else { return Err(self.wrong_type(&visitor)) };
            let number = if number == "-0" { "0" } else { number };
            match number.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(DecodeError::custom("invalid number")),
            }
        }
    )*};
}

/// Where a type asks for one kind of value, every other kind is refused. Only the visit of that kind is named, because each is
/// compiled for each of some hundred types.
macro_rules! only {
    ($($method:ident $kind:ident $visit:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            match self {
                Self::$kind(value) => $visit(value, visitor),
                other => Err(other.wrong_type(&visitor)),
            }
        }
    )*};
}

fn visit_bool<'de, V: Visitor<'de>>(value: bool, visitor: V) -> Result<V::Value, DecodeError> {
    visitor.visit_bool(value)
}

fn visit_string<'de, V: Visitor<'de>>(text: Cow<'de, str>, visitor: V) -> Result<V::Value, DecodeError> {
    match text {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

fn visit_array<'de, V: Visitor<'de>>(items: Vec<Tree<'de>>, visitor: V) -> Result<V::Value, DecodeError> {
    let found = items.len();
    let mut items = items.into_iter();
    let value = visitor.visit_seq(SeqDeserializer::new(items.by_ref()))?;
    match items.next() {
        None => Ok(value),
        Some(_) => Err(DecodeError::invalid_length(found, &"fewer elements in array")),
    }
}

fn visit_object<'de, V: Visitor<'de>>(
    members: Vec<(Cow<'de, str>, Tree<'de>)>,
    visitor: V,
) -> Result<V::Value, DecodeError> {
    visitor.visit_map(MapDeserializer::new(members.into_iter()))
}

/// For a visitor that takes anything, a number is the narrowest integer that holds it, or a float.
fn visit_number<'de, V: Visitor<'de>>(number: &str, visitor: V) -> Result<V::Value, DecodeError> {
    if let Ok(value) = number.parse::<u64>() {
        visitor.visit_u64(value)
    } else if let Ok(value) = number.parse::<i64>() {
        visitor.visit_i64(value)
    } else if let Ok(value) = number.parse::<u128>() {
        visitor.visit_u128(value)
    } else if let Ok(value) = number.parse::<i128>() {
        visitor.visit_i128(value)
    } else {
        visitor.visit_f64(number.parse().map_err(DecodeError::custom)?)
    }
}

impl<'de> Deserializer<'de> for Tree<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Number(number) => visit_number(number, visitor),
            Self::String(text) => visit_string(text, visitor),
            Self::Array(items) => visit_array(items, visitor),
            Self::Object(members) => visit_object(members, visitor),
        }
    }

    numbers! {
        deserialize_i8 visit_i8,
        deserialize_i16 visit_i16,
        deserialize_i32 visit_i32,
        deserialize_i64 visit_i64,
        deserialize_i128 visit_i128,
        deserialize_u8 visit_u8,
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
        deserialize_u128 visit_u128,
        deserialize_f32 visit_f32,
        deserialize_f64 visit_f64,
    }

    only! {
        deserialize_bool Bool visit_bool,
        deserialize_char String visit_string,
        deserialize_str String visit_string,
        deserialize_string String visit_string,
        deserialize_bytes String visit_string,
        deserialize_byte_buf String visit_string,
        deserialize_identifier String visit_string,
        deserialize_seq Array visit_array,
        deserialize_map Object visit_object,
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self {
            Self::Null => visitor.visit_unit(),
            other => Err(other.wrong_type(&visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self {
            Self::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self {
            Self::Array(items) => visit_array(items, visitor).map_err(|error| error.with_members(fields.len())),
            other => other.deserialize_map(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self {
            Self::String(variant) => visitor.visit_enum(variant.into_deserializer()),
            Self::Object(members) if members.len() == 1 => {
                let member = MapDeserializer::new(members.into_iter());
                MapAccessDeserializer::new(member).deserialize_enum(name, variants, visitor)
            }
            Self::Object(_) => Err(DecodeError::invalid_value(Unexpected::Map, &"map with a single key")),
            _ => Err(self.wrong_type(&"string or map")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }
}
