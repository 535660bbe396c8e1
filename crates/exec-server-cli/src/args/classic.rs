//! Options as people have typed them for decades, which no parser of long options knows: `kill -9 ID`, `kill -HUP ID` and
//! `fs head -20 FILE`. They are spelled out before the command line is parsed.

use std::ffi::OsString;

/// The same command line with such options spelled out. What follows `--` stays as it is.
pub(crate) fn spelled_out(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let text = |at: usize| words.get(at).and_then(|word| word.to_str());
    let (option, is_value, begin): (&str, fn(&str) -> bool, usize) = match (text(1), text(2)) {
        (Some("kill"), _) => ("signal", looks_like_a_signal, 2),
        (Some("fs"), Some("head")) => ("lines", is_number, 3),
        _ => return words,
    };
    for word in words.iter_mut().skip(begin).take_while(|word| *word != "--") {
        let value = word.to_str().and_then(|word| word.strip_prefix('-')).filter(|value| is_value(value));
        if let Some(value) = value {
            *word = format!("--{option}={value}").into();
        }
    }
    words
}

/// Whether it is one is judged later, and told.
fn looks_like_a_signal(text: &str) -> bool {
    let is_name = |text: &str| text.len() > 1 && text.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    is_number(text) || is_name(text)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> String {
        let words = spelled_out(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn old_ways_to_name_a_signal_or_a_number_of_lines_are_spelled_out() {
        assert_eq!(spelled("x kill -9 a"), "x kill --signal=9 a");
        assert_eq!(spelled("x kill a -HUP"), "x kill a --signal=HUP");
        assert_eq!(spelled("x kill -SIGUSR1 a"), "x kill --signal=SIGUSR1 a");
        assert_eq!(spelled("x kill -FOO a"), "x kill --signal=FOO a", "it is told which there are");
        assert_eq!(spelled("x fs head -20 a"), "x fs head --lines=20 a");
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for line in [
            "x kill -s HUP a",
            "x kill --grace 0 a",
            "x kill -h",
            "x kill -- -9",
            "x run -9 a",
            "x fs head -n 20 a",
            "x fs head -c 20 a",
            "x fs head -- -20",
            "x fs cat -20",
            "x",
        ] {
            assert_eq!(spelled(line), line);
        }
    }
}
