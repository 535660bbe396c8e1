//! No test is skipped, and none waits for time instead of for an event.

use crate::source::Source;

use super::{Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.sources.iter().flat_map(|source| ignored_tests(source).into_iter().chain(sleeps(source))).collect()
}

fn ignored_tests(source: &Source) -> Vec<Violation> {
    let ignored = source.words("ignore").map(|offset| source.line_at(offset)).filter(|line| {
        let code = source.code_line(*line).trim_start();
        code.starts_with("#[ignore") || code.starts_with("#[cfg_attr(")
    });
    ignored
        .map(|line| {
            let what = "a test is skipped; fix it, or delete it and say why in the commit";
            Violation::new(&source.path, line, what)
        })
        .collect()
}

fn sleeps(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for offset in source.words("sleep") {
        let line = source.line_at(offset);
        if source.is_test_line(line) && is_sleep_call(source, offset) && !is_excused(source, line) {
            let what = "a test sleeps; wait for an event or move the clock, or, if time itself is \
                        the subject, say so above in a comment `// not a wait: ...`";
            found.push(Violation::new(&source.path, line, what));
        }
    }
    found
}

/// Whether the word is the function that sleeps: by its path, or called by its bare name.
fn is_sleep_call(source: &Source, offset: usize) -> bool {
    let before = source.code[..offset].trim_end();
    let called = source.code[offset + "sleep".len()..].starts_with('(');
    let bare = !before.ends_with("::") && !before.ends_with('.') && !before.ends_with("fn");
    before.ends_with("thread::") || before.ends_with("time::") || (called && bare)
}

fn is_excused(source: &Source, line: usize) -> bool {
    const EXCUSE: &str = "// not a wait:";
    [line, line - 1].into_iter().any(|line| {
        let reason = source.comment_line(line).split(EXCUSE).nth(1);
        reason.is_some_and(|reason| !reason.trim().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    const SHIPPED: &str = "crates/a/src/a.rs";
    const TEST: &str = "crates/a/tests/it/a.rs";

    #[test]
    fn skipped_tests_are_reported_in_every_spelling() {
        let text = "#[ignore]\n#[ignore = \"slow\"]\n#[cfg_attr(x, ignore)]\nuse ignore::Walk;\n";
        assert_eq!(lines(check, TEST, text), [1, 2, 3]);
    }

    #[test]
    fn a_test_that_sleeps_is_reported_in_every_spelling() {
        let text = "thread::sleep(d);\ntokio::time::sleep(d).await;\nsleep(d).await;\n";
        assert_eq!(lines(check, TEST, text), [1, 2, 3]);
        let inline = "#[cfg(test)]\nmod tests {\n    fn a() { std::thread::sleep(d) }\n}\n";
        assert_eq!(lines(check, SHIPPED, inline), [3]);
    }

    #[test]
    fn shipped_code_and_other_sleepers_may() {
        assert_eq!(lines(check, SHIPPED, "tokio::time::sleep(d).await;\n"), NOWHERE);
        assert_eq!(lines(check, TEST, "actor.sleep(d);\nActor::sleep(d);\nlet sleep = 1;\n"), NOWHERE);
    }

    #[test]
    fn a_sleep_is_excused_only_with_a_reason() {
        let text = "// not a wait: the clock's own resolution is measured\nthread::sleep(d);\n";
        assert_eq!(lines(check, TEST, text), NOWHERE);
        assert_eq!(lines(check, TEST, "thread::sleep(d); // not a wait:\n"), [1]);
    }
}
