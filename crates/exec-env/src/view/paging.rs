//! A view of a log that can only be read in pages: that of a server which knows no views.

use exec_core::{EntryBody, Gap, Page, ProcessId, Seq};

use super::engine::{Chunk, Flow, Outside, ViewEngine};
use super::{View, ViewQuery};
use crate::process::{ProcessError, ProcessReason, ProcessVerb, Processes, ReadQuery};

/// Most output of a page. One is held at a time.
const PAGE_BYTES: usize = 256 << 10;

/// Reads the log from the place where the view begins to where the log ends now, and shows what `query` asks for. Pages do
/// not tell times, so [`ViewQuery::since`] is refused.
pub async fn view_by_reading<P: Processes + ?Sized>(
    processes: &P,
    id: &ProcessId,
    query: ViewQuery,
) -> Result<View, ProcessError> {
    let failed = |reason| ProcessError::new(ProcessVerb::View, id, reason);
    let mut paged = PagedView::new(query).map_err(failed)?;
    loop {
        let page = processes.read(id, paged.next_page()).await.map_err(|error| failed(error.reason))?;
        match paged.push(page) {
            PagedProgress::More(more) => paged = *more,
            PagedProgress::Done(view) => return Ok(*view),
        }
    }
}

/// A view under way, for callers that read the pages themselves.
#[derive(Debug)]
pub struct PagedView {
    query: ViewQuery,
    engine: ViewEngine,
    flow: Flow,
    cursor: Seq,
    /// Where the log ended when it was first read. What comes later does not keep us here.
    last: Option<Seq>,
    range_bytes: u64,
    gap: Option<Gap>,
}

/// Whether a view is complete.
#[derive(Debug)]
pub enum PagedProgress {
    /// It needs the next page.
    More(Box<PagedView>),
    /// It is.
    Done(Box<View>),
}

impl PagedView {
    /// Nothing is read yet.
    pub fn new(query: ViewQuery) -> Result<Self, ProcessReason> {
        if query.since.is_some() {
            return Err(ProcessReason::NoTimes);
        }
        let engine = ViewEngine::new(query.clone()).map_err(|why| ProcessReason::BadRegex { why })?;
        let cursor = query.from.after;
        Ok(Self { query, engine, flow: Flow::More, cursor, last: None, range_bytes: 0, gap: None })
    }

    /// What to read next.
    pub fn next_page(&self) -> ReadQuery {
        ReadQuery { after: self.cursor, max_bytes: Some(PAGE_BYTES), ..ReadQuery::default() }
    }

    /// Shows this page too. What cannot be shown is counted.
    pub fn push(mut self, page: Page) -> PagedProgress {
        let newest = page.head.next_seq.saturating_sub(1);
        let last = *self.last.get_or_insert(self.query.upto.map_or(newest, |upto| upto.min(newest)));
        if let Some(gap) = page.gap {
            self.engine.gap();
            self.gap = Some(Gap { from_seq: self.gap.map_or(gap.from_seq, |first| first.from_seq), ..gap });
        }
        let before = self.cursor;
        self.cursor = page.cursor(self.cursor);
        for entry in page.entries {
            let EntryBody::Output { stream, bytes } = entry.body else { continue };
            if entry.seq > last || self.query.stream.is_some_and(|wanted| wanted != stream) {
                continue;
            }
            let skipped_bytes = if entry.seq == self.query.from.after + 1 { self.query.from.skip_bytes } else { 0 };
            let skipped_bytes = usize::try_from(skipped_bytes).unwrap_or(usize::MAX).min(bytes.len());
            let ends = &[(bytes.len(), entry.seq)];
            let bytes = &bytes[skipped_bytes..];
            self.range_bytes += bytes.len() as u64;
            if self.flow == Flow::More {
                self.flow = self.engine.push(Chunk { stream, bytes, ends, skipped_bytes });
            }
        }
        // A server that returns nothing has nothing more, whatever it says of its end.
        if self.cursor < last && self.cursor > before {
            return PagedProgress::More(Box::new(self));
        }
        let outside = Outside {
            range_bytes: self.range_bytes,
            first_seq: self.gap.map_or(self.query.from.after, |gap| gap.to_seq) + 1,
            last_seq: last.max(self.query.from.after),
            gap: self.gap,
            head: page.head,
            began_late: false,
        };
        PagedProgress::Done(Box::new(self.engine.finish(outside)))
    }
}
