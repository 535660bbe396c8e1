//! Tables for the user, and the format of sizes and times in them.

use std::io::IsTerminal;

use anyhow::Context;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Row, Table};

use crate::output::visible;
use crate::{messages, terminal};

/// Prints a table, at most as wide as the terminal if stdout is one. What is in it does nothing to a terminal.
pub(crate) fn print<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(head);
    if let Some(size) = terminal::size().filter(|_| std::io::stdout().is_terminal()) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(size.cols);
    }
    for row in rows {
        let mut row = Row::from(row.map(|cell| visible(cell.as_bytes())));
        // A command line of ten lines must not push the other rows off the screen.
        row.max_height(2);
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text: String = table.lines().flat_map(|line| [line.trim_end().to_owned(), "\n".to_owned()]).collect();
    if text.is_empty() {
        text.push('\n');
    }
    messages::print_stdout(text.as_bytes()).context("cannot write to stdout")
}

/// `17 B`, `1.2 KiB`, `256 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if value < 1024.0 || units.peek().is_none() {
            let digits = if unit == "B" || value >= 10.0 { 0 } else { 1 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{bytes} B")
}

/// `5s ago`, `3m ago`, `2h ago`, `4d ago`.
pub(crate) fn ago(then_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..=59 => format!("{seconds}s ago"),
        60..=3_599 => format!("{}m ago", seconds / 60),
        3_600..=86_399 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// The arguments in one line, without control characters, which could move the cursor.
pub(crate) fn one_line(argv: &[String]) -> String {
    argv.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        let sizes = [0, 17, 1023, 1024, 1229, 20 << 10, 256 << 20, 3 << 40].map(size);
        assert_eq!(sizes, ["0 B", "17 B", "1023 B", "1.0 KiB", "1.2 KiB", "20 KiB", "256 MiB", "3.0 TiB"]);
        let ages = [0, 59_999, 60_000, 7_200_000, 172_800_000].map(|ms| ago(1, 1 + ms));
        assert_eq!(ages, ["0s ago", "59s ago", "1m ago", "2h ago", "2d ago"]);
        assert_eq!(ago(9, 1), "0s ago", "clocks differ");
    }

    #[test]
    fn a_command_stays_on_its_line() {
        assert_eq!(one_line(&["sh".into(), "-c".into(), "a\nb\x1b[2J".into()]), "sh -c a b [2J");
    }
}
