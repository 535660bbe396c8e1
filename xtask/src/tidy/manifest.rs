//! Dependencies are guests: each line of `[workspace.dependencies]` says what it is for, and none
//! stays that nobody uses.

use super::{Tree, Violation};

const MANIFEST: &str = "Cargo.toml";

/// One entry of the table.
struct Entry<'a> {
    name: &'a str,
    line: usize,
    /// The entry as written, over as many lines as it takes.
    text: String,
}

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in entries(tree.text_of(MANIFEST).unwrap_or_default()) {
        if !entry.is_ours() && !entry.has_comment() {
            let what = format!("{} does not say what it is for; add a comment at the end of its line", entry.name);
            found.push(Violation::new(MANIFEST, entry.line, what));
        }
        if !tree.members.is_empty() && !is_used(tree, &entry) {
            let what = format!("no crate uses {}; remove it", entry.name);
            found.push(Violation::new(MANIFEST, entry.line, what));
        }
    }
    found
}

fn entries(manifest: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut inside = false;
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim() == "[workspace.dependencies]";
        } else if inside && line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            let name = line.split([' ', '=', '.']).next().unwrap_or_default();
            entries.push(Entry { name, line: index + 1, text: line.to_owned() });
        } else if inside && line.starts_with([' ', '\t', ']', '}']) {
            // An entry written over several lines; its comment may stand on any of them.
            if let Some(entry) = entries.last_mut() {
                entry.text.push('\n');
                entry.text.push_str(line);
            }
        }
    }
    entries
}

fn is_used(tree: &Tree, entry: &Entry<'_>) -> bool {
    let name = entry.package().unwrap_or(entry.name);
    let mut used = tree.members.iter().flat_map(|member| &member.package.dependencies);
    used.any(|dependency| dependency.name == name)
}

impl Entry<'_> {
    fn is_ours(&self) -> bool {
        self.text.contains("path = \"")
    }

    /// Whether a `#` outside quotes is followed by words.
    fn has_comment(&self) -> bool {
        self.text.lines().any(|line| {
            let outside = line.split('"').step_by(2);
            outside.filter_map(|part| part.split_once('#')).any(|(_, said)| !said.trim().is_empty())
        })
    }

    /// The name in the registry, if the entry renames it.
    fn package(&self) -> Option<&str> {
        let (_, after) = self.text.split_once("package = \"")?;
        after.split('"').next()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Member, TextFile};
    use super::super::{NOWHERE, lines};
    use super::*;
    use crate::workspace::{Dependency, Package};

    #[test]
    fn a_guest_that_does_not_say_what_it_is_for_is_reported() {
        let text = "\
            [package]\nname = \"a\"\n[workspace.dependencies]\n# ours\nown = { path = \"b\" }\n\
            bytes = \"1\" # frames\nlibc = \"0.2\"\nhash = \"#\"\nempty = \"1\" #\n[profile.dev]\ndebug = 1\n";
        assert_eq!(lines(check, MANIFEST, text), [7, 8, 9]);
    }

    #[test]
    fn the_comment_of_a_long_entry_may_stand_on_any_of_its_lines() {
        let text = "[workspace.dependencies]\na = { version = \"1\", features = [\n    \"x\",\n] } # for x\n";
        assert_eq!(lines(check, MANIFEST, text), NOWHERE);
    }

    #[test]
    fn a_guest_that_nobody_uses_is_reported() {
        let text =
            "[workspace.dependencies]\na = \"1\" # x\nb = { package = \"real\", version = \"1\" } # y\nc = \"1\" # z\n";
        let used = ["a", "real"].map(|name| Dependency { name: name.to_owned(), kind: None });
        let package =
            Package { name: "p".to_owned(), manifest_path: "p/Cargo.toml".into(), dependencies: used.to_vec() };
        let files = vec![TextFile { path: MANIFEST.to_owned(), text: text.to_owned() }];
        let member = Member { manifest: "p/Cargo.toml".to_owned(), package };
        let tree = Tree::from_parts(files, vec![member]);
        let found: Vec<_> = check(&tree).into_iter().map(|violation| violation.line).collect();
        assert_eq!(found, [4]);
    }
}
