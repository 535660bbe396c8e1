//! Messages that say nothing: params that are not needed, results that only mean "done".
//!
//! As params they may be absent, `null` or `{}`; anything else is refused, in the words of the original. As results
//! they are written `{}` and read whatever they are, because a later server may say more.

use std::fmt;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Unexpected, Visitor};

/// Reads params that must be absent, `null` or `{}`.
pub(crate) fn read_empty_params<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_option(EmptyVisitor)
}

/// Reads a result nobody looks at.
pub(crate) fn ignore_result<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_ignored_any(IgnoredAny).map(drop)
}

/// Declares params without members.
macro_rules! empty_params {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, schemars::JsonSchema)]
        $(#[$doc])*
        pub struct $name {}

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::empty::read_empty_params(deserializer).map(|()| Self {})
            }
        }
    )*};
}

/// Declares results without members.
macro_rules! empty_results {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, schemars::JsonSchema)]
        $(#[$doc])*
        pub struct $name {}

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::empty::ignore_result(deserializer).map(|()| Self {})
            }
        }
    )*};
}

pub(crate) use empty_params;
pub(crate) use empty_results;

struct EmptyVisitor;

impl<'de> Visitor<'de> for EmptyVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unit")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_struct("EmptyVisitor", &[], self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        match members.next_key::<IgnoredAny>()? {
            Some(_) => Err(de::Error::invalid_type(Unexpected::Map, &self)),
            None => Ok(()),
        }
    }
}
