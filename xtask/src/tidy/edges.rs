//! Which crate may depend on which, and which crates do without which outsiders.
//!
//! This table is the architecture; a new edge is a decision, made here and argued for in the commit.
//! Dev-dependencies are free: tests may stand wherever they see best, and cargo keeps them out of
//! what is shipped.

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
    ("exec-server", &["exec-core", "exec-env", "exec-local", "exec-client", "exec-rpc", "exec-transport"]),
    ("exec-server-cli", SHIPPED),
    ("exec-testkit", SHIPPED_AND_CLI),
    ("xtask", &[]),
];

/// The binary knows every room.
const SHIPPED: &[&str] = &[
    "exec-core",
    "exec-env",
    "exec-wire",
    "exec-transport",
    "exec-sandbox",
    "exec-keeper",
    "exec-local",
    "exec-rpc",
    "exec-client",
];

/// The test kit may use everything, because nothing that is shipped may use it.
const SHIPPED_AND_CLI: &[&str] = &[
    "exec-core",
    "exec-env",
    "exec-wire",
    "exec-transport",
    "exec-sandbox",
    "exec-keeper",
    "exec-local",
    "exec-rpc",
    "exec-client",
    "exec-server-cli",
];

/// Outsiders that a crate does without, and why.
const DOES_WITHOUT: &[(&str, &[&str], &str)] = &[
    ("exec-core", &["tokio", "tokio-util", "serde", "serde_json", "rustix", "libc"], PURE),
    ("exec-env", SERIALISERS, NO_WIRE),
    ("exec-local", SERIALISERS, NO_WIRE),
    ("exec-sandbox", SERIALISERS, NO_WIRE),
    ("exec-keeper", SERIALISERS, NO_WIRE),
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
        let say = |dependency: &str, what: String| {
            let text = tree.text_of(&member.manifest).unwrap_or_default();
            Violation::new(&member.manifest, line_of(text, dependency), what)
        };
        if !MAY_USE.iter().any(|(name, _)| *name == package.name) {
            let what =
                format!("crate {} has no place; give it a line in MAY_USE of xtask/src/tidy/edges.rs", package.name);
            found.push(say(&package.name, what));
            continue;
        }
        for dependency in package.dependencies.iter().filter(|dep| !dep.is_for_tests()) {
            if let Some(what) = objection(&package.name, &dependency.name) {
                found.push(say(&dependency.name, what));
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
    let banned = DOES_WITHOUT.iter().find(|(name, without, _)| *name == user && without.contains(&used));
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
            manifest_path: manifest.clone().into(),
            dependencies: vec![Dependency { name: used.to_owned(), kind: kind.map(str::to_owned) }],
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
    fn outsiders_are_kept_out_of_the_rooms_that_do_without_them() {
        assert_eq!(found("exec-core", "serde", None), [4]);
        assert_eq!(found("exec-keeper", "tokio", None), [4]);
        assert_eq!(found("exec-local", "serde_json", None), [4]);
        assert_eq!(found("exec-local", "anyhow", None), [4]);
        assert_eq!(found("exec-local", "tokio", None), NOWHERE);
    }

    #[test]
    fn a_crate_that_nobody_placed_is_reported() {
        assert_eq!(found("exec-novelty", "bytes", None), [1]);
    }
}
