//! The log in front of the spool: its head in a `watch`, its bytes in files. No copy is kept.

use std::sync::Arc;
use std::time::Duration;

use exec_core::{Head, Page, ProcessId, Seq};
use exec_env::BoxFuture;
use exec_env::process::{LogFollower, ReadError, ReadQuery};
use exec_keeper::spool::log_files::{ReadRequest, DiskWait, LogFiles};
use rustix::io::Errno;
use tokio::sync::watch;

use crate::readers::{Readers, RegisteredReader};

/// What readers share.
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

    /// The log as it is.
    pub(crate) fn head(&self) -> Head {
        *self.head.borrow()
    }

    /// Told of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Head> {
        self.head.clone()
    }

    /// Looks once; waits up to `query.wait` if there is nothing yet.
    pub(crate) async fn read(&self, query: ReadQuery) -> Result<Page, ReadError> {
        if !query.wait.is_zero() {
            self.wait_for_news(query.after, Some(query.wait)).await;
        }
        self.page(query.after, query.max_bytes).await
    }

    /// Waits until there is something after `after`, or the log is complete, or `within` has passed.
    async fn wait_for_news(&self, after: Seq, within: Option<Duration>) {
        let mut head = self.head.clone();
        // The sender lives as long as the mover; when it is gone, what is there is all there will be.
        let changed = head.wait_for(|head| head.has_news(after));
        match within {
            Some(within) => drop(tokio::time::timeout(within, changed).await),
            None => drop(changed.await),
        }
    }

    async fn page(&self, after: Seq, max_bytes: Option<usize>) -> Result<Page, ReadError> {
        let head = self.head();
        let look = ReadRequest { after, max_bytes, disk_wait: DiskWait::Forbidden };
        let page = match self.files.page(head, look) {
            // What was written long ago may have left memory: the disk is waited for elsewhere.
            Err(Errno::AGAIN) => {
                let files = self.files.clone();
                let patient = ReadRequest { disk_wait: DiskWait::Allowed, ..look };
                tokio::task::spawn_blocking(move || files.page(head, patient)).await.unwrap_or(Err(Errno::IO))
            }
            other => other,
        };
        page.map_err(|errno| ReadError::Spool { id: self.id.clone(), errno: errno.raw_os_error() })
    }

    /// A place in the log.
    pub(crate) fn follow(&self, after: Seq) -> LocalFollower {
        LocalFollower { log: self.clone(), reader: self.readers.register(after), after, over: false }
    }
}

/// A reader with a place.
#[derive(Debug)]
pub(crate) struct LocalFollower {
    log: ProcessLog,
    reader: RegisteredReader,
    after: Seq,
    over: bool,
}

impl LocalFollower {
    pub(crate) async fn advance(&mut self, max_bytes: usize) -> Result<Option<Page>, ReadError> {
        if self.over {
            return Ok(None);
        }
        self.log.wait_for_news(self.after, None).await;
        let page = self.log.page(self.after, Some(max_bytes)).await?;
        self.after = page.cursor(self.after);
        self.reader.advance_to(self.after);
        // Complete and all read; or the mover is gone and nothing will come.
        let nothing = page.entries.is_empty() && page.gap.is_none();
        self.over = self.after.saturating_add(1) >= page.head.next_seq && (page.head.closed || nothing);
        Ok((!page.entries.is_empty() || page.gap.is_some()).then_some(page))
    }
}

impl LogFollower for LocalFollower {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if !self.over {
                self.log.wait_for_news(self.after, None).await;
            }
        })
    }

    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ReadError>> {
        Box::pin(self.advance(max_bytes))
    }
}
