//! Tables for the user, and the format of sizes and times in them.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Row, Table};

use crate::output::visible;
use crate::{messages, terminal};

/// Columns that a narrow terminal does without, the least useful first. `--json` has them all.
const DISPENSABLE: [&str; 12] = [
    "VERSION", "SHELL", "OUTPUT", "OPENED", "PID", "STARTED", "LATENCY", "FROM", "DEFAULT", "CLIENT", "WHERE",
    "MODIFIED",
];

/// What the last column, which may be cut, needs at least to be of use.
const LAST_COLUMNS: usize = 16;

/// Between two columns.
const PADDING: usize = 2;

/// Prints a table, at most as wide as the terminal if stdout is one. What is in it does nothing to a terminal.
pub(crate) fn print<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> anyhow::Result<()> {
    let mut table = Table::new();
    let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| visible(cell.as_bytes()))).collect();
    let mut kept: Vec<usize> = (0..N).collect();
    if let Some(size) = terminal::size().filter(|_| std::io::stdout().is_terminal()) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(size.cols);
        kept = fitting(&head, &rows, usize::from(size.cols));
    }
    table.load_preset(NOTHING).set_header(kept.iter().map(|column| head[*column]));
    for row in rows {
        let mut row = Row::from(kept.iter().map(|column| &row[*column]));
        // A command line of ten lines must not push the other rows off the screen.
        row.max_height(2);
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, PADDING as u16));
    }
    let mut text: String = table.lines().flat_map(|line| [line.trim_end().to_owned(), "\n".to_owned()]).collect();
    if text.is_empty() {
        text.push('\n');
    }
    messages::print_stdout(text.as_bytes()).context("cannot write to stdout")
}

/// The columns that fit next to each other.
fn fitting<const N: usize>(head: &[&str; N], rows: &[[String; N]], width: usize) -> Vec<usize> {
    let columns_of = |text: &str| text.chars().map(|c| usize::from(exec_env::screen::columns_of(c))).sum::<usize>();
    let natural: Vec<usize> = (0..N)
        .map(|column| {
            let cells = rows.iter().map(|row| columns_of(&row[column]));
            cells.chain([columns_of(head[column])]).max().unwrap_or(0)
        })
        .collect();
    let needed = |kept: &[usize]| -> usize {
        let widths = kept.iter().map(|column| match *column == N - 1 {
            true => natural[*column].min(LAST_COLUMNS),
            false => natural[*column],
        });
        widths.map(|width| width + PADDING).sum()
    };
    let mut kept: Vec<usize> = (0..N).collect();
    for name in DISPENSABLE {
        if needed(&kept) <= width {
            break;
        }
        // The last says what it is all about.
        kept.retain(|column| head[*column] != name || *column == N - 1);
    }
    kept
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

/// `25s`, `4m 30s`, `11h 59m`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3_599 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        60..=3_599 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ if seconds % 3_600 < 60 => format!("{}h", seconds / 3_600),
        _ => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
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
    fn a_narrow_terminal_gets_fewer_columns_rather_than_words_in_pieces() {
        let head = ["ID", "WHERE", "STATE", "PID", "STARTED", "OUTPUT", "COMMAND"];
        let row = ["make-x7q2", "ws://build.example.org:7000", "running", "12345", "3m ago", "1.2 KiB", "make all -j8"];
        let rows = [row.map(str::to_owned)];
        let names = |width| fitting(&head, &rows, width).into_iter().map(|column| head[column]).collect::<Vec<_>>();
        assert_eq!(names(120), head);
        assert_eq!(names(80), ["ID", "WHERE", "STATE", "PID", "STARTED", "COMMAND"]);
        assert_eq!(names(70), ["ID", "WHERE", "STATE", "COMMAND"]);
        assert_eq!(names(40), ["ID", "STATE", "COMMAND"]);
        assert_eq!(names(5), ["ID", "STATE", "COMMAND"], "something is always shown");
    }

    #[test]
    fn sizes_and_ages_are_short() {
        let sizes = [0, 17, 1023, 1024, 1229, 20 << 10, 256 << 20, 3 << 40].map(size);
        assert_eq!(sizes, ["0 B", "17 B", "1023 B", "1.0 KiB", "1.2 KiB", "20 KiB", "256 MiB", "3.0 TiB"]);
        let ages = [0, 59_999, 60_000, 7_200_000, 172_800_000].map(|ms| ago(1, 1 + ms));
        assert_eq!(ages, ["0s ago", "59s ago", "1m ago", "2h ago", "2d ago"]);
        assert_eq!(ago(9, 1), "0s ago", "clocks differ");
        let times = [0, 25, 60, 270, 3_600, 43_199].map(|seconds| duration(Duration::from_secs(seconds)));
        assert_eq!(times, ["0s", "25s", "1m", "4m 30s", "1h", "11h 59m"]);
    }

    #[test]
    fn a_command_stays_on_its_line() {
        assert_eq!(one_line(&["sh".into(), "-c".into(), "a\nb\x1b[2J".into()]), "sh -c a b [2J");
    }
}
