//! Why a text was refused: the scanner's rules once more, said to `serde_json`, for the sake of its words.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::MESSAGE_VALUES;

/// Why `text` was refused, in the words of the original server: those of `serde_json`, with line and column.
pub(crate) fn reason(text: &str) -> String {
    let budget = Cell::new(MESSAGE_VALUES);
    let mut json = serde_json::Deserializer::from_str(text);
    match (Bounded { budget: &budget }).deserialize(&mut json) {
        Err(error) => error.to_string(),
        Ok(()) => match json.end() {
            Err(error) => error.to_string(),
            Ok(()) => "invalid JSON".to_owned(),
        },
    }
}

/// Reads any value and keeps nothing. The budget is taken before a value is read, because
/// the column in the text depends on it.
#[derive(Clone, Copy)]
struct Bounded<'b> {
    budget: &'b Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.budget.get().checked_sub(1) {
            Some(left) => self.budget.set(left),
            None => {
                return Err(de::Error::custom(format_args!(
                    "JSON-RPC message exceeds the limit of {MESSAGE_VALUES} JSON values"
                )));
            }
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(de::Error::custom(format_args!("duplicate JSON object key `{key}`")));
            }
            seen.insert(key);
            members.next_value_seed(self)?;
        }
        Ok(())
    }
}
