//! The sandbox of a file call, which may name a user: the context of the original, and `runAs` beside its members.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::SandboxContext;
use crate::process::RunAs;

/// The members of the original, whose number its errors tell to whoever sends an array.
const MEMBERS: &[&str] = &[
    "permissions",
    "sandboxOverride",
    "policyContext",
    "cwd",
    "workspaceRoots",
    "userHomeDir",
    "temporaryDirectories",
    "windowsSandboxLevel",
    "windowsSandboxProxySettingsMode",
    "useLegacyLandlock",
];

/// Decodes it.
pub(crate) fn of_file_call<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SandboxContext>, D::Error> {
    Ok(Option::<OfFileCall>::deserialize(deserializer)?.map(|OfFileCall(context)| context))
}

struct OfFileCall(SandboxContext);

impl<'de> Deserialize<'de> for OfFileCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("SandboxContext", MEMBERS, ContextVisitor).map(Self)
    }
}

struct ContextVisitor;

impl<'de> Visitor<'de> for ContextVisitor {
    type Value = SandboxContext;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("struct WireFileSystemSandboxContext")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, members: A) -> Result<SandboxContext, A::Error> {
        SandboxContext::deserialize(SeqAccessDeserializer::new(members))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<SandboxContext, A::Error> {
        let mut run_as = None;
        let others = OtherMembers { members, run_as: &mut run_as };
        let context = SandboxContext::deserialize(MapAccessDeserializer::new(others))?;
        Ok(SandboxContext { run_as, ..context })
    }
}

/// The members of the original. The one of ours is put aside when it comes.
struct OtherMembers<'a, A> {
    members: A,
    run_as: &'a mut Option<RunAs>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for OtherMembers<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.members.next_key::<String>()? {
            if name != "runAs" {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
            *self.run_as = self.members.next_value()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.members.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Params {
        #[serde(default, deserialize_with = "of_file_call")]
        sandbox: Option<SandboxContext>,
    }

    fn sandbox(json: &str) -> Result<Option<SandboxContext>, String> {
        let params = serde_json::from_str::<Params>(&format!(r#"{{"sandbox":{json}}}"#));
        params.map(|params| params.sandbox).map_err(|error| error.to_string())
    }

    #[test]
    fn a_user_is_read_wherever_it_stands_and_the_rest_is_as_without() {
        let without = SandboxContext::unrestricted();
        let run_as = Some(RunAs { user: "ann".to_owned() });
        let with = SandboxContext { run_as, ..without.clone() };
        let text = |context: &SandboxContext| serde_json::to_string(context).expect("it can be written");
        assert_eq!(sandbox(&text(&without)), Ok(Some(without)));
        assert_eq!(sandbox(&text(&with)), Ok(Some(with.clone())));
        let first = r#"{"runAs":{"user":"ann"},"later":[1],"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled"}"#;
        assert_eq!(sandbox(first), Ok(Some(with)));
        assert_eq!(sandbox("null"), Ok(None));
        assert_eq!(serde_json::from_str::<Params>("{}").map(|params| params.sandbox).ok(), Some(None));
    }

    #[test]
    fn a_user_that_is_none_is_refused_and_so_is_what_is_no_context() {
        let bad = |json: &str| sandbox(json).expect_err("it is refused");
        assert!(bad(r#"{"runAs":7}"#).contains("RunAs"));
        assert!(bad("[]").contains("expected struct WireFileSystemSandboxContext"));
        assert!(bad("7").contains("expected struct WireFileSystemSandboxContext"));
    }
}
