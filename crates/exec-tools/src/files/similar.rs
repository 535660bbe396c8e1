//! The places of a file that resemble a text which does not occur in it: usually the one that a model meant.
//!
//! Lines are compared without the spaces around them, by the pairs of letters that they share. Every window of as many
//! lines as the text has is judged by its lines. Pure, and bounded by [`limits`](super::limits).

use std::collections::HashMap;

use super::limits::{SIMILAR_LINE_BYTES, SIMILAR_LINES, SIMILAR_PLACES, SIMILAR_SHOWN_LINES};

/// Some lines of a file that resemble what was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimilarPlace {
    /// The number of the first of them, from 1.
    pub line: u64,
    /// The lines, each cut at some 200 bytes.
    pub text: Vec<String>,
}

/// Less than so much of a text in common is no resemblance.
const LEAST_SCORE: f64 = 0.5;

/// The most similar places in `contents`, best first, without overlaps.
pub(super) fn similar_places(contents: &str, wanted: &str) -> Vec<SimilarPlace> {
    let lines: Vec<&str> = contents.lines().take(SIMILAR_LINES).map(|line| cut(line, SIMILAR_LINE_BYTES)).collect();
    let wanted: Vec<&str> =
        wanted.lines().take(SIMILAR_SHOWN_LINES).map(|line| cut(line, SIMILAR_LINE_BYTES)).collect();
    // The longest line says most about where the text is; only windows in which it has a likeness are judged in full.
    let Some(key) = (0..wanted.len()).max_by_key(|index| wanted[*index].trim().len()) else { return Vec::new() };
    if wanted[key].trim().is_empty() {
        return Vec::new();
    }
    let pairs: Vec<LetterPairs> = wanted.iter().map(|line| LetterPairs::of(line)).collect();
    let mut found: Vec<(f64, usize)> = Vec::new();
    for at in 0..lines.len() {
        let Some(first) = at.checked_sub(key) else { continue };
        let key_score = pairs[key].likeness(lines[at]);
        if key_score < LEAST_SCORE {
            continue;
        }
        let scores = pairs.iter().enumerate().map(|(index, pairs)| match lines.get(first + index) {
            Some(_) if index == key => key_score,
            Some(line) => pairs.likeness(line),
            None => 0.0,
        });
        found.push((scores.sum::<f64>() / wanted.len() as f64, first));
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    let mut places: Vec<usize> = Vec::new();
    for (_, first) in found {
        if places.len() < SIMILAR_PLACES && places.iter().all(|place| place.abs_diff(first) >= wanted.len()) {
            places.push(first);
        }
    }
    let shown =
        |first: usize| lines[first..lines.len().min(first + wanted.len())].iter().map(|line| (*line).to_owned());
    places.into_iter().map(|first| SimilarPlace { line: first as u64 + 1, text: shown(first).collect() }).collect()
}

/// The beginning of a text, at most so many bytes, never within a character.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// How often each pair of neighbouring letters is in a line.
struct LetterPairs {
    trimmed: String,
    count: usize,
    pairs: HashMap<(char, char), usize>,
}

impl LetterPairs {
    fn of(line: &str) -> Self {
        let trimmed = line.trim().to_owned();
        let mut pairs = HashMap::new();
        for pair in trimmed.chars().zip(trimmed.chars().skip(1)) {
            *pairs.entry(pair).or_default() += 1;
        }
        Self { count: trimmed.chars().count().saturating_sub(1), trimmed, pairs }
    }

    /// 1 for the same line, 0 for one that has nothing in common with it (Sørensen and Dice's coefficient).
    fn likeness(&self, line: &str) -> f64 {
        let line = line.trim();
        if line == self.trimmed {
            return 1.0;
        }
        let other = line.chars().count().saturating_sub(1);
        // Lines of very different lengths cannot have enough in common, which spares most comparisons.
        if other == 0 || self.count == 0 || other > 3 * self.count || self.count > 3 * other {
            return 0.0;
        }
        let mut left = self.pairs.clone();
        let mut common = 0;
        for pair in line.chars().zip(line.chars().skip(1)) {
            if let Some(count) = left.get_mut(&pair).filter(|count| **count > 0) {
                *count -= 1;
                common += 1;
            }
        }
        2.0 * common as f64 / (self.count + other) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_other_indentation_or_a_typo_is_found_first() {
        let contents = "fn one() {\n    let total = 1;\n}\n\nfn two() {\n    let totals = 2;\n}\n";
        let places = similar_places(contents, "fn one() {\n\tlet total = 1;\n}");
        assert_eq!(places[0].line, 1);
        assert_eq!(places[0].text, ["fn one() {", "    let total = 1;", "}"]);
        let places = similar_places(contents, "    let totls = 2;");
        assert_eq!(places[0].line, 6);
    }

    #[test]
    fn nothing_similar_is_nothing_and_neither_are_blank_lines() {
        assert_eq!(similar_places("abc\ndef\n", "something else entirely"), []);
        assert_eq!(similar_places("abc\n\n\n", "\n\n"), []);
        assert_eq!(similar_places("", "x"), []);
    }

    #[test]
    fn huge_lines_and_many_of_them_are_bounded() {
        let contents = format!("{}\n", "é".repeat(100_000)).repeat(50);
        let places = similar_places(&contents, &"é".repeat(100_000));
        assert!(places.iter().all(|place| place.text.iter().all(|line| line.len() <= SIMILAR_LINE_BYTES)));
    }
}
