//! Every Rust file begins with what it is for. rustdoc asks this of public modules only.

use super::{Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let silent = tree.sources.iter().filter(|source| !source.first_line.starts_with("//!"));
    let what = "the file does not begin with `//!`; say its role, its contract and what is deliberately absent";
    silent.map(|source| Violation::new(&source.path, 1, what)).collect()
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
}
