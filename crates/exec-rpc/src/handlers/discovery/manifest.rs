//! What a plugin's manifest says about its other files. Pure.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Where a part of a plugin's configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Config {
    /// Where it usually is.
    Usual,
    /// In the manifest itself.
    Inline,
    /// In this file below the root.
    Path(PathBuf),
    /// In a place that makes no sense, and why.
    Bad(&'static str),
}

/// Where the servers and the apps are. A manifest that cannot be read says nothing about them.
pub(super) fn configs(manifest: &str) -> (Config, Config) {
    let manifest: Manifest = serde_json::from_str(manifest).unwrap_or_default();
    let servers = match &manifest.mcp_servers {
        Value::Object(_) => Config::Inline,
        other => named(other),
    };
    (servers, named(&manifest.apps))
}

/// The members that count; each may come once.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Manifest {
    mcp_servers: Value,
    apps: Value,
}

fn named(member: &Value) -> Config {
    let Value::String(path) = member else { return Config::Usual };
    let Some(below) = path.strip_prefix("./") else { return Config::Bad("path must start with `./`") };
    let stays = Path::new(below).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if below.is_empty() || !stays {
        return Config::Bad("path must remain below the capability root");
    }
    Config::Path(Path::new(below).components().filter(|part| *part != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_must_begin_here_and_stay_below() {
        let servers = |value: &str| configs(&format!(r#"{{"mcpServers":{value}}}"#)).0;
        assert_eq!(servers(r#""./m.json""#), Config::Path("m.json".into()));
        assert_eq!(servers(r#""./x/./b.json""#), Config::Path("x/b.json".into()));
        for outside in [r#""./../a.json""#, r#""./a/../b.json""#, r#""./""#, r#"".//c.json""#] {
            assert_eq!(servers(outside), Config::Bad("path must remain below the capability root"), "{outside}");
        }
        for elsewhere in [r#""a.json""#, r#""""#, r#""  ./b.json""#] {
            assert_eq!(servers(elsewhere), Config::Bad("path must start with `./`"), "{elsewhere}");
        }
    }

    #[test]
    fn what_is_no_path_is_inline_or_usual() {
        assert_eq!(configs(r#"{"mcpServers":{"x":1},"apps":7}"#), (Config::Inline, Config::Usual));
        assert_eq!(configs(r#"{"mcpServers":["./b.json"],"apps":null}"#), (Config::Usual, Config::Usual));
        assert_eq!(configs("not json"), (Config::Usual, Config::Usual));
        assert_eq!(configs("[1]"), (Config::Usual, Config::Usual));
    }
}
