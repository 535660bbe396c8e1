//! The loop between a person and a process, wherever it runs: one event, one answer.
//!
//! ```text
//!   stdin ──► feeder ──► Processes::write            signals ──► Processes::signal, resize
//!   log ──► follower ──► view (plain or JSON) ──► outlet ──► stdout, stderr
//! ```
//!
//! [`completion`] has the rules of when it ends, [`keys`] those of leaving without an end. Reading stdin and writing output,
//! which may block for as long as somebody else likes, have a thread each, so that a signal never waits for a pipe.
//!
//! Written over the waist: whether the process is near or far is known to nobody here. What a far one adds is news of
//! its link, which are told and change nothing.

pub(crate) mod completion;
pub(crate) mod detach_keys;
pub(crate) mod formatter;
pub(crate) mod output_thread;
pub(crate) mod signals;
pub(crate) mod stdin_forwarder;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_core::{Exit, Page, ProcessId, Seq, Signal};
use exec_env::process::{LogFollower, ReadError, ResizeError, SignalError, Signalled, Started, TerminateError, Terminated};
use exec_env::{BoxFuture, Processes};

use crate::spinner::LinkMonitor;
use crate::terminal::{self, RawTerminal};
use completion::{Completion, CompletionStep};
use formatter::OutputFormatter;
use output_thread::{OutputError, OutputThread};
use signals::{SignalAction, Signals, stop_ourselves};
use stdin_forwarder::{StdinForwarder, StdinOutcome};

/// Most output of one page: large enough for a flood, small enough to be written between two keystrokes.
pub(crate) const PAGE_BYTES: usize = 256 << 10;

/// Attends to one process.
pub(crate) struct InteractiveLoop<'a> {
    pub(crate) processes: &'a dyn Processes,
    pub(crate) id: &'a ProcessId,
    pub(crate) options: InteractiveOptions,
    pub(crate) signals: &'a mut Signals,
    pub(crate) raw: Option<&'a RawTerminal>,
    pub(crate) formatter: &'a mut OutputFormatter,
    /// Of a far process.
    pub(crate) link: Option<LinkMonitor>,
}

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InteractiveOptions {
    /// Show what came after this entry.
    pub(crate) after: Seq,
    /// Wait until the background has let go of the output, too.
    pub(crate) wait_all: bool,
    /// How long that may take, from now.
    pub(crate) limit: Option<Duration>,
    /// What is done with what the leader leaves behind.
    pub(crate) background: BackgroundPolicy,
}

/// What is done with what the leader leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackgroundPolicy {
    /// It is ended.
    Terminate { grace: Duration },
    /// It goes on; it is not ours.
    Keep,
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The child has ended, and its output is out.
    Finished {
        exit: Exit,
        terminated: Terminated,
        /// The background was ended while it held the output open.
        cut_short: bool,
    },
    /// Our output takes no more.
    OutputFailed(OutputError),
    /// A signal came when there was nobody left to pass it on to, or none to carry it: it was meant for us.
    Interrupted(Signal),
    /// We leave, and the process goes on.
    Detached,
}

enum Event {
    Signal(SignalAction),
    Page(Result<Option<Page>, ReadError>),
    Written(Result<(), OutputError>),
    StdinDone(anyhow::Result<StdinOutcome>),
    Terminated(Result<Terminated, TerminateError>),
    SignalSent((Signal, Result<Signalled, SignalError>)),
    Link(LinkState),
    Timer,
}

impl<'a> InteractiveLoop<'a> {
    /// To the end. `started`: what to tell of a process that is new.
    pub(crate) async fn run(
        mut self,
        started: Option<Started>,
        output: OutputThread,
        stdin: StdinForwarder,
    ) -> anyhow::Result<Outcome> {
        let Self { processes, id, options, .. } = self;
        let limit = options.limit.and_then(|after| Instant::now().checked_add(after));
        let mut state = LoopState {
            follower: processes.follow(id, options.after).await.context("cannot follow the output")?,
            completion: Completion::new(options.wait_all, limit),
            forwarding: Some(Box::pin(stdin.forward(processes, id))),
            signal_queue: SignalQueue::default(),
            terminating: None,
            exit: None,
            terminated: None,
            output,
        };
        if let Some(started) = started {
            state.output.enqueue(self.formatter.started(started.pid));
        }
        loop {
            let wake_at = match state.completion.next_step(Instant::now()) {
                CompletionStep::Wait(wake_at) => wake_at,
                CompletionStep::Terminate => {
                    state.terminating = Some(clean_up(processes, id, options.background));
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

    /// An outcome if that was the last event.
    async fn handle(&mut self, state: &mut LoopState<'a>, event: Event) -> anyhow::Result<Option<Outcome>> {
        let Self { processes, id, .. } = *self;
        match event {
            Event::Signal(SignalAction::Forward(signal)) => {
                // One that a broken link holds up must not hold us up: the next one is for us.
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
                    state.output.enqueue(self.formatter.page(page));
                }
                None if state.exit.is_none() => bail!("the output ended before the program did"),
                None => state.completion.on_closed(Instant::now()),
            },
            Event::Written(Err(broken)) => return Ok(Some(Outcome::OutputFailed(broken))),
            Event::StdinDone(outcome) => match outcome.context("cannot pass stdin on")? {
                StdinOutcome::Finished => {}
                StdinOutcome::Detach => return Ok(Some(Outcome::Detached)),
            },
            Event::Terminated(terminated) => {
                state.terminated = Some(terminated.context("cannot end what the program left behind")?);
                state.completion.on_terminated(Instant::now());
            }
            Event::Link(state) => self.on_link(&state).await?,
            Event::Written(Ok(())) | Event::Timer => {}
        }
        Ok(None)
    }

    async fn resize(&self) -> anyhow::Result<()> {
        let Some(size) = terminal::size().filter(|_| !self.is_disconnected()) else { return Ok(()) };
        match self.processes.resize(self.id, size).await {
            // Its terminal went with it; its output is still on the way.
            Err(ResizeError::Unknown(_)) => Ok(()),
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

    async fn on_link(&mut self, state: &LinkState) -> anyhow::Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.report(state);
        // A size that changed while nobody could be told.
        if *state == LinkState::Connected && self.raw.is_some() { self.resize().await } else { Ok(()) }
    }

    fn is_disconnected(&self) -> bool {
        self.link.as_ref().is_some_and(LinkMonitor::is_broken)
    }
}

/// What is under way, and what is known so far.
struct LoopState<'a> {
    follower: Box<dyn LogFollower>,
    completion: Completion,
    forwarding: Option<BoxFuture<'a, anyhow::Result<StdinOutcome>>>,
    signal_queue: SignalQueue<'a>,
    terminating: Option<BoxFuture<'a, Result<Terminated, TerminateError>>>,
    exit: Option<Exit>,
    terminated: Option<Terminated>,
    output: OutputThread,
}

impl LoopState<'_> {
    /// What comes next. Cancelling it loses nothing.
    async fn next(&mut self) -> Event {
        let can_read = !self.completion.is_closed() && self.output.has_capacity();
        tokio::select! {
            page = self.follower.next(PAGE_BYTES), if can_read => Event::Page(page),
            written = self.output.next_result() => Event::Written(written),
            outcome = when_ready(&mut self.forwarding) => Event::StdinDone(outcome),
            terminated = when_ready(&mut self.terminating) => Event::Terminated(terminated),
            sent = when_ready(&mut self.signal_queue.in_flight) => Event::SignalSent(sent),
        }
    }

    fn close(self) -> anyhow::Result<Outcome> {
        self.output.close();
        let exit = self.exit.context("the end was not told")?;
        let terminated = self.terminated.context("the sweep was not told")?;
        Ok(Outcome::Finished { exit, terminated, cut_short: self.completion.is_cut_short() })
    }
}

/// Signals on their way to the child, one after the other. Those that wait coalesce, as the kernel's own do; so there
/// are never more than there are kinds.
#[derive(Default)]
struct SignalQueue<'a> {
    in_flight: Option<BoxFuture<'a, (Signal, Result<Signalled, SignalError>)>>,
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

fn clean_up<'a>(
    processes: &'a dyn Processes,
    id: &'a ProcessId,
    background: BackgroundPolicy,
) -> BoxFuture<'a, Result<Terminated, TerminateError>> {
    match background {
        BackgroundPolicy::Terminate { grace } => processes.terminate(id, grace),
        BackgroundPolicy::Keep => Box::pin(async { Ok(Terminated { was_running: false, ended: 0, left: 0 }) }),
    }
}

async fn link_changed(link: &mut Option<LinkMonitor>) -> LinkState {
    match link {
        Some(link) => link.changed().await,
        None => std::future::pending().await,
    }
}

/// Ends the tree of a run that cannot go on; a signal meanwhile ends it at once.
pub(crate) async fn terminate(processes: &dyn Processes, id: &ProcessId, grace: Duration, signals: &mut Signals) {
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

/// Tells the rules what a page says about the end; the leader's exit, if it is known.
fn record_end(page: &Page, completion: &mut Completion) -> Option<Exit> {
    let exit = page.head.exit;
    // Only what has been read counts: output before the exit is still to be shown. An exit whose entry was dropped
    // counts when its place has been passed.
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

/// Waits for a future that is there, once.
async fn when_ready<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(queued) => {
            let output = queued.await;
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
