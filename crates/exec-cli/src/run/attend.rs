//! The loop between a start and an end: one event, one answer.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use exec_core::{Exit, Page, ProcessId, Signal};
use exec_env::process::{ReadError, Signalled, Started, TerminateError, Terminated};
use exec_env::{BoxFuture, Processes};

use super::farewell::{Farewell, Step};
use super::feeder::Feeder;
use super::outlet::{Broken, Outlet};
use super::signals::{Asked, Signals, stop_ourselves};
use super::view::View;
use crate::args::RunArgs;
use crate::terminal::{self, RawTerminal};

/// Most output of one page: large enough for a flood, small enough to be written between two keystrokes.
const PAGE_BYTES: usize = 256 << 10;

/// Attends to one process.
pub(super) struct Attendant<'a> {
    pub(super) processes: &'a dyn Processes,
    pub(super) id: &'a ProcessId,
    pub(super) args: &'a RunArgs,
    pub(super) signals: &'a mut Signals,
    pub(super) raw: Option<&'a RawTerminal>,
    pub(super) view: &'a mut View,
}

/// How it went.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The child has ended, and its output is out.
    Finished {
        exit: Exit,
        swept: Terminated,
        /// The background was ended while it held the output open.
        cut_short: bool,
    },
    /// Our output takes no more.
    Broken(Broken),
    /// A signal came when there was nobody left to pass it on to: it was meant for us, who still had output to write.
    Interrupted(Signal),
}

enum Event {
    Asked(Asked),
    Page(Result<Option<Page>, ReadError>),
    Written(Result<(), Broken>),
    Fed(anyhow::Result<()>),
    Swept(Result<Terminated, TerminateError>),
    Due,
}

impl Attendant<'_> {
    /// From the start to the end.
    pub(super) async fn run(self, started: Started, mut outlet: Outlet, feeder: Feeder) -> anyhow::Result<Outcome> {
        let Self { processes, id, args, .. } = self;
        let mut follower = processes.follow(id, 0).await.context("cannot follow the output")?;
        let limit = args.timeout.and_then(|after| Instant::now().checked_add(after));
        let mut farewell = Farewell::new(args.wait_all, limit);
        let mut feeding = Some(Box::pin(feeder.feed(processes, id)));
        let mut sweeping: Option<BoxFuture<'_, _>> = None;
        let mut ended: (Option<Exit>, Option<Terminated>) = (None, None);
        outlet.put(self.view.started(started.pid));
        loop {
            let due = match farewell.step(Instant::now()) {
                Step::GoOn(due) => due,
                Step::Sweep => {
                    sweeping = Some(processes.terminate(id, args.grace));
                    None
                }
                Step::Leave if outlet.is_idle() => break,
                Step::Leave => None,
            };
            let follows = !farewell.is_closed() && outlet.has_room();
            let event = tokio::select! {
                asked = self.signals.next() => Event::Asked(asked),
                page = follower.next(PAGE_BYTES), if follows => Event::Page(page),
                written = outlet.written() => Event::Written(written),
                fed = when(&mut feeding) => Event::Fed(fed),
                swept = when(&mut sweeping) => Event::Swept(swept),
                () = at(due) => Event::Due,
            };
            match event {
                Event::Asked(Asked::PassOn(signal)) => {
                    if ended.0.is_some() || self.pass_on(signal).await? == Signalled::AlreadyExited {
                        return Ok(Outcome::Interrupted(signal));
                    }
                }
                Event::Asked(Asked::Resize) => self.resize().await?,
                Event::Asked(Asked::Suspend) => self.suspend().await?,
                Event::Page(page) => match page.context("cannot read the output")? {
                    Some(page) => {
                        ended.0 = ended.0.or(note(&page, &mut farewell));
                        outlet.put(self.view.page(page));
                    }
                    None if ended.0.is_none() => bail!("the output ended before the program did"),
                    None => farewell.on_closed(Instant::now()),
                },
                Event::Written(Err(broken)) => return Ok(Outcome::Broken(broken)),
                Event::Fed(fed) => fed.context("cannot pass stdin on")?,
                Event::Swept(swept) => {
                    ended.1 = Some(swept.context("cannot end what the program left behind")?);
                    farewell.on_swept(Instant::now());
                }
                Event::Written(Ok(())) | Event::Due => {}
            }
        }
        outlet.close();
        let (exit, swept) = (ended.0.context("the end was not told")?, ended.1.context("the sweep was not told")?);
        Ok(Outcome::Finished { exit, swept, cut_short: farewell.is_cut_short() })
    }

    async fn pass_on(&self, signal: Signal) -> anyhow::Result<Signalled> {
        self.processes.signal(self.id, signal).await.context("cannot pass a signal on")
    }

    async fn resize(&self) -> anyhow::Result<()> {
        match terminal::size() {
            Some(size) => self.processes.resize(self.id, size).await.context("cannot resize the terminal"),
            None => Ok(()),
        }
    }

    async fn suspend(&self) -> anyhow::Result<()> {
        self.pass_on(Signal::Stop).await?;
        match self.raw {
            Some(raw) => raw.without(stop_ourselves).context("cannot put the terminal in raw mode again")?,
            None => stop_ourselves(),
        }
        self.pass_on(Signal::Continue).await.map(drop)
    }
}

/// Ends the tree of a run that cannot go on; a signal meanwhile ends it at once.
pub(super) async fn end(processes: &dyn Processes, id: &ProcessId, grace: Duration, signals: &mut Signals) {
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
    if page.entries.last().is_some_and(|entry| entry.body == exec_core::Body::Closed) {
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
