//! Files and functions have a size at which someone must think again.
//!
//! The answer is a better cut, or an exception in `tidy.toml` with its reason. Test code gets more
//! room: a long table of cases is no long thought. In a file that carries its tests, the tests and
//! the rest are measured apart. An exception that nothing needs any more is reported too, so the
//! list stays short.

use serde::Deserialize;

use crate::source::Source;

use super::{Tree, Violation};

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 70;
const TEST_FILE_LINES: usize = 600;
const TEST_FUNCTION_LINES: usize = 120;

const EXCEPTIONS: &str = "tidy.toml";

/// The contents of `tidy.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    file: Vec<FileException>,
    #[serde(default)]
    function: Vec<FunctionException>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileException {
    path: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionException {
    path: String,
    name: String,
    reason: String,
}

/// Something that is too long; `name` is the function's, and empty for a file.
struct Oversize {
    path: String,
    name: String,
    line: usize,
    what: String,
}

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let text = tree.text_of(EXCEPTIONS).unwrap_or_default();
    let exceptions = match toml::from_str::<Exceptions>(text) {
        Ok(exceptions) => exceptions,
        Err(error) => {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            let what = format!("cannot be read: {}; see the example at its top", error.message());
            return vec![Violation::new(EXCEPTIONS, line, what)];
        }
    };
    let listed = exceptions.listed(text);
    let oversizes: Vec<Oversize> = tree.sources.iter().flat_map(oversizes).collect();
    let mut found = Vec::new();
    for size in &oversizes {
        if !listed.iter().any(|entry| entry.path == size.path && entry.name == size.name) {
            let what = format!("{}; cut it where the thought ends, or add it to {EXCEPTIONS} with a reason", size.what);
            found.push(Violation::new(&size.path, size.line, what));
        }
    }
    for entry in &listed {
        if entry.reason.trim().is_empty() {
            found.push(Violation::new(EXCEPTIONS, entry.line, "an exception without a reason; give one"));
        }
        if !oversizes.iter().any(|size| entry.path == size.path && entry.name == size.name) {
            let what = format!("nothing is too long any more at {} {}; remove this exception", entry.path, entry.name);
            found.push(Violation::new(EXCEPTIONS, entry.line, what.replace(" ;", ";")));
        }
    }
    found
}

/// One exception of either sort, and its line.
struct Listed<'a> {
    path: &'a str,
    name: &'a str,
    reason: &'a str,
    line: usize,
}

impl Exceptions {
    /// All exceptions, each with the line of its heading.
    fn listed(&self, text: &str) -> Vec<Listed<'_>> {
        let files = self.file.iter().zip(headings(text, "[[file]]")).map(|(entry, line)| Listed {
            path: &entry.path,
            name: "",
            reason: &entry.reason,
            line,
        });
        let functions = self.function.iter().zip(headings(text, "[[function]]"));
        let functions =
            functions.map(|(entry, line)| Listed { path: &entry.path, name: &entry.name, reason: &entry.reason, line });
        files.chain(functions).collect()
    }
}

/// The lines of a heading, and then the first line for ever: an entry may be written inline.
fn headings<'a>(text: &'a str, heading: &'a str) -> impl Iterator<Item = usize> + 'a {
    let lines = text.lines().enumerate().filter(move |(_, line)| line.trim() == heading);
    lines.map(|(index, _)| index + 1).chain(std::iter::repeat(1))
}

fn oversizes(source: &Source) -> Vec<Oversize> {
    let mut found = Vec::new();
    let mut too_long = |name: &str, line: usize, what: String| {
        let path = source.path.clone();
        found.push(Oversize { path, name: name.to_owned(), line, what });
    };
    let all = source.line_count();
    let tests: usize = source.test_regions().iter().map(|region| region.clone().count()).sum();
    let (shipped, tests) = if source.is_test_file() { (0, all) } else { (all - tests, tests) };
    if shipped > FILE_LINES {
        too_long("", 1, format!("{shipped} lines of code where {FILE_LINES} are the limit"));
    }
    if tests > TEST_FILE_LINES {
        too_long("", 1, format!("{tests} lines of tests where {TEST_FILE_LINES} are the limit"));
    }
    for function in source.functions() {
        let test = source.is_test_line(function.line);
        let limit = if test { TEST_FUNCTION_LINES } else { FUNCTION_LINES };
        if function.body_lines > limit {
            let what = format!("`{}` has {} lines where {limit} are the limit", function.name, function.body_lines);
            too_long(&function.name, function.line, what);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    const SHIPPED: &str = "crates/a/src/a.rs";

    fn function(name: &str, body_lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    x();\n".repeat(body_lines))
    }

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let violations = check(&Tree::of(files)).into_iter();
        violations.map(|violation| (violation.path, violation.line)).collect()
    }

    #[test]
    fn a_function_may_have_its_limit_and_not_one_line_more() {
        assert_eq!(lines(check, SHIPPED, &function("a", FUNCTION_LINES)), NOWHERE);
        assert_eq!(lines(check, SHIPPED, &function("a", FUNCTION_LINES + 1)), [1]);
    }

    #[test]
    fn tests_get_more_room_in_their_folder_and_in_their_module() {
        let long = function("a", FUNCTION_LINES + 1);
        assert_eq!(lines(check, "crates/a/tests/it/a.rs", &long), NOWHERE);
        let module = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(lines(check, SHIPPED, &module), NOWHERE);
        let longer = function("a", TEST_FUNCTION_LINES + 1);
        assert_eq!(lines(check, "crates/a/tests/it/a.rs", &longer), [1]);
    }

    #[test]
    fn a_file_and_its_test_module_are_measured_apart() {
        let code = "x!();\n".repeat(FILE_LINES);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "x!();\n".repeat(500));
        assert_eq!(lines(check, SHIPPED, &format!("{code}{tests}")), NOWHERE);
        assert_eq!(lines(check, SHIPPED, &format!("y!();\n{code}{tests}")), [1]);
        assert_eq!(lines(check, SHIPPED, &"x!();\n".repeat(FILE_LINES + 1)), [1]);
    }

    #[test]
    fn an_exception_with_a_reason_is_respected() {
        let long = function("a", FUNCTION_LINES + 1);
        let list = format!("[[function]]\npath = \"{SHIPPED}\"\nname = \"a\"\nreason = \"a table\"\n");
        assert_eq!(found(&[(SHIPPED, &long), (EXCEPTIONS, &list)]), []);
        let other = list.replace("\"a\"", "\"b\"");
        assert_eq!(found(&[(SHIPPED, &long), (EXCEPTIONS, &other)]).len(), 2);
    }

    #[test]
    fn an_exception_without_a_reason_or_a_use_is_reported_at_its_line() {
        let long = function("a", FUNCTION_LINES + 1);
        let list = format!("\n[[function]]\npath = \"{SHIPPED}\"\nname = \"a\"\nreason = \" \"\n");
        assert_eq!(found(&[(SHIPPED, &long), (EXCEPTIONS, &list)]), [(EXCEPTIONS.to_owned(), 2)]);
        let stale = list.replace("\" \"", "\"it was long\"");
        assert_eq!(found(&[(EXCEPTIONS, &stale)]), [(EXCEPTIONS.to_owned(), 2)]);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_reported_where_it_breaks() {
        let list = "[[file]]\npath = \"a\"\nwhy = \"b\"\n";
        assert_eq!(found(&[(EXCEPTIONS, list)]), [(EXCEPTIONS.to_owned(), 3)]);
    }
}
