//! The loop between a person and a process, wherever it runs: one event, one answer.
//!
//! ```text
//!   stdin ──► feeder ──► Processes::write            signals ──► Processes::signal, resize
//!   log ──► follower ──► view (plain or JSON) ──► outlet ──► stdout, stderr
//! ```
//!
//! [`farewell`] has the rules of when it ends, [`keys`] those of leaving without an end. Reading stdin and writing output,
//! which may block for as long as somebody else likes, have a thread each, so that a signal never waits for a pipe.
//!
//! Written over the waist: whether the process is near or far is known to nobody here. What a far one adds is news of
//! its link, which are told and change nothing.

pub(crate) mod farewell;
pub(crate) mod feeder;
pub(crate) mod keys;
pub(crate) mod outlet;
pub(crate) mod signals;
pub(crate) mod view;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_core::{Exit, Page, ProcessId, Seq, Signal};
use exec_env::process::{LogFollower, ReadError, ResizeError, SignalError, Signalled, Started, TerminateError, Terminated};
use exec_env::{BoxFuture, Processes};

use crate::spinner::LinkNews;
use crate::terminal::{self, RawTerminal};
use farewell::{Farewell, Step};
use feeder::{Fed, Feeder};
use outlet::{Broken, Outlet};
use signals::{Asked, Signals, stop_ourselves};
use view::View;

/// Most output of one page: large enough for a flood, small enough to be written between two keystrokes.
pub(crate) const PAGE_BYTES: usize = 256 << 10;

/// Attends to one process.
pub(crate) struct Attendant<'a> {
    pub(crate) processes: &'a dyn Processes,
    pub(crate) id: &'a ProcessId,
    pub(crate) terms: Terms,
    pub(crate) signals: &'a mut Signals,
    pub(crate) raw: Option<&'a RawTerminal>,
    pub(crate) view: &'a mut View,
    /// Of a far process.
    pub(crate) link: Option<LinkNews>,
}

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Show what came after this entry.
    pub(crate) after: Seq,
    /// Wait until the background has let go of the output, too.
    pub(crate) wait_all: bool,
    /// How long that may take, from now.
    pub(crate) limit: Option<Duration>,
    /// What is done with what the leader leaves behind.
    pub(crate) remains: Remains,
}

/// What is done with what the leader leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remains {
    /// It is ended.
    Sweep { grace: Duration },
    /// It goes on; it is not ours.
    Leave,
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The child has ended, and its output is out.
    Finished {
        exit: Exit,
        swept: Terminated,
        /// The background was ended while it held the output open.
        cut_short: bool,
    },
    /// Our output takes no more.
    Broken(Broken),
    /// A signal came when there was nobody left to pass it on to, or none to carry it: it was meant for us.
    Interrupted(Signal),
    /// We leave, and the process goes on.
    Detached,
}

enum Event {
    Asked(Asked),
    Page(Result<Option<Page>, ReadError>),
    Written(Result<(), Broken>),
    Fed(anyhow::Result<Fed>),
    Swept(Result<Terminated, TerminateError>),
    Passed((Signal, Result<Signalled, SignalError>)),
    Link(LinkState),
    Due,
}

impl<'a> Attendant<'a> {
    /// To the end. `started`: what to tell of a process that is new.
    pub(crate) async fn run(
        mut self,
        started: Option<Started>,
        outlet: Outlet,
        feeder: Feeder,
    ) -> anyhow::Result<Outcome> {
        let Self { processes, id, terms, .. } = self;
        let limit = terms.limit.and_then(|after| Instant::now().checked_add(after));
        let mut course = Course {
            follower: processes.follow(id, terms.after).await.context("cannot follow the output")?,
            farewell: Farewell::new(terms.wait_all, limit),
            feeding: Some(Box::pin(feeder.feed(processes, id))),
            passing: Passing::default(),
            sweeping: None,
            exit: None,
            swept: None,
            outlet,
        };
        if let Some(started) = started {
            course.outlet.put(self.view.started(started.pid));
        }
        loop {
            let due = match course.farewell.step(Instant::now()) {
                Step::GoOn(due) => due,
                Step::Sweep => {
                    course.sweeping = Some(sweep(processes, id, terms.remains));
                    None
                }
                Step::Leave if course.outlet.is_idle() => return course.close(),
                Step::Leave => None,
            };
            let event = tokio::select! {
                asked = self.signals.next() => Event::Asked(asked),
                state = news(&mut self.link) => Event::Link(state),
                event = course.next() => event,
                () = at(due) => Event::Due,
            };
            if let Some(outcome) = self.handle(&mut course, event).await? {
                return Ok(outcome);
            }
        }
    }

    /// An outcome if that was the last event.
    async fn handle(&mut self, course: &mut Course<'a>, event: Event) -> anyhow::Result<Option<Outcome>> {
        let Self { processes, id, .. } = *self;
        match event {
            Event::Asked(Asked::PassOn(signal)) => {
                // One that a broken link holds up must not hold us up: the next one is for us.
                if course.exit.is_some() || (course.passing.under_way.is_some() && self.is_cut_off()) {
                    return Ok(Some(Outcome::Interrupted(signal)));
                }
                course.passing.add(processes, id, signal);
            }
            Event::Passed((signal, passed)) => match passed.context("cannot pass a signal on")? {
                Signalled::Sent => course.passing.next(processes, id),
                Signalled::AlreadyExited => return Ok(Some(Outcome::Interrupted(signal))),
            },
            Event::Asked(Asked::Resize) => self.resize().await?,
            Event::Asked(Asked::Suspend) => self.suspend().await?,
            Event::Asked(Asked::Pause) => self.pause()?,
            Event::Asked(Asked::Detach) => return Ok(Some(Outcome::Detached)),
            Event::Page(page) => match page.context("cannot read the output")? {
                Some(page) => {
                    course.exit = course.exit.or(note(&page, &mut course.farewell));
                    course.outlet.put(self.view.page(page));
                }
                None if course.exit.is_none() => bail!("the output ended before the program did"),
                None => course.farewell.on_closed(Instant::now()),
            },
            Event::Written(Err(broken)) => return Ok(Some(Outcome::Broken(broken))),
            Event::Fed(fed) => match fed.context("cannot pass stdin on")? {
                Fed::Over => {}
                Fed::Detach => return Ok(Some(Outcome::Detached)),
            },
            Event::Swept(swept) => {
                course.swept = Some(swept.context("cannot end what the program left behind")?);
                course.farewell.on_swept(Instant::now());
            }
            Event::Link(state) => self.on_link(&state).await?,
            Event::Written(Ok(())) | Event::Due => {}
        }
        Ok(None)
    }

    async fn resize(&self) -> anyhow::Result<()> {
        let Some(size) = terminal::size().filter(|_| !self.is_cut_off()) else { return Ok(()) };
        match self.processes.resize(self.id, size).await {
            // Its terminal went with it; its output is still on the way.
            Err(ResizeError::Unknown(_)) => Ok(()),
            resized => resized.context("cannot resize the terminal"),
        }
    }

    async fn suspend(&self) -> anyhow::Result<()> {
        let send = async |signal| match self.is_cut_off() {
            true => Ok(()),
            false => self.processes.signal(self.id, signal).await.map(drop).context("cannot pass a signal on"),
        };
        send(Signal::Stop).await?;
        self.pause()?;
        send(Signal::Continue).await
    }

    fn pause(&self) -> anyhow::Result<()> {
        match self.raw {
            Some(raw) => raw.without(stop_ourselves).context("cannot put the terminal in raw mode again"),
            None => {
                stop_ourselves();
                Ok(())
            }
        }
    }

    async fn on_link(&mut self, state: &LinkState) -> anyhow::Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.tell(state);
        // A size that changed while nobody could be told.
        if *state == LinkState::Connected && self.raw.is_some() { self.resize().await } else { Ok(()) }
    }

    fn is_cut_off(&self) -> bool {
        self.link.as_ref().is_some_and(LinkNews::is_broken)
    }
}

/// What is under way, and what is known so far.
struct Course<'a> {
    follower: Box<dyn LogFollower>,
    farewell: Farewell,
    feeding: Option<BoxFuture<'a, anyhow::Result<Fed>>>,
    passing: Passing<'a>,
    sweeping: Option<BoxFuture<'a, Result<Terminated, TerminateError>>>,
    exit: Option<Exit>,
    swept: Option<Terminated>,
    outlet: Outlet,
}

impl Course<'_> {
    /// What comes next. Cancelling it loses nothing.
    async fn next(&mut self) -> Event {
        let follows = !self.farewell.is_closed() && self.outlet.has_room();
        tokio::select! {
            page = self.follower.next(PAGE_BYTES), if follows => Event::Page(page),
            written = self.outlet.written() => Event::Written(written),
            fed = when(&mut self.feeding) => Event::Fed(fed),
            swept = when(&mut self.sweeping) => Event::Swept(swept),
            passed = when(&mut self.passing.under_way) => Event::Passed(passed),
        }
    }

    fn close(self) -> anyhow::Result<Outcome> {
        self.outlet.close();
        let exit = self.exit.context("the end was not told")?;
        let swept = self.swept.context("the sweep was not told")?;
        Ok(Outcome::Finished { exit, swept, cut_short: self.farewell.is_cut_short() })
    }
}

/// Signals on their way to the child, one after the other. Those that wait coalesce, as the kernel's own do; so there
/// are never more than there are kinds.
#[derive(Default)]
struct Passing<'a> {
    under_way: Option<BoxFuture<'a, (Signal, Result<Signalled, SignalError>)>>,
    waiting: Vec<Signal>,
}

impl<'a> Passing<'a> {
    fn add(&mut self, processes: &'a dyn Processes, id: &'a ProcessId, signal: Signal) {
        if !self.waiting.contains(&signal) {
            self.waiting.push(signal);
        }
        if self.under_way.is_none() {
            self.next(processes, id);
        }
    }

    fn next(&mut self, processes: &'a dyn Processes, id: &'a ProcessId) {
        if !self.waiting.is_empty() {
            let signal = self.waiting.remove(0);
            self.under_way = Some(Box::pin(async move { (signal, processes.signal(id, signal).await) }));
        }
    }
}

fn sweep<'a>(
    processes: &'a dyn Processes,
    id: &'a ProcessId,
    remains: Remains,
) -> BoxFuture<'a, Result<Terminated, TerminateError>> {
    match remains {
        Remains::Sweep { grace } => processes.terminate(id, grace),
        Remains::Leave => Box::pin(async { Ok(Terminated { was_running: false, ended: 0, left: 0 }) }),
    }
}

async fn news(link: &mut Option<LinkNews>) -> LinkState {
    match link {
        Some(link) => link.changed().await,
        None => std::future::pending().await,
    }
}

/// Ends the tree of a run that cannot go on; a signal meanwhile ends it at once.
pub(crate) async fn end(processes: &dyn Processes, id: &ProcessId, grace: Duration, signals: &mut Signals) {
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
fn note(page: &Page, farewell: &mut Farewell) -> Option<Exit> {
    let exit = page.head.exit;
    // Only what has been read counts: output before the exit is still to be shown. An exit whose entry was dropped
    // counts when its place has been passed.
    let read_up_to = page.cursor(0);
    let exit = exit.filter(|(seq, _)| *seq <= read_up_to).map(|(_, exit)| exit);
    let now = Instant::now();
    if exit.is_some() {
        farewell.on_exited(now);
    }
    if page.entries.last().is_some_and(|entry| entry.body == exec_core::EntryBody::Closed) {
        farewell.on_closed(now);
    }
    exit
}

/// Waits for a future that is there, once.
async fn when<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(waiting) => {
            let output = waiting.await;
            *future = None;
            output
        }
        None => std::future::pending().await,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
