//! Typed values out of scanned text, without a tree between them.
//!
//! This is a serde deserializer over [`RawJson`]. Two things set it apart from `serde_json::from_str`. Its errors have
//! the words that the original server sends (`invalid type: number, expected a string`, `invalid number`), which are
//! those of a `serde_json::Value` with numbers of any precision, and no line or column. And it trusts the scanner: syntax,
//! depth and repeated keys were settled before, so it only looks for where things begin and end.
//!
//! One liberty: `deserialize_bytes` takes a string or an object, which is how [`crate::text::OsText`] tells the two
//! apart without `deserialize_any`, whose errors would name numbers differently.

use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::scan::{RawJson, plain_run};

/// Structs to which we have added members, with the number the original has. The number is part of the text that
/// answers an array where an object belongs.
const EXTENDED: [(&str, usize); 7] = [
    ("InitializeParams", 2),
    ("TerminateParams", 1),
    ("WireExecParams", 14),
    ("WireFsCopyParams", 4),
    ("WireFsCreateDirectoryParams", 4),
    ("WireFsOpenParams", 4),
    ("WireFsWriteFileParams", 4),
];

/// Why a value is not what its place demands, in the words of the original server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DecodeError {
    reason: String,
}

impl DecodeError {
    /// An error with these words.
    pub(crate) fn new(reason: String) -> Self {
        Self { reason }
    }

    /// The words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid type: {}, expected {expected}", Found(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid value: {}, expected {expected}", Found(found)))
    }
}

impl DecodeError {
    /// Completes the complaint about a short array where a struct belongs. The types in question bring the original's
    /// name of the struct (`expecting`) but cannot bring the number of its members.
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

/// Serde's name for what was found, but `null` for the unit.
struct Found<'a>(Unexpected<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Unit => f.write_str("null"),
            other => other.fmt(f),
        }
    }
}

/// Reads `raw` as a `T`.
pub(crate) fn from_raw<'de, T: de::Deserialize<'de>>(raw: RawJson<'de>) -> Result<T, DecodeError> {
    T::deserialize(&mut Cursor { text: raw.as_str(), at: 0 })
}

/// A place in scanned text.
struct Cursor<'de> {
    text: &'de str,
    at: usize,
}

impl<'de> Cursor<'de> {
    fn peek(&self) -> u8 {
        // The scanner has seen the end; a zero byte is no JSON, so whoever asks beyond it gets `broken`.
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn skip_space(&mut self) {
        while let b' ' | b'\t' | b'\n' | b'\r' = self.peek() {
            self.at += 1;
        }
    }

    /// Past a comma or colon and the space around it.
    fn skip_mark(&mut self, mark: u8) {
        self.skip_space();
        if self.peek() == mark {
            self.at += 1;
            self.skip_space();
        }
    }

    /// The text of a string, at its opening quote.
    fn string(&mut self) -> Result<Text<'de>, DecodeError> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut end = plain_run(bytes, start);
        let escaped = bytes.get(end) == Some(&b'\\');
        while bytes.get(end) == Some(&b'\\') {
            end = plain_run(bytes, end + 2);
        }
        if bytes.get(end) != Some(&b'"') {
            return Err(broken());
        }
        self.at = end + 1;
        let inside = &self.text[start..end];
        match escaped {
            false => Ok(Text::Plain(inside)),
            true => unescape(inside).map(Text::Unescaped).ok_or_else(broken),
        }
    }

    fn number(&mut self) -> &'de str {
        let rest = &self.text[self.at..];
        let end =
            rest.find(|byte: char| !matches!(byte, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Past one value of any kind.
    fn skip_value(&mut self) -> Result<(), DecodeError> {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b'"' => {
                    let bytes = self.text.as_bytes();
                    self.at = plain_run(bytes, self.at + 1);
                    while bytes.get(self.at) == Some(&b'\\') {
                        self.at = plain_run(bytes, self.at + 2);
                    }
                    self.at += 1;
                }
                b'n' | b't' => self.at += 4,
                b'f' => self.at += 5,
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                b'-' | b'0'..=b'9' => {
                    self.number();
                }
                _ => return Err(broken()),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// The complaint that what stands here is of the wrong type.
    fn wrong_type(&mut self, expected: &dyn Expected) -> DecodeError {
        match self.peek() {
            b'n' => DecodeError::invalid_type(Unexpected::Unit, expected),
            b't' => DecodeError::invalid_type(Unexpected::Bool(true), expected),
            b'f' => DecodeError::invalid_type(Unexpected::Bool(false), expected),
            b'"' => match self.string() {
                Ok(text) => DecodeError::invalid_type(Unexpected::Str(text.as_str()), expected),
                Err(error) => error,
            },
            b'[' => DecodeError::invalid_type(Unexpected::Seq, expected),
            b'{' => DecodeError::invalid_type(Unexpected::Map, expected),
            _ => DecodeError::invalid_type(Unexpected::Other("number"), expected),
        }
    }

    fn array<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeError> {
        self.at += 1;
        self.skip_space();
        let mut items = Items { cursor: self, seen: 0 };
        let value = visitor.visit_seq(&mut items)?;
        let taken = items.seen;
        while items.next_element::<de::IgnoredAny>()?.is_some() {}
        if items.seen > taken {
            return Err(DecodeError::invalid_length(items.seen, &"fewer elements in array"));
        }
        self.at += 1;
        Ok(value)
    }

    fn object<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeError> {
        self.at += 1;
        self.skip_space();
        let value = visitor.visit_map(Members { cursor: self })?;
        if self.peek() != b'}' {
            return Err(broken());
        }
        self.at += 1;
        Ok(value)
    }

    /// A number for a visitor that takes any: the narrowest integer that holds it, else a float.
    fn any_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let number = self.number();
        if let Ok(value) = number.parse::<u64>() {
            visitor.visit_u64(value)
        } else if let Ok(value) = number.parse::<i64>() {
            visitor.visit_i64(value)
        } else if let Ok(value) = number.parse::<u128>() {
            visitor.visit_u128(value)
        } else if let Ok(value) = number.parse::<i128>() {
            visitor.visit_i128(value)
        } else {
            visitor.visit_f64(number.parse().map_err(|_| broken())?)
        }
    }
}

/// Numbers are parsed as what is asked for; what does not fit is an `invalid number`, whatever was wrong with it.
macro_rules! numbers {
    ($($method:ident $visit:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            match self.peek() {
                b'-' | b'0'..=b'9' => {
                    let number = match self.number() {
                        "-0" => "0",
                        number => number,
                    };
                    match number.parse() {
                        Ok(value) => visitor.$visit(value),
                        Err(_) => Err(DecodeError::custom("invalid number")),
                    }
                }
                _ => Err(self.wrong_type(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Cursor<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'n' => self.deserialize_unit(visitor),
            b't' | b'f' => self.deserialize_bool(visitor),
            b'"' => self.deserialize_str(visitor),
            b'[' => self.array(visitor),
            b'{' => self.object(visitor),
            b'-' | b'0'..=b'9' => self.any_number(visitor),
            _ => Err(broken()),
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

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b't' => {
                self.at += 4;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.at += 5;
                visitor.visit_bool(false)
            }
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'"' => match self.string()? {
                Text::Plain(text) => visitor.visit_borrowed_str(text),
                Text::Unescaped(text) => visitor.visit_string(text),
            },
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'{' => self.object(visitor),
            _ => self.deserialize_str(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'n' => {
                self.at += 4;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'n' => {
                self.at += 4;
                visitor.visit_unit()
            }
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'[' => self.array(visitor),
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'{' => self.object(visitor),
            _ => Err(self.wrong_type(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'[' => self.array(visitor).map_err(|error| error.with_members(fields.len())),
            b'{' => self.object(visitor),
            _ => Err(self.wrong_type(&visitor)),
        }
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

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.peek() {
            b'"' => {
                let name = self.string()?;
                visitor.visit_enum(Variant { name, value: None })
            }
            b'{' => visitor.visit_enum(self.single_member()?),
            _ => Err(self.wrong_type(&"string or map")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.skip_value()?;
        visitor.visit_unit()
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }
}

impl<'de> Cursor<'de> {
    /// An object that names an enum's variant by its only key.
    fn single_member(&mut self) -> Result<Variant<'de>, DecodeError> {
        let lonely = || DecodeError::invalid_value(Unexpected::Map, &"map with a single key");
        self.at += 1;
        self.skip_space();
        if self.peek() == b'}' {
            return Err(lonely());
        }
        let name = self.string()?;
        self.skip_mark(b':');
        let value = Cursor { text: self.text, at: self.at };
        self.skip_value()?;
        self.skip_space();
        if self.peek() != b'}' {
            return Err(lonely());
        }
        self.at += 1;
        Ok(Variant { name, value: Some(value) })
    }
}

/// The items of an array, up to its bracket.
struct Items<'c, 'de> {
    cursor: &'c mut Cursor<'de>,
    seen: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        if self.cursor.peek() == b']' {
            return Ok(None);
        }
        self.seen += 1;
        let value = seed.deserialize(&mut *self.cursor)?;
        self.cursor.skip_mark(b',');
        Ok(Some(value))
    }
}

/// The members of an object, up to its brace.
struct Members<'c, 'de> {
    cursor: &'c mut Cursor<'de>,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        if self.cursor.peek() == b'}' {
            return Ok(None);
        }
        let key = seed.deserialize(Key(self.cursor.string()?))?;
        self.cursor.skip_mark(b':');
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let value = seed.deserialize(&mut *self.cursor)?;
        self.cursor.skip_mark(b',');
        Ok(value)
    }
}

/// A key of an object; always a string.
struct Key<'de>(Text<'de>);

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Text::Plain(text) => visitor.visit_borrowed_str(text),
            Text::Unescaped(text) => visitor.visit_string(text),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A variant by its name alone, or with a value.
struct Variant<'de> {
    name: Text<'de>,
    value: Option<Cursor<'de>>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = DecodeError;
    type Variant = VariantValue<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, VariantValue<'de>), DecodeError> {
        let name = self.name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, VariantValue(self.value)))
    }
}

struct VariantValue<'de>(Option<Cursor<'de>>);

impl<'de> VariantAccess<'de> for VariantValue<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.0 {
            Some(mut value) => de::Deserialize::deserialize(&mut value),
            None => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        match self.0 {
            Some(mut value) => seed.deserialize(&mut value),
            None => Err(DecodeError::invalid_type(Unexpected::UnitVariant, &"newtype variant")),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Some(mut value) => value.deserialize_seq(visitor),
            None => Err(DecodeError::invalid_type(Unexpected::UnitVariant, &"tuple variant")),
        }
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Some(mut value) => value.deserialize_map(visitor),
            None => Err(DecodeError::invalid_type(Unexpected::UnitVariant, &"struct variant")),
        }
    }
}

/// What a JSON string says.
enum Text<'de> {
    Plain(&'de str),
    Unescaped(String),
}

impl Text<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Unescaped(text) => text,
        }
    }
}

/// What the inside of a JSON string says; `None` if its escapes are broken.
pub(crate) fn unescape(inside: &str) -> Option<String> {
    let mut said = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(backslash) = rest.find('\\') {
        said.push_str(&rest[..backslash]);
        let (character, used) = match *rest.as_bytes().get(backslash + 1)? {
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'n' => ('\n', 2),
            b'r' => ('\r', 2),
            b't' => ('\t', 2),
            b'u' => code_point(rest.as_bytes(), backslash)?,
            plain @ (b'"' | b'\\' | b'/') => (char::from(plain), 2),
            _ => return None,
        };
        said.push(character);
        rest = &rest[backslash + used..];
    }
    said.push_str(rest);
    Some(said)
}

/// The character of the escape at `at`, and the length of the escape; a surrogate needs its other half.
fn code_point(bytes: &[u8], at: usize) -> Option<(char, usize)> {
    let first = hex4(bytes, at + 2)?;
    match first {
        0xd800..=0xdbff => {
            if bytes.get(at + 6..at + 8)? != b"\\u" {
                return None;
            }
            let pair = [first, hex4(bytes, at + 8)?];
            let character = char::decode_utf16(pair).next()?.ok()?;
            Some((character, 12))
        }
        _ => Some((char::from_u32(u32::from(first))?, 6)),
    }
}

/// The number that four hex digits say.
pub(crate) fn hex4(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | digit as u16)
    })
}

/// The scanner lets only whole JSON through, so nobody should ever read this.
fn broken() -> DecodeError {
    DecodeError::custom("invalid JSON")
}
