//! Tells code, comments and quoted text apart, byte by byte.
//!
//! It knows nested block comments, escapes, raw strings with any number of hashes, byte and C
//! strings, and the difference between `'a'` and `'a`. It does not know what the code means.

/// What a byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteKind {
    Code,
    /// A line or block comment, with its slashes.
    Comment,
    /// A string or character literal, with its quotes.
    Quoted,
}

/// The kind of every byte of the text.
pub(super) fn classify(text: &str) -> Vec<ByteKind> {
    let bytes = text.as_bytes();
    let mut kinds = vec![ByteKind::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (kind, end) = token(bytes, at);
        kinds[at..end].fill(kind);
        at = end;
    }
    kinds
}

/// The text with every byte of another kind turned into a blank; lines stay where they are.
pub(super) fn only(text: &str, kinds: &[ByteKind], kept: &[ByteKind]) -> String {
    let shown =
        text.bytes().zip(kinds).map(|(byte, kind)| if byte == b'\n' || kept.contains(kind) { byte } else { b' ' });
    // A character never has bytes of two kinds, so it is kept or blanked whole.
    String::from_utf8(shown.collect()).expect("kinds change only between characters")
}

/// The kind and the end of what begins at `at`; for code, one character.
fn token(bytes: &[u8], at: usize) -> (ByteKind, usize) {
    match bytes[at] {
        b'/' if bytes[at..].starts_with(b"//") => (ByteKind::Comment, end_of_line(bytes, at)),
        b'/' if bytes[at..].starts_with(b"/*") => (ByteKind::Comment, end_of_block(bytes, at)),
        b'"' => (ByteKind::Quoted, end_of_string(bytes, at)),
        b'r' => match raw_string(bytes, at) {
            Some(end) => (ByteKind::Quoted, end),
            None => (ByteKind::Code, at + 1),
        },
        b'\'' => match char_literal(bytes, at) {
            Some(end) => (ByteKind::Quoted, end),
            None => (ByteKind::Code, at + 1),
        },
        _ => (ByteKind::Code, at + char_length(bytes, at)),
    }
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    let rest = bytes[at..].iter().position(|byte| *byte == b'\n');
    rest.map_or(bytes.len(), |length| at + length)
}

fn end_of_block(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a raw string whose `r` stands at `at`, or `None` for the letter and for `r#name`.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    // `br` and `cr` are prefixes; any other letter before it makes the `r` the end of a name.
    let before = at.checked_sub(1).map(|index| bytes[index]);
    if before.is_some_and(|byte| super::is_word(byte) && !matches!(byte, b'b' | b'c')) {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// The end of a character literal whose quote stands at `at`, or `None` for a lifetime.
fn char_literal(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        // The escaped character may itself be a quote; what follows it (`\u{...}`) has none.
        let rest = bytes.get(at + 3..)?.iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + rest + 1);
    }
    let close = at + 1 + char_length(bytes, at + 1);
    (bytes.get(close) == Some(&b'\'')).then_some(close + 1)
}

/// How many bytes the UTF-8 character at `at` has.
fn char_length(bytes: &[u8], at: usize) -> usize {
    let more = bytes[at + 1..].iter().take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000);
    1 + more.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of a text, with runs of blanks made one.
    fn code(text: &str) -> String {
        let code = only(text, &classify(text), &[ByteKind::Code]);
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_of_both_forms_are_no_code() {
        assert_eq!(code("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(code("a /// \"b\nc"), "a c");
    }

    #[test]
    fn quotes_hide_comments_and_comments_hide_quotes() {
        assert_eq!(code(r#"a("// b"); c"#), "a( ); c");
        assert_eq!(code("a // it's \"b\nc"), "a c");
        assert_eq!(code("a /* \" */ b"), "a b");
    }

    #[test]
    fn an_escaped_quote_does_not_end_a_string() {
        assert_eq!(code(r#"a("b\"{ c\\"); d"#), "a( ); d");
    }

    #[test]
    fn raw_strings_end_with_as_many_hashes_as_they_began() {
        assert_eq!(code(r###"a(r#"b"{c"#, br"\", r##""#"##); d"###), "a( , b , ); d");
        assert_eq!(code(r##"let r#type = var"{"; d"##), "let r#type = var ; d");
    }

    #[test]
    fn a_brace_in_a_character_is_no_code_and_a_lifetime_is() {
        assert_eq!(code(r"f('{', '\'', '\u{7d}', b'\\', 'ß') g"), "f( , , , b , ) g");
        assert_eq!(code("fn f<'a>(x: &'a str, y: &'static str)"), "fn f<'a>(x: &'a str, y: &'static str)");
        assert_eq!(code("'outer: loop { break 'outer; }"), "'outer: loop { break 'outer; }");
    }

    #[test]
    fn every_view_keeps_the_lines() {
        let text = "a\n/* b\nc */ \"d\ne\" f\n";
        for kept in [ByteKind::Code, ByteKind::Comment, ByteKind::Quoted] {
            let view = only(text, &classify(text), &[kept]);
            assert_eq!((view.len(), view.lines().count()), (text.len(), 4));
        }
    }

    #[test]
    fn an_unfinished_text_ends_with_the_file() {
        for text in ["\"a", "/* a", "r#\"a\"", "'", "'\\", "a\\", "\"\\"] {
            assert_eq!(classify(text).len(), text.len(), "{text}");
        }
    }
}
