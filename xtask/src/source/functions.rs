//! Finds functions and test items by words and braces.
//!
//! A body is what stands between the first brace outside all parentheses and the brace that matches
//! it. That holds for functions in traits, impls, macros' arguments and other functions alike; a
//! function whose name a macro makes up (`fn $name`) is not seen.

use std::ops::RangeInclusive;

use super::{Source, is_word};

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The line of the word `fn`.
    pub(crate) line: usize,
    /// The lines between its braces.
    pub(crate) body_lines: usize,
}

/// All functions of a file.
pub(super) fn functions(source: &Source) -> Vec<Function> {
    source.words("fn").filter_map(|offset| function(source, offset)).collect()
}

/// The lines of all `#[cfg(test)]` items, attribute included.
pub(super) fn test_regions(source: &Source) -> Vec<RangeInclusive<usize>> {
    const MARK: &str = "#[cfg(test)]";
    let marks = source.code.match_indices(MARK);
    let regions = marks.map(|(offset, _)| {
        let after = offset + MARK.len();
        let end = body(&source.code, after).map_or(after, |(_, close)| close);
        source.line_at(offset)..=source.line_at(end)
    });
    regions.collect()
}

fn function(source: &Source, offset: usize) -> Option<Function> {
    let rest = source.code[offset + "fn".len()..].trim_start();
    let name: String = rest.bytes().take_while(|byte| is_word(*byte)).map(char::from).collect();
    if name.is_empty() {
        // A type: `fn(u8) -> u8`.
        return None;
    }
    let (open, close) = body(&source.code, offset)?;
    let between = source.line_at(close) - source.line_at(open);
    Some(Function { name, line: source.line_at(offset), body_lines: between.saturating_sub(1) })
}

/// The braces of the item that goes on at `from`, or `None` if it ends with a semicolon.
fn body(code: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = code.as_bytes();
    let mut nesting = 0_usize;
    let mut at = from;
    let open = loop {
        match bytes.get(at)? {
            b'(' | b'[' => nesting += 1,
            // An item cannot reach beyond the parenthesis it stands in.
            b')' | b']' => nesting = nesting.checked_sub(1)?,
            b'{' if nesting == 0 => break at,
            b';' if nesting == 0 => return None,
            _ => {}
        }
        at += 1;
    };
    let mut depth = 0_usize;
    for (index, byte) in bytes[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((open, open + index));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, usize, usize)> {
        let functions = Source::scan("a.rs", text).functions();
        functions.into_iter().map(|found| (found.name, found.line, found.body_lines)).collect()
    }

    #[test]
    fn a_body_is_counted_between_its_braces() {
        assert_eq!(
            found("fn a() {}\n\nfn b() {\n    1;\n    2;\n}\n"),
            [("a".to_owned(), 1, 0), ("b".to_owned(), 3, 2)]
        );
    }

    #[test]
    fn braces_in_quotes_and_comments_do_not_end_a_body() {
        let text = "fn a() {\n    say(\"}\", '}', r#\"}\"#);\n    // }\n    /* } */\n}\nfn b() {}\n";
        assert_eq!(found(text), [("a".to_owned(), 1, 3), ("b".to_owned(), 6, 0)]);
    }

    #[test]
    fn a_signature_may_hold_semicolons_and_braces_in_brackets() {
        let text = "fn a(x: [u8; 3]) -> [u8; { N }]\nwhere\n    [(); N]: Sized,\n{\n    x\n}\n";
        assert_eq!(found(text), [("a".to_owned(), 1, 1)]);
    }

    #[test]
    fn types_declarations_and_names_with_fn_in_them_are_no_functions() {
        let text = "type F = fn(u8) -> u8;\ntrait T { fn a(&self); }\nlet my_fn = 1;\n";
        assert_eq!(found(text), []);
    }

    #[test]
    fn a_function_inside_another_is_counted_in_both() {
        let text = "fn a() {\n    fn b() {\n        1\n    }\n}\n";
        assert_eq!(found(text), [("a".to_owned(), 1, 3), ("b".to_owned(), 2, 1)]);
    }

    #[test]
    fn a_test_module_in_its_own_file_covers_only_its_declaration() {
        let source = Source::scan("a.rs", "#[cfg(test)]\nmod tests;\nfn a() {\n}\n");
        assert_eq!(test_regions(&source), [1..=1]);
    }
}
