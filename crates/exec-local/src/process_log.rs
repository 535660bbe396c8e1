//! The log of one process for its readers: the head in a `watch`, the bytes in the spool's files. No copy is kept.

use std::sync::Arc;
use std::time::Duration;

use exec_core::{Head, Page, ProcessId, Seq};
use exec_env::BoxFuture;
use exec_env::process::{LogFollower, ProcessError, ProcessReason, ProcessVerb, ReadQuery};
use exec_keeper::spool::log_files::{DiskWait, LogFiles, ReadRequest};
use rustix::io::Errno;
use tokio::sync::watch;

use crate::readers::{Readers, RegisteredReader};

#[derive(Debug, Clone)]
pub(crate) struct ProcessLog {
    id: ProcessId,
    files: Arc<LogFiles>,
    head: watch::Receiver<Head>,
    readers: Arc<Readers>,
}

impl ProcessLog {
    pub(crate) fn new(id: ProcessId, files: Arc<LogFiles>, head: watch::Receiver<Head>, readers: Arc<Readers>) -> Self {
        Self { id, files, head, readers }
    }

    pub(crate) fn head(&self) -> Head {
        *self.head.borrow()
    }

    /// Sees every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Head> {
        self.head.clone()
    }

    pub(crate) async fn read(&self, query: ReadQuery) -> Result<Page, ProcessReason> {
        if !query.wait.is_zero() {
            self.wait_for_news(query.after, Some(query.wait)).await;
        }
        self.page(query.after, query.max_bytes).await
    }

    /// Waits until there is something after `after`, or the log is complete, or `within` has passed.
    async fn wait_for_news(&self, after: Seq, within: Option<Duration>) {
        let mut head = self.head.clone();
        // The sender lives as long as the mover; when it is gone, nothing more will come.
        let changed = head.wait_for(|head| head.has_news(after));
        match within {
            Some(within) => drop(tokio::time::timeout(within, changed).await),
            None => drop(changed.await),
        }
    }

    async fn page(&self, after: Seq, max_bytes: Option<usize>) -> Result<Page, ProcessReason> {
        let head = self.head();
        let request = ReadRequest { after, max_bytes, disk_wait: DiskWait::Forbidden };
        let page = match self.files.page(head, request) {
            // Old output may no longer be in memory; a blocking thread waits for the disk.
            Err(Errno::AGAIN) => {
                let files = self.files.clone();
                let waiting = ReadRequest { disk_wait: DiskWait::Allowed, ..request };
                tokio::task::spawn_blocking(move || files.page(head, waiting)).await.unwrap_or(Err(Errno::IO))
            }
            other => other,
        };
        page.map_err(|errno| ProcessReason::SpoolUnreadable { errno: errno.raw_os_error() })
    }

    pub(crate) fn files(&self) -> &Arc<LogFiles> {
        &self.files
    }

    /// Nobody can have read what is not there yet. Whoever says so is told of all that comes, the end included.
    fn limit_to_end(&self, read_upto: Seq) -> Seq {
        read_upto.min(self.head.borrow().next_seq.saturating_sub(1))
    }

    pub(crate) fn follow(&self, after: Seq) -> LocalFollower {
        let after = self.limit_to_end(after);
        self.follower(after, self.readers.register(after))
    }

    /// For whoever looks for something in the output, and is not the reader for whom it is kept.
    pub(crate) fn follow_to_search(&self, after: Seq) -> LocalFollower {
        let after = self.limit_to_end(after);
        self.follower(after, self.readers.register_beside(after))
    }

    fn follower(&self, after: Seq, reader: RegisteredReader) -> LocalFollower {
        LocalFollower { log: self.clone(), reader, after, acknowledges: false, finished: false }
    }
}

#[derive(Debug)]
pub(crate) struct LocalFollower {
    log: ProcessLog,
    reader: RegisteredReader,
    after: Seq,
    /// The reader says itself what it has read; otherwise it has read what it got.
    acknowledges: bool,
    finished: bool,
}

impl LocalFollower {
    /// Up to where it has read.
    pub(crate) fn position(&self) -> Seq {
        self.after
    }

    /// For a reader that reads the files itself: it has read up to this entry, and reads again what is behind `kept_after`.
    pub(crate) fn pass(&mut self, upto: Seq, kept_after: Seq) {
        self.after = upto;
        self.reader.advance_to(kept_after);
    }

    /// Waits until there is something behind its position; `false` if nothing more can come.
    pub(crate) async fn has_more(&self) -> bool {
        self.log.wait_for_news(self.after, None).await;
        self.after.saturating_add(1) < self.log.head().next_seq
    }

    async fn advance(&mut self, max_bytes: usize) -> Result<Option<Page>, ProcessReason> {
        if self.finished {
            return Ok(None);
        }
        self.log.wait_for_news(self.after, None).await;
        let page = self.log.page(self.after, Some(max_bytes)).await?;
        self.after = page.cursor(self.after);
        if !self.acknowledges {
            self.reader.advance_to(self.after);
        }
        // Everything is read, and the log is complete or the mover is gone.
        let nothing = page.entries.is_empty() && page.gap.is_none();
        self.finished = self.after.saturating_add(1) >= page.head.next_seq && (page.head.closed || nothing);
        Ok((!page.entries.is_empty() || page.gap.is_some()).then_some(page))
    }
}

impl LogFollower for LocalFollower {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if !self.finished {
                self.log.wait_for_news(self.after, None).await;
            }
        })
    }

    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ProcessError>> {
        Box::pin(async move {
            let page = self.advance(max_bytes).await;
            page.map_err(|reason| ProcessError::new(ProcessVerb::Follow, &self.log.id, reason))
        })
    }

    fn acknowledge(&mut self, upto: Seq, patience: Duration) {
        self.acknowledges = true;
        // Nothing is kept for whom nobody waits.
        if patience.is_zero() {
            return self.reader.withdraw();
        }
        self.reader.set_patience(patience);
        self.reader.advance_to(self.log.limit_to_end(upto));
    }
}
