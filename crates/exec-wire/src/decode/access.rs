//! The parts of arrays, objects and enums, one after the other.

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::text::Text;
use super::{Cursor, DecodeError};

/// The items of an array, up to its bracket.
pub(super) struct Items<'c, 'de> {
    pub(super) cursor: &'c mut Cursor<'de>,
    pub(super) seen: usize,
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
pub(super) struct Members<'c, 'de> {
    pub(super) cursor: &'c mut Cursor<'de>,
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
pub(super) struct Variant<'de> {
    pub(super) name: Text<'de>,
    pub(super) value: Option<Cursor<'de>>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = DecodeError;
    type Variant = VariantValue<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, VariantValue<'de>), DecodeError> {
        let name = self.name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, VariantValue(self.value)))
    }
}

pub(super) struct VariantValue<'de>(Option<Cursor<'de>>);

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
