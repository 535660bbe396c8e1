//! The one member that the params of every request may have beside their own: `environmentId`.
//!
//! It is read here and nowhere else, so that a method cannot forget it, and written here into params that are JSON
//! already.

use std::fmt;

use memchr::{memchr, memmem};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::decode::DecodeError;
use crate::scan::RawJson;

/// Which of several environments a request is for; `None` for the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvironmentId(pub Option<String>);

impl EnvironmentId {
    pub const MEMBER: &'static str = "environmentId";

    /// Reads it from the params of a request. Params that are not an object have none.
    pub fn of_params(params: RawJson<'_>) -> Result<Self, DecodeError> {
        let text = params.as_str().as_bytes();
        // Params may be megabytes, and most have no such member. Only an escape could hide its name.
        if memmem::find(text, Self::MEMBER.as_bytes()).is_none() && memchr(b'\\', text).is_none() {
            return Ok(Self(None));
        }
        params.decode()
    }

    /// Adds the member to params, an object that ends `out`.
    pub fn append_to(id: &str, out: &mut Vec<u8>) {
        debug_assert_eq!(out.last(), Some(&b'}'), "params are an object");
        out.pop();
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        let id = serde_json::Value::from(id);
        out.extend_from_slice(format!("\"{}\":{id}}}", Self::MEMBER).as_bytes());
    }
}

impl<'de> Deserialize<'de> for EnvironmentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemberVisitor)
    }
}

struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = EnvironmentId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("params")
    }

    fn visit_unit<E>(self) -> Result<EnvironmentId, E> {
        Ok(EnvironmentId(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<EnvironmentId, E> {
        Ok(EnvironmentId(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<EnvironmentId, E> {
        Ok(EnvironmentId(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<EnvironmentId, E> {
        Ok(EnvironmentId(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<EnvironmentId, E> {
        Ok(EnvironmentId(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<EnvironmentId, E> {
        Ok(EnvironmentId(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<EnvironmentId, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(EnvironmentId(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<EnvironmentId, A::Error> {
        let mut found = None;
        while let Some(name) = members.next_key::<String>()? {
            match name == EnvironmentId::MEMBER {
                true => found = members.next_value::<Option<String>>()?,
                false => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(EnvironmentId(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<String>, String> {
        let params = RawJson::parse(text).expect("it is JSON");
        EnvironmentId::of_params(params).map(|id| id.0).map_err(|error| error.reason().to_owned())
    }

    #[test]
    fn it_is_found_however_it_is_written_and_only_in_the_params_themselves() {
        let found = Ok(Some("b".to_owned()));
        assert_eq!(read(r#"{"environmentId":"b","path":"x"}"#), found);
        assert_eq!(read(r#"{"path":"x","environment\u0049d":"b"}"#), found);
        for none in [
            "null",
            "{}",
            r#"["b","environmentId"]"#,
            r#"{"a":{"environmentId":"b"}}"#,
            r#"{"environmentId":null}"#,
            r#""environmentId""#,
        ] {
            assert_eq!(read(none), Ok(None), "{none}");
        }
        assert!(read(r#"{"environmentId":7}"#).is_err());
    }

    #[test]
    fn what_is_appended_is_read_again() {
        for params in ["{}", r#"{"a":1}"#] {
            let mut out = params.as_bytes().to_vec();
            EnvironmentId::append_to("b\"\n", &mut out);
            assert_eq!(read(std::str::from_utf8(&out).expect("JSON is text")), Ok(Some("b\"\n".to_owned())));
        }
    }
}
