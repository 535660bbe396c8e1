//! The screen of a terminal (ours): what a person would see there, now or after any entry of the log.

use super::log::{Exit, LogHead};
use super::start::Size;
use super::view::ViewGap;
use crate::initialize::is_false;
use crate::shape::shapes;

shapes! {
    pub struct ScreenParams {
        pub process_id: String,
        /// As it was after the entry of this number; as it is now if absent.
        pub seq: Option<u64>,
        /// With `runs`: colours and attributes.
        #[serde(default, skip_serializing_if = "is_false")]
        pub colors: bool,
    }

    pub struct ScreenResult {
        /// From the top, as many as `size` says.
        pub rows: Vec<ScreenRow>,
        /// At most 256 rows of 512 columns are drawn.
        pub size: Size,
        pub cursor: ScreenCursor,
        /// The title of the window, if the program has set one.
        pub title: Option<String>,
        /// Whether the program uses the alternate screen, as editors and pagers do.
        pub alternate: bool,
        /// The last entry that was drawn.
        pub seq: u64,
        /// What is gone from the beginning of the log, so that the screen may lack what it drew.
        pub gap: Option<ViewGap>,
        /// The log at that moment.
        pub head: LogHead,
        /// How it ended, if it has.
        pub exit: Option<Exit>,
    }

    pub struct ScreenRow {
        /// Without the blanks at its end.
        pub text: String,
        /// Whether its text goes on in the next row.
        #[serde(default, skip_serializing_if = "is_false")]
        pub wrapped: bool,
        /// Cells that do not look like plain text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub runs: Vec<ScreenRun>,
    }

    /// Counted from 0.
    #[derive(Copy)]
    pub struct ScreenCursor {
        pub row: u16,
        pub col: u16,
        pub visible: bool,
    }

    /// Cells of a row that look alike.
    pub struct ScreenRun {
        /// The first column, from 0.
        pub col: u16,
        /// How many columns.
        pub cols: u16,
        /// `"0"` to `"255"` of the palette, or `"#rrggbb"`; the terminal's own if absent.
        pub fg: Option<String>,
        /// The same of the background.
        pub bg: Option<String>,
        #[serde(default, skip_serializing_if = "is_false")]
        pub bold: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        pub dim: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        pub italic: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        pub underline: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        pub inverse: bool,
    }
}
