//! Bytes in JSON: standard base64 with padding, nothing else.
//!
//! `base64-simd` decodes; only when it refuses is the text looked at again, to say what is wrong in the words of
//! Codex's server (`Invalid symbol 42, offset 0.`). Url-safe text, missing padding, white space and bits that no
//! encoder would leave in the last symbol are all refused, as Codex's server does.

use std::borrow::Cow;
use std::fmt;

use base64_simd::STANDARD;
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that travel as a base64 string.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Base64(pub Bytes);

impl From<Vec<u8>> for Base64 {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Bytes> for Base64 {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

/// The same, but text that is not base64 is kept as its error rather than refused: `fs/writeFile` answers it later than
/// other ill-formed params, and with another code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64OrError(pub Result<Bytes, Base64Error>);

impl From<Bytes> for Base64OrError {
    fn from(bytes: Bytes) -> Self {
        Self(Ok(bytes))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Base64Error {
    /// A byte outside the alphabet.
    #[error("Invalid symbol {byte}, offset {offset}.")]
    Symbol { byte: u8, offset: usize },
    /// A last group with one symbol says less than a byte.
    #[error("Invalid input length: {symbols}")]
    Length { symbols: usize },
    /// The last symbol has bits that belong to no byte.
    #[error("Invalid last symbol {byte}, offset {offset}.")]
    LastSymbol { byte: u8, offset: usize },
    /// Too many or too few `=`.
    #[error("Invalid padding")]
    Padding,
}

pub fn decode(text: &[u8]) -> Result<Vec<u8>, Base64Error> {
    match STANDARD.decode_to_vec(text) {
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(find_error(text)),
    }
}

pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode_to_string(bytes)
}

/// Finds what is wrong, in the order in which Codex's server looks: a single symbol beyond the last group of four
/// first, then whole groups of four, then the last group with its padding.
fn find_error(text: &[u8]) -> Base64Error {
    let beyond = text.len() % 4;
    if let [.., last] = text
        && beyond == 1
        && *last != b'='
        && value_of(*last).is_none()
    {
        return Base64Error::Symbol { byte: *last, offset: text.len() - 1 };
    }
    let last_group = match beyond {
        0 => text.len().saturating_sub(4),
        _ => text.len() - beyond,
    };
    let bad = |offset: usize| Base64Error::Symbol { byte: text[offset], offset };
    if let Some(offset) = (0..last_group).find(|&offset| value_of(text[offset]).is_none()) {
        return bad(offset);
    }
    let mut symbols = 0;
    let mut padding = None;
    for (offset, byte) in text.iter().enumerate().skip(last_group) {
        match (*byte, padding) {
            (b'=', _) if offset - last_group < 2 => return bad(offset),
            (b'=', None) => padding = Some(offset),
            (b'=', Some(_)) => {}
            (_, Some(first)) => return bad(first),
            (byte, None) if value_of(byte).is_none() => return bad(offset),
            (_, None) => symbols += 1,
        }
    }
    if symbols == 1 {
        return Base64Error::Length { symbols: last_group + symbols };
    }
    if !text.len().is_multiple_of(4) {
        return Base64Error::Padding;
    }
    let offset = (last_group + symbols).saturating_sub(1);
    Base64Error::LastSymbol { byte: text.get(offset).copied().unwrap_or_default(), offset }
}

fn value_of(symbol: u8) -> Option<u8> {
    match symbol {
        b'A'..=b'Z' => Some(symbol - b'A'),
        b'a'..=b'z' => Some(symbol - b'a' + 26),
        b'0'..=b'9' => Some(symbol - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

struct Base64Visitor;

impl Visitor<'_> for Base64Visitor {
    type Value = Result<Bytes, Base64Error>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(decode(text.as_bytes()).map(Bytes::from))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let decoded = deserializer.deserialize_str(Base64Visitor)?;
        decoded.map(Self).map_err(de::Error::custom)
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64OrError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Base64Visitor).map(Self)
    }
}

impl Serialize for Base64OrError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(bytes) => serializer.serialize_str(&encode(bytes)),
            Err(error) => Err(serde::ser::Error::custom(error)),
        }
    }
}

impl JsonSchema for Base64 {
    fn schema_name() -> Cow<'static, str> {
        "Base64".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "contentEncoding": "base64" })
    }
}
