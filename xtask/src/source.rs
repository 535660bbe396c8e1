//! A Rust file as the tidy rules see it: which bytes are code, comment or quoted text, which lines are test code, and
//! which functions there are.
//!
//! This is a scanner and no parser: it knows quotes, comments, braces and words, which is all the rules ask for, and it
//! accepts files that do not compile. All views of a file have the same length and the same lines, so an offset found in
//! one is valid in the others. Macros are not expanded.

mod functions;
mod lexer;

use std::ops::RangeInclusive;

pub(crate) use functions::Function;
use lexer::ByteKind;

/// One scanned file.
pub(crate) struct Source {
    /// From the root of the repository, with slashes.
    pub(crate) path: String,
    /// Code alone; comments and quoted text are blanks.
    pub(crate) code: String,
    /// Code and quoted text; comments are blanks.
    pub(crate) code_and_quotes: String,
    /// Comments alone.
    pub(crate) comments: String,
    /// The first line as it is written.
    pub(crate) first_line: String,
    /// Where each line begins.
    starts: Vec<usize>,
    /// Lines of `#[cfg(test)]` items.
    test_regions: Vec<RangeInclusive<usize>>,
}

impl Source {
    /// Scans a file.
    pub(crate) fn scan(path: &str, text: &str) -> Self {
        let kinds = lexer::classify(text);
        let code = lexer::only(text, &kinds, &[ByteKind::Code]);
        let starts = line_starts(text);
        let mut source = Self {
            path: path.to_owned(),
            code_and_quotes: lexer::only(text, &kinds, &[ByteKind::Code, ByteKind::Quoted]),
            comments: lexer::only(text, &kinds, &[ByteKind::Comment]),
            first_line: text.lines().next().unwrap_or_default().to_owned(),
            code,
            starts,
            test_regions: Vec::new(),
        };
        source.test_regions = functions::test_regions(&source);
        source
    }

    /// How many lines the file has.
    pub(crate) fn line_count(&self) -> usize {
        self.starts.len()
    }

    /// The line, counted from 1, of a place in any view.
    pub(crate) fn line_at(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// One line of the code, counted from 1; empty before the first and after the last.
    pub(crate) fn code_line(&self, line: usize) -> &str {
        self.line_of(&self.code, line)
    }

    /// One line of the comments, counted from 1; empty before the first and after the last.
    pub(crate) fn comment_line(&self, line: usize) -> &str {
        self.line_of(&self.comments, line)
    }

    /// Whether a comment on this line, or on one of the `before` lines above it, contains `words`.
    pub(crate) fn has_comment_near(&self, line: usize, before: usize, words: &str) -> bool {
        (line.saturating_sub(before)..=line).any(|line| self.comment_line(line).to_ascii_lowercase().contains(words))
    }

    /// Every place where `word` stands in the code as a whole word.
    pub(crate) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(word).map(|(offset, _)| offset).filter(move |offset| {
            let before = self.code[..*offset].bytes().next_back();
            let after = self.code[offset + word.len()..].bytes().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    }

    /// Whether this line is test code: the whole file is, or a `#[cfg(test)]` item covers it.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.is_test_file() || self.test_regions.iter().any(|region| region.contains(&line))
    }

    /// Whether nothing in this file is shipped.
    pub(crate) fn is_test_file(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| matches!(part, "tests" | "benches" | "tests.rs" | "exec-testkit"))
    }

    /// The functions with a body, in their order; a function inside another is listed as well.
    pub(crate) fn functions(&self) -> Vec<Function> {
        functions::functions(self)
    }

    /// The crate it belongs to: `exec-core` of `crates/exec-core/src/lib.rs`.
    pub(crate) fn crate_name(&self) -> &str {
        let inside = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        inside.split('/').next().unwrap_or_default()
    }

    fn line_of<'a>(&self, view: &'a str, line: usize) -> &'a str {
        let Some(start) = line.checked_sub(1).and_then(|index| self.starts.get(index)) else {
            return "";
        };
        let end = self.starts.get(line).copied().unwrap_or(view.len());
        view[*start..end].trim_end()
    }
}

/// Whether the byte may be part of an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

fn line_starts(text: &str) -> Vec<usize> {
    let after_breaks = text.match_indices('\n').map(|(offset, _)| offset + 1);
    let starts = std::iter::once(0).chain(after_breaks);
    starts.filter(|start| *start < text.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole_and_only_in_code() {
        let text = "fn a() { unsafe_fn(); } // unsafe\nlet s = \"unsafe\"; unsafe { b() }\n";
        let source = Source::scan("a.rs", text);
        let lines: Vec<_> = source.words("unsafe").map(|at| source.line_at(at)).collect();
        assert_eq!(lines, [2]);
    }

    #[test]
    fn lines_are_counted_from_one_and_a_last_line_break_adds_none() {
        let source = Source::scan("a.rs", "one\ntwo // said\n");
        assert_eq!(source.line_count(), 2);
        assert_eq!(source.code_line(1), "one");
        assert_eq!(source.comment_line(2).trim(), "// said");
        assert_eq!((source.code_line(0), source.code_line(3)), ("", ""));
        assert_eq!((source.line_at(0), source.line_at(4)), (1, 2));
    }

    #[test]
    fn a_test_module_ends_where_its_brace_ends() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::scan("crates/exec-core/src/a.rs", text);
        let tests: Vec<_> = (1..=6).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(tests, [2, 3, 4, 5]);
    }

    #[test]
    fn a_tests_folder_is_test_code_throughout() {
        assert!(Source::scan("crates/exec-core/tests/it/main.rs", "x").is_test_line(1));
        assert!(Source::scan("crates/exec-core/src/log/tests.rs", "x").is_test_line(1));
        assert!(!Source::scan("crates/exec-core/src/log.rs", "x").is_test_line(1));
    }

    #[test]
    fn a_comment_counts_on_the_line_and_just_above_it() {
        let source = Source::scan("a.rs", "// Bounded by the number of tasks.\nlet a;\nlet b;\n");
        assert!(source.has_comment_near(2, 1, "bounded by"));
        assert!(!source.has_comment_near(3, 1, "bounded by"));
        assert!(source.has_comment_near(3, 2, "bounded by"));
    }
}
