//! The limits that a process has reached, as a list of their names.

use std::borrow::Cow;

use exec_core::{Limit, LimitSet};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Written as a list of names (`["pids"]`). A name that we do not know is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsReached(pub LimitSet);

impl LimitsReached {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for LimitsReached {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Limit::name))
    }
}

impl<'de> Deserialize<'de> for LimitsReached {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Self(names.iter().filter_map(|name| Limit::from_name(name)).collect()))
    }
}

impl JsonSchema for LimitsReached {
    fn schema_name() -> Cow<'static, str> {
        "LimitsReached".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "string", "enum": Limit::ALL.map(Limit::name) } })
    }
}
