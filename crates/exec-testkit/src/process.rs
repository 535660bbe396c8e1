//! A started process in a test, and a reader of its log: the verbs of `Processes`, with a panic where a test expects
//! success.

use std::time::Duration;

use bytes::Bytes;
use exec_core::{Exit, Head, Page, ProcessId, Seq, Signal, TerminalSize};
use exec_env::Processes;
use exec_env::process::{
    LogFollower, ProcessError, ProcessInfo, ReadQuery, Signalled, Terminated, WaitCondition, Waited, Written,
};
use exec_env::screen::{Screen, ScreenQuery};
use exec_env::view::{View, ViewQuery};

use crate::checked_log::CheckedLog;
use crate::os_process::{OsProcess, poll_pause};
use crate::test_environment::{TestEnvironment, write_id};

/// Output a reader asks for at a time.
const PAGE_BYTES: usize = 1 << 20;

/// A process that was started in a test environment.
pub struct TestProcess<'env> {
    pub id: ProcessId,
    pub pid: u32,
    env: &'env TestEnvironment,
}

impl<'env> TestProcess<'env> {
    pub(crate) fn new(env: &'env TestEnvironment, id: ProcessId, pid: u32) -> Self {
        Self { id, pid, env }
    }

    /// A reader that begins at the first entry.
    pub async fn reader(&self) -> LogReader {
        self.reader_after(0).await
    }

    /// A reader that has read up to this line.
    pub async fn reader_at_line(&self, line: &str) -> LogReader {
        let mut reader = self.reader().await;
        reader.wait_for_line(line).await;
        reader
    }

    pub async fn reader_after(&self, after: Seq) -> LogReader {
        LogReader::open(self.env.processes(), &self.id, after).await
    }

    /// The whole log, once it is complete.
    pub async fn read_to_end(&self) -> CheckedLog {
        self.reader().await.read_to_end().await
    }

    pub async fn read(&self, query: ReadQuery) -> Page {
        let page = self.env.processes().read(&self.id, query).await;
        page.unwrap_or_else(|error| panic!("{} can be read: {error}", self.id))
    }

    /// The log from its beginning, as far as it fits a page, now.
    pub async fn read_now(&self) -> Page {
        self.read(ReadQuery::default()).await
    }

    /// Polls until the head of the log is such; for changes of the head that no entry tells.
    pub async fn wait_for_head(&self, holds: impl Fn(&Head) -> bool) {
        while !holds(&self.read_now().await.head) {
            poll_pause().await;
        }
    }

    /// Waits until the log is full and the child waits for room.
    pub async fn wait_until_stalled(&self) -> Head {
        let head = self.wait_until_stalled_or_closed().await;
        assert_eq!((head.exit, head.stalled.is_some()), (None, true), "a child that waits for room cannot end");
        head
    }

    /// A stall is no entry, so it is looked for after each entry, and now and then while none comes.
    pub async fn wait_until_stalled_or_closed(&self) -> Head {
        let mut after = 0;
        loop {
            let query = ReadQuery { after, max_bytes: Some(0), wait: Duration::from_millis(10) };
            let head = self.read(query).await.head;
            after = head.next_seq - 1;
            if head.stalled.is_some() || head.closed {
                return head;
            }
        }
    }

    pub async fn write(&self, key: &str, text: impl Into<Bytes>) -> Written {
        let written = self.env.processes().write(&self.id, write_id(key), text.into());
        written.await.unwrap_or_else(|error| panic!("{} can be written to: {error}", self.id))
    }

    pub async fn close_stdin(&self) -> Written {
        let closed = self.env.processes().close_stdin(&self.id).await;
        closed.unwrap_or_else(|error| panic!("stdin of {} can be closed: {error}", self.id))
    }

    /// Sends a signal to its group.
    pub async fn signal(&self, signal: Signal) -> Signalled {
        let signalled = self.env.processes().signal(&self.id, signal).await;
        signalled.unwrap_or_else(|error| panic!("{} can be signalled: {error}", self.id))
    }

    /// The same, once for each key.
    pub async fn signal_once(&self, signal: Signal, key: &str) -> Signalled {
        let signalled = self.env.processes().signal_once(&self.id, signal, key).await;
        signalled.unwrap_or_else(|error| panic!("{} can be signalled: {error}", self.id))
    }

    pub async fn resize(&self, rows: u16, cols: u16) -> Result<(), ProcessError> {
        self.env.processes().resize(&self.id, TerminalSize { rows, cols }).await
    }

    /// Ends its tree.
    pub async fn terminate(&self, grace: Duration) -> Terminated {
        let terminated = self.env.processes().terminate(&self.id, grace).await;
        terminated.unwrap_or_else(|error| panic!("{} can be terminated: {error}", self.id))
    }

    /// Ends its tree at once.
    pub async fn kill(&self) -> Terminated {
        self.terminate(Duration::ZERO).await
    }

    pub async fn view(&self, query: ViewQuery) -> View {
        self.try_view(query).await.unwrap_or_else(|error| panic!("{} is shown: {error}", self.id))
    }

    pub async fn try_view(&self, query: ViewQuery) -> Result<View, ProcessError> {
        self.env.processes().view(&self.id, query).await
    }

    /// The same, computed here from pages.
    pub async fn view_by_reading(&self, query: ViewQuery) -> Result<View, ProcessError> {
        exec_env::view::view_by_reading(self.env.processes(), &self.id, query).await
    }

    pub async fn screen(&self, query: ScreenQuery) -> Screen {
        self.try_screen(query).await.unwrap_or_else(|error| panic!("{} is drawn: {error}", self.id))
    }

    pub async fn try_screen(&self, query: ScreenQuery) -> Result<Screen, ProcessError> {
        self.env.processes().screen(&self.id, query).await
    }

    /// The same, drawn here from pages.
    pub async fn screen_by_reading(&self, query: ScreenQuery) -> Result<Screen, ProcessError> {
        exec_env::screen::screen_by_reading(self.env.processes(), &self.id, query).await
    }

    /// Waits without a deadline but that of the test.
    pub async fn wait(&self, until: WaitCondition) -> Result<Waited, ProcessError> {
        self.env.processes().wait(&self.id, until, None).await
    }

    pub async fn wait_at_most(&self, until: WaitCondition, deadline: Duration) -> Result<Waited, ProcessError> {
        self.env.processes().wait(&self.id, until, Some(deadline)).await
    }

    /// Waits for the leader's exit.
    pub async fn exit(&self) -> Exit {
        match self.wait(WaitCondition::Exited).await {
            Ok(Waited::Exited(exit)) => exit,
            other => panic!("{} ends: {other:?}", self.id),
        }
    }

    /// What `list` says of it.
    pub async fn info(&self) -> ProcessInfo {
        let listed = self.env.processes().list().await;
        listed
            .expect("the list is there")
            .into_iter()
            .find(|info| info.id == self.id)
            .unwrap_or_else(|| panic!("{} is listed", self.id))
    }

    /// The leader, which must still be in the process table.
    pub fn os_process(&self) -> OsProcess {
        OsProcess::of(self.pid).unwrap_or_else(|| panic!("{} (pid {}) is in the process table", self.id, self.pid))
    }
}

/// A follower of a log, and what it has seen so far.
pub struct LogReader {
    follow: Box<dyn LogFollower>,
    pub log: CheckedLog,
}

impl LogReader {
    /// A reader of what comes after `after`.
    pub async fn open(processes: &dyn Processes, id: &ProcessId, after: Seq) -> Self {
        let follow = processes.follow(id, after).await;
        let follow = follow.unwrap_or_else(|error| panic!("{id} can be followed: {error}"));
        Self { follow, log: CheckedLog::new(after) }
    }

    /// Reads one more page; false when the log is over.
    pub async fn next_page(&mut self) -> bool {
        let next = self.follow.next(PAGE_BYTES).await;
        let Some(page) = next.unwrap_or_else(|error| panic!("the log can be read on: {error}")) else {
            let last = self.log.entries.last();
            assert!(self.log.is_closed(), "the log ends with closed, not with {last:?}");
            return false;
        };
        let news = page.gap.is_some() || !page.entries.is_empty();
        assert!(news, "a follower wakes for news only: {page:?}");
        self.log.add_page(page);
        true
    }

    /// Reads on until `holds` of what was seen.
    pub async fn read_until(&mut self, what: &str, holds: impl Fn(&CheckedLog) -> bool) {
        while !holds(&self.log) {
            assert!(self.next_page().await, "the log ended before {what}: {:?}", self.log);
        }
    }

    /// Reads on until a line with this text was printed.
    pub async fn wait_for_line(&mut self, text: &str) {
        let wanted = format!("{text}\n");
        self.read_until(text, |seen| seen.printed().contains(&wanted)).await;
    }

    /// Reads on until a line begins with `prefix`; returns what follows it.
    pub async fn wait_for_text_after(&mut self, prefix: &str) -> String {
        self.read_until(prefix, |seen| seen.text_after(prefix).is_some()).await;
        self.log.text_after(prefix).expect("it was awaited on the line above")
    }

    /// Reads on until the actor announces a descendant, which must be in the process table.
    pub async fn wait_for_descendant(&mut self) -> OsProcess {
        let pid = self.wait_for_text_after("pid ").await;
        let descendant = pid.parse().ok().and_then(OsProcess::of);
        descendant.unwrap_or_else(|| panic!("descendant {pid} is in the process table"))
    }

    /// Reads on until the leader's exit.
    pub async fn wait_for_exit(&mut self) -> Exit {
        self.read_until("exited", |seen| seen.exited().is_some()).await;
        self.log.exit()
    }

    /// Reads to the end of the log, and asks once more to see that it stays the end.
    pub async fn read_to_end(mut self) -> CheckedLog {
        while self.next_page().await {}
        let again = self.follow.next(PAGE_BYTES).await;
        assert_eq!(again, Ok(None), "after the end there is nothing");
        self.log
    }

    /// The bare follower, for tests about `next` itself.
    pub fn follow(&mut self) -> &mut dyn LogFollower {
        &mut *self.follow
    }
}
