//! Screens of terminals on this machine: the engine of `exec_env::screen`, driven over the files of the spool. The index
//! knows the size of the terminal at each entry, because the mover asks the terminal for it.

use std::sync::Arc;

use exec_core::{Gap, Head, Seq, TerminalSize};
use exec_env::screen::{Screen, ScreenEngine, ScreenQuery};
use exec_keeper::spool::log_files::LogFiles;
use exec_keeper::spool::log_scan::{LogScan, Scanned};
use rustix::io::Errno;

use crate::files::blocking::CancelFlag;

/// Largest screen that is kept, in cells: it costs some 32 bytes each, for each process that somebody looks at.
const KEPT_CELLS: usize = 32 << 10;

/// A screen as it was drawn last, so that the next look draws only what is new.
#[derive(Debug)]
pub(crate) struct DrawnScreen {
    engine: ScreenEngine,
    /// Drawn up to here.
    seq: Seq,
    gap: Option<Gap>,
}

impl DrawnScreen {
    pub(crate) fn new(size: TerminalSize) -> Self {
        Self { engine: ScreenEngine::new(size), seq: 0, gap: None }
    }

    /// Whether it can be drawn on to the screen after entry `seq`.
    pub(crate) fn leads_to(&self, seq: Seq) -> bool {
        self.seq <= seq
    }

    pub(crate) fn is_small(&self) -> bool {
        let size = self.engine.size();
        usize::from(size.rows) * usize::from(size.cols) <= KEPT_CELLS
    }

    /// Draws up to entry `upto`; `false` if nobody waits for it any more.
    pub(crate) fn draw(&mut self, files: &Arc<LogFiles>, upto: Seq, cancel: &CancelFlag) -> Result<bool, Errno> {
        let mut scan = LogScan::new(files.clone(), self.seq + 1, upto + 1, None);
        loop {
            if cancel.is_set() {
                return Ok(false);
            }
            match scan.next_run()? {
                Scanned::Run(run) => {
                    if let Some(size) = run.terminal {
                        self.engine.resize(size);
                    }
                    self.engine.feed(run.bytes);
                    self.seq = run.ends.last().map_or(self.seq, |(_, seq)| *seq);
                }
                Scanned::Dropped { to_seq } => {
                    let from_seq = self.gap.map_or(self.seq + 1, |gap| gap.from_seq);
                    self.gap = Some(Gap { from_seq, to_seq, dropped_bytes: 0 });
                    self.seq = to_seq;
                }
                Scanned::End => break,
            }
        }
        self.seq = upto.max(self.seq);
        Ok(true)
    }

    /// `now` is the size that the terminal has, if the screen of now is meant.
    pub(crate) fn screen(&mut self, query: ScreenQuery, head: Head, now: Option<TerminalSize>) -> Screen {
        if let Some(size) = now {
            self.engine.resize(size);
        }
        let gap = self.gap.map(|gap| Gap { dropped_bytes: head.dropped_bytes, ..gap });
        self.engine.screen(query, self.seq, gap, head)
    }
}
