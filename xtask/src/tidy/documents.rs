//! Documents do not lie: a promise names a test that exists, and a link leads somewhere.
//!
//! Looked at outside fenced code only. Links to other sites and anchors inside a page are not
//! followed: the first would need a network, the second change with every heading.

use std::collections::HashMap;

use super::{Tree, Violation};

const PROMISES: &str = "GUARANTEES.md";

/// Crates whose functions may be mentioned and are not ours to look up.
const FOREIGN: &[&str] = &["std", "core", "alloc", "tokio", "rustix", "libc", "serde_json"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = promises(tree);
    found.extend(links(tree));
    found
}

fn promises(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text_of(PROMISES) else {
        return Vec::new();
    };
    let mut homes: HashMap<String, Vec<&str>> = HashMap::new();
    for source in &tree.sources {
        for function in source.functions() {
            homes.entry(function.name).or_default().push(source.room());
        }
    }
    let mut found = Vec::new();
    let mut tests_column = None;
    for (line, prose) in prose(text) {
        tests_column = column_of_tests(prose, tests_column);
        for name in test_names(prose, tests_column) {
            let (path, function) = name.rsplit_once("::").unwrap_or(("", name));
            let krate = path.split("::").next().unwrap_or_default().replace('_', "-");
            let rooms = homes.get(function).map_or(&[][..], Vec::as_slice);
            let known = match krate.as_str() {
                "" => !rooms.is_empty(),
                krate if krate.starts_with("exec-") => rooms.contains(&krate),
                _ => !rooms.is_empty(),
            };
            if !known {
                let what = format!("no test `{name}` in the tree; name the test that keeps this promise");
                found.push(Violation::new(PROMISES, line, what));
            }
        }
    }
    found
}

/// The column of a table that holds tests: set by its heading, forgotten at its end.
fn column_of_tests(line: &str, current: Option<usize>) -> Option<usize> {
    if !line.trim_start().starts_with('|') {
        return None;
    }
    let heading = line
        .split('|')
        .position(|cell| matches!(cell.trim().to_ascii_lowercase().as_str(), "test" | "tests" | "kept by"));
    heading.or(current)
}

/// The tests a line names: those in the column, those after `test:`, and every path of ours.
fn test_names(line: &str, tests_column: Option<usize>) -> Vec<&str> {
    let lower = line.to_ascii_lowercase();
    let mark = ["test:", "tests:"].iter().filter_map(|mark| lower.find(mark)).min();
    let mut names: Vec<&str> = match mark {
        Some(mark) => backticked(&line[mark..]).collect(),
        None => Vec::new(),
    };
    if let Some(cell) = tests_column.and_then(|column| line.split('|').nth(column)) {
        names.extend(backticked(cell));
    }
    names.extend(backticked(line).filter(|name| {
        let krate = name.split("::").next().unwrap_or_default();
        name.contains("::") && !FOREIGN.contains(&krate)
    }));
    names.retain(|name| is_function_path(name));
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether it is a name, or names joined by `::`, in the spelling of functions.
fn is_function_path(name: &str) -> bool {
    name.split("::").all(|part| {
        let begins = part.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        begins && part.bytes().all(|b| b == b'_' || b == b'-' || b.is_ascii_lowercase() || b.is_ascii_digit())
    })
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
                    let what = format!("the link to `{target}` leads nowhere; mend or remove it");
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

/// Whether the target, seen from the file, is a file of the tree or a folder of one.
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
    let folder = format!("{path}/");
    path.is_empty() || tree.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
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

    const KEPT: (&str, &str) = ("crates/exec-local/tests/it/a.rs", "fn nothing_is_lost() {}\n");

    #[test]
    fn a_promise_must_name_a_test_that_exists() {
        let text = "test: `nothing_is_lost`\ntest: `all_is_lost`\nSee `exec_local::it::nothing_is_lost`.\n\
                    See `exec_local::it::all_is_lost`.\n";
        assert_eq!(found(&[KEPT, (PROMISES, text)]), [2, 4]);
    }

    #[test]
    fn a_test_is_looked_for_in_the_crate_it_is_said_to_be_in() {
        let text = "`exec_local::a::nothing_is_lost` and `exec-core::a::nothing_is_lost`\n";
        assert_eq!(found(&[KEPT, (PROMISES, text)]), [1]);
    }

    #[test]
    fn a_table_may_have_a_column_of_tests() {
        let text = "| promise | test |\n|---|---|\n| `x` | `nothing_is_lost` |\n| y | `gone` |\n\n`not_a_test` |\n";
        assert_eq!(found(&[KEPT, (PROMISES, text)]), [4]);
    }

    #[test]
    fn other_code_in_a_promise_is_not_a_test() {
        let text = "`kill -9`, `std::process::exit`, `Type::new`, `exec_core::LIMIT`, `seq`\n";
        assert_eq!(found(&[(PROMISES, text)]), NOWHERE);
    }

    #[test]
    fn a_link_must_lead_to_a_file_or_folder() {
        let text = "[a](b.md) [c](gone.md#x) [d](../xtask/) [e](https://x.y/z) [f](#here)\n\
                    ```\n[g](gone)\n```\n`[h](gone)`\n[i]: ../gone.md\n[j](../../out.md)\n";
        let files = [("docs/a.md", text), ("docs/b.md", ""), ("xtask/src/main.rs", "//! x")];
        assert_eq!(found(&files), [1, 6, 7]);
    }
}
