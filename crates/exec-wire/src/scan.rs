//! One pass over the text of a message: is it JSON, and is it within bounds?
//!
//! The pass checks syntax, the number of values, the depth, and that no object has a key twice, and keeps nothing but
//! the members of the root, as slices of the text. It builds no tree and copies no value. What passed needs no
//! further check of its syntax: a [`RawJson`] can only come from here.
//!
//! The scanner does not say why a text was refused. That is asked rarely and must be told in the exact words of
//! Codex's server, so [`refusal_reason`] reads the text once more with `serde_json`, which those words come from.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::decode::{self, DecodeError};
use crate::limits::{MESSAGE_DEPTH, MESSAGE_VALUES};

/// A piece of JSON text that has passed the scanner: one complete value, within bounds, no key twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawJson<'a> {
    text: &'a str,
    /// Whether the decoder must go, or is faster if it goes, by way of a tree; see [`decode::needs_tree`].
    by_tree: bool,
}

impl<'a> RawJson<'a> {
    /// What an absent member means.
    pub const NULL: RawJson<'static> = RawJson { text: "null", by_tree: false };

    /// Scans one value that stands alone, as a file or a test has it.
    pub fn parse(text: &'a str) -> Result<Self, DecodeError> {
        match scan(text) {
            Ok(Scanned { trailing: false, by_tree, .. }) => Ok(Self { text: text.trim_matches(is_space), by_tree }),
            _ => Err(DecodeError::new(refusal_reason(text))),
        }
    }

    /// Text that has passed the scanner before.
    pub(crate) fn trusted(text: &'a str, by_tree: bool) -> Self {
        Self { text, by_tree }
    }

    pub fn as_str(&self) -> &'a str {
        self.text
    }

    pub(crate) fn by_tree(&self) -> bool {
        self.by_tree
    }

    /// Reads the value as a `T`.
    pub fn decode<T: Deserialize<'a>>(&self) -> Result<T, DecodeError> {
        decode::decode(*self)
    }
}

pub(crate) type Members<'a> = Vec<(Cow<'a, str>, RawJson<'a>)>;

#[derive(Debug)]
pub(crate) struct Scanned<'a> {
    /// The members of the root in their order, if it is an object.
    pub(crate) members: Option<Members<'a>>,
    /// Whether something other than white space follows the root.
    pub(crate) trailing: bool,
    by_tree: bool,
}

/// The text is not JSON, or not within bounds; [`refusal_reason`] finds out why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanError;

pub(crate) fn scan(text: &str) -> Result<Scanned<'_>, ScanError> {
    let mut scanner =
        Scanner { text, bytes: text.as_bytes(), at: 0, values: 0, unusual_numbers: false, keys: Vec::new() };
    let members = scanner.root()?;
    let by_tree = decode::needs_tree(scanner.at, scanner.values, scanner.unusual_numbers);
    scanner.skip_space();
    Ok(Scanned { members, trailing: scanner.at < text.len(), by_tree })
}

/// The end of the run of characters that stand for themselves in a JSON string: the next quote, backslash or control
/// character. In large steps, because payloads of megabytes are strings.
pub(crate) fn plain_text_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    at + find_control_character(&rest[..end]).unwrap_or(end)
}

/// Eight bytes at a time: a byte below 0x20, and only such a one, has its highest bit clear, and set once 0x20 is taken
/// away.
fn find_control_character(run: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    let below = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80)
    };
    let (blocks, _) = run.as_chunks::<64>();
    let plain = |block: &&[u8; 64]| block.as_chunks().0.iter().fold(0, |any, word| any | below(word)) == 0;
    let start = blocks.iter().take_while(plain).count() * 64;
    run[start..].iter().position(|byte| *byte < 0x20).map(|at| start + at)
}

/// JSON's white space, which is less than Unicode's.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    values: usize,
    /// Whether a number was not a plain integer of at most 19 characters, which fits 64 bits.
    unusual_numbers: bool,
    /// The keys of all objects that are open, on one stack; an object looks only at its own, on top.
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
            let (start, values) = (self.at, self.values);
            let unusual_before = std::mem::take(&mut self.unusual_numbers);
            self.value(2)?;
            let by_tree = decode::needs_tree(self.at - start, self.values - values, self.unusual_numbers);
            self.unusual_numbers |= unusual_before;
            members.push((key, RawJson { text: &self.text[start..self.at], by_tree }));
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
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
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
        let first_key = self.keys.len();
        loop {
            let key = self.key()?;
            self.keys.push(key);
            self.value(depth + 1)?;
            if !self.has_next(b'}')? {
                break;
            }
        }
        if has_duplicates(&mut self.keys[first_key..]) {
            return Err(ScanError);
        }
        self.keys.truncate(first_key);
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

    /// Passes a comma, or the end of the container.
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

    /// Passes a key, its colon, and the space up to the value.
    fn key(&mut self) -> Result<Cow<'a, str>, ScanError> {
        if self.peek() != Some(b'"') {
            return Err(ScanError);
        }
        let start = self.at + 1;
        let escaped = self.string()?;
        let inside = &self.text[start..self.at - 1];
        let key = match escaped {
            false => Cow::Borrowed(inside),
            true => Cow::Owned(serde_json::from_str(&self.text[start - 1..self.at]).map_err(|_| ScanError)?),
        };
        self.skip_space();
        if !self.eat(b':') {
            return Err(ScanError);
        }
        self.skip_space();
        Ok(key)
    }

    /// Passes a string from quote to quote, and tells whether it has escapes.
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
        let digits = self.bytes.get(self.at..self.at + 4).ok_or(ScanError)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(ScanError)?;
            Ok(unit << 4 | digit as u16)
        })
    }

    fn number(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        } else if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(ScanError);
        }
        let integer = &self.bytes[start..self.at];
        self.unusual_numbers |=
            integer.len() > 19 || integer == b"-0" || matches!(self.peek(), Some(b'.' | b'e' | b'E'));
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

    fn literal(&mut self, literal: &str) -> Result<(), ScanError> {
        if !self.bytes[self.at..].starts_with(literal.as_bytes()) {
            return Err(ScanError);
        }
        self.at += literal.len();
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

/// Why `text` was refused, in the words of Codex's server: those of `serde_json`, with line and column.
pub(crate) fn refusal_reason(text: &str) -> String {
    let budget = Cell::new(MESSAGE_VALUES);
    let mut json = serde_json::Deserializer::from_str(text);
    match (BoundedVisitor { budget: &budget }).deserialize(&mut json) {
        Err(error) => error.to_string(),
        Ok(()) => match json.end() {
            Err(error) => error.to_string(),
            Ok(()) => "invalid JSON".to_owned(),
        },
    }
}

/// Reads any value and keeps nothing. The budget is taken before a value is read, because
/// the column in the text depends on it.
#[derive(Clone, Copy)]
struct BoundedVisitor<'b> {
    budget: &'b Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for BoundedVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.budget.get().checked_sub(1) {
            Some(left) => self.budget.set(left),
            None => {
                return Err(de::Error::custom(format_args!(
                    "JSON-RPC message exceeds the limit of {MESSAGE_VALUES} JSON values"
                )));
            }
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(de::Error::custom(format_args!("duplicate JSON object key `{key}`")));
            }
            seen.insert(key);
            members.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain_text_end;

    proptest! {
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
