//! Params and results without members.
//!
//! As params they may be absent, `null` or `{}`, or have the member that every request may have
//! ([`crate::environment::EnvironmentId`]); anything else is refused, in the words of Codex's server. As results
//! they are written `{}`, and any value is read, because a later server may add members.

use std::fmt;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Unexpected, Visitor};

use crate::environment::EnvironmentId;

/// Reads params that must be absent, `null` or `{}`.
pub(crate) fn read_empty_params<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_option(EmptyVisitor)
}

/// Reads a result whose members nobody needs.
pub(crate) fn ignore_result<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_ignored_any(IgnoredAny).map(drop)
}

/// Declares structs without members, and the function that reads them.
macro_rules! empty_structs {
    ($read:ident: $($(#[$doc:meta])* $name:ident,)*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, schemars::JsonSchema)]
        $(#[$doc])*
        pub struct $name {}

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::empty::$read(deserializer).map(|()| Self {})
            }
        }
    )*};
}

/// Declares params without members.
macro_rules! empty_params {
    ($($structs:tt)*) => { crate::empty::empty_structs! { read_empty_params: $($structs)* } };
}

/// Declares results without members.
macro_rules! empty_results {
    ($($structs:tt)*) => { crate::empty::empty_structs! { ignore_result: $($structs)* } };
}

pub(crate) use empty_params;
pub(crate) use empty_results;
pub(crate) use empty_structs;

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
        while let Some(name) = members.next_key::<String>()? {
            if name != EnvironmentId::MEMBER {
                return Err(de::Error::invalid_type(Unexpected::Map, &self));
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}
