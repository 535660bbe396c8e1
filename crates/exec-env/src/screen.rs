//! The screen of a process on a terminal: what a person would see there, made of what its log holds.
//!
//! The engine is told output and sizes, in order; it knows neither files nor time. Because the log keeps both, the screen of
//! any entry can be drawn, not only that of now. Deliberately absent: what scrolled off the screen, which the log has.

use std::num::NonZeroU16;

use exec_core::{EntryBody, Gap, Head, ProcessId, Seq, Stream, TerminalSize};

use crate::process::{ProcessError, ProcessReason, ProcessVerb, Processes, ReadQuery};

/// The largest screen, in rows and columns. A child may give its terminal 65,535 of each, and every cell takes memory; what is
/// beyond is not drawn.
pub const SCREEN_SIZE: TerminalSize = TerminalSize { rows: 256, cols: 512 };

/// Longest title, in bytes. A child may set one of any length.
pub const TITLE_BYTES: usize = 1024;

/// Most output of a page, where the screen is made of pages. One is held at a time.
const PAGE_BYTES: usize = 256 << 10;

/// Which screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScreenQuery {
    /// As it was after this entry; as it is now if absent.
    pub seq: Option<Seq>,
    /// With colours and attributes.
    pub colors: bool,
}

/// A screen at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screen {
    /// As many as its size says, from the top.
    pub rows: Vec<ScreenRow>,
    /// At most [`SCREEN_SIZE`].
    pub size: TerminalSize,
    /// Where the next character would go.
    pub cursor: Cursor,
    /// What the program has set as the title of the window.
    pub title: Option<String>,
    /// Whether the program uses the alternate screen, as editors and pagers do.
    pub alternate: bool,
    /// The last entry that was drawn.
    pub seq: Seq,
    /// Entries at the beginning that a full spool has dropped, so that the screen may lack what they drew.
    pub gap: Option<Gap>,
    /// The log when it was looked at.
    pub head: Head,
}

/// A row of a screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScreenRow {
    /// Without the blanks at its end.
    pub text: String,
    /// Whether its text goes on in the next row.
    pub wrapped: bool,
    /// Cells that do not look like plain text, if they were asked for.
    pub runs: Vec<StyleRun>,
}

/// A cursor, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "their names say it")]
pub struct Cursor {
    pub row: u16,
    pub col: u16,
    pub visible: bool,
}

/// Cells of a row that look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StyleRun {
    /// The first column, from 0.
    pub col: u16,
    /// How many columns.
    pub cols: u16,
    /// How they look.
    pub style: Style,
}

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "their names say it")]
pub struct Style {
    pub foreground: Color,
    pub background: Color,
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underline: bool,
    pub inverse: bool,
}

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// The terminal's own.
    #[default]
    Default,
    /// One of the 256 of the palette.
    Palette(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// Draws a screen.
pub struct ScreenEngine {
    parser: vt100::Parser<Title>,
    size: TerminalSize,
}

impl std::fmt::Debug for ScreenEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScreenEngine").field("size", &self.size).finish_non_exhaustive()
    }
}

impl ScreenEngine {
    /// An empty screen.
    pub fn new(size: TerminalSize) -> Self {
        let size = drawn(size);
        let (rows, cols) = cells(size);
        Self { parser: vt100::Parser::new_with_callbacks(rows, cols, 0, Title::default()), size }
    }

    /// The terminal has this size now.
    pub fn resize(&mut self, size: TerminalSize) {
        let size = drawn(size);
        if size != self.size {
            let (rows, cols) = cells(size);
            self.parser.set_size(rows, cols);
            self.size = size;
        }
    }

    /// Output, in any pieces.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.parser.process(bytes);
    }

    /// How much is drawn.
    pub fn size(&self) -> TerminalSize {
        self.size
    }

    /// The screen as it is now, after entry `seq`.
    pub fn screen(&self, query: ScreenQuery, seq: Seq, gap: Option<Gap>, head: Head) -> Screen {
        let screen = self.parser.screen();
        let texts = screen.rows(0, self.size.cols);
        let rows = texts.zip(0..self.size.rows).map(|(text, row)| ScreenRow {
            text: text.trim_end().to_owned(),
            wrapped: screen.row_wrapped(row),
            runs: if query.colors { self.runs(row) } else { Vec::new() },
        });
        let (row, col) = screen.cursor_position();
        Screen {
            rows: rows.collect(),
            size: self.size,
            cursor: Cursor { row, col, visible: !screen.hide_cursor() },
            title: self.parser.callbacks().0.clone(),
            alternate: screen.alternate_screen(),
            seq,
            gap,
            head,
        }
    }

    fn runs(&self, row: u16) -> Vec<StyleRun> {
        let mut runs: Vec<StyleRun> = Vec::new();
        for col in 0..self.size.cols {
            let Some(cell) = self.parser.screen().cell(row, col) else { break };
            let style = Style {
                foreground: color(cell.fgcolor()),
                background: color(cell.bgcolor()),
                bold: cell.bold(),
                dim: cell.dim(),
                italic: cell.italic(),
                underline: cell.underline(),
                inverse: cell.inverse(),
            };
            match runs.last_mut() {
                Some(last) if last.style == style && last.col + last.cols == col => last.cols += 1,
                _ if style == Style::default() => {}
                _ => runs.push(StyleRun { col, cols: 1, style }),
            }
        }
        runs
    }
}

/// The title of the window, which the engine hands out as it is set.
#[derive(Debug, Default)]
struct Title(Option<String>);

impl vt100::Callbacks for Title {
    fn set_window_title(&mut self, _screen: &mut vt100::Screen, title: &[u8]) {
        let title = String::from_utf8_lossy(&title[..title.len().min(TITLE_BYTES)]);
        self.0 = (!title.is_empty()).then(|| title.into_owned());
    }
}

/// How many columns a character takes on a screen.
pub fn columns_of(character: char) -> u16 {
    unicode_width::UnicodeWidthChar::width(character).map_or(0, |columns| columns as u16)
}

fn color(color: vt100::Color) -> Color {
    match color {
        vt100::Color::Default => Color::Default,
        vt100::Color::Idx(index) => Color::Palette(index),
        vt100::Color::Rgb(red, green, blue) => Color::Rgb(red, green, blue),
    }
}

fn drawn(size: TerminalSize) -> TerminalSize {
    TerminalSize { rows: size.rows.clamp(1, SCREEN_SIZE.rows), cols: size.cols.clamp(1, SCREEN_SIZE.cols) }
}

fn cells(size: TerminalSize) -> (NonZeroU16, NonZeroU16) {
    (NonZeroU16::new(size.rows).unwrap_or(NonZeroU16::MIN), NonZeroU16::new(size.cols).unwrap_or(NonZeroU16::MIN))
}

/// The screen of a process whose server draws none, from the pages of its log. They do not tell the size of the terminal, so
/// the usual one is taken.
pub async fn screen_by_reading<P: Processes + ?Sized>(
    processes: &P,
    id: &ProcessId,
    query: ScreenQuery,
) -> Result<Screen, ProcessError> {
    let failed = |reason| ProcessError::new(ProcessVerb::Screen, id, reason);
    let listed = processes.list().await.map_err(|error| failed(error.into()))?;
    let info = listed.into_iter().find(|info| info.id == *id);
    if !info.ok_or_else(|| failed(ProcessReason::UnknownProcess))?.tty {
        return Err(failed(ProcessReason::NoTerminal));
    }
    let mut drawing = PagedScreen::new(query);
    loop {
        let page = ReadQuery { after: drawing.cursor, max_bytes: Some(PAGE_BYTES), ..ReadQuery::default() };
        let page = processes.read(id, page).await.map_err(|error| failed(error.reason))?;
        if let Some(screen) = drawing.push(page) {
            return Ok(screen);
        }
    }
}

struct PagedScreen {
    query: ScreenQuery,
    engine: ScreenEngine,
    cursor: Seq,
    /// What comes later is not drawn.
    last: Option<Seq>,
    gap: Option<Gap>,
}

impl PagedScreen {
    fn new(query: ScreenQuery) -> Self {
        Self { query, engine: ScreenEngine::new(TerminalSize::default()), cursor: 0, last: None, gap: None }
    }

    fn push(&mut self, page: exec_core::Page) -> Option<Screen> {
        let newest = page.head.next_seq.saturating_sub(1);
        let last = *self.last.get_or_insert(self.query.seq.map_or(newest, |seq| seq.min(newest)));
        if let Some(gap) = page.gap {
            self.gap = Some(Gap { from_seq: self.gap.map_or(gap.from_seq, |first| first.from_seq), ..gap });
        }
        let before = self.cursor;
        self.cursor = page.cursor(self.cursor);
        for entry in page.entries.iter().filter(|entry| entry.seq <= last) {
            if let EntryBody::Output { stream: Stream::Pty, bytes } = &entry.body {
                self.engine.feed(bytes);
            }
        }
        // A server that returns nothing has nothing more, whatever it says of its end.
        let done = self.cursor >= last || self.cursor == before;
        done.then(|| self.engine.screen(self.query, last, self.gap, page.head))
    }
}
