//! `unsafe` only in the crates that need it. That each block has its `// SAFETY:` reason is clippy's
//! `undocumented_unsafe_blocks`.

use super::{Tree, Violation};

const MAY_BE_UNSAFE: &[&str] = &["exec-keeper", "exec-sandbox"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !MAY_BE_UNSAFE.contains(&source.crate_name())) {
        for offset in source.words("unsafe") {
            let what = "`unsafe` outside exec-keeper and exec-sandbox; use a safe call, or move the call there behind a \
                        safe function";
            found.push(Violation::new(&source.path, source.line_at(offset), what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    #[test]
    fn unsafe_is_refused_elsewhere_even_with_a_reason() {
        let text = "// SAFETY: it is fine.\nunsafe { f() };\n";
        assert_eq!(lines(check, "crates/exec-local/src/a.rs", text), [2]);
        assert_eq!(lines(check, "crates/exec-local/tests/it/main.rs", text), [2]);
        assert_eq!(lines(check, "crates/exec-keeper/src/a.rs", text), NOWHERE);
    }

    #[test]
    fn the_word_in_comments_strings_and_names_is_not_meant() {
        let text = "// unsafe {\nlet s = \"unsafe {\";\n#![allow(unsafe_code)]\n";
        assert_eq!(lines(check, "crates/exec-local/src/a.rs", text), NOWHERE);
    }
}
