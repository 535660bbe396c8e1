//! Every line of `[workspace.dependencies]` says what the dependency is for, and some crate uses it.

use super::{Tree, Violation};

const MANIFEST: &str = "Cargo.toml";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let text = tree.text_of(MANIFEST).unwrap_or_default();
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != "[workspace.dependencies]").skip(1);
    let mut found = Vec::new();
    for (index, line) in lines.take_while(|(_, line)| !line.starts_with('[')) {
        let Some((name, value)) = line.split_once(" = ").filter(|(name, _)| !name.starts_with('#')) else { continue };
        let is_ours = value.contains("path = ");
        if !is_ours && !value.contains(" # ") {
            let what = format!("{name} does not say what it is for; add a comment at the end of its line");
            found.push(Violation::new(MANIFEST, index + 1, what));
        }
        let mut dependencies = tree.members.iter().flat_map(|member| &member.package.dependencies);
        if !dependencies.any(|dependency| dependency.name == name) {
            let what = format!("no crate uses {name}; remove it");
            found.push(Violation::new(MANIFEST, index + 1, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Member, TextFile};
    use super::*;
    use crate::workspace::{Dependency, Package};

    /// The lines reported for a manifest with these dependencies, of which `used` are used by a crate.
    fn found(dependencies: &str, used: &[&str]) -> Vec<usize> {
        let text = format!("[workspace.dependencies]\n{dependencies}[profile.dev]\ndebug = 1\n");
        let dependencies = used.iter().map(|name| Dependency { name: (*name).to_owned(), kind: None }).collect();
        let package = Package {
            name: "p".to_owned(),
            version: "1.0.0".to_owned(),
            repository: None,
            manifest_path: "p/Cargo.toml".into(),
            dependencies,
            targets: Vec::new(),
        };
        let files = vec![TextFile { path: MANIFEST.to_owned(), text }];
        let tree = Tree::from_parts(files, vec![Member { manifest: "p/Cargo.toml".to_owned(), package }]);
        check(&tree).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_dependency_that_does_not_say_what_it_is_for_is_reported() {
        let text = "# ours\nown = { path = \"b\" }\n\nbytes = \"1\" # frames\nlibc = \"0.2\"\n";
        assert_eq!(found(text, &["own", "bytes", "libc"]), [6]);
    }

    #[test]
    fn a_dependency_that_nobody_uses_is_reported() {
        assert_eq!(found("bytes = \"1\" # frames\nlibc = \"0.2\" # calls\n", &["bytes"]), [3]);
    }
}
