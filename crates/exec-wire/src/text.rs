//! Strings of the operating system (arguments, link targets), which are nearly always UTF-8 and need not be.
//!
//! One that is UTF-8 is a JSON string, as in Codex's server. One that is not is `{"base64": "…"}`, so that no byte is
//! lost. Nothing else about it is checked here.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, Unexpected, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base64::{self, Base64};

/// An argument or file name, byte-exact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OsText(pub OsString);

impl From<&str> for OsText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<OsString> for OsText {
    fn from(text: OsString) -> Self {
        Self(text)
    }
}

impl From<&OsStr> for OsText {
    fn from(text: &OsStr) -> Self {
        Self(text.into())
    }
}

impl<'de> Deserialize<'de> for OsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OsTextVisitor).map(Self)
    }
}

impl Serialize for OsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => {
                let mut object = serializer.serialize_map(Some(1))?;
                object.serialize_entry("base64", &base64::encode(self.0.as_bytes()))?;
                object.end()
            }
        }
    }
}

struct OsTextVisitor;

/// Codex's server asks for a string here, and then calls every number a `number`.
macro_rules! refuse_numbers {
    ($($visit:ident $number:ty),*) => {$(
        fn $visit<E: de::Error>(self, _: $number) -> Result<OsString, E> {
            Err(E::invalid_type(Unexpected::Other("number"), &self))
        }
    )*};
}

impl<'de> Visitor<'de> for OsTextVisitor {
    type Value = OsString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<OsString, E> {
        Ok(text.into())
    }

    refuse_numbers! { visit_i64 i64, visit_u64 u64, visit_i128 i128, visit_u128 u128, visit_f64 f64 }

    fn visit_string<E>(self, text: String) -> Result<OsString, E> {
        Ok(text.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<OsString, A::Error> {
        let mut decoded = None;
        while let Some(key) = members.next_key::<Cow<'_, str>>()? {
            if key == "base64" {
                decoded = Some(members.next_value::<Base64>()?);
            } else {
                members.next_value::<de::IgnoredAny>()?;
            }
        }
        match decoded {
            Some(Base64(bytes)) => Ok(OsString::from_vec(bytes.into())),
            None => Err(de::Error::invalid_type(Unexpected::Map, &self)),
        }
    }
}

impl JsonSchema for OsText {
    fn schema_name() -> Cow<'static, str> {
        "OsText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A string, or its bytes where it is not UTF-8.",
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "base64": { "type": "string", "contentEncoding": "base64" } },
                    "required": ["base64"],
                },
            ],
        })
    }
}
