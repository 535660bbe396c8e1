//! Params out of their text, with the errors that Codex's app-server answers.
//!
//! Codex reads a request as one variant of a tagged enum: serde collects the members in the order of the text before it
//! looks at their types, and the words for what does not fit are those of that collection. Its JSON library keeps the
//! text of numbers, so an integer beyond 64 bits is refused wherever it stands, and a number that is not written as a
//! program would write it (`1e3`, `1.50`) is taken for a map.
//!
//! Deliberately absent: syntax, depth and repeated keys, which the envelope has checked.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The member by which Codex's JSON library marks a number that no type of Rust holds as it is written.
const NUMBER_MEMBER: &str = "$serde_json::private::Number";

/// Lets serde collect the params before it reads them.
#[derive(Deserialize)]
#[serde(tag = "shape")]
enum Collected<T> {
    Params { params: T },
}

/// Reads params; the error says what does not fit.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let params = with_marked_numbers(text)?;
    let collected = serde_json::from_str(&format!(r#"{{"shape":"Params","params":{params}}}"#));
    match collected.map_err(|error| error.to_string())? {
        Collected::Params { params } => Ok(params),
    }
}

/// JSON in which numbers are as Codex's library shows them to serde.
fn with_marked_numbers(text: &str) -> Result<Cow<'_, str>, String> {
    let bytes = text.as_bytes();
    let (mut marked, mut copied, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let end = bytes[at..].iter().position(|byte| !is_part(byte)).map_or(bytes.len(), |length| at + length);
                if let Some(shown) = shown_number(&text[at..end])? {
                    marked.push_str(&text[copied..at]);
                    marked.push_str(&shown);
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Ok(Cow::Borrowed(text));
    }
    marked.push_str(&text[copied..]);
    Ok(Cow::Owned(marked))
}

/// Where the string that begins at `start` has ended.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(length) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| matches!(byte, b'"' | b'\\')))
    {
        at += length;
        match bytes[at] {
            b'"' => return at + 1,
            _ => at += 2,
        }
    }
    bytes.len()
}

/// What stands for a number; `None` for itself.
fn shown_number(number: &str) -> Result<Option<String>, String> {
    if number == "-0" {
        return Ok(Some("0".to_owned()));
    }
    if number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok() {
        return Ok(None);
    }
    let too_wide = |width: &str| Err(format!("invalid type: integer `{number}` as {width}, expected any value"));
    if number.parse::<u128>().is_ok() {
        return too_wide("u128");
    }
    if number.parse::<i128>().is_ok() {
        return too_wide("i128");
    }
    // The library writes every exponent in one way before it compares.
    let mut written = number.replace('E', "e");
    if let Some(exponent) = written.find('e').map(|at| at + 1)
        && written[exponent..].starts_with(|c: char| c.is_ascii_digit())
    {
        written.insert(exponent, '+');
    }
    let float = number.parse().unwrap_or(f64::INFINITY);
    let is_as_written = |text: String| text == written;
    let usual = is_as_written(float.to_string()) || serde_json::to_string(&float).is_ok_and(is_as_written);
    match float.is_finite() && usual {
        true => Ok(None),
        false => Ok(Some(format!(r#"{{"{NUMBER_MEMBER}":"{number}"}}"#))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Shape {
        count: Option<i64>,
        text: String,
    }

    fn why(text: &str) -> String {
        decode::<Shape>(text).expect_err("it does not fit")
    }

    #[test]
    fn the_first_mistake_of_the_text_is_told() {
        assert_eq!(why(r#"{"text":1,"count":"x"}"#), "invalid type: integer `1`, expected a string");
        assert_eq!(why(r#"{"count":"x","text":1}"#), r#"invalid type: string "x", expected i64"#);
    }

    #[test]
    fn an_array_is_the_members_in_their_order() {
        assert_eq!(decode(r#"[5,"x"]"#), Ok(Shape { count: Some(5), text: "x".to_owned() }));
        assert_eq!(why(r#"[5,"x",0]"#), "invalid length 3, expected 2 elements in sequence");
        assert_eq!(why("[5]"), "invalid length 1, expected struct Shape with 2 elements");
    }

    #[test]
    fn numbers_are_what_they_are_written_as() {
        for (number, why_not) in [
            ("18446744073709551616", "invalid type: integer `18446744073709551616` as u128, expected any value"),
            ("-9223372036854775809", "invalid type: integer `-9223372036854775809` as i128, expected any value"),
            ("1.5", "invalid type: floating point `1.5`, expected i64"),
            ("1.50", "invalid type: map, expected i64"),
            ("1e3", "invalid type: map, expected i64"),
            ("1E300", "invalid type: floating point `1e+300`, expected i64"),
            ("1e400", "invalid type: map, expected i64"),
        ] {
            assert_eq!(why(&format!(r#"{{"count":{number},"text":"1e3 \" 1e3"}}"#)), why_not);
        }
        let zero = decode(r#"{"text":"1e3 \\\" 99999999999999999999","unknown":[1e400],"count":-0}"#);
        assert_eq!(zero, Ok(Shape { count: Some(0), text: "1e3 \\\" 99999999999999999999".to_owned() }));
    }
}
