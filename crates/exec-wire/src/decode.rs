//! Typed values out of scanned text, without a tree between them.
//!
//! This is a serde deserializer over [`RawJson`]. Two things set it apart from `serde_json::from_str`. Its errors have
//! the words that the original server sends (`invalid type: number, expected a string`, `invalid number`), which are
//! those of a `serde_json::Value` with numbers of any precision, and no line or column. And it trusts the scanner: syntax,
//! depth and repeated keys were settled before, so it only looks for where things begin and end.
//!
//! One liberty: `deserialize_bytes` takes a string or an object, which is how [`crate::text::OsText`] tells the two
//! apart without `deserialize_any`, whose errors would name numbers differently.

mod access;
mod error;
mod text;

use serde::de::{self, Deserializer, Error as _, Expected, SeqAccess, Unexpected, Visitor};

use self::access::{Items, Members, Variant};
use self::text::Text;
use crate::scan::{RawJson, plain_text_end};

pub use self::error::DecodeError;
pub(crate) use self::text::{hex4, unescape};

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
        let mut end = plain_text_end(bytes, start);
        let escaped = bytes.get(end) == Some(&b'\\');
        while bytes.get(end) == Some(&b'\\') {
            end = plain_text_end(bytes, end + 2);
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
                    self.at = plain_text_end(bytes, self.at + 1);
                    while bytes.get(self.at) == Some(&b'\\') {
                        self.at = plain_text_end(bytes, self.at + 2);
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

/// The scanner lets only whole JSON through, so nobody should ever read this.
fn broken() -> DecodeError {
    DecodeError::custom("invalid JSON")
}
