//! Text without what only a terminal understands.

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
