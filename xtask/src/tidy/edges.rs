//! Which crate may depend on which, and which crates must do without which outside crates.
//!
//! This table is the architecture; a new edge is a decision, made here and argued for in the commit. Dev-dependencies are
//! free: tests may use what they need, and cargo keeps them out of what is shipped.

use super::{Tree, Violation};

/// Every crate of ours, and the crates of ours it may be built from.
const MAY_USE: &[(&str, &[&str])] = &[
    ("exec-core", &[]),
    ("exec-env", &["exec-core"]),
    ("exec-wire", &["exec-core"]),
    ("exec-transport", &[]),
    ("exec-sandbox", &["exec-core"]),
    ("exec-keeper", &["exec-core"]),
    ("exec-local", &["exec-core", "exec-env", "exec-keeper", "exec-sandbox"]),
    ("exec-rpc", &["exec-core", "exec-env", "exec-wire", "exec-transport"]),
    ("exec-client", &["exec-core", "exec-env", "exec-wire", "exec-transport"]),
    ("exec-router", &["exec-core", "exec-env", "exec-client"]),
    ("exec-tools", &["exec-core", "exec-env"]),
    ("exec-http-body", &[]),
    ("exec-mcp", &["exec-core", "exec-env", "exec-tools", "exec-http-body"]),
    ("exec-app-server", &["exec-core", "exec-env", "exec-wire", "exec-transport"]),
    ("exec-e2b", &["exec-core", "exec-env", "exec-http-body"]),
    ("exec-server", &["exec-core", "exec-env", "exec-local", "exec-client", "exec-rpc", "exec-transport"]),
    // What the SDKs of other languages share, and each of them.
    ("exec-sdk", &["exec-server"]),
    ("exec-server-python", &["exec-sdk"]),
    ("exec-server-node", &["exec-sdk"]),
    // The binary and the tests may use every library; no library may use them.
    ("exec-server-cli", LIBRARIES),
    ("exec-testkit", LIBRARIES),
    ("xtask", &[]),
];

const LIBRARIES: &[&str] = &[
    "exec-core",
    "exec-env",
    "exec-wire",
    "exec-transport",
    "exec-sandbox",
    "exec-keeper",
    "exec-local",
    "exec-rpc",
    "exec-client",
    "exec-router",
    "exec-tools",
    "exec-http-body",
    "exec-mcp",
    "exec-app-server",
    "exec-e2b",
    "exec-server",
];

/// Outside crates that a crate must not depend on, and why.
const MUST_NOT_USE: &[(&str, &[&str], &str)] = &[
    ("exec-core", &["tokio", "tokio-util", "serde", "serde_json", "rustix", "libc"], PURE),
    ("exec-env", SERIALISERS, NO_WIRE),
    ("exec-local", SERIALISERS, NO_WIRE),
    ("exec-sandbox", SERIALISERS, NO_WIRE),
    ("exec-router", SERIALISERS, NO_WIRE),
    ("exec-tools", SERIALISERS, "the shapes of tools belong to the front that offers them"),
    ("exec-keeper", &["serde_json"], "the keeper's messages are postcard, not JSON"),
    ("exec-keeper", &["tokio", "tokio-util"], "the keeper is one synchronous loop"),
];

const SERIALISERS: &[&str] = &["serde", "serde_json"];
const PURE: &str = "core never waits, touches the machine or serialises";
const NO_WIRE: &str = "only exec-wire knows how things are written";

/// Crates whose errors nobody branches on.
const MAY_USE_ANYHOW: &[&str] = &["exec-server-cli", "exec-testkit", "xtask"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for member in &tree.members {
        let package = &member.package;
        let violation = |dependency: &str, what: String| {
            let text = tree.text_of(&member.manifest).unwrap_or_default();
            Violation::new(&member.manifest, line_of(text, dependency), what)
        };
        if !MAY_USE.iter().any(|(name, _)| *name == package.name) {
            let what = format!(
                "crate {} is not in the table; give it a line in MAY_USE of xtask/src/tidy/edges.rs",
                package.name
            );
            found.push(violation(&package.name, what));
            continue;
        }
        for dependency in package.dependencies.iter().filter(|dep| !dep.is_for_tests()) {
            if let Some(what) = objection(&package.name, &dependency.name) {
                found.push(violation(&dependency.name, what));
            }
        }
    }
    found
}

/// What speaks against building `user` from `used`.
fn objection(user: &str, used: &str) -> Option<String> {
    let ours = MAY_USE.iter().any(|(name, _)| *name == used);
    let may_use = MAY_USE.iter().find(|(name, _)| *name == user).map(|(_, may)| *may);
    if ours && !may_use.unwrap_or_default().contains(&used) {
        return Some(format!(
            "{user} must not depend on {used}; move what you need to where both may see it, or \
             make it a dev-dependency if only tests need it"
        ));
    }
    if used == "anyhow" && !MAY_USE_ANYHOW.contains(&user) {
        return Some(format!("{user} must not use anyhow; give the verb an error enum of its own"));
    }
    let banned = MUST_NOT_USE.iter().find(|(name, banned, _)| *name == user && banned.contains(&used));
    banned.map(|(_, _, why)| format!("{user} must not depend on {used}: {why}; move that work up"))
}

/// The line of a manifest that begins with the dependency's name, else the first.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let found = manifest
        .lines()
        .position(|line| line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '.', '='])));
    found.map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::NOWHERE;
    use super::super::tree::{Member, TextFile};
    use super::*;
    use crate::workspace::{Dependency, Package};

    fn found(user: &str, used: &str, kind: Option<&str>) -> Vec<usize> {
        let manifest = format!("crates/{user}/Cargo.toml");
        let text = format!("[package]\nname = \"{user}\"\n[dependencies]\n{used}.workspace = true\n");
        let package = Package {
            name: user.to_owned(),
            version: "1.0.0".to_owned(),
            repository: None,
            manifest_path: manifest.clone().into(),
            dependencies: vec![Dependency { name: used.to_owned(), kind: kind.map(str::to_owned) }],
            targets: Vec::new(),
        };
        let files = vec![TextFile { path: manifest.clone(), text }];
        let tree = Tree::from_parts(files, vec![Member { manifest, package }]);
        check(&tree).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn the_server_sees_neither_local_nor_the_keeper() {
        assert_eq!(found("exec-rpc", "exec-local", None), [4]);
        assert_eq!(found("exec-rpc", "exec-keeper", Some("build")), [4]);
        assert_eq!(found("exec-rpc", "exec-env", None), NOWHERE);
    }

    #[test]
    fn tests_may_use_what_the_shipped_code_may_not() {
        assert_eq!(found("exec-rpc", "exec-testkit", Some("dev")), NOWHERE);
        assert_eq!(found("exec-rpc", "exec-testkit", None), [4]);
        assert_eq!(found("exec-testkit", "exec-local", None), NOWHERE);
    }

    #[test]
    fn only_the_binary_and_the_tests_may_use_the_facade() {
        assert_eq!(found("exec-server", "exec-rpc", None), NOWHERE);
        assert_eq!(found("exec-server", "exec-keeper", None), [4]);
        assert_eq!(found("exec-client", "exec-server", None), [4]);
        assert_eq!(found("exec-server-cli", "exec-server", None), NOWHERE);
    }

    #[test]
    fn outside_crates_are_kept_out_of_the_crates_that_do_without_them() {
        assert_eq!(found("exec-core", "serde", None), [4]);
        assert_eq!(found("exec-keeper", "tokio", None), [4]);
        assert_eq!(found("exec-local", "serde_json", None), [4]);
        assert_eq!(found("exec-local", "anyhow", None), [4]);
        assert_eq!(found("exec-local", "tokio", None), NOWHERE);
    }

    #[test]
    fn a_crate_that_is_not_in_the_table_is_reported() {
        assert_eq!(found("exec-novelty", "bytes", None), [1]);
    }
}
