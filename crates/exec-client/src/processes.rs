//! The processes of the server: the verbs of the waist as calls over a link.
//!
//! What our server adds to the original is used where it is there. Where it is not, a verb is done with what there is
//! (waiting, listing), or refused in words that say what this server cannot do; it is never done by half.
//!
//! Starting reserves the id here first, so that "it exists already" after a break can be understood: if nobody else of
//! this client asked for that id, the start was carried out before the break. Following, showing and waiting are in
//! `follow`, `view` and `wait`.

mod follow;
mod view;
mod wait;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exec_core::limits::{TREE_EXIT_TIMEOUT, WRITE_BYTES};
use exec_core::text::ends_within_line;
use exec_core::{Command, ExitCause, Io, Overflow, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};
use exec_env::process::{
    LogFollower, ProcessError, ProcessInfo, ProcessReason, ProcessVerb, Processes, ReadQuery, Signalled, Started,
    Terminated, Unreachable, WaitCondition, Waited, Written,
};
use exec_env::screen::{Screen, ScreenQuery, screen_by_reading};
use exec_env::view::{View, ViewQuery};
use exec_env::{BoxFuture, NetworkDecider};
use exec_wire::base64::Base64;
use exec_wire::process::{self as wire, round_up_to_millis};
use exec_wire::{Extension, Method, RetryPolicy};
use tokio::time::Instant;

use crate::error::{self, CallError};
use crate::limits::{LISTED_BYTES, LISTED_PROCESS_BYTES, LONG_CALL, WRITE_PIECE_BYTES};
use crate::link::{CallOptions, Link};
use crate::page::{page_of, take_page};
use crate::process_cache::{CachedProcess, ProcessStatus};
use crate::{convert, session};

/// How often a start that the server has begun on another connection is asked about. The wire has no event for it.
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct RemoteProcesses {
    link: Link,
    /// Makes the keys of signals differ from those of other clients of the session.
    tag: u64,
    keys: AtomicU64,
}

impl RemoteProcesses {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, tag: session::random_seed(), keys: AtomicU64::new(0) }
    }

    /// Terminates every process of the session.
    pub(crate) async fn terminate_all(&self) -> Result<(), CallError> {
        for info in self.list_all().await? {
            let params = wire::TerminateParams { process_id: info.id.as_str().to_owned(), grace_ms: None };
            self.link.call(params).await?;
        }
        Ok(())
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>, CallError> {
        if self.link.has(Method::ProcessList) {
            return self.list_on_server().await;
        }
        let state = self.link.shared().lock();
        let known = state.processes.iter().filter_map(|(id, process)| process.info(state.inbox.head(id)?));
        let mut known: Vec<ProcessInfo> = known.collect();
        drop(state);
        known.sort_by_key(|info| info.started);
        Ok(known)
    }

    /// In pages, if the server has them. A server that never comes to an end is not asked for ever.
    async fn list_on_server(&self) -> Result<Vec<ProcessInfo>, CallError> {
        let mut cursor = self.link.has(Extension::LIST_CURSOR).then(String::new);
        let (mut processes, mut bytes) = (Vec::new(), 0);
        loop {
            let page = self.link.call(wire::ListParams { cursor: cursor.take() }).await?;
            let is_empty = page.processes.is_empty();
            for info in page.processes.into_iter().filter_map(convert::process_info) {
                bytes +=
                    info.argv.iter().map(|word| word.len()).sum::<usize>() + info.argv.len() * size_of::<OsString>();
                bytes += info.label.len() + LISTED_PROCESS_BYTES;
                if bytes > LISTED_BYTES {
                    let reason = format!("the list takes more than {LISTED_BYTES} bytes");
                    return Err(CallError::Undecodable { method: Method::ProcessList, reason });
                }
                processes.push(info);
            }
            match page.next_cursor {
                Some(next) if !is_empty => cursor = Some(next),
                _ => return Ok(processes),
            }
        }
    }

    /// The pid of the process that the first of two sent starts began. That start may still be under way, or fail after
    /// all; so the start is sent again until one of the two is certain.
    async fn find_started(
        &self,
        id: &ProcessId,
        command: &Command,
        params: &wire::StartParams,
    ) -> Result<Started, ProcessReason> {
        let link = &self.link;
        if !link.has(Method::ProcessList) {
            return Ok(Started { pid: 0, sandbox: None, limits: None });
        }
        let options = link.default_options(Method::ProcessStart);
        let until = Instant::now() + options.deadline;
        loop {
            let listed = self.list_all().await.map_err(Unreachable::from)?;
            if let Some(info) = listed.iter().find(|info| info.id == *id) {
                let ours = link.shared().lock().processes.get(id).is_some_and(|process| process.matches(info));
                let started = Started { pid: info.pid, sandbox: info.sandbox.clone(), limits: info.limits };
                return if ours { Ok(started) } else { Err(ProcessReason::IdInUse) };
            }
            let result = link.call_with(params, options).await.result;
            match result.map_err(|error| error::start_reason(id, command, error)) {
                Ok(result) => return Ok(started(result)),
                Err(ProcessReason::IdInUse) if Instant::now() < until => {
                    tokio::time::sleep(START_POLL_INTERVAL).await;
                }
                Err(reason) => return Err(reason),
            }
        }
    }

    async fn write_piece(&self, id: &ProcessId, write_id: String, bytes: Bytes) -> Result<Written, ProcessReason> {
        if let Some(process) = self.link.shared().lock().processes.get_mut(id) {
            process.within_line = ends_within_line(&bytes);
        }
        let params = wire::WriteParams { process_id: id.as_str().to_owned(), chunk: Base64(bytes), write_id };
        // The answer comes when the child has read it, which may take any time.
        let options = self.link.default_options(Method::ProcessWrite);
        match self.link.call_with(&params, options).await.result {
            Ok(result) => written(id, result.status),
            Err(error) if error::is_stdin_gone(&error) => Ok(Written::StdinClosed),
            Err(error) => Err(error::process_reason(id, error)),
        }
    }

    /// Sends a signal under this key. If the server keeps keys, it is asked again when a connection breaks.
    async fn send_signal(&self, id: &ProcessId, signal: Signal, key: String) -> Result<Signalled, ProcessReason> {
        reachable(&self.link, id)?;
        if signal != Signal::Interrupt && !self.link.has(Extension::SIGNAL_ALL) {
            return Err(unsupported(Method::ProcessSignal).into());
        }
        let keyed = self.link.has(Extension::SIGNAL_ID);
        let params = wire::SignalParams {
            process_id: id.as_str().to_owned(),
            signal: signal.into(),
            signal_id: keyed.then_some(key),
        };
        let mut options = self.link.default_options(Method::ProcessSignal);
        // An older server that says whose memory it has forgets keys with it. One that does not say keeps them with the
        // session.
        let kept = self.link.has(Extension::SIGNAL_ID_KEPT) || self.link.shared().lock().request_memory.is_none();
        if keyed && kept {
            options.retry = RetryPolicy::Always;
        }
        let result = self.link.call_with(&params, options).await.result;
        let closed = || self.link.shared().lock().inbox.head(id).is_some_and(|head| head.closed);
        match result.map_err(|error| error::process_reason(id, error))?.status {
            Some(wire::SignalStatus::Sent) => Ok(Signalled::Sent),
            Some(wire::SignalStatus::AlreadyExited) => Ok(Signalled::AlreadyExited),
            Some(wire::SignalStatus::UnknownProcess) => Err(ProcessReason::UnknownProcess),
            None if closed() => Ok(Signalled::AlreadyExited),
            None => Ok(Signalled::Sent),
        }
    }

    /// A key that no other signal or write of this session has.
    fn unique_key(&self) -> String {
        format!("{:x}-{}", self.tag, self.keys.fetch_add(1, Ordering::Relaxed))
    }

    async fn was_terminated(&self, id: &ProcessId) -> bool {
        let query = ReadQuery { max_bytes: Some(0), ..ReadQuery::default() };
        let exit = read_once(&self.link, id, query).await.ok().and_then(|page| page.head.exit);
        exit.is_some_and(|(_, exit)| exit.cause == ExitCause::Terminated)
    }

    async fn forget_on_server(&self, id: &ProcessId) -> Result<(), ProcessReason> {
        let params = wire::ForgetParams { process_id: id.as_str().to_owned() };
        let default = self.link.default_options(Method::ProcessForget);
        // A process that still runs is terminated first, which takes its time.
        let options = CallOptions { deadline: default.deadline + TREE_EXIT_TIMEOUT, ..default };
        let outcome = self.link.call_with(&params, options).await;
        match outcome.result.map(drop).map_err(|error| error::process_reason(id, error)) {
            // The first of two sent calls was carried out, and its answer is lost.
            Err(ProcessReason::UnknownProcess) if outcome.resent => Ok(()),
            other => other,
        }
    }
}

fn started(result: wire::StartResult) -> Started {
    Started {
        pid: result.pid.unwrap_or(0),
        sandbox: result.sandbox.map(Into::into),
        limits: result.limits.map(Into::into),
    }
}

impl Processes for RemoteProcesses {
    fn set_network_decider(&self, decider: Arc<dyn NetworkDecider>) {
        self.link.shared().set_decider(decider);
    }

    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, ProcessError>> {
        ProcessVerb::Start.perform(id, async move {
            command.check()?;
            let link = &self.link;
            refuse_unsupported(link, &command)?;
            if let Some(ceiling) = command.ceilings.first() {
                let why = "only the server of this machine can enforce a ceiling: set it there".to_owned();
                return Err(ProcessReason::Forbidden { rule: ceiling.rule.clone(), why });
            }
            let params =
                wire::StartParams::new(id, &command).map_err(|error| Unreachable { why: error.to_string() })?;
            let reserved = ReservedId::take(link, id, &command)?;
            let outcome = link.call_with(&params, link.default_options(Method::ProcessStart)).await;
            let started = match outcome.result.map_err(|error| error::start_reason(id, &command, error)) {
                Ok(result) => started(result),
                // It was sent twice, and nobody else of ours asked for that id: the first one was carried out.
                Err(ProcessReason::IdInUse) if outcome.resent && reserved.fresh => {
                    self.find_started(id, &command, &params).await?
                }
                Err(reason) => return Err(reason),
            };
            reserved.confirm();
            Ok(started)
        })
    }

    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ProcessError>> {
        ProcessVerb::Read.perform(id, async move {
            let link = &self.link;
            if query.wait.is_zero() || link.has(Extension::READ_HEAD) {
                return read_once(link, id, query).await;
            }
            // A server that handles one request after the other would keep all of them waiting; so we wait for its push.
            let mut changes = follow::subscribe(link, id).await?;
            let until = Instant::now().checked_add(query.wait);
            loop {
                changes.borrow_and_update();
                let page = read_once(link, id, ReadQuery { wait: Duration::ZERO, ..query }).await?;
                let left = until.map_or(LONG_CALL, |until| until.saturating_duration_since(Instant::now()));
                if !page.entries.is_empty() || page.gap.is_some() || page.head.closed || left.is_zero() {
                    return Ok(page);
                }
                // Whether it changed or the time is up, the log is read once more.
                let _ = tokio::time::timeout(left, changes.changed()).await;
            }
        })
    }

    fn follow<'a>(
        &'a self,
        id: &'a ProcessId,
        after: Seq,
    ) -> BoxFuture<'a, Result<Box<dyn LogFollower>, ProcessError>> {
        ProcessVerb::Follow.perform(id, async move {
            let follower: Box<dyn LogFollower> = Box::new(follow::follow(&self.link, id, after).await?);
            Ok(follower)
        })
    }

    fn view<'a>(&'a self, id: &'a ProcessId, query: ViewQuery) -> BoxFuture<'a, Result<View, ProcessError>> {
        ProcessVerb::View.perform(id, view::view(&self.link, id, query))
    }

    fn screen<'a>(&'a self, id: &'a ProcessId, query: ScreenQuery) -> BoxFuture<'a, Result<Screen, ProcessError>> {
        ProcessVerb::Screen.perform(id, async move {
            reachable(&self.link, id)?;
            if !self.link.has(Method::ProcessScreen) {
                return screen_by_reading(self, id, query).await.map_err(|error| error.reason);
            }
            let params =
                wire::ScreenParams { process_id: id.as_str().to_owned(), seq: query.seq, colors: query.colors };
            // To draw all that a terminal has printed may take seconds.
            let default = self.link.default_options(Method::ProcessScreen);
            let options = CallOptions { deadline: default.deadline.max(LONG_CALL), ..default };
            let result = self.link.call_with(&params, options).await.result;
            result.map(convert::screen).map_err(|error| error::process_reason(id, error))
        })
    }

    fn write<'a>(
        &'a self,
        id: &'a ProcessId,
        write_id: WriteId,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Written, ProcessError>> {
        ProcessVerb::Write.perform(id, async move {
            if bytes.len() > WRITE_BYTES {
                return Err(ProcessReason::WriteTooLarge { found_bytes: bytes.len(), limit_bytes: WRITE_BYTES });
            }
            reachable(&self.link, id)?;
            if bytes.len() <= WRITE_PIECE_BYTES {
                return self.write_piece(id, write_id.as_str().to_owned(), bytes).await;
            }
            let mut rest = bytes;
            let mut number = 0;
            while !rest.is_empty() {
                // The bytes are cut in the same way every time, so that each piece has the same key again.
                let piece = rest.split_to(WRITE_PIECE_BYTES.min(rest.len()));
                let written = self.write_piece(id, piece_key(&write_id, number), piece).await?;
                if written != Written::Accepted {
                    return Ok(written);
                }
                number += 1;
            }
            Ok(Written::Accepted)
        })
    }

    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, ProcessError>> {
        ProcessVerb::CloseStdin.perform(id, async move {
            reachable(&self.link, id)?;
            let process = self.link.shared().lock().processes.get(id).and_then(CachedProcess::has_terminal);
            let has_terminal = process == Some(true);
            if self.link.has(Method::ProcessCloseStdin) {
                let params = wire::CloseStdinParams { process_id: id.as_str().to_owned() };
                // A pipe ends once, but on a terminal the end is a character, and two of them end two programs.
                let mut options = self.link.default_options(Method::ProcessCloseStdin);
                if has_terminal {
                    options.retry = RetryPolicy::IfUnsent;
                }
                return match self.link.call_with(&params, options).await.result {
                    Ok(result) => written(id, result.status),
                    Err(error) => Err(error::process_reason(id, error)),
                };
            }
            if !has_terminal {
                return Err(unsupported(Method::ProcessCloseStdin).into());
            }
            // Within a line, the first end-of-file character only makes the terminal deliver that line.
            let within_line = self.link.shared().lock().processes.get(id).is_some_and(|process| process.within_line);
            let end: &[u8] = if within_line { b"\x04\x04" } else { b"\x04" };
            self.write_piece(id, format!("end-{}", self.unique_key()), Bytes::from_static(end)).await
        })
    }

    fn resize<'a>(&'a self, id: &'a ProcessId, size: TerminalSize) -> BoxFuture<'a, Result<(), ProcessError>> {
        ProcessVerb::Resize.perform(id, async move {
            if size.rows == 0 || size.cols == 0 {
                return Err(ProcessReason::NoCells { size });
            }
            reachable(&self.link, id)?;
            if !self.link.has(Method::ProcessResize) {
                return Err(unsupported(Method::ProcessResize).into());
            }
            let params = wire::ResizeParams { process_id: id.as_str().to_owned(), size: size.into() };
            self.link.call(params).await.map(drop).map_err(|error| error::process_reason(id, error))
        })
    }

    fn signal<'a>(&'a self, id: &'a ProcessId, signal: Signal) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        ProcessVerb::Signal.perform(id, async move { self.send_signal(id, signal, self.unique_key()).await })
    }

    fn signal_once<'a>(
        &'a self,
        id: &'a ProcessId,
        signal: Signal,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        ProcessVerb::Signal.perform(id, self.send_signal(id, signal, key.to_owned()))
    }

    fn terminate<'a>(&'a self, id: &'a ProcessId, grace: Duration) -> BoxFuture<'a, Result<Terminated, ProcessError>> {
        ProcessVerb::Terminate.perform(id, async move {
            reachable(&self.link, id)?;
            if !grace.is_zero() && !self.link.has(Extension::TERMINATE_GRACE) {
                let why =
                    "this server cannot ask a process to end before it kills it: terminate without a grace".to_owned();
                return Err(Unreachable { why }.into());
            }
            let grace_ms = round_up_to_millis(grace).filter(|ms| *ms > 0);
            let params = wire::TerminateParams { process_id: id.as_str().to_owned(), grace_ms };
            let default = self.link.default_options(Method::ProcessTerminate);
            let longest = grace.saturating_add(TREE_EXIT_TIMEOUT).min(LONG_CALL);
            let options = CallOptions { deadline: self.link.call_deadline() + longest, ..default };
            let had_exited = self.link.shared().lock().inbox.head(id).is_some_and(|head| head.exit.is_some());
            let outcome = self.link.call_with(&params, options).await;
            let result = outcome.result.map_err(|error| error::process_reason(id, error))?;
            if result.known == Some(false) {
                return Err(ProcessReason::UnknownProcess);
            }
            let terminated = Terminated {
                was_running: result.running,
                ended: result.ended.unwrap_or(0),
                left: result.left.unwrap_or(0),
            };
            // If the first of two sent calls did it, its answer is lost; but the log tells why the process exited.
            if outcome.resent && !terminated.was_running && !had_exited && self.was_terminated(id).await {
                return Ok(Terminated { was_running: true, ended: terminated.ended.max(1), ..terminated });
            }
            Ok(terminated)
        })
    }

    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        until: WaitCondition,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, ProcessError>> {
        ProcessVerb::Wait.perform(id, wait::wait(&self.link, id, until, deadline))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, Unreachable>> {
        Box::pin(async move { self.list_all().await.map_err(Unreachable::from) })
    }

    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ProcessError>> {
        ProcessVerb::Forget.perform(id, async move {
            let status = self.link.shared().lock().processes.get(id).map(|process| process.status.clone());
            let forgotten = match status {
                // The server lost it with its session; only our memory of it is left.
                Some(ProcessStatus::Lost(_)) => Ok(()),
                _ if self.link.has(Method::ProcessForget) => self.forget_on_server(id).await,
                Some(_) => self.terminate(id, Duration::ZERO).await.map(drop).map_err(|error| error.reason),
                None => Err(ProcessReason::UnknownProcess),
            };
            if matches!(forgotten, Ok(()) | Err(ProcessReason::UnknownProcess)) {
                remove_from_cache(&self.link, id);
            }
            forgotten
        })
    }
}

/// Refuses a command that a plain server would start while silently leaving out a part of it.
fn refuse_unsupported(link: &Link, command: &Command) -> Result<(), ProcessReason> {
    let refuse = |what: &str| Err(Unreachable { why: format!("this server cannot {what}") }.into());
    if !command.limits.is_empty() && !link.has(Extension::START_LIMITS) {
        return Err(ProcessReason::LimitUnavailable { why: "this server does not know limits".to_owned() });
    }
    if command.run_as.is_some() && !link.has(Extension::START_RUN_AS) {
        return Err(ProcessReason::UserUnavailable { why: "this server cannot change the user".to_owned() });
    }
    if command.time_limit.is_some() && !link.has(Extension::START_TIMEOUT) {
        return refuse("limit the time of a process");
    }
    if command.overflow == Overflow::Block && !link.has(Extension::START_OVERFLOW) {
        return refuse("let a child wait when its output is not read");
    }
    let has_proxies = |link: &Link| {
        let state = link.shared().lock();
        state.info.as_ref().is_some_and(|info| info.capabilities.network_proxy_launch)
    };
    if command.network_proxy.is_some() && !has_proxies(link) {
        return refuse("give a process a proxy");
    }
    if let Io::Pty(size) = command.io
        && size != TerminalSize::default()
        && !link.has(Extension::START_SIZE)
    {
        return refuse("begin with a terminal of another size than 24x80");
    }
    let mut words = command.argv.iter().chain(&command.arg0).chain(command.environ.vars.values());
    if words.any(|word| word.to_str().is_none()) && !link.has(Extension::OS_TEXT) {
        return refuse("take words that are not UTF-8");
    }
    Ok(())
}

/// An id whose start is under way. Dropped without [`Self::confirm`], it is free again.
struct ReservedId<'a> {
    link: &'a Link,
    id: &'a ProcessId,
    /// Whether no process of that id was known before.
    fresh: bool,
    /// What replaces the known process of that id, if the server starts another.
    replacement: Option<CachedProcess>,
}

impl<'a> ReservedId<'a> {
    fn take(link: &'a Link, id: &'a ProcessId, command: &Command) -> Result<Self, ProcessReason> {
        let mut state = link.shared().lock();
        let process = CachedProcess::starting(id, command);
        match state.processes.get(id).map(|process| &process.status) {
            Some(ProcessStatus::Starting) => Err(ProcessReason::IdInUse),
            // The server decides: it may have forgotten the process that we remember.
            Some(ProcessStatus::Known) => Ok(Self { link, id, fresh: false, replacement: Some(process) }),
            Some(ProcessStatus::Lost(_)) | None => {
                state.processes.insert(id.clone(), process);
                // The inbox is opened now, because output may come before the answer.
                state.inbox.open(id);
                Ok(Self { link, id, fresh: true, replacement: None })
            }
        }
    }

    fn confirm(mut self) {
        let mut state = self.link.shared().lock();
        if let Some(process) = self.replacement.take() {
            // It is another process than the one we knew; followers of that one find that it is gone.
            state.inbox.close(self.id);
            state.inbox.open(self.id);
            state.inbox.mark_stale(self.id);
            state.processes.insert(self.id.clone(), process);
        }
        if let Some(process) = state.processes.get_mut(self.id)
            && process.status == ProcessStatus::Starting
        {
            process.status = ProcessStatus::Known;
        }
        // What was acknowledged before the process existed, the server did not understand.
        state.inbox.tell_again(Some(self.id));
        drop(state);
        self.link.shared().acknowledge(self.id, 0);
        self.fresh = false;
    }
}

impl Drop for ReservedId<'_> {
    fn drop(&mut self) {
        if self.fresh {
            remove_from_cache(self.link, self.id);
        }
    }
}

fn remove_from_cache(link: &Link, id: &ProcessId) {
    let mut state = link.shared().lock();
    state.processes.remove(id);
    state.inbox.close(id);
}

/// Calls `process/read` once.
async fn read_once(link: &Link, id: &ProcessId, query: ReadQuery) -> Result<Page, ProcessReason> {
    reachable(link, id)?;
    let tells_head = link.has(Extension::READ_HEAD);
    let params = wire::ReadParams {
        process_id: id.as_str().to_owned(),
        after_seq: Some(query.after),
        // Where we must infer what the server does not tell, we must see the whole of what it holds.
        max_bytes: query.max_bytes.filter(|_| tells_head),
        wait_ms: round_up_to_millis(query.wait).filter(|ms| *ms > 0),
    };
    let default = link.default_options(Method::ProcessRead);
    let options = CallOptions { deadline: link.call_deadline().saturating_add(query.wait), ..default };
    let result = link.call_with(&params, options).await.result.map_err(|error| error::process_reason(id, error))?;
    let known_exit = link.shared().lock().inbox.head(id).and_then(|head| head.exit);
    let mut page = page_of(query.after, result, known_exit);
    if let (Some(max_bytes), false) = (query.max_bytes, tells_head) {
        page.entries = take_page(&mut page.entries.into(), max_bytes);
    }
    link.shared().lock().inbox.update_head(id, page.head);
    Ok(page)
}

/// Refuses what belongs to a session that is lost.
fn reachable(link: &Link, id: &ProcessId) -> Result<(), Unreachable> {
    match link.shared().lock().processes.get(id).map(|process| &process.status) {
        Some(ProcessStatus::Lost(unreachable)) => Err(unreachable.clone()),
        _ => Ok(()),
    }
}

fn written(id: &ProcessId, status: wire::WriteStatus) -> Result<Written, ProcessReason> {
    match status {
        wire::WriteStatus::Accepted => Ok(Written::Accepted),
        wire::WriteStatus::StdinClosed => Ok(Written::StdinClosed),
        wire::WriteStatus::InDoubt => Ok(Written::InDoubt),
        wire::WriteStatus::UnknownProcess => Err(ProcessReason::UnknownProcess),
        wire::WriteStatus::Starting => {
            Err(Unreachable { why: format!("process {id} is still starting: write once start has answered") }.into())
        }
    }
}

/// The key of one piece of a large write. It is a hash, because a longer key might be too long or be that of another
/// write.
fn piece_key(write_id: &WriteId, number: usize) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    write_id.hash(&mut hasher);
    format!("{:016x}\u{1f}{number}", hasher.finish())
}

fn unsupported(method: Method) -> Unreachable {
    CallError::Unsupported { method }.into()
}
