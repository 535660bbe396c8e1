//! No file names a directory of the machine it was written on: the one it is checked out in, or its author's home.

use super::{Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(directory) = tree.machine_directories.iter().find(|directory| names(line, directory)) {
                let what =
                    format!("a path of this machine (`{directory}`); make it relative, or read it from a variable");
                found.push(Violation::new(&file.path, index + 1, what));
            }
        }
    }
    found
}

/// Whether the line has this path, or one below it, and not merely a path that contains the same names.
fn names(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(offset, _)| {
        let before = line[..offset].chars().next_back();
        let after = line[offset + directory.len()..].chars().next();
        let continues = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_-.~$})>*".contains(c));
        !continues(before) && !continues(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_directory_is_reported_in_any_file() {
        let text = "ok\nsee /somebody/project/x\n\"file:///somebody/project\"\n";
        let mut tree = Tree::of(&[("docs/a.md", text)]);
        tree.machine_directories = vec!["/somebody/project".to_owned()];
        assert_eq!(check(&tree).iter().map(|violation| violation.line).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_directory_of_the_same_name_elsewhere_is_fine() {
        for line in ["$ROOT/somebody/project", "/srv/somebody/project", "/somebody/projects", "/somebody/project-2"] {
            assert!(!names(line, "/somebody/project"), "{line}");
        }
    }
}
