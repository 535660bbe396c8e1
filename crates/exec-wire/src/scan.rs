//! One pass over the text of a message: is it JSON, and is it within bounds?
//!
//! The pass checks syntax, the number of values, the depth, and that no object says a key twice, and keeps nothing but
//! the members of the root, as slices of the text. It builds no tree and copies no value. What passed needs no
//! further check of its syntax: a [`RawJson`] can only come from here.
//!
//! It deliberately does not say *why* a text was refused. That is asked rarely and must be told in the exact words of
//! the original server, so [`reason`] reads the text once more with `serde_json` itself, which those words come from.

mod reason;

use std::borrow::Cow;

use serde::Deserialize;

use crate::decode::{self, DecodeError};
use crate::limits::{MESSAGE_DEPTH, MESSAGE_VALUES};

pub(crate) use self::reason::reason;

/// A piece of JSON text that has passed the scanner: one complete value, within bounds, no key twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// What an absent member means.
    pub const NULL: RawJson<'static> = RawJson("null");

    /// Scans one value that stands alone, as a file or a test has it.
    pub fn parse(text: &'a str) -> Result<Self, DecodeError> {
        let scanned = scan(text).map_err(|ScanError| DecodeError::new(reason(text)))?;
        if scanned.trailing {
            return Err(DecodeError::new(reason(text)));
        }
        Ok(Self(text.trim_matches(is_space)))
    }

    /// Text that has passed before, from a place that kept it.
    pub(crate) fn trusted(text: &'a str) -> Self {
        Self(text)
    }

    /// The text as it came.
    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Reads the value as a `T`.
    pub fn decode<T: Deserialize<'a>>(&self) -> Result<T, DecodeError> {
        decode::from_raw(*self)
    }
}

/// The members of an object in their order.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, RawJson<'a>)>;

/// What the pass found.
#[derive(Debug)]
pub(crate) struct Scanned<'a> {
    /// The members of the root in their order, if it is an object.
    pub(crate) members: Option<Members<'a>>,
    /// Whether something other than white space follows the root.
    pub(crate) trailing: bool,
}

/// The text is not JSON, or not within bounds; [`reason`] knows more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanError;

/// Makes the pass.
pub(crate) fn scan(text: &str) -> Result<Scanned<'_>, ScanError> {
    let mut scanner = Scanner { text, bytes: text.as_bytes(), at: 0, values: 0, keys: Vec::new() };
    let members = scanner.root()?;
    scanner.skip_space();
    Ok(Scanned { members, trailing: scanner.at < text.len() })
}

/// The end of the run of characters that stand for themselves in a JSON string: the next quote, backslash or control
/// character. In large steps, because payloads of megabytes are strings.
pub(crate) fn plain_text_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    at + control(&rest[..end]).unwrap_or(end)
}

/// Where the first control character is. Eight bytes at a time: one below 0x20, and only such a one, has its highest bit
/// clear, and set once 0x20 is taken away.
fn control(run: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    let below = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80)
    };
    let (steps, _) = run.as_chunks::<64>();
    let plain = |step: &&[u8; 64]| step.as_chunks().0.iter().fold(0, |any, word| any | below(word)) == 0;
    let start = steps.iter().take_while(plain).count() * 64;
    run[start..].iter().position(|byte| *byte < 0x20).map(|at| start + at)
}

/// JSON's white space, which is less than Unicode's.
pub(crate) fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    values: usize,
    /// Keys of all objects that are open, one stack for all; an object looks only at its own end of it.
    keys: Vec<Cow<'a, str>>,
}

impl<'a> Scanner<'a> {
    fn root(&mut self) -> Result<Option<Members<'a>>, ScanError> {
        self.skip_space();
        if self.peek() != Some(b'{') {
            self.value(1)?;
            return Ok(None);
        }
        self.values += 1;
        self.at += 1;
        let mut members = Vec::with_capacity(6);
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Some(members));
        }
        loop {
            let key = self.key()?;
            let start = self.at;
            self.value(2)?;
            members.push((key, RawJson(&self.text[start..self.at])));
            if !self.has_next(b'}')? {
                break;
            }
        }
        let mut names = members.iter().map(|(key, _)| key).collect::<Vec<_>>();
        if has_duplicates(&mut names) {
            return Err(ScanError);
        }
        Ok(Some(members))
    }

    fn value(&mut self, depth: usize) -> Result<(), ScanError> {
        self.values += 1;
        if self.values > MESSAGE_VALUES {
            return Err(ScanError);
        }
        match self.peek().ok_or(ScanError)? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(drop),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), ScanError> {
        if depth > MESSAGE_DEPTH {
            return Err(ScanError);
        }
        self.at += 1;
        self.skip_space();
        if self.eat(b'}') {
            return Ok(());
        }
        let mine = self.keys.len();
        loop {
            let key = self.key()?;
            self.keys.push(key);
            self.value(depth + 1)?;
            if !self.has_next(b'}')? {
                break;
            }
        }
        if has_duplicates(&mut self.keys[mine..]) {
            return Err(ScanError);
        }
        self.keys.truncate(mine);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), ScanError> {
        if depth > MESSAGE_DEPTH {
            return Err(ScanError);
        }
        self.at += 1;
        self.skip_space();
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            if !self.has_next(b']')? {
                return Ok(());
            }
        }
    }

    /// After a value: a comma and more, or the end.
    fn has_next(&mut self, end: u8) -> Result<bool, ScanError> {
        self.skip_space();
        if self.eat(end) {
            return Ok(false);
        }
        if !self.eat(b',') {
            return Err(ScanError);
        }
        self.skip_space();
        Ok(true)
    }

    /// A key, its colon, and the space up to the value.
    fn key(&mut self) -> Result<Cow<'a, str>, ScanError> {
        if self.peek() != Some(b'"') {
            return Err(ScanError);
        }
        let start = self.at + 1;
        let escaped = self.string()?;
        let inside = &self.text[start..self.at - 1];
        let key = match escaped {
            false => Cow::Borrowed(inside),
            true => Cow::Owned(decode::unescape(inside).ok_or(ScanError)?),
        };
        self.skip_space();
        if !self.eat(b':') {
            return Err(ScanError);
        }
        self.skip_space();
        Ok(key)
    }

    /// A string from quote to quote; tells whether it has escapes.
    fn string(&mut self) -> Result<bool, ScanError> {
        self.at += 1;
        let mut escaped = false;
        loop {
            self.at = plain_text_end(self.bytes, self.at);
            match self.peek().ok_or(ScanError)? {
                b'"' => {
                    self.at += 1;
                    return Ok(escaped);
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(ScanError),
            }
        }
    }

    fn escape(&mut self) -> Result<(), ScanError> {
        self.at += 1;
        let kind = self.peek().ok_or(ScanError)?;
        self.at += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => match self.hex4()? {
                0xdc00..=0xdfff => Err(ScanError),
                0xd800..=0xdbff => {
                    if !(self.eat(b'\\') && self.eat(b'u')) {
                        return Err(ScanError);
                    }
                    match self.hex4()? {
                        0xdc00..=0xdfff => Ok(()),
                        _ => Err(ScanError),
                    }
                }
                _ => Ok(()),
            },
            _ => Err(ScanError),
        }
    }

    fn hex4(&mut self) -> Result<u16, ScanError> {
        let unit = decode::hex4(self.bytes, self.at).ok_or(ScanError)?;
        self.at += 4;
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), ScanError> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        } else if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(ScanError);
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(ScanError);
        }
        Ok(())
    }

    fn word(&mut self, word: &str) -> Result<(), ScanError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(ScanError);
        }
        self.at += word.len();
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }
}

/// Whether two of the keys are the same. Most objects are small, and comparing all pairs is then the cheapest way; a
/// large one is sorted, so that no text can make this quadratic.
fn has_duplicates<T: Ord>(keys: &mut [T]) -> bool {
    if keys.len() <= 16 {
        return (1..keys.len()).any(|later| keys[..later].contains(&keys[later]));
    }
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain_text_end;

    proptest! {
        /// Large steps end where small ones would.
        #[test]
        fn a_plain_run_ends_at_the_first_character_that_does_not_stand_for_itself(
            mut bytes in proptest::collection::vec(0x20..=0xff_u8, 0..300),
            special in proptest::option::of((any::<proptest::sample::Index>(), prop_oneof![Just(b'"'), Just(b'\\'), 0..0x20_u8])),
            from in any::<proptest::sample::Index>(),
        ) {
            if let Some((at, byte)) = special && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let from = from.index(bytes.len() + 1);
            let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
            let expected = bytes[from..].iter().position(ends).map_or(bytes.len(), |at| from + at);
            prop_assert_eq!(plain_text_end(&bytes, from), expected);
        }
    }
}
