//! Screens, as a client gets them.

use exec_env::screen::{Color, Screen, ScreenRow, StyleRun};
use exec_wire::process as wire;

pub(crate) fn screen(screen: Screen) -> wire::ScreenResult {
    wire::ScreenResult {
        rows: screen.rows.into_iter().map(row).collect(),
        size: screen.size.into(),
        cursor: wire::ScreenCursor { row: screen.cursor.row, col: screen.cursor.col, visible: screen.cursor.visible },
        title: screen.title,
        alternate: screen.alternate,
        seq: screen.seq,
        gap: screen.gap.map(|gap| wire::ViewGap {
            from_seq: gap.from_seq,
            to_seq: gap.to_seq,
            dropped_bytes: gap.dropped_bytes,
        }),
        head: (&screen.head).into(),
        exit: screen.head.exit.map(|(_, exit)| exit.into()),
    }
}

fn row(row: ScreenRow) -> wire::ScreenRow {
    wire::ScreenRow { text: row.text, wrapped: row.wrapped, runs: row.runs.into_iter().map(run).collect() }
}

fn run(run: StyleRun) -> wire::ScreenRun {
    let StyleRun { col, cols, style } = run;
    wire::ScreenRun {
        col,
        cols,
        fg: color(style.foreground),
        bg: color(style.background),
        bold: style.bold,
        dim: style.dim,
        italic: style.italic,
        underline: style.underline,
        inverse: style.inverse,
    }
}

fn color(color: Color) -> Option<String> {
    match color {
        Color::Default => None,
        Color::Palette(index) => Some(index.to_string()),
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}
