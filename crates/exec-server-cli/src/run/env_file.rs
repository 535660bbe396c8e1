//! `--env-file`: variables from a file, a line each.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};

/// Of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The variables in their order. A mistake is told with its line; values are not, because they may be secrets.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read --env-file {}", path.display()))?;
    parse(&text, &|name| std::env::var_os(name))
        .map_err(|BadLine { line, why }| anyhow::anyhow!("--env-file {}, line {line}: {why}", path.display()))
}

#[derive(Debug, PartialEq, Eq)]
struct BadLine {
    /// From 1.
    line: usize,
    why: String,
}

fn parse(text: &[u8], ours: &dyn Fn(&OsStr) -> Option<OsString>) -> Result<Vec<(OsString, OsString)>, BadLine> {
    // Editors on Windows begin a file with it. It is no part of a name.
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut variables = Vec::new();
    for (line, content) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let variable = parse_line(content, ours).map_err(|error| BadLine { line, why: error.to_string() })?;
        variables.extend(variable);
    }
    Ok(variables)
}

fn parse_line(line: &[u8], ours: &dyn Fn(&OsStr) -> Option<OsString>) -> anyhow::Result<Option<(OsString, OsString)>> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let line = line.strip_prefix(b"export ").unwrap_or(line).trim_ascii_start();
    let (name, value) = match line.iter().position(|byte| *byte == b'=') {
        Some(at) => (line[..at].trim_ascii_end(), Some(unquoted(line[at + 1..].trim_ascii_start()))),
        None => (line, None),
    };
    if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) {
        bail!("a line is NAME=VALUE, NAME, empty, or a # comment");
    }
    if line.contains(&0) {
        bail!("a variable cannot have a zero byte");
    }
    let name = OsStr::from_bytes(name);
    let value = match value {
        Some(value) => OsStr::from_bytes(value).to_owned(),
        None => ours(name).with_context(|| format!("{} is not set here: give it a value", name.display()))?,
    };
    Ok(Some((name.to_owned(), value)))
}

/// Without a pair of quotes around it; what is in between stays as it is.
fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [first @ (b'"' | b'\''), inner @ .., last] if first == last => inner,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, String)>, BadLine> {
        let ours = |name: &OsStr| (name == "OURS").then(|| "own value".into());
        let plain = |text: OsString| text.into_string().expect("the tests use UTF-8");
        let variables = parse(text.as_bytes(), &ours)?;
        Ok(variables.into_iter().map(|(name, value)| (plain(name), plain(value))).collect())
    }

    #[test]
    fn lines_are_variables_comments_or_empty() {
        let text =
            "# a comment\n\nA=1\n  B = two words  \r\nexport C='single'\nD=\"dou\\\"ble\"\nE=\nOURS\nF=x=y#z\nA=2";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            pair("A", "1"),
            pair("B", "two words"),
            pair("C", "single"),
            pair("D", "dou\\\"ble"),
            pair("E", ""),
            pair("OURS", "own value"),
            pair("F", "x=y#z"),
            pair("A", "2"),
        ];
        assert_eq!(parsed(text).expect("all of it is right"), expected);
    }

    #[test]
    fn a_byte_order_mark_before_the_first_name_is_no_part_of_it() {
        let expected = [("A".to_owned(), "1".to_owned())];
        assert_eq!(parsed("\u{feff}A=1\n").expect("editors write it"), expected);
        assert_eq!(parsed("\u{feff}# a comment\nA=1").expect("editors write it"), expected);
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_without_the_value() {
        for (text, line) in [("A=1\n=secret", 2), ("two words=secret", 1), ("\n\nMISSING", 3), ("A=se\0cret", 1)] {
            let bad = parsed(text).expect_err(text);
            assert_eq!(bad.line, line, "{text:?}");
            assert!(!bad.why.contains("secret"), "{}", bad.why);
        }
    }
}
