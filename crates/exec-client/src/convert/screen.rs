//! Screens, as a server sends them.

use exec_core::Gap;
use exec_env::screen::{Color, Cursor, Screen, ScreenRow, Style, StyleRun};
use exec_wire::process as wire;

use super::view::head;

pub(crate) fn screen(result: wire::ScreenResult) -> Screen {
    Screen {
        rows: result.rows.into_iter().map(row).collect(),
        size: result.size.into(),
        cursor: Cursor { row: result.cursor.row, col: result.cursor.col, visible: result.cursor.visible },
        title: result.title,
        alternate: result.alternate,
        seq: result.seq,
        gap: result.gap.map(|gap| Gap { from_seq: gap.from_seq, to_seq: gap.to_seq, dropped_bytes: gap.dropped_bytes }),
        head: head(&result.head, result.exit.map(Into::into)),
    }
}

fn row(row: wire::ScreenRow) -> ScreenRow {
    ScreenRow { text: row.text, wrapped: row.wrapped, runs: row.runs.into_iter().map(run).collect() }
}

fn run(run: wire::ScreenRun) -> StyleRun {
    let style = Style {
        foreground: color(run.fg.as_deref()),
        background: color(run.bg.as_deref()),
        bold: run.bold,
        dim: run.dim,
        italic: run.italic,
        underline: run.underline,
        inverse: run.inverse,
    };
    StyleRun { col: run.col, cols: run.cols, style }
}

/// What is neither a number nor three bytes in hex is shown in the terminal's own colour.
fn color(text: Option<&str>) -> Color {
    let Some(text) = text else { return Color::Default };
    let palette = || text.parse().ok().map(Color::Palette);
    let rgb = |hex: &str| {
        let [_, red, green, blue] = u32::from_str_radix(hex, 16).ok()?.to_be_bytes();
        (hex.len() == 6).then_some(Color::Rgb(red, green, blue))
    };
    text.strip_prefix('#').map_or_else(palette, rgb).unwrap_or_default()
}
