//! Every channel has a bound, or a comment that names what bounds it.

use crate::source::{Source, is_word};

use super::{Tree, Violation};

/// Words that name a channel without a bound.
const UNBOUNDED: &[&str] = &["unbounded_channel", "UnboundedSender", "UnboundedReceiver", "unbounded"];

/// How far above the line the comment may stand.
const LINES_ABOVE: usize = 3;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let named = UNBOUNDED.iter().flat_map(|word| source.words(word));
        let called = source.words("channel").filter(|offset| is_std_unbounded(source, *offset));
        let mut lines: Vec<usize> = named.chain(called).map(|offset| source.line_at(offset)).collect();
        lines.sort_unstable();
        lines.dedup();
        for line in lines {
            let import = source.code_line(line).trim_start().trim_start_matches("pub ");
            if import.starts_with("use ") || source.has_comment_near(line, LINES_ABOVE, "bounded by") {
                continue;
            }
            let what = "a channel without a bound; bound it, or name what bounds it in a comment \
                        with the words `bounded by`";
            found.push(Violation::new(&source.path, line, what));
        }
    }
    found
}

/// Whether this is a call of std's `mpsc::channel`, told by its empty parentheses.
fn is_std_unbounded(source: &Source, offset: usize) -> bool {
    let before = source.code[..offset].trim_end();
    let from_elsewhere = before.ends_with("::") && !before.ends_with("mpsc::");
    let last_word = before.rsplit(|c: char| !c.is_ascii() || !is_word(c as u8)).next();
    if before.ends_with('.') || from_elsewhere || last_word == Some("fn") {
        return false;
    }
    let after = source.code[offset + "channel".len()..].trim_start();
    let call = match after.strip_prefix("::<") {
        Some(turbofish) => match turbofish.find(">(") {
            Some(end) => &turbofish[end + 1..],
            None => return false,
        },
        None => after,
    };
    call.strip_prefix('(').is_some_and(|inside| inside.trim_start().starts_with(')'))
}

#[cfg(test)]
mod tests {
    use super::super::{NOWHERE, lines};
    use super::*;

    #[test]
    fn unbounded_channels_of_every_maker_are_reported() {
        let text = "\
            let a = mpsc::unbounded_channel();\n\
            let b: UnboundedSender<u8>;\n\
            let c = std::sync::mpsc::channel();\n\
            let d = mpsc::channel::<Vec<u8>>();\n";
        assert_eq!(lines(check, "crates/a/src/a.rs", text), [1, 2, 3, 4]);
    }

    #[test]
    fn a_bound_or_its_name_is_enough() {
        let text = "\
            let a = mpsc::channel(8);\n\
            // Bounded by the number of processes.\n\
            let b = mpsc::unbounded_channel();\n\
            let c = memory::channel();\n\
            fn channel() {}\n\
            let d = self.channel();\n";
        assert_eq!(lines(check, "crates/a/src/a.rs", text), NOWHERE);
    }

    #[test]
    fn an_import_is_no_channel_and_a_far_comment_no_excuse() {
        let text = "\
            use tokio::sync::mpsc::UnboundedSender;\n\
            // bounded by the number of processes\n\n\n\n\
            let b = mpsc::unbounded_channel();\n";
        assert_eq!(lines(check, "crates/a/src/a.rs", text), [6]);
    }
}
