//! The verbs of the waist as calls over a link.
//!
//! What our server adds to the original is used where it is there. Where it is not, a verb is done with what there is
//! (waiting, listing), or refused in words that say what this server cannot do; it is never done by half.

mod follow;
mod start;
mod wait;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exec_core::limits::WRITE_BYTES;
use exec_core::{ExitCause, Command, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};
use exec_env::BoxFuture;
use exec_env::process::{
    LogFollower, ForgetError, ListError, ProcessInfo, Processes, ReadError, ReadQuery, ResizeError, SignalError, Signalled,
    StartError, Started, TerminateError, Terminated, UnknownProcess, Unreachable, WaitCondition, WaitError, Waited, WriteError,
    Written,
};
use exec_wire::Method;
use exec_wire::base64::Base64;
use exec_wire::process as wire;
use tokio::time::Instant;

use crate::error::{self, CallError};
use crate::limits::{LONG_CALL, WRITE_PIECE_BYTES};
use crate::link::{CallOptions, Link};
use crate::page::{self, page_of};
use crate::process_cache::{CachedProcess, ProcessStatus};
use crate::retry::RetryPolicy;
use crate::{convert, limits};

/// The processes at the far end.
#[derive(Debug)]
pub(crate) struct RemoteProcesses {
    link: Link,
    /// Makes the keys of signals differ from those of other clients of the session.
    tag: u64,
    signals: AtomicU64,
}

impl RemoteProcesses {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, tag: crate::environment::random_seed(), signals: AtomicU64::new(0) }
    }

    /// Ends every process of the session.
    pub(crate) async fn terminate_all(&self) -> Result<(), CallError> {
        let listed = self.list_all().await?;
        for info in listed {
            let params = wire::TerminateParams { process_id: info.id.as_str().to_owned(), grace_ms: None };
            self.link.call(params).await?;
        }
        Ok(())
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>, CallError> {
        if self.link.has("process/list") {
            let listed = self.link.call(wire::ListParams {}).await?;
            return Ok(listed.processes.into_iter().filter_map(convert::process_info).collect());
        }
        let state = self.link.shared().lock();
        let known = state.processes.iter().filter_map(|(id, record)| record.info(id, state.inbox.head(id)?));
        let mut known: Vec<ProcessInfo> = known.collect();
        drop(state);
        known.sort_by_key(|info| info.started);
        Ok(known)
    }

    async fn write_all(&self, id: &ProcessId, write_id: &WriteId, bytes: Bytes) -> Result<Written, WriteError> {
        if bytes.len() > WRITE_BYTES {
            return Err(WriteError::TooLarge { found_bytes: bytes.len(), limit_bytes: WRITE_BYTES });
        }
        reachable(&self.link, id)?;
        if bytes.len() <= WRITE_PIECE_BYTES {
            return self.write_piece(id, write_id.as_str().to_owned(), bytes).await;
        }
        let mut rest = bytes;
        let mut number = 0;
        while !rest.is_empty() {
            let piece = rest.split_to(WRITE_PIECE_BYTES.min(rest.len()));
            // The same cut at every try, so that each piece has the same key again.
            let written = self.write_piece(id, piece_key(write_id, number), piece).await?;
            if written != Written::Accepted {
                return Ok(written);
            }
            number += 1;
        }
        Ok(Written::Accepted)
    }

    async fn write_piece(&self, id: &ProcessId, write_id: String, bytes: Bytes) -> Result<Written, WriteError> {
        let params = wire::WriteParams { process_id: id.as_str().to_owned(), chunk: Base64(bytes), write_id };
        // It waits for the child to read, which may take as long as the child likes.
        let options = CallOptions { deadline: LONG_CALL, retry: RetryPolicy::of(Method::ProcessWrite) };
        match self.link.call_with(&params, options).await.result {
            Ok(result) => written(id, result.status),
            Err(error) if error::is_stdin_gone(&error) => Ok(Written::StdinClosed),
            Err(error) => Err(error::write_error(id, error)),
        }
    }

    async fn end_stdin(&self, id: &ProcessId) -> Result<Written, WriteError> {
        reachable(&self.link, id)?;
        if self.link.has("process/closeStdin") {
            let params = wire::CloseStdinParams { process_id: id.as_str().to_owned() };
            let terminal = self.link.shared().lock().processes.get(id).and_then(CachedProcess::has_terminal);
            // A pipe ends once, but on a terminal the end is a character, and two of them end two programs.
            let retry = match terminal {
                Some(true) => RetryPolicy::IfUnsent,
                _ => RetryPolicy::of(Method::ProcessCloseStdin),
            };
            // Behind the writes before it, which may wait for the child.
            let options = CallOptions { deadline: LONG_CALL, retry };
            let closed = self.link.call_with(&params, options).await.result;
            return written(id, closed.map_err(|error| error::write_error(id, error))?.status);
        }
        let terminal = self.link.shared().lock().processes.get(id).and_then(CachedProcess::has_terminal);
        match terminal {
            Some(true) => {
                let key = format!("end-{:x}-{}", self.tag, self.signals.fetch_add(1, Ordering::Relaxed));
                self.write_piece(id, key, Bytes::from_static(b"\x04")).await
            }
            _ => Err(unsupported(Method::ProcessCloseStdin).into()),
        }
    }

    async fn change_size(&self, id: &ProcessId, size: TerminalSize) -> Result<(), ResizeError> {
        if size.rows == 0 || size.cols == 0 {
            return Err(ResizeError::NoCells { size });
        }
        reachable(&self.link, id)?;
        if !self.link.has("process/resize") {
            return Err(unsupported(Method::ProcessResize).into());
        }
        let params = wire::ResizeParams { process_id: id.as_str().to_owned(), size: convert::wire_size(size) };
        self.link.call(params).await.map(drop).map_err(|error| error::resize_error(id, size, error))
    }

    async fn send_signal(&self, id: &ProcessId, signal: Signal) -> Result<Signalled, SignalError> {
        reachable(&self.link, id)?;
        if signal != Signal::Interrupt && !self.link.has("process/signal.all") {
            return Err(unsupported(Method::ProcessSignal).into());
        }
        let keyed = self.link.has("process/signal.signalId");
        let key = || format!("{:x}-{}", self.tag, self.signals.fetch_add(1, Ordering::Relaxed));
        let params = wire::SignalParams {
            process_id: id.as_str().to_owned(),
            signal: convert::wire_signal(signal),
            signal_id: keyed.then(key),
        };
        // A signal without a key would count twice.
        let retry = if keyed { RetryPolicy::Always } else { RetryPolicy::IfUnsent };
        let options = CallOptions { retry, ..self.link.default_options(Method::ProcessSignal) };
        let result = self.link.call_with(&params, options).await.result;
        let closed = || self.link.shared().lock().inbox.head(id).is_some_and(|head| head.closed);
        match result.map_err(|error| error::signal_error(id, error))?.status {
            Some(wire::SignalStatus::Sent) => Ok(Signalled::Sent),
            Some(wire::SignalStatus::AlreadyExited) => Ok(Signalled::AlreadyExited),
            Some(wire::SignalStatus::UnknownProcess) => Err(unknown(id).into()),
            None if closed() => Ok(Signalled::AlreadyExited),
            None => Ok(Signalled::Sent),
        }
    }

    async fn terminate_tree(&self, id: &ProcessId, grace: Duration) -> Result<Terminated, TerminateError> {
        reachable(&self.link, id)?;
        if !grace.is_zero() && !self.link.has("process/terminate.graceMs") {
            let why =
                "this server cannot ask a process to end before it kills it: terminate without a grace".to_owned();
            return Err(Unreachable { why }.into());
        }
        let grace_ms = convert::millis(grace).filter(|ms| *ms > 0);
        let params = wire::TerminateParams { process_id: id.as_str().to_owned(), grace_ms };
        let usual = self.link.default_options(Method::ProcessTerminate);
        let patience = grace.saturating_add(exec_core::limits::TREE_EXIT_TIMEOUT).min(LONG_CALL);
        let options = CallOptions { deadline: usual.deadline + patience, ..usual };
        let over_before = self.link.shared().lock().inbox.head(id).is_some_and(|head| head.exit.is_some());
        let answered = self.link.call_with(&params, options).await;
        let result = answered.result.map_err(|error| error::terminate_error(id, error))?;
        if result.known == Some(false) {
            return Err(unknown(id).into());
        }
        let told = Terminated {
            was_running: result.running,
            ended: result.ended.unwrap_or(0),
            left: result.left.unwrap_or(0),
        };
        // The first of two did it, and its answer is lost; but the log tells whose doing the end was.
        if answered.resent && !told.was_running && !over_before && self.was_terminated(id).await {
            return Ok(Terminated { was_running: true, ended: told.ended.max(1), ..told });
        }
        Ok(told)
    }

    async fn was_terminated(&self, id: &ProcessId) -> bool {
        let query = ReadQuery { max_bytes: Some(0), ..ReadQuery::default() };
        let exit = read_once(&self.link, id, query).await.ok().and_then(|page| page.head.exit);
        exit.is_some_and(|(_, exit)| exit.cause == ExitCause::Terminated)
    }

    async fn let_go(&self, id: &ProcessId) -> Result<(), ForgetError> {
        let status = self.link.shared().lock().processes.get(id).map(|record| record.status.clone());
        let forgotten = match status {
            // Its session took it along; only our memory of it is left.
            Some(ProcessStatus::Lost(_)) => Ok(()),
            _ if self.link.has("process/forget") => self.forget_there(id).await,
            Some(_) => self.terminate_tree(id, Duration::ZERO).await.map(drop).map_err(|error| match error {
                TerminateError::Unknown(unknown) => unknown.into(),
                TerminateError::Unreachable(unreachable) => unreachable.into(),
            }),
            None => Err(unknown(id).into()),
        };
        if matches!(forgotten, Ok(()) | Err(ForgetError::Unknown(_))) {
            let mut state = self.link.shared().lock();
            state.processes.remove(id);
            state.inbox.close(id);
        }
        forgotten
    }

    async fn forget_there(&self, id: &ProcessId) -> Result<(), ForgetError> {
        let params = wire::ForgetParams { process_id: id.as_str().to_owned() };
        let usual = self.link.default_options(Method::ProcessForget);
        // What still runs is ended first.
        let options = CallOptions { deadline: usual.deadline + exec_core::limits::TREE_EXIT_TIMEOUT, ..usual };
        let answered = self.link.call_with(&params, options).await;
        match answered.result.map(drop).map_err(|error| error::forget_error(id, error)) {
            // The first of two was carried out, and its answer lost.
            Err(ForgetError::Unknown(_)) if answered.resent => Ok(()),
            other => other,
        }
    }
}

impl Processes for RemoteProcesses {
    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, StartError>> {
        Box::pin(start::start(self, id, command))
    }

    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ReadError>> {
        Box::pin(read(&self.link, id, query))
    }

    fn follow<'a>(&'a self, id: &'a ProcessId, after: Seq) -> BoxFuture<'a, Result<Box<dyn LogFollower>, ReadError>> {
        Box::pin(async move {
            let follower: Box<dyn LogFollower> = Box::new(follow::follow(&self.link, id, after).await?);
            Ok(follower)
        })
    }

    fn write<'a>(
        &'a self,
        id: &'a ProcessId,
        write_id: WriteId,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Written, WriteError>> {
        Box::pin(async move { self.write_all(id, &write_id, bytes).await })
    }

    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, WriteError>> {
        Box::pin(self.end_stdin(id))
    }

    fn resize<'a>(&'a self, id: &'a ProcessId, size: TerminalSize) -> BoxFuture<'a, Result<(), ResizeError>> {
        Box::pin(self.change_size(id, size))
    }

    fn signal<'a>(&'a self, id: &'a ProcessId, signal: Signal) -> BoxFuture<'a, Result<Signalled, SignalError>> {
        Box::pin(self.send_signal(id, signal))
    }

    fn terminate<'a>(
        &'a self,
        id: &'a ProcessId,
        grace: Duration,
    ) -> BoxFuture<'a, Result<Terminated, TerminateError>> {
        Box::pin(self.terminate_tree(id, grace))
    }

    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        until: WaitCondition,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, WaitError>> {
        Box::pin(wait::wait(&self.link, id, until, deadline))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, ListError>> {
        Box::pin(async move { self.list_all().await.map_err(error::list_error) })
    }

    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ForgetError>> {
        Box::pin(self.let_go(id))
    }
}

/// Looks at a log.
pub(crate) async fn read(link: &Link, id: &ProcessId, query: ReadQuery) -> Result<Page, ReadError> {
    if query.wait.is_zero() || link.has("process/read.head") {
        return read_once(link, id, query).await;
    }
    // A server that answers one request after the other would keep everybody waiting: we wait for its push instead.
    let mut changes = follow::subscribe(link, id).await?;
    let until = Instant::now().checked_add(query.wait);
    loop {
        changes.borrow_and_update();
        let page = read_once(link, id, ReadQuery { wait: Duration::ZERO, ..query }).await?;
        let left = until.map_or(LONG_CALL, |until| until.saturating_duration_since(Instant::now()));
        if !page.entries.is_empty() || page.gap.is_some() || page.head.closed || left.is_zero() {
            return Ok(page);
        }
        // Either way the log is looked at once more.
        let _ = tokio::time::timeout(left, changes.changed()).await;
    }
}

/// Asks the server once.
async fn read_once(link: &Link, id: &ProcessId, query: ReadQuery) -> Result<Page, ReadError> {
    reachable(link, id)?;
    let tells_all = link.has("process/read.head");
    let params = wire::ReadParams {
        process_id: id.as_str().to_owned(),
        after_seq: Some(query.after),
        // Where we must infer what the server does not tell, the whole of what it holds must be seen.
        max_bytes: query.max_bytes.filter(|_| tells_all),
        wait_ms: convert::millis(query.wait).filter(|ms| *ms > 0),
    };
    let usual = link.default_options(Method::ProcessRead);
    let options = CallOptions { deadline: usual.deadline.saturating_add(query.wait), ..usual };
    let result = link.call_with(&params, options).await.result.map_err(|error| error::read_error(id, error))?;
    let known_exit = link.shared().lock().inbox.head(id).and_then(|head| head.exit);
    let mut page = page_of(query.after, result, known_exit);
    if let (Some(max_bytes), false) = (query.max_bytes, tells_all) {
        page.entries = page::take_page(&mut page.entries.into(), max_bytes);
    }
    link.shared().lock().inbox.update_head(id, page.head);
    Ok(page)
}

/// Refuses what belongs to a session that is gone.
fn reachable(link: &Link, id: &ProcessId) -> Result<(), Unreachable> {
    match link.shared().lock().processes.get(id).map(|record| &record.status) {
        Some(ProcessStatus::Lost(unreachable)) => Err(unreachable.clone()),
        _ => Ok(()),
    }
}

fn written(id: &ProcessId, status: wire::WriteStatus) -> Result<Written, WriteError> {
    match status {
        wire::WriteStatus::Accepted => Ok(Written::Accepted),
        wire::WriteStatus::StdinClosed => Ok(Written::StdinClosed),
        wire::WriteStatus::InDoubt => Ok(Written::InDoubt),
        wire::WriteStatus::UnknownProcess => Err(unknown(id).into()),
        wire::WriteStatus::Starting => {
            Err(Unreachable { why: format!("process {id} is still starting: write once start has answered") }.into())
        }
    }
}

/// The key of one piece of a large write. Its own shape, or it might be another write's key or be too long.
fn piece_key(write_id: &WriteId, number: usize) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    write_id.hash(&mut hasher);
    format!("{:016x}\u{1f}{number}", hasher.finish())
}

fn unknown(id: &ProcessId) -> UnknownProcess {
    UnknownProcess { id: id.clone() }
}

fn unsupported(method: Method) -> Unreachable {
    CallError::Unsupported { method }.into()
}

/// How much a follower fetches at once, if it wants `max_bytes`.
fn fetch_bytes(max_bytes: usize) -> usize {
    max_bytes.clamp(limits::REFETCH_BYTES, 16 * limits::REFETCH_BYTES)
}
