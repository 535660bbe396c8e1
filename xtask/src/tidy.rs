//! `tidy`: the project's rules that neither the compiler, clippy nor rustdoc checks.
//!
//! Each rule is one file with one `check`: it looks at the tree and returns violations, each with the place, what is
//! wrong and what to do. Nothing is ever rewritten. What a rule cannot see (who owns a task, whether a comment is true) is
//! left to the reviewer.

mod channels;
mod codes;
mod documents;
mod edges;
mod flaky_tests;
mod manifest;
mod opening;
mod paths;
mod purity;
mod sizes;
mod tree;
mod unsafety;

use std::fmt;

use anyhow::{Result, ensure};

use crate::workspace::Workspace;
use tree::Tree;

type Rule = fn(&Tree) -> Vec<Violation>;

/// Every rule that must hold; a new one is one more line.
const RULES: &[Rule] = &[
    edges::check,
    purity::check,
    opening::check,
    unsafety::check,
    channels::check,
    flaky_tests::check,
    codes::check,
    manifest::check,
    documents::check,
    paths::check,
];

/// Checks the tree and prints what it finds. Sizes are only warned about.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let tree = Tree::read(workspace)?;
    for warning in sizes::check(&tree) {
        println!("warning: {warning}");
    }
    let mut found: Vec<Violation> = RULES.iter().flat_map(|check| check(&tree)).collect();
    found.sort();
    for violation in &found {
        println!("{violation}");
    }
    ensure!(found.is_empty(), "{} places break a rule; the rules are in CONTRIBUTING.md", found.len());
    Ok(())
}

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    /// What is wrong, and what to do.
    what: String,
}

impl Violation {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// What [`lines`] returns when a rule has nothing to say.
#[cfg(test)]
const NOWHERE: [usize; 0] = [];

/// The lines a rule complains about, for tests of rules.
#[cfg(test)]
fn lines(check: Rule, path: &str, text: &str) -> Vec<usize> {
    let tree = Tree::of(&[(path, text)]);
    check(&tree).into_iter().map(|violation| violation.line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_a_line_that_editors_can_follow() {
        let violation = Violation::new("crates/a/src/b.rs", 7, "x is y; do z");
        assert_eq!(violation.to_string(), "crates/a/src/b.rs:7: x is y; do z");
    }

    #[test]
    fn the_tree_itself_can_be_read() {
        let workspace = Workspace::find().expect("this test runs inside the workspace");
        let tree = Tree::read(&workspace).expect("the files of the workspace are readable");
        assert!(tree.sources.iter().any(|source| source.path == "xtask/src/tidy.rs"));
        assert!(tree.text_of("Cargo.toml").is_some());
        assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")));
    }
}
