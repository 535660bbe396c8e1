//! exec-core never waits, reads a clock or touches the machine: it is told, and answers.
//!
//! Its dependencies are checked by `edges`; this rule is about the standard library.

use super::{Tree, Violation};

/// The caller must look these up and pass them on.
const FORBIDDEN: &[&str] =
    &["Instant::now", "SystemTime::now", "std::env", "std::fs", "std::net", "std::process", "std::thread"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| source.crate_name() == "exec-core") {
        for path in FORBIDDEN {
            for offset in source.words(path) {
                let line = source.line_at(offset);
                if !source.is_test_line(line) {
                    let what = format!("core uses `{path}`; take the time or the fact as an argument instead");
                    found.push(Violation::new(&source.path, line, what));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    #[test]
    fn core_reads_no_clock_and_opens_no_file() {
        let text = "let now = Instant::now();\nuse std::fs;\nlet d: std::time::Duration;\n";
        assert_eq!(lines(check, "crates/exec-core/src/a.rs", text), [1, 2]);
    }

    #[test]
    fn tests_of_core_and_other_crates_may() {
        let text = "let now = Instant::now();\n";
        assert_eq!(lines(check, "crates/exec-core/tests/it/main.rs", text), NOWHERE);
        assert_eq!(lines(check, "crates/exec-local/src/a.rs", text), NOWHERE);
    }
}
