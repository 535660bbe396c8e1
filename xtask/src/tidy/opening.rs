//! Every Rust file opens with what it is for, and modules are files with names.

use super::{Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in &tree.sources {
        if !source.first_line.starts_with("//!") {
            let what = "the file does not begin with `//!`; say its role, its contract and what \
                        is deliberately absent";
            found.push(Violation::new(&source.path, 1, what));
        }
        if source.path.ends_with("/mod.rs") {
            let what = "modules are not called `mod.rs`; name the file after the module, beside \
                        its folder";
            found.push(Violation::new(&source.path, 1, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    #[test]
    fn a_file_that_does_not_say_what_it_is_for_is_reported() {
        assert_eq!(lines(check, "crates/a/src/a.rs", "//! Says.\n"), NOWHERE);
        assert_eq!(lines(check, "crates/a/src/a.rs", "use b;\n//! Late.\n"), [1]);
        assert_eq!(lines(check, "crates/a/src/a.rs", ""), [1]);
    }

    #[test]
    fn mod_rs_is_reported() {
        assert_eq!(lines(check, "crates/a/src/b/mod.rs", "//! Says.\n"), [1]);
    }
}
