//! `exec-server screen`: prints what is to be seen on the terminal of a detached process, as an observer: nobody who drives
//! it notices.

use std::fmt::Write as _;

use anyhow::Context;
use exec_env::screen::{Color, Cursor, Screen, ScreenQuery, ScreenRow, Style};
use serde_json::{Value, json};

use crate::args::ScreenArgs;
use crate::detached_session::DetachedSession;
use crate::detached_store::DetachedStore;
use crate::messages;

pub(crate) async fn run(args: &ScreenArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    let session = DetachedSession::observe_noted(&store, store.find(&args.id)?, args.take_over).await?;
    let query = ScreenQuery { seq: args.seq, colors: args.colors };
    let screen = session.processes().screen(&session.id, query).await;
    session.close().await;
    let screen = screen.context("cannot draw the screen")?;
    if let Some(gap) = screen.gap {
        let bytes = gap.dropped_bytes;
        messages::print_note(format_args!("{bytes} bytes of output are gone; what they drew may be missing here"));
    }
    if args.json {
        messages::print_json(&as_json(&screen))?;
    } else {
        messages::print_stdout(as_text(&screen).as_bytes()).context("cannot write to stdout")?;
    }
    Ok(0)
}

/// The rows down to the last that has something on it.
fn as_text(screen: &Screen) -> String {
    let is_blank = |row: &&ScreenRow| row.text.is_empty() && row.runs.is_empty();
    let blank = screen.rows.iter().rev().take_while(is_blank).count();
    let mut text = String::new();
    for row in &screen.rows[..screen.rows.len() - blank] {
        if row.runs.is_empty() {
            text.push_str(&row.text);
        } else {
            push_styled(&mut text, row);
        }
        text.push('\n');
    }
    text
}

/// What a terminal must print to look like this.
pub(crate) fn repaint(screen: &Screen) -> String {
    let mut text = "\x1b[0m\x1b[2J".to_owned();
    for (number, row) in (1..).zip(&screen.rows) {
        let _ = write!(text, "\x1b[{number};1H");
        push_styled(&mut text, row);
    }
    let Cursor { row, col, visible } = screen.cursor;
    let _ = write!(text, "\x1b[{};{}H\x1b[?25{}", row + 1, col + 1, if visible { 'h' } else { 'l' });
    text
}

/// Columns are counted as the terminal does it, so that a wide character takes two.
fn push_styled(text: &mut String, row: &ScreenRow) {
    let mut chars = row.text.chars().peekable();
    let mut col = 0;
    let mut push_until = |text: &mut String, end: u16| {
        while col < end {
            // Blanks at the end of a row may have a colour.
            let next = chars.next().unwrap_or(' ');
            text.push(next);
            col += exec_env::screen::columns_of(next);
            while let Some(combined) = chars.next_if(|next| exec_env::screen::columns_of(*next) == 0) {
                text.push(combined);
            }
        }
    };
    for run in &row.runs {
        push_until(text, run.col);
        push_style(text, run.style);
        push_until(text, run.col.saturating_add(run.cols));
        text.push_str("\x1b[0m");
    }
    text.extend(chars);
}

fn push_style(text: &mut String, style: Style) {
    let flags = [(style.bold, 1), (style.dim, 2), (style.italic, 3), (style.underline, 4), (style.inverse, 7)];
    for (_, number) in flags.iter().filter(|(is_set, _)| *is_set) {
        let _ = write!(text, "\x1b[{number}m");
    }
    for (color, base) in [(style.foreground, 38), (style.background, 48)] {
        let _ = match color {
            Color::Default => Ok(()),
            Color::Palette(index) => write!(text, "\x1b[{base};5;{index}m"),
            Color::Rgb(red, green, blue) => write!(text, "\x1b[{base};2;{red};{green};{blue}m"),
        };
    }
}

fn as_json(screen: &Screen) -> Value {
    let color = |color: Color| match color {
        Color::Default => Value::Null,
        Color::Palette(index) => index.to_string().into(),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}").into(),
    };
    let run = |run: &exec_env::screen::StyleRun| {
        let style = run.style;
        json!({
            "col": run.col, "cols": run.cols, "fg": color(style.foreground), "bg": color(style.background),
            "bold": style.bold, "dim": style.dim, "italic": style.italic, "underline": style.underline,
            "inverse": style.inverse,
        })
    };
    let row = |row: &ScreenRow| json!({"text": row.text, "wrapped": row.wrapped, "runs": row.runs.iter().map(run).collect::<Vec<_>>()});
    json!({
        "rows": screen.rows.iter().map(row).collect::<Vec<_>>(),
        "size": {"rows": screen.size.rows, "cols": screen.size.cols},
        "cursor": {"row": screen.cursor.row, "col": screen.cursor.col, "visible": screen.cursor.visible},
        "title": screen.title,
        "alternate": screen.alternate,
        "seq": screen.seq,
    })
}
