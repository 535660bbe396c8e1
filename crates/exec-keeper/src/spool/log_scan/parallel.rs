//! A scan by two threads: both read runs and look at them, and one of them visits the runs in order.
//!
//! ```text
//!   visitor ─┐              ┌─► read, look ─┐
//!            ├─► plan a run ┤               ├─► steps, in the order of their plans ─► visited
//!   helper  ─┘              └─► read, look ─┘
//! ```
//!
//! To copy a log out of the kernel takes about as long as to search it, and either is done per byte, so each thread
//! does both for the runs that it takes: a run never leaves the cache of its processor. The visitor works too while
//! nothing is ready, so it seldom waits, and a helper that gets no processor delays it by one run at most.
//!
//! The helper belongs to the scan: it has ended when the scan has.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use exec_core::Seq;
use rustix::io::Errno;

use super::super::log_files::LogFiles;
use super::{LogScan, NextStep, PlannedRun, ReadOutcome, Run, RunBuffer, RunKind, Scanned};

/// Runs that are read and not visited yet, at most: enough that neither thread often waits for the other, and little memory.
const RUNS_AHEAD: usize = 4;

/// Scans that have a helper now, in this process.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// The right to start a helper. There are fewer of them than processors, so that however many search at once, what other clients
/// wait for has no more threads to compete with than if each searched alone.
pub(super) struct HelperPermit(());

impl HelperPermit {
    pub(super) fn take() -> Option<Self> {
        let most = std::thread::available_parallelism().map_or(0, |processors| processors.get() - 1);
        let take = |helpers: usize| (helpers < most).then_some(helpers + 1);
        HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| Self(()))
    }
}

impl Drop for HelperPermit {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Shows `visit` everything up to the end of the scan, or until it breaks. `None` if there is no second thread to be had, and
/// nothing was shown.
pub(super) fn for_each_run<L: Send>(
    scan: &mut LogScan,
    look: &mut (impl FnMut(&Run<'_>) -> L + Clone + Send),
    visit: &mut impl FnMut(Scanned<'_>, Option<L>) -> Result<ControlFlow<()>, Errno>,
) -> Option<Result<(), Errno>> {
    let shared = ParallelScan::new(scan);
    let mut look_of_helper = look.clone();
    std::thread::scope(|scope| {
        let helper = || {
            let _ended = EndOnDrop(&shared);
            while let Some(job) = shared.wait_for_job() {
                shared.perform(job, &mut look_of_helper);
            }
        };
        std::thread::Builder::new().name("log-reader".to_owned()).spawn_scoped(scope, helper).ok()?;
        // The helper ends with the visitor, also if that panics.
        let _ended = EndOnDrop(&shared);
        loop {
            match shared.next_turn() {
                VisitorTask::Work(job) => shared.perform(job, look),
                VisitorTask::Visit(ScanStep::Run(kind, buffer, looked)) => {
                    match visit(Scanned::Run(buffer.run(kind)), Some(looked)) {
                        Ok(ControlFlow::Continue(())) => shared.lock().free.push(buffer),
                        Ok(ControlFlow::Break(())) => return Some(Ok(())),
                        Err(errno) => return Some(Err(errno)),
                    }
                }
                VisitorTask::Visit(ScanStep::Dropped { to_seq }) => match visit(Scanned::Dropped { to_seq }, None) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return Some(Ok(())),
                    Err(errno) => return Some(Err(errno)),
                },
                VisitorTask::Visit(ScanStep::Lost { from }) => shared.lock().plan_again(from),
                VisitorTask::Visit(ScanStep::End) => return Some(Ok(())),
                VisitorTask::Visit(ScanStep::Failed(errno)) => return Some(Err(errno)),
            }
        }
    })
}

/// What both threads know.
struct ParallelScan<'a, L> {
    files: Arc<LogFiles>,
    steps: Mutex<ScanQueue<'a, L>>,
    /// A step was finished or taken, or one of the threads has ended.
    changed: Condvar,
}

struct ScanQueue<'a, L> {
    /// What is planned next. Plans are made one after the other, so they are in order.
    scan: &'a mut LogScan,
    /// Those that were planned and not visited; `None` while a thread works on it.
    ahead: VecDeque<Option<ScanStep<L>>>,
    /// The number of the first of them. Numbers are never used twice, so that a step which must be planned again is not taken
    /// for the one that was given up.
    first: u64,
    free: Vec<RunBuffer>,
    /// The last step is planned.
    all_planned: bool,
    /// One of the threads has ended, so the other one need not wait for it.
    ended: bool,
    /// Somebody waits for a change. To tell a condition variable costs a system call even if nobody does.
    is_awaited: bool,
}

/// What is visited.
enum ScanStep<L> {
    Run(RunKind, RunBuffer, L),
    Dropped {
        to_seq: Seq,
    },
    /// The run was dropped while it was read; it began with this entry.
    Lost {
        from: Seq,
    },
    End,
    Failed(Errno),
}

/// A run to read and to look at.
struct ReadJob {
    number: u64,
    planned: PlannedRun,
    buffer: RunBuffer,
}

/// What the visitor does next.
enum VisitorTask<L> {
    Work(ReadJob),
    Visit(ScanStep<L>),
}

impl<'a, L> ParallelScan<'a, L> {
    fn new(scan: &'a mut LogScan) -> Self {
        let files = scan.files.clone();
        let steps = ScanQueue {
            scan,
            ahead: VecDeque::with_capacity(RUNS_AHEAD),
            first: 0,
            free: Vec::new(),
            all_planned: false,
            ended: false,
            is_awaited: false,
        };
        Self { files, steps: Mutex::new(steps), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ScanQueue<'a, L>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, mut steps: MutexGuard<'g, ScanQueue<'a, L>>) -> MutexGuard<'g, ScanQueue<'a, L>> {
        steps.is_awaited = true;
        self.changed.wait(steps).unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut steps: MutexGuard<'_, ScanQueue<'a, L>>) {
        let is_awaited = std::mem::take(&mut steps.is_awaited);
        drop(steps);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// For the helper: `None` when the scan is over.
    fn wait_for_job(&self) -> Option<ReadJob> {
        let mut steps = self.lock();
        loop {
            if steps.ended {
                return None;
            }
            if let Some(job) = steps.plan() {
                return Some(job);
            }
            // What was planned last may be what the visitor waits for, though it is no run.
            if std::mem::take(&mut steps.is_awaited) {
                self.changed.notify_all();
            }
            steps = self.wait(steps);
        }
    }

    /// For the visitor: what is ready comes first, so that its buffer is soon used again.
    fn next_turn(&self) -> VisitorTask<L> {
        let mut steps = self.lock();
        loop {
            if let Some(Some(_)) = steps.ahead.front()
                && let Some(Some(step)) = steps.ahead.pop_front()
            {
                steps.first += 1;
                self.tell(steps);
                return VisitorTask::Visit(step);
            }
            if let Some(job) = steps.plan() {
                return VisitorTask::Work(job);
            }
            if let Some(Some(_)) = steps.ahead.front() {
                continue;
            }
            // The helper ends before the scan only if it panics, and that is told when it is joined.
            if steps.ended {
                return VisitorTask::Visit(ScanStep::Failed(Errno::IO));
            }
            steps = self.wait(steps);
        }
    }

    fn perform(&self, job: ReadJob, look: &mut impl FnMut(&Run<'_>) -> L) {
        let ReadJob { number, planned, mut buffer } = job;
        let step = match planned.read(&self.files, &mut buffer) {
            Ok(ReadOutcome::Held) => {
                let looked = look(&buffer.run(planned.kind));
                ScanStep::Run(planned.kind, buffer, looked)
            }
            Ok(ReadOutcome::Dropped { from }) => ScanStep::Lost { from },
            Err(errno) => ScanStep::Failed(errno),
        };
        let mut steps = self.lock();
        steps.finish(number, step);
        self.tell(steps);
    }
}

impl<L> ScanQueue<'_, L> {
    /// Plans a run, if there is room for one. What is planned and is no run needs no work.
    fn plan(&mut self) -> Option<ReadJob> {
        while !self.all_planned && self.ahead.len() < RUNS_AHEAD {
            let mut buffer = self.free.pop().unwrap_or_default();
            let step = match self.scan.plan(&mut buffer.ends) {
                Ok(NextStep::Run(planned)) => {
                    let number = self.first + self.ahead.len() as u64;
                    self.ahead.push_back(None);
                    return Some(ReadJob { number, planned, buffer });
                }
                Ok(NextStep::Dropped { to_seq }) => ScanStep::Dropped { to_seq },
                Ok(NextStep::End) => ScanStep::End,
                Err(errno) => ScanStep::Failed(errno),
            };
            self.free.push(buffer);
            self.all_planned = matches!(step, ScanStep::End | ScanStep::Failed(_));
            self.ahead.push_back(Some(step));
        }
        None
    }

    fn finish(&mut self, number: u64, step: ScanStep<L>) {
        let place = number.checked_sub(self.first).and_then(|place| self.ahead.get_mut(place as usize));
        match (place, step) {
            (Some(place), step) => *place = Some(step),
            // It was given up.
            (None, ScanStep::Run(_, buffer, _)) => self.free.push(buffer),
            (None, _) => {}
        }
    }

    /// A run could not be read any more, so all that was planned behind it is planned again, from what is held now on.
    fn plan_again(&mut self, from: Seq) {
        self.first += self.ahead.len() as u64;
        self.ahead.clear();
        self.all_planned = false;
        self.scan.rewind(from);
    }
}

/// Tells the other thread that this one has ended.
struct EndOnDrop<'s, 'a, L>(&'s ParallelScan<'a, L>);

impl<L> Drop for EndOnDrop<'_, '_, L> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}
