//! Documents do not lie: a promise names tests that exist and has a number of its own, and a link leads somewhere.
//!
//! Only text outside fenced code is looked at. Links to other sites and anchors inside a page are not followed: the first
//! would need a network, the second change with every heading.

use std::collections::HashSet;

use super::{Tree, Violation};

const PROMISES: &str = "GUARANTEES.md";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = promises(tree);
    found.extend(numbers(tree));
    found.extend(links(tree));
    found
}

fn promises(tree: &Tree) -> Vec<Violation> {
    let functions: HashSet<String> =
        tree.sources.iter().flat_map(|source| source.functions()).map(|function| function.name).collect();
    let mut found = Vec::new();
    for (line, name) in named_tests(tree.text_of(PROMISES).unwrap_or_default()) {
        if !functions.contains(name) {
            let what = format!("no test `{name}` in the tree; name the test that keeps this promise");
            found.push(Violation::new(PROMISES, line, what));
        }
    }
    found
}

/// Promises are counted from 1, without holes: other documents name them by their number.
fn numbers(tree: &Tree) -> Vec<Violation> {
    let numbered = prose(tree.text_of(PROMISES).unwrap_or_default()).filter_map(|(line, text)| {
        let (number, _) = text.split_once(". ")?;
        Some((line, number.parse::<usize>().ok()?))
    });
    let wrong = (1..).zip(numbered).filter(|(expected, (_, number))| expected != number);
    wrong.map(|(expected, (line, _))| Violation::new(PROMISES, line, format!("this is promise {expected}"))).collect()
}

/// The names in backticks after `test:`, up to the end of the paragraph or the next list item, each with its line.
fn named_tests(text: &str) -> Vec<(usize, &str)> {
    let mut named = Vec::new();
    let mut in_list = false;
    for (number, line) in prose(text) {
        let continues = line.starts_with([' ', '\t']) && !line.trim_start().starts_with("- ");
        let names = match line.find("test:") {
            Some(mark) => &line[mark..],
            None if in_list && continues => line,
            None => "",
        };
        in_list = !names.is_empty();
        named.extend(backticked(names).map(|name| (number, name)));
    }
    named
}

fn backticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).map(str::trim)
}

fn links(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, prose) in prose(&file.text) {
            for target in link_targets(prose) {
                let target = target.split('#').next().unwrap_or_default();
                if !target.is_empty() && !leads_somewhere(tree, &file.path, target) {
                    let what = format!("the link to `{target}` leads nowhere; correct or remove it");
                    found.push(Violation::new(&file.path, line, what));
                }
            }
        }
    }
    found
}

/// Targets of `[text](target)` and `[label]: target` that are not on another site.
fn link_targets(line: &str) -> Vec<String> {
    // Code in a sentence may look like a link, as `a[0](b)` does.
    let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
    let inline = outside.split("](").skip(1).filter_map(|after| after.split(')').next());
    let reference = outside.strip_prefix('[').and_then(|rest| rest.split_once("]:")).map(|(_, target)| target.trim());
    let targets = inline.chain(reference).filter_map(|target| target.split_whitespace().next());
    targets.filter(|target| !target.contains(':')).map(str::to_owned).collect()
}

/// Whether the target, seen from the file, is a file of the tree or a directory of one.
fn leads_somewhere(tree: &Tree, from: &str, target: &str) -> bool {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return false;
                }
            }
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let directory = format!("{path}/");
    path.is_empty() || tree.files.iter().any(|file| file.path == path || file.path.starts_with(&directory))
}

/// The lines outside fenced code, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then_some((index + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::super::NOWHERE;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<usize> {
        check(&Tree::of(files)).into_iter().map(|violation| violation.line).collect()
    }

    const TEST: (&str, &str) = ("crates/exec-local/tests/it/a.rs", "fn nothing_is_lost() {}\n");

    #[test]
    fn a_promise_must_name_a_test_that_exists() {
        let text = "1. Promise. test: `nothing_is_lost`\n2. Other. test: `all_is_lost`\n";
        assert_eq!(found(&[TEST, (PROMISES, text)]), [2]);
    }

    #[test]
    fn the_list_of_tests_goes_on_over_indented_lines() {
        let text =
            "1. Promise. test:\n   `nothing_is_lost`,\n   `gone`\n2. `code` of another promise.\n   `more_code`\n";
        assert_eq!(found(&[TEST, (PROMISES, text)]), [3]);
    }

    #[test]
    fn the_list_of_tests_ends_where_the_next_part_of_the_promise_begins() {
        let text = "1. Promise. test: `nothing_is_lost`\n   - Its part, with `code`.\n     test: `gone`\n";
        assert_eq!(found(&[TEST, (PROMISES, text)]), [3]);
    }

    #[test]
    fn other_code_in_a_promise_is_not_a_test() {
        assert_eq!(found(&[(PROMISES, "`kill -9`, `seq`. test: see below\n")]), NOWHERE);
    }

    #[test]
    fn promises_are_counted_without_holes_or_repeats() {
        assert_eq!(found(&[(PROMISES, "1. One.\n2. Two.\n\n## More\n\n2. Three.\n5. Four.\n4. Five.\n")]), [6, 7, 8]);
    }

    #[test]
    fn a_link_must_lead_to_a_file_or_directory() {
        let text = "[a](b.md) [c](gone.md#x) [d](../xtask/) [e](https://x.y/z) [f](#here)\n\
                    ```\n[g](gone)\n```\n`[h](gone)`\n[i]: ../gone.md\n[j](../../out.md)\n";
        let files = [("docs/a.md", text), ("docs/b.md", ""), ("xtask/src/main.rs", "//! x")];
        assert_eq!(found(&files), [1, 6, 7]);
    }
}
