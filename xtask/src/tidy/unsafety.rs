//! `unsafe` only in the two rooms that need it, and each with its reason.
//!
//! The reason stands in a `// SAFETY:` comment directly above the block, or above the statement the
//! block is part of. Whether it is a good one is for the reviewer. An `unsafe fn` states its demands
//! in its documentation, which clippy asks for.

use crate::source::Source;

use super::{Tree, Violation};

const ROOMS: &[&str] = &["exec-keeper", "exec-sandbox"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in &tree.sources {
        for offset in source.words("unsafe") {
            let line = source.line_at(offset);
            if !ROOMS.contains(&source.room()) {
                let what = "`unsafe` outside exec-keeper and exec-sandbox; use a safe call, or \
                            move the call there behind a safe function";
                found.push(Violation::new(&source.path, line, what));
            } else if needs_reason(&source.code[offset..]) && !has_reason(source, line) {
                let what = "`unsafe` without a reason; write `// SAFETY: ...` directly above it: \
                            why it is needed and why it is sound";
                found.push(Violation::new(&source.path, line, what));
            }
        }
    }
    found
}

/// Whether this is a block, an impl or a block of foreign declarations.
fn needs_reason(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    if let Some(after) = rest.strip_prefix("extern") {
        // `unsafe extern "C" fn` is a function; its ABI is quoted and so already blank here.
        return after.trim_start().starts_with('{');
    }
    rest.starts_with('{') || rest.starts_with("impl")
}

/// Walks up from the line: over comments, attributes and the beginning of the same statement.
fn has_reason(source: &Source, line: usize) -> bool {
    let mut line = line;
    loop {
        if source.comment_line(line).contains("SAFETY:") {
            return true;
        }
        line -= 1;
        let code = source.code_line(line).trim();
        let comment = source.comment_line(line).trim();
        let comment_only = code.is_empty() && !comment.is_empty();
        let goes_on = !code.is_empty() && (code.starts_with("#[") || !ends_something(code));
        if !comment_only && !goes_on {
            return false;
        }
    }
}

/// Whether a statement, an argument or a block ends or begins with this line.
fn ends_something(code: &str) -> bool {
    code.ends_with([';', '{', '}', ','])
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    const KEEPER: &str = "crates/exec-keeper/src/a.rs";

    #[test]
    fn unsafe_is_refused_elsewhere_even_with_a_reason() {
        let text = "// SAFETY: it is fine.\nunsafe { f() };\n";
        assert_eq!(lines(check, "crates/exec-local/src/a.rs", text), [2]);
        assert_eq!(lines(check, "crates/exec-local/tests/it/main.rs", text), [2]);
    }

    #[test]
    fn the_word_in_comments_strings_and_names_is_not_meant() {
        let text = "// unsafe {\nlet s = \"unsafe {\";\n#![allow(unsafe_code)]\n";
        assert_eq!(lines(check, "crates/exec-local/src/a.rs", text), NOWHERE);
    }

    #[test]
    fn a_block_without_its_reason_directly_above_is_reported() {
        let text = "// SAFETY: for a.\nunsafe { a() };\nunsafe { b() };\n\nunsafe impl Send for C {}\n";
        assert_eq!(lines(check, KEEPER, text), [3, 5]);
        assert_eq!(lines(check, KEEPER, "// SAFETY: far away.\n\nunsafe { a() };\n"), [3]);
        assert_eq!(lines(check, KEEPER, "unsafe { a() };\n"), [1]);
    }

    #[test]
    fn a_reason_may_span_lines_and_stand_above_the_statement() {
        let text = "// SAFETY: one line,\n// and another.\n#[allow(x)]\nlet a =\n    unsafe { a() };\n";
        assert_eq!(lines(check, KEEPER, text), NOWHERE);
        assert_eq!(lines(check, KEEPER, "let a = unsafe { a() }; // SAFETY: beside it\n"), NOWHERE);
    }

    #[test]
    fn an_unsafe_function_argues_in_its_documentation() {
        let text = "unsafe fn a() {}\nunsafe extern \"C\" fn b() {}\nunsafe extern \"C\" {\n}\n";
        assert_eq!(lines(check, KEEPER, text), [3]);
    }
}
