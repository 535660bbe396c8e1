//! Text without what only a terminal understands.

use wide::u8x16;

/// What is looked at before it is asked whether there is something in it.
const BLOCK_BYTES: usize = 64;

/// `line` without escape sequences (ECMA-48: CSI, OSC, DCS and the others) and control characters; tabs stay. An escape
/// sequence that does not end in this line is removed up to its end.
pub fn without_escapes(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match byte {
            ESCAPE => behind_escape(behind),
            b'\t' => {
                plain.push(byte);
                behind
            }
            0..0x20 | 0x7f => behind,
            _ => {
                // Text is copied in runs, because most lines are nothing else.
                let run = rest.iter().position(|byte| *byte < 0x20 || *byte == 0x7f).unwrap_or(rest.len());
                plain.extend_from_slice(&rest[..run]);
                &rest[run..]
            }
        };
    }
    plain
}

/// What [`plain_prefix`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlainPrefix {
    pub(super) bytes: usize,
    /// Line ends among them.
    pub(super) lines: u64,
}

/// How many bytes from the beginning have no escape sequence, no control character but tabs and line ends, and no carriage
/// return but before a line end: of these, nothing is removed but those carriage returns.
pub(super) fn plain_prefix(bytes: &[u8]) -> PlainPrefix {
    let (mut at, mut lines) = (0, 0);
    loop {
        while let Some(text) = bytes.get(at..at + TEXT_BYTES)
            && let Some(ends) = lines_of_text(text)
        {
            at += TEXT_BYTES;
            lines += ends;
        }
        // Something in what follows, and be it only a tab, needs a closer look.
        let end = bytes.len().min(at + TEXT_BYTES);
        let special = first_special(&bytes[at..bytes.len().min(end + 1)], end - at);
        let plain_end = special.map_or(end, |offset| at + offset);
        lines += memchr::memchr_iter(b'\n', &bytes[at..plain_end]).count() as u64;
        if special.is_some() || end == bytes.len() {
            return PlainPrefix { bytes: plain_end, lines };
        }
        at = end;
    }
}

/// What is taken for text or not as a whole. A lane of a vector counts the line ends of its column, four of each block, and must
/// not overflow.
const TEXT_BYTES: usize = 63 * BLOCK_BYTES;

/// How many lines end in `text`, if that has no control character but line ends, as most output has not; its length
/// must be that of whole blocks, [`TEXT_BYTES`] at most. For each byte this is a third of the work of [`specials`], and
/// as much output passes here as can be read.
fn lines_of_text(text: &[u8]) -> Option<u64> {
    let (mut lowest, mut deletes, mut ends) = (u8x16::splat(0xff), u8x16::splat(0), u8x16::splat(0));
    for block in text.as_chunks::<BLOCK_BYTES>().0 {
        for vector in block.as_chunks::<16>().0 {
            let bytes = u8x16::new(*vector);
            let is_end = bytes.simd_eq(u8x16::splat(b'\n'));
            // What is so is 0xff, which is -1, and above all that is looked for.
            ends -= is_end;
            lowest = lowest.min(bytes | is_end);
            deletes |= bytes.simd_eq(u8x16::splat(0x7f));
        }
    }
    let has_control = lowest.min(u8x16::splat(0x1f)).simd_eq(lowest) | deletes;
    (!has_control.any()).then(|| ends.to_array().iter().map(|ends| u64::from(*ends)).sum())
}

/// Where the first special byte is among the first `len`. What follows the last byte of `bytes` is not known.
fn first_special(bytes: &[u8], len: usize) -> Option<usize> {
    let mut at = 0;
    loop {
        at += blocks_without_controls(&bytes[at..]);
        let end = len.min(at + BLOCK_BYTES);
        if at >= end {
            return None;
        }
        let following = bytes[at..].iter().skip(1).chain(&[0]);
        let mut pairs = bytes[at..end].iter().zip(following);
        if let Some(offset) = pairs.position(|(byte, next)| is_special(*byte, *next)) {
            return Some(at + offset);
        }
        at = end;
    }
}

/// How many bytes at the beginning, in whole blocks, certainly have nothing special. A block of which the next byte is not known
/// does not count.
///
/// Sixteen bytes at a time and by hand: a release is optimised for size as a whole, so the compiler makes no vector
/// instructions of a simpler loop.
fn blocks_without_controls(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(block) = bytes.get(at..at + BLOCK_BYTES + 1) {
        let (vectors, following) = (block[..BLOCK_BYTES].as_chunks().0, block[1..].as_chunks().0);
        let special =
            vectors.iter().zip(following).map(|(bytes, next)| specials(u8x16::new(*bytes), u8x16::new(*next)));
        if special.fold(u8x16::splat(0), |any, special| any | special).any() {
            break;
        }
        at += BLOCK_BYTES;
    }
    at
}

/// What [`is_special`] says of sixteen bytes and those that follow them: 0xff where it is so.
fn specials(bytes: u8x16, next: u8x16) -> u8x16 {
    let is = |vector: u8x16, byte: u8| vector.simd_eq(u8x16::splat(byte));
    let below_space = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    let permitted = is(bytes, b'\t') | is(bytes, b'\n') | (is(bytes, b'\r') & is(next, b'\n'));
    (below_space & !permitted) | is(bytes, 0x7f)
}

fn is_special(byte: u8, next: u8) -> bool {
    let is_control = (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0x7f);
    let overwrites = (byte == b'\r') & (next != b'\n');
    is_control | overwrites
}

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// What follows the escape sequence whose ESC was just read.
fn behind_escape(rest: &[u8]) -> &[u8] {
    let Some((&kind, behind)) = rest.split_first() else { return rest };
    match kind {
        b'[' => behind_final(behind, 0x20..=0x3f),
        b']' | b'P' | b'X' | b'^' | b'_' => behind_string(behind),
        0x20..=0x2f => behind_final(behind, 0x20..=0x2f),
        0x30..=0x7e => behind,
        // Not a sequence; the byte counts for itself.
        _ => rest,
    }
}

/// Skips parameters and the one byte that ends them.
fn behind_final(rest: &[u8], parameters: std::ops::RangeInclusive<u8>) -> &[u8] {
    let end = rest.iter().position(|byte| !parameters.contains(byte)).unwrap_or(rest.len());
    match rest.get(end) {
        Some(0x30..=0x7e) => &rest[end + 1..],
        _ => &rest[end..],
    }
}

/// Skips a string up to BEL or ST.
fn behind_string(rest: &[u8]) -> &[u8] {
    match memchr::memchr2(BELL, ESCAPE, rest) {
        Some(end) if rest[end] == ESCAPE && rest.get(end + 1) == Some(&b'\\') => &rest[end + 2..],
        // Another sequence ends the string too.
        Some(end) if rest[end] == ESCAPE => &rest[end..],
        Some(end) => &rest[end + 1..],
        None => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(bytes: &[u8], len: usize) -> PlainPrefix {
        PlainPrefix { bytes: len, lines: bytes[..len].iter().filter(|byte| **byte == b'\n').count() as u64 }
    }

    /// Most output is searched as text, several blocks at once; a special byte may be in any of them, and at their ends.
    #[test]
    fn the_plain_prefix_of_long_text_is_as_exact() {
        for text in [&b"only text, "[..], b"text\n", b"\n", b"a\tb\n", b"windows\r\n"] {
            let plain: Vec<u8> = text.iter().copied().cycle().take(3 * TEXT_BYTES + 77).chain(*b"\n").collect();
            assert_eq!(plain_prefix(&plain), prefix(&plain, plain.len()));
            for at in (0..plain.len() - 1).filter(|at| at % 1009 == 0 || (at + 2) % TEXT_BYTES < 4) {
                for special in [0, b'\r', b'\x1b', 0x1f, 0x7f] {
                    let mut bytes = plain.clone();
                    bytes[at] = special;
                    let expected = (0..bytes.len()).find(|at| is_special(bytes[*at], *bytes.get(at + 1).unwrap_or(&0)));
                    let expected = expected.unwrap_or(bytes.len());
                    assert_eq!(plain_prefix(&bytes), prefix(&bytes, expected), "{special} at {at}");
                }
            }
        }
    }

    #[test]
    fn the_plain_prefix_ends_before_the_first_byte_that_is_not_shown() {
        for len in [0, 1, 63, 64, 65, 127, 128, 129, 200] {
            let plain: Vec<u8> = b"text\t\r\n".iter().copied().cycle().take(len).chain(*b"\n").collect();
            assert_eq!(plain_prefix(&plain), prefix(&plain, plain.len()));
            for at in 0..len {
                for special in [b'\x1b', 0, 0x08, 0x7f] {
                    let mut bytes = plain.clone();
                    bytes[at] = special;
                    // A carriage return before it is no longer before a line end.
                    let torn = at.checked_sub(1).filter(|before| bytes[*before] == b'\r');
                    let expected = prefix(&bytes, torn.unwrap_or(at));
                    assert_eq!(plain_prefix(&bytes), expected, "{special} at {at} of {len}");
                }
            }
        }
        assert_eq!(plain_prefix(b"over\rwritten").bytes, 4);
        assert_eq!(plain_prefix(b"what follows is not known\r").bytes, 25);
    }

    #[test]
    fn only_text_and_tabs_stay() {
        for (line, plain) in [
            (&b"plain\ttext"[..], &b"plain\ttext"[..]),
            (b"\x1b[1;31mred\x1b[0m", b"red"),
            (b"\x1b]0;title\x07after", b"after"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"link"),
            (b"\x1bP1$r0m\x1b\\after", b"after"),
            (b"\x1b(B\x1b=\x1b7x", b"x"),
            (b"bell\x07 back\x08space\r", b"bell backspace"),
            ("größe \u{1F600}".as_bytes(), "größe \u{1F600}".as_bytes()),
            (b"cut\x1b[3", b"cut"),
            (b"cut\x1b", b"cut"),
            (b"\x1b]0;never ended", b""),
            (b"\xff\xfe", b"\xff\xfe"),
        ] {
            assert_eq!(without_escapes(line), plain, "{:?}", String::from_utf8_lossy(line));
        }
    }
}
