//! Wire error codes are known to one file per side, and to the crate that names them.

use super::{Tree, Violation};

const MAY_NAME_CODES: &[&str] = &[
    "crates/exec-wire/",
    "crates/exec-rpc/src/reply.rs",
    "crates/exec-app-server/src/reply.rs",
    "crates/exec-client/src/error.rs",
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let shipped = tree.sources.iter().filter(|source| source.path.starts_with("crates/"));
    for source in shipped.filter(|source| !MAY_NAME_CODES.iter().any(|at| source.path.starts_with(at))) {
        for (offset, _) in source.code_and_quotes.match_indices("-32") {
            let line = source.line_at(offset);
            if is_code(&source.code_and_quotes, offset) && !source.is_test_line(line) {
                let what = "a wire error code; return an error of the verb, and let `reply.rs` \
                            (server) or `error.rs` (client) translate it";
                found.push(Violation::new(&source.path, line, what));
            }
        }
    }
    found
}

/// Whether a number of the range that JSON-RPC reserves begins with the minus at `offset`.
fn is_code(text: &str, offset: usize) -> bool {
    let after = &text[offset + 1..];
    let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
    let number = after[..end].replace('_', "").parse::<u32>();
    // A letter or digit before the minus makes it a part of an identifier in quotes, or a sum.
    let part = text[..offset].bytes().next_back().is_some_and(crate::source::is_word);
    // 32768 is left out: it is the smallest `i16`, and nobody's error code.
    !part && number.is_ok_and(|number| (32_000..=32_767).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    const TEXT: &str = "let a = -32600;\nlet b = \"{\\\"code\\\":-32_004}\";\nf(-32010)\n";

    #[test]
    fn a_code_is_reported_as_a_number_and_in_quotes() {
        assert_eq!(lines(check, "crates/exec-rpc/src/dispatch.rs", TEXT), [1, 2, 3]);
    }

    #[test]
    fn those_who_know_codes_and_tests_may_write_them() {
        for path in [
            "crates/exec-wire/src/codes.rs",
            "crates/exec-rpc/src/reply.rs",
            "crates/exec-client/src/error.rs",
            "crates/exec-rpc/tests/it/main.rs",
        ] {
            assert_eq!(lines(check, path, TEXT), NOWHERE, "{path}");
        }
    }

    #[test]
    fn other_numbers_and_comments_are_no_codes() {
        let text = "// -32600\nlet a = -32;\nlet b = -320000;\nlet c = \"ab-32600\";\nlet d = -32768;\n";
        assert_eq!(lines(check, "crates/exec-rpc/src/a.rs", text), NOWHERE);
    }
}
