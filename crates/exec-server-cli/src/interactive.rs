//! The loop between the user's terminal and a process, local or remote: one event, one answer.
//!
//! ```text
//!   stdin ──► StdinForwarder ──► Processes::write             signals ──► Processes::signal, resize
//!   log ──► follower ──► OutputFormatter (bytes or JSON) ──► OutputThread ──► stdout, stderr
//! ```
//!
//! [`completion`] has the rules for the end, [`detach_keys`] those for leaving a process that goes on. Reading stdin and
//! writing output can block for as long as others like, so each has a thread, and a signal never waits for a pipe.
//!
//! The loop uses `Processes` and does not know whether the process is remote. A remote one adds the states of its
//! connection, which are shown to the user and change nothing else.

pub(crate) mod completion;
pub(crate) mod detach_keys;
pub(crate) mod formatter;
pub(crate) mod full_screen;
pub(crate) mod output_thread;
pub(crate) mod signals;
pub(crate) mod stdin_forwarder;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_core::limits::ATTACHED_READER_TIMEOUT;
use exec_core::{Exit, Page, ProcessId, Seq, Signal, Stall};
use exec_env::process::{LogFollower, ProcessError, ProcessReason, Signalled, Started, Terminated};
use exec_env::screen::ScreenQuery;
use exec_env::{BoxFuture, Processes};

use crate::connection_status::LinkMonitor;
use crate::signal_listener::SignalListener;
use crate::terminal::{self, RawTerminal};
use crate::{messages, screen};
use completion::{Completion, CompletionStep};
use formatter::OutputFormatter;
use full_screen::FullScreenDetector;
use output_thread::{OutputChunk, OutputError, OutputStream, OutputThread};
use signals::{SignalAction, stop_ourselves};
use stdin_forwarder::{StdinForwarder, StdinOutcome};

/// The most output of one page: large enough for a flood, small enough to be written between two keystrokes.
pub(crate) const PAGE_BYTES: usize = 256 << 10;

pub(crate) struct InteractiveLoop<'a> {
    pub(crate) processes: &'a dyn Processes,
    pub(crate) id: &'a ProcessId,
    /// Output is shown from the entry after this one.
    pub(crate) after: Seq,
    /// Waits until background processes have closed the output, too.
    pub(crate) wait_all: bool,
    /// How long `wait_all` may wait, from now.
    pub(crate) limit: Option<Duration>,
    pub(crate) background: BackgroundPolicy,
    pub(crate) signals: &'a mut SignalListener<SignalAction>,
    pub(crate) raw: Option<&'a RawTerminal>,
    pub(crate) formatter: &'a mut OutputFormatter,
    pub(crate) full_screen: FullScreenDetector,
    /// `None` for a local process.
    pub(crate) link: Option<LinkMonitor>,
}

/// What happens to background processes when the leader has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackgroundPolicy {
    Terminate {
        grace: Duration,
    },
    /// They are not ours to end.
    Keep,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    /// The leader has exited, and all output is written.
    Finished {
        exit: Exit,
        terminated: Terminated,
        /// Background processes were ended while they held the output open.
        cut_short: bool,
    },
    /// Our stdout or stderr cannot be written any more.
    OutputFailed(OutputError),
    /// A signal that cannot be forwarded, because the child has exited or the connection is broken. So it is for us.
    Interrupted(Signal),
    /// The user leaves, and the process goes on.
    Detached,
}

enum Event {
    Signal(SignalAction),
    Page(Result<Option<Page>, ProcessError>),
    Written(Result<(), OutputError>),
    StdinDone(anyhow::Result<StdinOutcome>),
    Terminated(Result<Terminated, ProcessError>),
    SignalSent((Signal, Result<Signalled, ProcessError>)),
    Link(LinkState),
    DiskFull,
    Timer,
}

/// Between two looks at whether the program waits because its output cannot be kept. Nobody is in a hurry who waits for room.
const DISK_LOOK: Duration = Duration::from_secs(1);

impl<'a> InteractiveLoop<'a> {
    /// Runs to the end. `started` is given for a process that we have just started.
    pub(crate) async fn run(
        mut self,
        started: Option<Started>,
        output: OutputThread,
        stdin: Option<StdinForwarder>,
    ) -> anyhow::Result<Outcome> {
        let Self { processes, id, background, .. } = self;
        let outage = self.link.as_ref().map(LinkMonitor::outage);
        let limit = self.limit.and_then(|after| Instant::now().checked_add(after));
        let mut state = LoopState {
            follower: processes.follow(id, self.after).await.context("cannot follow the output")?,
            completion: Completion::new(self.wait_all, limit),
            forwarding: stdin.map(|stdin| -> BoxFuture<'a, _> { Box::pin(stdin.forward(processes, id, outage)) }),
            signal_queue: SignalQueue::default(),
            terminating: None,
            exit: None,
            terminated: None,
            disk_full: self.link.is_none().then(|| -> BoxFuture<'a, _> { Box::pin(disk_full(processes, id)) }),
            output,
        };
        state.follower.acknowledge(self.after, ATTACHED_READER_TIMEOUT);
        if let Some(started) = started {
            state.output.enqueue(self.formatter.started(started.pid));
        }
        loop {
            let wake_at = match state.completion.next_step(Instant::now()) {
                CompletionStep::Wait(wake_at) => wake_at,
                CompletionStep::Terminate => {
                    state.terminating = Some(clean_up(processes, id, background));
                    None
                }
                CompletionStep::Finish if state.output.is_idle() => return state.close(),
                CompletionStep::Finish => None,
            };
            let event = tokio::select! {
                action = self.signals.next() => Event::Signal(action),
                state = link_changed(&mut self.link) => Event::Link(state),
                event = state.next() => event,
                () = sleep_until(wake_at) => Event::Timer,
            };
            if let Some(outcome) = self.handle(&mut state, event).await? {
                return Ok(outcome);
            }
        }
    }

    /// Returns the outcome if that was the last event.
    async fn handle(&mut self, state: &mut LoopState<'a>, event: Event) -> anyhow::Result<Option<Outcome>> {
        let Self { processes, id, .. } = *self;
        match event {
            Event::Signal(SignalAction::Forward(signal)) => {
                // While a broken connection delays a signal, the next one ends us instead: the user must not be stuck.
                if state.exit.is_some() || (state.signal_queue.in_flight.is_some() && self.is_disconnected()) {
                    return Ok(Some(Outcome::Interrupted(signal)));
                }
                state.signal_queue.push(processes, id, signal);
            }
            Event::SignalSent((signal, sent)) => match sent.context("cannot pass a signal on")? {
                Signalled::Sent => state.signal_queue.send_next(processes, id),
                Signalled::AlreadyExited => return Ok(Some(Outcome::Interrupted(signal))),
            },
            Event::Signal(SignalAction::Resize) => self.resize().await?,
            Event::Signal(SignalAction::SuspendBoth) => self.suspend_both().await?,
            Event::Signal(SignalAction::SuspendSelf) => self.suspend_self()?,
            Event::Signal(SignalAction::Detach) => return Ok(Some(Outcome::Detached)),
            Event::Page(page) => match page.context("cannot read the output")? {
                Some(page) => {
                    state.exit = state.exit.or(record_end(&page, &mut state.completion));
                    // Whoever reads our output may be stopped or slow; then the program waits, as at a pipe.
                    self.after = page.cursor(self.after);
                    state.follower.acknowledge(self.after, ATTACHED_READER_TIMEOUT);
                    let batch = self.formatter.page(page);
                    if self.raw.is_some() {
                        batch.iter().for_each(|chunk| self.full_screen.feed(&chunk.bytes));
                    }
                    state.output.enqueue(batch);
                }
                None if state.exit.is_none() => bail!("the output ended before the program did"),
                None => state.completion.on_closed(Instant::now()),
            },
            Event::Written(Err(error)) => return Ok(Some(Outcome::OutputFailed(error))),
            Event::StdinDone(outcome) => match outcome.context("cannot pass stdin on")? {
                StdinOutcome::Finished => {}
                StdinOutcome::Detach => return Ok(Some(Outcome::Detached)),
                StdinOutcome::Interrupt => return Ok(Some(Outcome::Interrupted(Signal::Interrupt))),
            },
            Event::Terminated(terminated) => {
                state.terminated = Some(terminated.context("cannot end what the program left behind")?);
                state.completion.on_terminated(Instant::now());
            }
            Event::Link(link) => return self.on_link(state, &link).await,
            Event::DiskFull => self.tell_disk_full(),
            Event::Written(Ok(())) | Event::Timer => {}
        }
        Ok(None)
    }

    fn tell_disk_full(&self) {
        let note = "the program waits, because its output cannot be kept: free some space in the folder for temporary \
                    files (TMPDIR), or raise the limit on the size of files (`ulimit -f`)";
        match self.raw {
            Some(_) => messages::print_raw_note(note),
            None => messages::print_note(note),
        }
    }

    async fn resize(&self) -> anyhow::Result<()> {
        let Some(size) = terminal::size().filter(|_| !self.is_disconnected()) else { return Ok(()) };
        match self.processes.resize(self.id, size).await {
            // The process and its terminal are gone; we are still reading its output.
            Err(ProcessError { reason: ProcessReason::UnknownProcess, .. }) => Ok(()),
            resized => resized.context("cannot resize the terminal"),
        }
    }

    async fn suspend_both(&self) -> anyhow::Result<()> {
        let send = async |signal| match self.is_disconnected() {
            true => Ok(()),
            false => self.processes.signal(self.id, signal).await.map(drop).context("cannot pass a signal on"),
        };
        send(Signal::Stop).await?;
        self.suspend_self()?;
        send(Signal::Continue).await
    }

    fn suspend_self(&self) -> anyhow::Result<()> {
        match self.raw {
            Some(raw) => raw.with_original_mode(stop_ourselves).context("cannot put the terminal in raw mode again"),
            None => {
                stop_ourselves();
                Ok(())
            }
        }
    }

    async fn on_link(&mut self, state: &mut LoopState<'a>, link_state: &LinkState) -> anyhow::Result<Option<Outcome>> {
        let Some(link) = &mut self.link else { return Ok(None) };
        if link.report(link_state, self.full_screen.state().is_on())
            && let Err(error) = self.repaint(state).await
        {
            return Ok(Some(Outcome::OutputFailed(error)));
        }
        // The size may have changed while the process could not be told.
        if *link_state == LinkState::Connected && self.raw.is_some() {
            self.resize().await?;
        }
        Ok(None)
    }

    /// Draws the screen of the program as it is after what was written so far. A server that cannot tell leaves it to the
    /// program, which draws anew when its terminal changes.
    async fn repaint(&self, state: &mut LoopState<'a>) -> Result<(), OutputError> {
        while !state.output.is_idle() {
            state.output.next_result().await?;
        }
        let query = ScreenQuery { seq: Some(self.after), colors: true };
        match self.processes.screen(self.id, query).await {
            Ok(screen) => {
                let bytes = screen::repaint(&screen).into();
                state.output.enqueue(vec![OutputChunk { to: OutputStream::Stdout, bytes }]);
            }
            Err(error) => {
                let redrawn = self.processes.signal(self.id, Signal::WindowChange).await;
                tracing::debug!(%error, ?redrawn, "the screen cannot be drawn by us");
            }
        }
        Ok(())
    }

    fn is_disconnected(&self) -> bool {
        self.link.as_ref().is_some_and(LinkMonitor::is_broken)
    }
}

/// The operations in progress, and what is known so far.
struct LoopState<'a> {
    follower: Box<dyn LogFollower>,
    completion: Completion,
    forwarding: Option<BoxFuture<'a, anyhow::Result<StdinOutcome>>>,
    signal_queue: SignalQueue<'a>,
    terminating: Option<BoxFuture<'a, Result<Terminated, ProcessError>>>,
    exit: Option<Exit>,
    terminated: Option<Terminated>,
    /// Of a local process, whose disk is the user's own; told once.
    disk_full: Option<BoxFuture<'a, ()>>,
    output: OutputThread,
}

impl LoopState<'_> {
    /// Cancel-safe.
    async fn next(&mut self) -> Event {
        let can_read = !self.completion.is_closed() && self.output.has_capacity();
        tokio::select! {
            page = self.follower.next(PAGE_BYTES), if can_read => Event::Page(page),
            written = self.output.next_result() => Event::Written(written),
            outcome = when_ready(&mut self.forwarding) => Event::StdinDone(outcome),
            terminated = when_ready(&mut self.terminating) => Event::Terminated(terminated),
            sent = when_ready(&mut self.signal_queue.in_flight) => Event::SignalSent(sent),
            () = when_ready(&mut self.disk_full) => Event::DiskFull,
        }
    }

    fn close(self) -> anyhow::Result<Outcome> {
        self.output.close();
        let exit = self.exit.context("the end was not told")?;
        let terminated = self.terminated.context("the sweep was not told")?;
        Ok(Outcome::Finished { exit, terminated, cut_short: self.completion.is_cut_short() })
    }
}

/// Signals for the child, sent one after the other. Equal signals that wait are merged, as the kernel does, so the queue
/// is never longer than the number of signals we forward.
#[derive(Default)]
struct SignalQueue<'a> {
    in_flight: Option<BoxFuture<'a, (Signal, Result<Signalled, ProcessError>)>>,
    queued: Vec<Signal>,
}

impl<'a> SignalQueue<'a> {
    fn push(&mut self, processes: &'a dyn Processes, id: &'a ProcessId, signal: Signal) {
        if !self.queued.contains(&signal) {
            self.queued.push(signal);
        }
        if self.in_flight.is_none() {
            self.send_next(processes, id);
        }
    }

    fn send_next(&mut self, processes: &'a dyn Processes, id: &'a ProcessId) {
        if !self.queued.is_empty() {
            let signal = self.queued.remove(0);
            self.in_flight = Some(Box::pin(async move { (signal, processes.signal(id, signal).await) }));
        }
    }
}

/// Does with background processes what the policy says.
fn clean_up<'a>(
    processes: &'a dyn Processes,
    id: &'a ProcessId,
    background: BackgroundPolicy,
) -> BoxFuture<'a, Result<Terminated, ProcessError>> {
    match background {
        BackgroundPolicy::Terminate { grace } => processes.terminate(id, grace),
        BackgroundPolicy::Keep => Box::pin(async { Ok(Terminated { was_running: false, ended: 0, left: 0 }) }),
    }
}

/// Returns when the process waits for room on the disk. No page tells that: there is nothing more to read.
async fn disk_full(processes: &dyn Processes, id: &ProcessId) {
    loop {
        tokio::time::sleep(DISK_LOOK).await;
        let listed = processes.list().await.unwrap_or_default();
        if listed.iter().any(|info| info.id == *id && info.head.stalled == Some(Stall::Disk)) {
            return;
        }
    }
}

async fn link_changed(link: &mut Option<LinkMonitor>) -> LinkState {
    match link {
        Some(link) => link.changed().await,
        None => std::future::pending().await,
    }
}

/// Ends the process tree of a run that cannot go on. A signal meanwhile ends it at once.
pub(crate) async fn terminate(
    processes: &dyn Processes,
    id: &ProcessId,
    grace: Duration,
    signals: &mut SignalListener<SignalAction>,
) {
    let ended = tokio::select! {
        ended = processes.terminate(id, grace) => Some(ended),
        _ = signals.next() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => processes.terminate(id, Duration::ZERO).await,
    };
    if let Err(error) = ended {
        tracing::warn!(%error, "the program may still run");
    }
}

/// Records what a page says about the end, and returns the leader's exit if the page has reached it.
fn record_end(page: &Page, completion: &mut Completion) -> Option<Exit> {
    let exit = page.head.exit;
    // The head may be ahead of the page. The exit counts when its entry was read, so that all output before it is shown;
    // if the entry was dropped, when a later one was read.
    let read_up_to = page.cursor(0);
    let exit = exit.filter(|(seq, _)| *seq <= read_up_to).map(|(_, exit)| exit);
    let now = Instant::now();
    if exit.is_some() {
        completion.on_exited(now);
    }
    if page.entries.last().is_some_and(|entry| entry.body == exec_core::EntryBody::Closed) {
        completion.on_closed(now);
    }
    exit
}

/// Waits for the future, if there is one, and removes it.
async fn when_ready<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(pending) => {
            let output = pending.await;
            *future = None;
            output
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
