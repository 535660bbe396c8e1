//! JSON strings: what they say once their escapes are resolved.

/// What a JSON string says.
pub(super) enum Text<'de> {
    Plain(&'de str),
    Unescaped(String),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Unescaped(text) => text,
        }
    }
}

/// What the inside of a JSON string says; `None` if its escapes are broken.
pub(crate) fn unescape(inside: &str) -> Option<String> {
    let mut said = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(backslash) = rest.find('\\') {
        said.push_str(&rest[..backslash]);
        let (character, used) = match *rest.as_bytes().get(backslash + 1)? {
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'n' => ('\n', 2),
            b'r' => ('\r', 2),
            b't' => ('\t', 2),
            b'u' => code_point(rest.as_bytes(), backslash)?,
            plain @ (b'"' | b'\\' | b'/') => (char::from(plain), 2),
            _ => return None,
        };
        said.push(character);
        rest = &rest[backslash + used..];
    }
    said.push_str(rest);
    Some(said)
}

/// The character of the escape at `at`, and the length of the escape; a surrogate needs its other half.
fn code_point(bytes: &[u8], at: usize) -> Option<(char, usize)> {
    let first = hex4(bytes, at + 2)?;
    match first {
        0xd800..=0xdbff => {
            if bytes.get(at + 6..at + 8)? != b"\\u" {
                return None;
            }
            let pair = [first, hex4(bytes, at + 8)?];
            let character = char::decode_utf16(pair).next()?.ok()?;
            Some((character, 12))
        }
        _ => Some((char::from_u32(u32::from(first))?, 6)),
    }
}

/// The number that four hex digits say.
pub(crate) fn hex4(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | digit as u16)
    })
}
