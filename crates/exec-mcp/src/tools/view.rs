//! The tools that look at a session in other ways: search_output, a view of its log that is computed where the log is; and
//! show_screen, its terminal as a person would see it.

use std::fmt::Write as _;
use std::time::Duration;

use exec_env::screen::{Screen, ScreenQuery};
use exec_env::view::{CONTEXT_LINES, Grep, LeftOut, Position, Since, View, ViewLine, ViewPart, ViewQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::process::shapes::{SessionId, StreamName};
use super::{Hints, ToolEntry, ToolOutcome, failed, structured, tool};
use crate::call::Call;
use crate::limits::VIEW_BYTES;
use crate::server::Tools;

const LOOKS: Hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };

pub(super) fn tools() -> [ToolEntry; 2] {
    [
        ToolEntry {
            tool: tool::<SearchOutputArguments, OutputView>(
                "search_output",
                "Search the output of a command",
                "Shows lines of what a session has printed: those that match a pattern, the last ones, a range of lines, those since \
                 some seconds ago. Without escape sequences, overwritten progress bars and repeated lines. However long the log is, \
                 only what is shown travels.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(search_output(tools, call)),
        },
        ToolEntry {
            tool: tool::<ScreenArguments, ScreenView>(
                "show_screen",
                "Show the screen of a command",
                "Shows the screen of a session with a terminal (tty=true) as a person would see it: for editors, pagers, menus.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(show_screen(tools, call)),
        },
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SearchOutputArguments {
    /// The session, as exec_command has named it.
    session_id: SessionId,
    /// Only lines that match this regular expression.
    #[serde(default)]
    pattern: Option<String>,
    /// Upper and lower case are the same to the pattern.
    #[serde(default)]
    ignore_case: bool,
    /// Lines to show around each match.
    #[serde(default)]
    context_lines: u32,
    /// Only the last so many lines; with a pattern, the last that match.
    #[serde(default)]
    last_lines: Option<u64>,
    /// Only from this line on, counted from 1 where the view begins.
    #[serde(default)]
    first_line: Option<u64>,
    /// Only up to this line.
    #[serde(default)]
    last_line: Option<u64>,
    /// Only what was printed within so many seconds.
    #[serde(default)]
    since_seconds: Option<u64>,
    /// Only what came after this entry, as the note of an earlier view says.
    #[serde(default)]
    after_seq: Option<u64>,
    /// Only one stream.
    #[serde(default)]
    stream: Option<StreamName>,
    /// As it was printed, with escape sequences, overwritten text and repeats.
    #[serde(default)]
    raw: bool,
}

/// Lines of a log, and what is not among them.
#[derive(Debug, Serialize, JsonSchema)]
struct OutputView {
    /// The lines; what is left out is told in place.
    output: String,
    /// Lines that match the pattern, shown or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<u64>,
    /// What is not shown of what was asked for.
    left_out_bytes: u64,
    /// The last entry that was looked at: after_seq of the next call shows only what is new.
    last_seq: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ScreenArguments {
    /// The session, as exec_command has named it.
    session_id: SessionId,
    /// As it was after this entry; as it is now if absent.
    #[serde(default)]
    seq: Option<u64>,
}

/// A screen at one moment.
#[derive(Debug, Serialize, JsonSchema)]
struct ScreenView {
    /// Its rows, from the top, without blanks at their ends.
    screen: String,
    rows: u16,
    columns: u16,
    /// Where the next character would go, from 0.
    cursor_row: u16,
    cursor_column: u16,
    cursor_visible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The last entry that was drawn.
    seq: u64,
}

async fn search_output(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: SearchOutputArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    if let Err(why) = arguments.check() {
        return Ok(failed(why).into());
    }
    let session = arguments.session_id.number();
    match call.attend(tools.shell.view(session, arguments.query())).await? {
        Ok(view) => {
            let shown = OutputView::of(&view, &arguments);
            Ok(structured(shown.text(), &shown).into())
        }
        Err(error) => Ok(failed(error).into()),
    }
}

async fn show_screen(tools: &Tools, call: &Call) -> ToolOutcome {
    let arguments: ScreenArguments = match call.arguments() {
        Ok(arguments) => arguments,
        Err(why) => return Ok(failed(why).into()),
    };
    let query = ScreenQuery { seq: arguments.seq, colors: false };
    match call.attend(tools.shell.screen(arguments.session_id.number(), query)).await? {
        Ok(screen) => {
            let shown = ScreenView::of(&screen);
            Ok(structured(shown.text(), &shown).into())
        }
        Err(error) => Ok(failed(error).into()),
    }
}

impl SearchOutputArguments {
    fn check(&self) -> Result<(), &'static str> {
        match (self.last_lines, self.first_line, self.last_line) {
            (Some(0), ..) => Err("last_lines must be at least 1"),
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => Err(
                "give last_lines, or first_line and last_line: the last lines have no numbers that could be asked for",
            ),
            (None, first, Some(last)) if last < first.unwrap_or(1).max(1) => Err("last_line is before first_line"),
            _ => Ok(()),
        }
    }

    fn query(&self) -> ViewQuery {
        let part = match (self.last_lines, self.first_line, self.last_line) {
            (Some(lines), ..) => ViewPart::tail(lines),
            (None, None, None) => ViewPart::ALL,
            (None, first, last) => ViewPart::Lines { first: first.unwrap_or(1).max(1), last: last.unwrap_or(u64::MAX) },
        };
        ViewQuery {
            from: Position { after: self.after_seq.unwrap_or(0), skip_bytes: 0 },
            since: self.since_seconds.map(|seconds| Since::Age(Duration::from_secs(seconds))),
            stream: self.stream.map(StreamName::stream),
            part,
            grep: self.pattern.as_ref().map(|pattern| Grep {
                ignore_case: self.ignore_case,
                before: self.context_lines,
                after: self.context_lines,
                ..Grep::new(pattern)
            }),
            plain: !self.raw,
            collapse_overwritten: !self.raw,
            collapse_repeats: !self.raw,
            max_bytes: VIEW_BYTES,
            ..ViewQuery::default()
        }
    }
}

impl OutputView {
    fn of(view: &View, arguments: &SearchOutputArguments) -> Self {
        let searched = arguments.pattern.is_some();
        let mut output = String::new();
        if let Some(gap) = &view.gap {
            let moved = first_line_has_moved(view, arguments).unwrap_or_default();
            let _ = writeln!(output, "[{} bytes before this were dropped from the full log{moved}]", gap.dropped_bytes);
        }
        let left_out = left_out(view, arguments);
        let is_tail = arguments.last_lines.is_some();
        if let Some(note) = left_out.as_ref().filter(|_| is_tail) {
            let _ = writeln!(output, "{note}");
        }
        view.lines.iter().for_each(|line| write_line(&mut output, line, searched));
        if let Some(note) = left_out.filter(|_| !is_tail) {
            let _ = writeln!(output, "{note}");
        }
        let matches = searched.then_some(view.matches);
        Self { output, matches, left_out_bytes: view.left_out.bytes, last_seq: view.last_seq }
    }

    fn text(&self) -> String {
        match self.matches {
            Some(matches) => {
                format!("{matches} lines match; looked at entries up to {}\n{}", self.last_seq, self.output)
            }
            None => format!("looked at entries up to {}\n{}", self.last_seq, self.output),
        }
    }
}

/// What is not shown of what was asked for, and the call that shows it. Lines keep their numbers in such a call, because it
/// begins where this one did ([`counted_from_here`]).
fn left_out(view: &View, arguments: &SearchOutputArguments) -> Option<String> {
    let LeftOut { bytes, lines, matches } = view.left_out;
    if bytes == 0 {
        return None;
    }
    let lines = lines.map(|lines| format!("{lines} lines, ")).unwrap_or_default();
    let matching = if matches > 0 { format!("{matches} of them match, ") } else { String::new() };
    let what = format!("{lines}{matching}{bytes} bytes");
    if let Some(wanted) = arguments.last_lines {
        return Some(format!("[before this {what} are left out: {}]", left_out_before(view, arguments, wanted)));
    }
    let is_complete = view.next >= Position { after: view.last_seq, skip_bytes: 0 };
    // Lines that do not match are not to be shown, up to the last line asked for either.
    let is_complete = is_complete || (arguments.pattern.is_some() && arguments.last_line.is_some() && matches == 0);
    let next = view.lines.last().and_then(|line| Some(line.number? + line.repeats + 1));
    Some(match next {
        Some(next) if !is_complete && arguments.last_line.is_none_or(|last| next <= last) => {
            let without = if arguments.since_seconds.is_some() { " and without since_seconds" } else { "" };
            let from = counted_from_here(view, arguments);
            format!("[{what} are left out: the same call with {from}first_line={next}{without} goes on]")
        }
        _ => format!("[{what} are left out: {NOT_ASKED_FOR}]"),
    })
}

const NOT_ASKED_FOR: &str = "they are not what was asked for";

/// How to see what comes before the last lines.
fn left_out_before(view: &View, arguments: &SearchOutputArguments, wanted: u64) -> String {
    if arguments.pattern.is_some() && shows_all_matches(view, arguments.context_lines) {
        return NOT_ASKED_FOR.to_owned();
    }
    // Where it was the size that cut them, to ask for more of them would show the same again.
    let is_cut_by_size =
        (view.lines.len() as u64) < wanted || view.lines.first().is_some_and(|first| first.cut_bytes > 0);
    let more = if is_cut_by_size { "" } else { "more last_lines show more of them, " };
    let without = if arguments.since_seconds.is_some() { " and since_seconds" } else { "" };
    let from = counted_from_here(view, arguments);
    format!("{more}{from}first_line=1 in place of last_lines{without} shows them from the beginning")
}

/// Whether all lines that match are there, and before the first of them what is asked for around it. The last lines hold
/// whatever follows it.
fn shows_all_matches(view: &View, context_lines: u32) -> bool {
    let Some(first) = view.lines.iter().position(|line| line.is_match) else { return view.matches == 0 };
    let before: u64 = view.lines[..first].iter().map(|line| 1 + line.repeats).sum();
    let wanted = view.lines[first].number.map_or(0, |number| number - 1).min(context_lines.min(CONTEXT_LINES).into());
    let is_whole = view.lines[0].cut_bytes == 0;
    view.left_out.matches == 0 && before >= wanted && is_whole
}

/// What a call needs beside `first_line` to count lines as this one does. What began some seconds ago, or behind what a full log
/// has dropped, begins elsewhere by the time of the next call.
fn counted_from_here(view: &View, arguments: &SearchOutputArguments) -> String {
    match arguments.since_seconds.is_some() || view.gap.is_some() {
        true => format!("after_seq={}, ", view.first_seq.saturating_sub(1)),
        false => String::new(),
    }
}

/// A full log may have dropped the lines from which an earlier view has counted: then the same number is another line.
fn first_line_has_moved(view: &View, arguments: &SearchOutputArguments) -> Option<String> {
    let first = arguments.first_line.filter(|first| *first > 1)?;
    Some(format!(
        ", so lines are counted from entry {}: what an earlier view has called line {first} may come before this, and \
         first_line=1 shows all that is left",
        view.first_seq
    ))
}

/// With its number where that is known; in a search, a line that only stands near a match is told from one that matches.
fn write_line(output: &mut String, line: &ViewLine, searched: bool) {
    let mark = if searched && !line.is_match { '-' } else { ':' };
    let _ = match line.number {
        Some(number) => write!(output, "{number}{mark} {}", String::from_utf8_lossy(&line.text)),
        None => write!(output, "{}", String::from_utf8_lossy(&line.text)),
    };
    if line.cut_bytes > 0 {
        let _ = write!(output, " [{} bytes of this line are left out: read_output shows them]", line.cut_bytes);
    }
    if line.repeats > 0 {
        let _ = write!(output, " [repeated {} times more]", line.repeats);
    }
    output.push('\n');
}

impl ScreenView {
    fn of(screen: &Screen) -> Self {
        let rows: Vec<&str> = screen.rows.iter().map(|row| row.text.as_str()).collect();
        Self {
            screen: rows.join("\n"),
            rows: screen.size.rows,
            columns: screen.size.cols,
            cursor_row: screen.cursor.row,
            cursor_column: screen.cursor.col,
            cursor_visible: screen.cursor.visible,
            title: screen.title.clone(),
            seq: screen.seq,
        }
    }

    fn text(&self) -> String {
        let Self { rows, columns, cursor_row, cursor_column, seq, screen, .. } = self;
        let title = self.title.as_ref().map(|title| format!(", title {title:?}")).unwrap_or_default();
        format!(
            "{rows} rows, {columns} columns, cursor in row {cursor_row}, column {cursor_column} (from 0), entry {seq}{title}\n{screen}\n"
        )
    }
}
