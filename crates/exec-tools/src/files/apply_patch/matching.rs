//! Finds the lines of a patch in a text, as leniently as Codex does, and puts the new ones in their place.
//!
//! A sequence of lines is looked for exactly, then without spaces at their ends, then without spaces around them, then with
//! typographic dashes, quotes and spaces taken for plain ones. The first way that finds it anywhere wins. Lines that stay keep
//! the file's spelling; every new line ends as the first line of the file does.

use super::parser::{Chunk, ChunkLine};

/// Why a chunk does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoMatch {
    /// The line before it is not there.
    Context(String),
    /// Its lines are not there.
    Lines(Vec<String>),
}

/// The text with all chunks in it.
pub(super) fn update(text: &str, chunks: &[Chunk]) -> Result<String, NoMatch> {
    let file = SplitText::of(text);
    let mut matches = Vec::new();
    let mut at = 0;
    for chunk in chunks {
        if let Some(after) = &chunk.after {
            let found = find(&file.lines, &[after.as_str()], at, false);
            at = found.ok_or_else(|| NoMatch::Context(after.clone()))? + 1;
        }
        let found = ChunkMatch::find(&file, chunk, at)?;
        at = found.next(at);
        matches.push(found);
    }
    // Chunks follow each other, but lines that are only added go to the end, wherever they stand in the patch.
    matches.sort_by_key(|found| found.first);
    Ok(file.with(&matches))
}

/// A text line by line.
struct SplitText<'a> {
    /// Without their ends.
    lines: Vec<&'a str>,
    /// Their ends, as they are.
    ends: Vec<&'static str>,
    /// How new lines end.
    new_end: &'static str,
}

impl<'a> SplitText<'a> {
    fn of(text: &'a str) -> Self {
        let (mut lines, mut ends) = (Vec::new(), Vec::new());
        for line in text.split_inclusive('\n') {
            let (line, end) = match line.strip_suffix('\n') {
                Some(line) => match line.strip_suffix('\r') {
                    Some(line) => (line, "\r\n"),
                    None => (line, "\n"),
                },
                None => (line, ""),
            };
            lines.push(line);
            ends.push(end);
        }
        let new_end = ends.first().copied().filter(|end| !end.is_empty()).unwrap_or("\n");
        Self { lines, ends, new_end }
    }

    fn with(&self, matches: &[ChunkMatch<'_>]) -> String {
        let mut out = String::new();
        let mut at = 0;
        for found in matches {
            self.copy(&mut out, at..found.first);
            at = at.max(found.first);
            for line in &found.lines {
                match line {
                    ChunkLine::Context(_) => {
                        self.copy(&mut out, at..at + 1);
                        at += 1;
                    }
                    ChunkLine::Old(_) => at += 1,
                    ChunkLine::New(line) => {
                        out.push_str(line);
                        out.push_str(self.new_end);
                    }
                }
            }
        }
        self.copy(&mut out, at..self.lines.len());
        out
    }

    /// A last line without an end gets one.
    fn copy(&self, out: &mut String, lines: std::ops::Range<usize>) {
        for at in lines {
            out.push_str(self.lines[at]);
            out.push_str(if self.ends[at].is_empty() { self.new_end } else { self.ends[at] });
        }
    }
}

/// Where a chunk goes.
struct ChunkMatch<'a> {
    first: usize,
    /// How many lines of the file it has.
    len: usize,
    lines: Vec<&'a ChunkLine>,
}

impl<'a> ChunkMatch<'a> {
    fn find(file: &SplitText<'_>, chunk: &'a Chunk, at: usize) -> Result<Self, NoMatch> {
        let mut lines: Vec<&ChunkLine> = chunk.lines.iter().collect();
        let old: Vec<&str> = chunk.lines.iter().filter_map(old_line).collect();
        if old.is_empty() {
            return Ok(Self { first: file.lines.len(), len: 0, lines });
        }
        if let Some(first) = find(&file.lines, &old, at, chunk.at_end) {
            return Ok(Self { first, len: old.len(), lines });
        }
        // An empty line at the end of a chunk often stands for the end of the file.
        if let Some((&"", shorter)) = old.split_last()
            && let Some(first) = find(&file.lines, shorter, at, chunk.at_end)
        {
            drop_last_empty(&mut lines);
            return Ok(Self { first, len: shorter.len(), lines });
        }
        Err(NoMatch::Lines(old.into_iter().map(str::to_owned).collect()))
    }

    /// Where the next chunk may begin.
    fn next(&self, at: usize) -> usize {
        if self.len == 0 { at } else { self.first + self.len }
    }
}

static NEW_EMPTY: ChunkLine = ChunkLine::New(String::new());
static OLD_EMPTY: ChunkLine = ChunkLine::Old(String::new());

/// Without the last line that should be in the file, which is empty; and, if the last line afterwards would be empty, without
/// that, too. A line that loses one of the two sides keeps the other.
fn drop_last_empty(lines: &mut Vec<&ChunkLine>) {
    let last_old = lines.iter().rposition(|line| old_line(line).is_some());
    let last_new = lines.iter().rposition(|line| new_line(line).is_some());
    let last_new = last_new.filter(|at| new_line(lines[*at]) == Some(""));
    let Some(last_old) = last_old else { return };
    let stays = matches!(lines[last_old], ChunkLine::Context(_)) && last_new != Some(last_old);
    let mut gone = Vec::new();
    match stays {
        true => lines[last_old] = &NEW_EMPTY,
        false => gone.push(last_old),
    }
    match last_new.filter(|at| *at != last_old) {
        Some(at) if matches!(lines[at], ChunkLine::Context(_)) => lines[at] = &OLD_EMPTY,
        Some(at) => gone.push(at),
        None => {}
    }
    gone.sort_unstable();
    for at in gone.into_iter().rev() {
        lines.remove(at);
    }
}

fn new_line(line: &ChunkLine) -> Option<&str> {
    match line {
        ChunkLine::Context(line) | ChunkLine::New(line) => Some(line),
        ChunkLine::Old(_) => None,
    }
}

fn old_line(line: &ChunkLine) -> Option<&str> {
    match line {
        ChunkLine::Context(line) | ChunkLine::Old(line) => Some(line),
        ChunkLine::New(_) => None,
    }
}

/// Where `wanted` begins, at `from` or later; with `at_end`, only as the last lines, and these not before `from` either.
fn find(lines: &[&str], wanted: &[&str], from: usize, at_end: bool) -> Option<usize> {
    // No lines are everywhere, also before the end.
    if wanted.is_empty() {
        return Some(from);
    }
    let last = lines.len().checked_sub(wanted.len())?;
    let from = if at_end { last.max(from) } else { from };
    let ways: [fn(&str, &str) -> bool; 4] = [
        |one, other| one == other,
        |one, other| one.trim_end() == other.trim_end(),
        |one, other| one.trim() == other.trim(),
        |one, other| one.trim().chars().map(plain).eq(other.trim().chars().map(plain)),
    ];
    ways.iter().find_map(|same| {
        (from..=last).find(|at| lines[*at..].iter().zip(wanted).all(|(line, wanted)| same(line, wanted)))
    })
}

/// The letter that a keyboard has for a typographic one.
fn plain(letter: char) -> char {
    match letter {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        letter => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parser::{Hunk, Patch};
    use super::*;

    fn updated(text: &str, chunks: &str) -> Result<String, NoMatch> {
        let patch = format!("*** Begin Patch\n*** Update File: f\n{chunks}*** End Patch");
        let patch = Patch::parse(&patch).expect("the test's patches can be read");
        let [Hunk::Update { chunks, .. }] = &patch.hunks[..] else { panic!("it is one update") };
        update(text, chunks)
    }

    #[test]
    fn lines_that_stay_keep_their_spelling_and_new_ones_end_like_the_first() {
        assert_eq!(updated("a  \r\nb\nc", "@@\n a\n-b\n+B\n"), Ok("a  \r\nB\r\nc\r\n".to_owned()));
        assert_eq!(updated("\u{201c}x\u{201d}\n", "@@\n \"x\"\n+y\n"), Ok("\u{201c}x\u{201d}\ny\n".to_owned()));
    }

    #[test]
    fn only_an_empty_line_at_the_end_that_is_not_there_is_found_where_the_search_begins() {
        assert_eq!(updated("a\nb\n", "@@\n+x\n\n*** End of File\n"), Ok("x\na\nb\n".to_owned()));
    }

    #[test]
    fn the_last_lines_are_not_found_before_what_was_found_already() {
        let missing = |lines: [&str; 2]| Err(NoMatch::Lines(lines.map(str::to_owned).to_vec()));
        assert_eq!(updated("a\nb\n", "@@ b\n a\n+x\n b\n*** End of File\n"), missing(["a", "b"]));
        assert_eq!(updated("a\nb\nc\n", "@@\n-c\n+C\n@@\n b\n-c\n*** End of File\n"), missing(["b", "c"]));
        assert_eq!(updated("z\na\n", "@@ z\n-a\n+x\n*** End of File\n"), Ok("z\nx\n".to_owned()));
    }

    #[test]
    fn the_exact_place_wins_and_what_is_nowhere_is_said() {
        assert_eq!(updated(" x\nx\n", "@@\n-x\n+y\n"), Ok(" x\ny\n".to_owned()));
        assert_eq!(updated("a\n", "@@ z\n-a\n"), Err(NoMatch::Context("z".to_owned())));
        assert_eq!(updated("a\nb\n", "@@\n-a\n*** End of File\n"), Err(NoMatch::Lines(vec!["a".to_owned()])));
    }
}
