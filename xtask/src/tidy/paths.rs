//! No path of somebody's machine in any file.

use super::{Tree, Violation};

/// Folders that exist only where the project happens to be written; without the last slash, so that
/// this file may name them.
const MACHINE_FOLDERS: &[&str] = &["/work", "/farm", "/tmp/bash_jobs"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names(line, folder)) {
                let what = format!(
                    "a path of one machine (`{folder}`...); make it relative, or take it from the \
                     environment"
                );
                found.push(Violation::new(&file.path, index + 1, what));
            }
        }
    }
    found
}

/// Whether the line has a path that begins with the folder, and not merely passes through one of
/// the same name.
fn names(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(offset, _)| {
        let before = line[..offset].chars().next_back();
        let inside = before.is_some_and(|c| c.is_alphanumeric() || "_.-~$})>*".contains(c));
        !inside && line[offset + folder.len()..].starts_with('/')
    })
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    #[test]
    fn an_absolute_path_is_reported_in_any_file() {
        let text = format!("ok\nsee {}/shared/x\n\"file://{}/y\"\n", "/work", "/farm");
        assert_eq!(lines(check, "docs/a.md", &text), [2, 3]);
    }

    #[test]
    fn a_folder_of_the_same_name_further_down_is_fine() {
        let text = format!("$HOME{0}/x\n/srv{0}/x\n{0}shop/x\n../{0}\n", "/work");
        assert_eq!(lines(check, "docs/a.md", &text), NOWHERE);
    }
}
