//! A started process in a test, and a reader of its log: the waist's verbs, with what a test means by them.

use std::time::Duration;

use bytes::Bytes;
use exec_core::{Exit, Head, Page, ProcessId, Seq, Signal, TerminalSize};
use exec_env::process::{
    LogFollower, ProcessInfo, ReadQuery, ResizeError, Signalled, Terminated, WaitCondition, WaitError, Waited, Written,
};

use crate::bench::{Bench, write_id};
use crate::transcript::Transcript;
use crate::witness::Witness;

/// Output a reader asks for at a time.
const PAGE_BYTES: usize = 1 << 20;

/// A process that was started on a bench.
pub struct Process<'bench> {
    /// Its name.
    pub id: ProcessId,
    /// What the kernel calls it.
    pub pid: u32,
    bench: &'bench Bench,
}

impl<'bench> Process<'bench> {
    pub(crate) fn new(bench: &'bench Bench, id: ProcessId, pid: u32) -> Self {
        Self { id, pid, bench }
    }

    /// A reader from the beginning.
    pub async fn reader(&self) -> Reader {
        self.reader_after(0).await
    }

    /// A reader from behind `after`.
    pub async fn reader_after(&self, after: Seq) -> Reader {
        let follow = self.bench.processes().follow(&self.id, after).await;
        Reader {
            follow: follow.unwrap_or_else(|error| panic!("{} can be followed: {error}", self.id)),
            transcript: Transcript::new(after),
        }
    }

    /// The whole log, once it is complete.
    pub async fn transcript(&self) -> Transcript {
        self.reader().await.to_the_end().await
    }

    /// Looks once.
    pub async fn read(&self, query: ReadQuery) -> Page {
        let page = self.bench.processes().read(&self.id, query).await;
        page.unwrap_or_else(|error| panic!("{} can be read: {error}", self.id))
    }

    /// The log from its beginning, as far as it fits a page, now.
    pub async fn look(&self) -> Page {
        self.read(ReadQuery::default()).await
    }

    /// Looks again and again until its log is such, which no entry tells.
    pub async fn until_head(&self, holds: impl Fn(&Head) -> bool) {
        while !holds(&self.look().await.head) {
            // not a wait: between two looks at a fact that has no event, others get the processor.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Writes text to its stdin.
    pub async fn write(&self, key: &str, text: impl Into<Bytes>) -> Written {
        let written = self.bench.processes().write(&self.id, write_id(key), text.into());
        written.await.unwrap_or_else(|error| panic!("{} can be written to: {error}", self.id))
    }

    /// Ends its stdin.
    pub async fn close_stdin(&self) -> Written {
        let closed = self.bench.processes().close_stdin(&self.id).await;
        closed.unwrap_or_else(|error| panic!("stdin of {} can be closed: {error}", self.id))
    }

    /// Sends a signal to its group.
    pub async fn signal(&self, signal: Signal) -> Signalled {
        let signalled = self.bench.processes().signal(&self.id, signal).await;
        signalled.unwrap_or_else(|error| panic!("{} can be signalled: {error}", self.id))
    }

    /// Changes the size of its terminal.
    pub async fn resize(&self, rows: u16, cols: u16) -> Result<(), ResizeError> {
        self.bench.processes().resize(&self.id, TerminalSize { rows, cols }).await
    }

    /// Ends its tree.
    pub async fn terminate(&self, grace: Duration) -> Terminated {
        let terminated = self.bench.processes().terminate(&self.id, grace).await;
        terminated.unwrap_or_else(|error| panic!("{} can be terminated: {error}", self.id))
    }

    /// Ends its tree at once.
    pub async fn kill(&self) -> Terminated {
        self.terminate(Duration::ZERO).await
    }

    /// Waits for something, without a deadline but that of the test.
    pub async fn wait(&self, until: WaitCondition) -> Result<Waited, WaitError> {
        self.bench.processes().wait(&self.id, until, None).await
    }

    /// Waits for something, at most this long.
    pub async fn wait_at_most(&self, until: WaitCondition, deadline: Duration) -> Result<Waited, WaitError> {
        self.bench.processes().wait(&self.id, until, Some(deadline)).await
    }

    /// Waits for the leader's end.
    pub async fn exit(&self) -> Exit {
        match self.wait(WaitCondition::Exited).await {
            Ok(Waited::Exited(exit)) => exit,
            other => panic!("{} ends: {other:?}", self.id),
        }
    }

    /// What `list` says of it.
    pub async fn info(&self) -> ProcessInfo {
        let listed = self.bench.processes().list().await;
        listed
            .expect("the list is there")
            .into_iter()
            .find(|info| info.id == self.id)
            .unwrap_or_else(|| panic!("{} is listed", self.id))
    }

    /// The leader in the process table, while it is there.
    pub fn witness(&self) -> Witness {
        Witness::of(self.pid).unwrap_or_else(|| panic!("{} (pid {}) is in the process table", self.id, self.pid))
    }
}

/// A place in a log, and what was seen on the way there.
pub struct Reader {
    follow: Box<dyn LogFollower>,
    /// What was seen so far.
    pub transcript: Transcript,
}

impl Reader {
    /// Takes one more page in; false when the log is over.
    pub async fn more(&mut self) -> bool {
        let next = self.follow.next(PAGE_BYTES).await;
        match next.unwrap_or_else(|error| panic!("the log can be read on: {error}")) {
            Some(page) => {
                let news = page.gap.is_some() || !page.entries.is_empty();
                assert!(news, "a follower wakes for news only: {page:?}");
                self.transcript.absorb(page);
                true
            }
            None => {
                assert!(
                    self.transcript.is_closed(),
                    "the log ends with closed, not with {:?}",
                    self.transcript.entries.last()
                );
                false
            }
        }
    }

    /// Reads on until `holds` of what was seen.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Transcript) -> bool) {
        while !holds(&self.transcript) {
            assert!(self.more().await, "the log ended before {what}: {:?}", self.transcript);
        }
    }

    /// Reads on until a line with this text was printed.
    pub async fn line(&mut self, text: &str) {
        let wanted = format!("{text}\n");
        self.until(text, |seen| seen.printed().contains(&wanted)).await;
    }

    /// Reads on until a line begins with `prefix`; what follows it.
    pub async fn line_after(&mut self, prefix: &str) -> String {
        self.until(prefix, |seen| seen.line_after(prefix).is_some()).await;
        self.transcript.line_after(prefix).expect("it was awaited on the line above")
    }

    /// Reads on until a descendant was announced; that descendant.
    pub async fn descendant(&mut self) -> Witness {
        let pid = self.line_after("pid ").await;
        Witness::from_line(&format!("pid {pid}")).unwrap_or_else(|| panic!("descendant {pid} is in the process table"))
    }

    /// Reads on until the leader's end.
    pub async fn exited(&mut self) -> Exit {
        self.until("exited", |seen| seen.exited().is_some()).await;
        self.transcript.exit()
    }

    /// Reads to the end of the log, and asks once more to see that it stays the end.
    pub async fn to_the_end(mut self) -> Transcript {
        while self.more().await {}
        let again = self.follow.next(PAGE_BYTES).await;
        assert_eq!(again, Ok(None), "after the end there is nothing");
        self.transcript
    }

    /// The bare place in the log, for tests about `next` itself.
    pub fn follow(&mut self) -> &mut dyn LogFollower {
        &mut *self.follow
    }
}
