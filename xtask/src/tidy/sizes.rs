//! Files and functions of a size at which somebody should think again. These are warnings: a long whole is better than
//! pieces that were cut to meet a number.

use super::{Tree, Violation};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 80;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let lines = source.line_count();
        if lines > FILE_LINES {
            let what = format!("{lines} lines in one file, more than {FILE_LINES}; is it still one thought?");
            found.push(Violation::new(&source.path, 1, what));
        }
        for function in source.functions().into_iter().filter(|function| function.body_lines > FUNCTION_LINES) {
            let what = format!(
                "`{}` has {} lines, more than {FUNCTION_LINES}; does its state want a type?",
                function.name, function.body_lines
            );
            found.push(Violation::new(&source.path, function.line, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    #[test]
    fn a_function_may_have_its_limit_and_not_one_line_more() {
        let function = |body_lines: usize| format!("fn a() {{\n{}}}\n", "    x();\n".repeat(body_lines));
        assert_eq!(lines(check, "crates/a/src/a.rs", &function(FUNCTION_LINES)), NOWHERE);
        assert_eq!(lines(check, "crates/a/src/a.rs", &function(FUNCTION_LINES + 1)), [1]);
        assert_eq!(lines(check, "crates/a/tests/it/a.rs", &function(FUNCTION_LINES + 1)), [1]);
    }

    #[test]
    fn a_file_may_have_its_limit_and_not_one_line_more() {
        assert_eq!(lines(check, "crates/a/src/a.rs", &"x!();\n".repeat(FILE_LINES)), NOWHERE);
        assert_eq!(lines(check, "crates/a/src/a.rs", &"x!();\n".repeat(FILE_LINES + 1)), [1]);
    }
}
