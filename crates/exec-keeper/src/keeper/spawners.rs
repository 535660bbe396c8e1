//! The threads that spawn. The one that spawns is suspended until the child runs its program, and a program or a
//! directory on a mount that does not answer may never let it run. So the loop never spawns itself: it hands a job over,
//! and hears of its end through a descriptor.
//!
//! ```text
//!   waiting ── a thread is idle, or one more may be made ──► being spawned ── the eventfd is readable ──► SpawnResult
//!      └── withdraw, or no thread comes back ──► handed back
//! ```
//!
//! A thread lives as long as the keeper, because the kernel kills the children of an embedded keeper when the *thread*
//! that spawned them ends. Nothing here knows what a start is for or who asked for it.
//!
//! Where no thread can be made at all (a seccomp filter may refuse them), the loop does spawn itself: that is better than no
//! start.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exec_core::limits::{SPAWN_THREADS, START_QUEUE_TIMEOUT};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::protocol::{LaunchRequest, ProcessNumber};
use crate::spawn::{SpawnError, Spawned, Spawner};
use crate::spool::directory::SpoolDirectory;
use crate::stderr_log::log;
use crate::sys::own_process;
use crate::tree::Tree;

/// Spawns at a time, as long as they do not hang. More would only wait for the same processors.
const PARALLEL_SPAWNS: usize = 4;

/// A spawn that takes longer is not counted among those: it may hang, or the machine is busy. To be wrong costs one more
/// thread.
pub(super) const SLOW_SPAWN: Duration = Duration::from_millis(100);

/// Starts that may wait for a thread, and what they may hold together. Beyond, no requests are read: either a thread
/// comes back, or all that wait are refused after [`START_QUEUE_TIMEOUT`].
const WAITING_STARTS: usize = 1024;
const WAITING_BYTES: usize = 16 << 20;

/// A thread needs little beside the child's stack, which is a mapping of its own.
const THREAD_STACK_BYTES: usize = 256 << 10;

pub(super) struct SpawnJob {
    pub(super) number: ProcessNumber,
    pub(super) launch: Box<LaunchRequest>,
    /// Those of its confinement.
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) tree: Tree,
}

pub(super) struct SpawnResult {
    pub(super) job: SpawnJob,
    pub(super) outcome: Result<Spawned, SpawnError>,
    /// To be released when the result was dealt with. `None` if the loop has spawned itself.
    pub(super) thread: Option<usize>,
}

pub(super) struct Spawners {
    /// What each thread's own one is made from; the loop's own where there are no threads.
    spawner: Spawner,
    spool_directory: Arc<SpoolDirectory>,
    results: Arc<SpawnResults>,
    threads: Vec<SpawnThread>,
    schedule: Schedule,
    /// Bounded, because no requests are read while [`Spawners::is_full`].
    waiting: VecDeque<SpawnJob>,
    waiting_bytes: usize,
}

struct SpawnThread {
    /// Holds at most one: a job is sent to an idle thread only.
    jobs: SyncSender<SpawnJob>,
    /// What it spawns.
    number: ProcessNumber,
    /// The pid of that child, 0 while there is none. It stays until the result was taken, so that nobody takes the
    /// child for an orphan meanwhile.
    child: Arc<AtomicU32>,
    handle: JoinHandle<()>,
}

struct SpawnResults {
    /// Bounded by the number of threads, each of which spawns one child at a time.
    finished: Mutex<Vec<SpawnResult>>,
    event: OwnedFd,
}

impl Spawners {
    /// The first thread is made at once, so that the first start need not wait for it.
    pub(super) fn new(embedded: bool, spool_directory: Arc<SpoolDirectory>) -> Result<Self, Errno> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut spawners = Self {
            spawner: Spawner::new(embedded)?,
            spool_directory,
            results: Arc::new(SpawnResults { finished: Mutex::default(), event }),
            threads: Vec::new(),
            schedule: Schedule::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        };
        if let Err(errno) = spawners.make_thread() {
            log(format_args!(
                "exec-server keeper: cannot make threads ({errno}): a start that hangs will hold up all others"
            ));
        }
        Ok(spawners)
    }

    /// Readable when there are results.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.results.event.as_fd()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_STARTS || self.waiting_bytes >= WAITING_BYTES
    }

    pub(super) fn submit(&mut self, job: SpawnJob, now: Instant) {
        self.waiting_bytes += job.launch.bytes();
        self.waiting.push_back(job);
        self.dispatch(now);
    }

    /// Takes a job back that no thread has begun.
    pub(super) fn withdraw(&mut self, number: ProcessNumber) -> Option<SpawnJob> {
        let at = self.waiting.iter().position(|job| job.number == number)?;
        let job = self.waiting.remove(at)?;
        self.waiting_bytes -= job.launch.bytes();
        Some(job)
    }

    pub(super) fn take_results(&mut self) -> Vec<SpawnResult> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.results.event, &mut count);
        std::mem::take(&mut *self.results.lock())
    }

    /// The result of this thread was dealt with: it may spawn again, and its last child is no concern of ours any more.
    pub(super) fn release(&mut self, thread: Option<usize>, now: Instant) {
        if let Some(thread) = thread {
            self.threads[thread].child.store(0, Ordering::Release);
            self.schedule.busy_since[thread] = None;
            self.dispatch(now);
        }
    }

    /// Whether results are there as soon as a job was submitted. They must be taken at once.
    pub(super) fn spawn_in_the_loop(&self) -> bool {
        self.threads.is_empty()
    }

    /// When to call [`Spawners::on_time`].
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.waiting.is_empty() { None } else { self.schedule.next_change(now) }
    }

    /// The result is the jobs that no thread will begin.
    pub(super) fn on_time(&mut self, now: Instant) -> Vec<SpawnJob> {
        self.dispatch(now);
        if !self.schedule.all_stuck(now) {
            return Vec::new();
        }
        self.waiting_bytes = 0;
        self.waiting.drain(..).collect()
    }

    /// The pid of the child that is being made, as soon as there is one.
    pub(super) fn child_of(&self, number: ProcessNumber) -> Option<u32> {
        let mut threads = self.threads.iter().zip(&self.schedule.busy_since);
        let (thread, _) = threads.find(|(thread, since)| since.is_some() && thread.number == number)?;
        Some(thread.child.load(Ordering::Acquire)).filter(|pid| *pid != 0)
    }

    /// Whether a thread is making this child, or its result was not dealt with yet.
    pub(super) fn is_making(&self, pid: u32) -> bool {
        self.threads.iter().any(|thread| thread.child.load(Ordering::Acquire) == pid)
    }

    fn dispatch(&mut self, now: Instant) {
        while !self.waiting.is_empty() {
            let thread = match self.schedule.choose(now) {
                Choice::Thread(thread) => thread,
                Choice::NewThread if self.make_thread().is_ok() => self.threads.len() - 1,
                Choice::NewThread if self.threads.is_empty() => {
                    self.spawn_next_here();
                    continue;
                }
                // Without memory for one more, those that there are must do.
                Choice::NewThread | Choice::Wait => return,
            };
            let Some(job) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= job.launch.bytes();
            let SpawnThread { jobs, number, .. } = &mut self.threads[thread];
            *number = job.number;
            self.schedule.busy_since[thread] = Some(now);
            jobs.send(job).expect("a thread ends only when its sender is dropped, and does not panic");
        }
    }

    fn spawn_next_here(&mut self) {
        let Some(job) = self.waiting.pop_front() else { return };
        self.waiting_bytes -= job.launch.bytes();
        let outcome = self.spawner.spawn(&job.launch, &job.descriptors, &job.tree, &self.spool_directory);
        self.results.lock().push(SpawnResult { job, outcome, thread: None });
    }

    fn make_thread(&mut self) -> Result<(), Errno> {
        let child = Arc::new(AtomicU32::new(0));
        let spawner = self.spawner.for_another_thread(child.clone())?;
        let (jobs, received) = sync_channel(1);
        let (directory, results, thread) = (self.spool_directory.clone(), self.results.clone(), self.threads.len());
        let run = move || spawn_all(spawner, &directory, &received, &results, thread);
        let builder = std::thread::Builder::new().name("keeper-spawn".into()).stack_size(THREAD_STACK_BYTES);
        let handle = builder.spawn(run).map_err(|_| Errno::AGAIN)?;
        self.threads.push(SpawnThread { jobs, number: 0, child, handle });
        self.schedule.busy_since.push(None);
        Ok(())
    }
}

impl Drop for Spawners {
    /// Ends the threads. One that hangs ends when its child lets go of it; nobody can wait for that.
    fn drop(&mut self) {
        for (thread, since) in self.threads.drain(..).zip(&self.schedule.busy_since) {
            drop(thread.jobs);
            if since.is_none() {
                let _ = thread.handle.join();
            }
        }
    }
}

impl SpawnResults {
    fn lock(&self) -> MutexGuard<'_, Vec<SpawnResult>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn_all(
    mut spawner: Spawner,
    directory: &SpoolDirectory,
    jobs: &Receiver<SpawnJob>,
    results: &SpawnResults,
    thread: usize,
) {
    own_process::run_in_short_slices();
    while let Ok(job) = jobs.recv() {
        let outcome = spawner.spawn(&job.launch, &job.descriptors, &job.tree, directory);
        results.lock().push(SpawnResult { job, outcome, thread: Some(thread) });
        // Fails only if the count is at its end, and then the descriptor is readable anyhow.
        let _ = rustix::io::write(&results.event, &1_u64.to_ne_bytes());
    }
}

/// Which thread is next.
#[derive(Debug, Default)]
struct Schedule {
    /// For each thread, since when it has been at one job.
    busy_since: Vec<Option<Instant>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Thread(usize),
    NewThread,
    Wait,
}

impl Schedule {
    /// Always the first that is idle: its memory is likely still in the processor's cache.
    fn choose(&self, now: Instant) -> Choice {
        if let Some(idle) = self.busy_since.iter().position(Option::is_none) {
            return Choice::Thread(idle);
        }
        let working = self.since().filter(|since| now < *since + SLOW_SPAWN).count();
        if self.busy_since.len() < SPAWN_THREADS && working < PARALLEL_SPAWNS {
            return Choice::NewThread;
        }
        Choice::Wait
    }

    /// Whether nothing suggests that a thread will ever come back.
    fn all_stuck(&self, now: Instant) -> bool {
        self.busy_since.iter().all(|since| since.is_some_and(|since| since + START_QUEUE_TIMEOUT <= now))
    }

    /// When the answers of the two above may be other ones, if no thread comes back until then.
    fn next_change(&self, now: Instant) -> Option<Instant> {
        let slow = self.since().map(|since| since + SLOW_SPAWN).filter(|at| now < *at).min();
        let stuck = self.since().max().map(|since| since + START_QUEUE_TIMEOUT);
        slow.into_iter().chain(stuck).min()
    }

    fn since(&self) -> impl Iterator<Item = Instant> {
        self.busy_since.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use exec_core::flow::Quota;
    use exec_core::{Io, Overflow, ProcessId};

    use super::*;
    use crate::protocol::ProcessRecord;
    use crate::tree::ProcessTrees;

    fn schedule(busy_since: Vec<Option<Instant>>) -> Schedule {
        Schedule { busy_since }
    }

    #[test]
    fn the_first_idle_thread_is_taken_and_one_more_is_made_only_if_none_is() {
        let now = Instant::now();
        assert_eq!(schedule(vec![Some(now), None, None]).choose(now), Choice::Thread(1));
        assert_eq!(schedule(vec![Some(now); PARALLEL_SPAWNS - 1]).choose(now), Choice::NewThread);
        assert_eq!(schedule(vec![Some(now); PARALLEL_SPAWNS]).choose(now), Choice::Wait);
    }

    #[test]
    fn threads_that_hang_are_replaced_up_to_the_bound() {
        let began = Instant::now();
        let busy = schedule(vec![Some(began); SPAWN_THREADS - 1]);
        let slow = began + SLOW_SPAWN;
        assert_eq!((busy.choose(began), busy.next_change(began)), (Choice::Wait, Some(slow)));
        assert_eq!(busy.choose(slow), Choice::NewThread);
        assert_eq!(schedule(vec![Some(began); SPAWN_THREADS]).choose(slow), Choice::Wait);
    }

    #[test]
    fn all_are_stuck_only_when_the_last_one_that_began_is() {
        let began = Instant::now();
        let later = began + SLOW_SPAWN;
        let stuck = schedule(vec![Some(began), Some(later)]);
        let at = later + START_QUEUE_TIMEOUT;
        assert_eq!(stuck.next_change(later + SLOW_SPAWN), Some(at));
        assert!(!stuck.all_stuck(at - Duration::from_nanos(1)) && stuck.all_stuck(at));
        assert!(!schedule(vec![Some(began), None]).all_stuck(at), "one is idle");
    }

    /// As many children as there are threads, and results that nobody takes: to the schedule all threads hang.
    #[test]
    fn what_finds_all_threads_stuck_is_handed_back_and_what_waits_can_be_withdrawn() {
        let directory = Arc::new(SpoolDirectory::new(std::env::temp_dir(), 1 << 20));
        let mut spawners = Spawners::new(true, directory).expect("one more thread");
        let mut now = Instant::now();
        for number in 1..=SPAWN_THREADS as u64 + 2 {
            now += SLOW_SPAWN;
            spawners.submit(job(number), now);
        }
        assert_eq!((spawners.threads.len(), spawners.waiting.len()), (SPAWN_THREADS, 2));
        let numbers = |jobs: &[SpawnJob]| jobs.iter().map(|job| job.number).collect::<Vec<_>>();
        let withdrawn = spawners.withdraw(SPAWN_THREADS as u64 + 1).expect("it waits");
        assert_eq!(withdrawn.number, SPAWN_THREADS as u64 + 1);
        assert!(spawners.withdraw(1).is_none(), "a thread has begun with it");
        assert_eq!(numbers(&spawners.on_time(now)), [], "it may still come back");
        let later = spawners.deadline(now + SLOW_SPAWN).expect("one waits");
        assert_eq!(numbers(&spawners.on_time(later)), [SPAWN_THREADS as u64 + 2]);
        assert_eq!((spawners.deadline(later), spawners.waiting_bytes), (None, 0));
        let mut spawned = 0;
        while spawned < SPAWN_THREADS {
            let mut ready = [rustix::event::PollFd::from_borrowed_fd(spawners.event(), rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, None).expect("it can be waited for");
            for SpawnResult { outcome, thread, .. } in spawners.take_results() {
                let child = outcome.expect("there is such a program");
                assert!(spawners.is_making(child.pid));
                let pidfd = rustix::process::WaitId::PidFd(child.fds[2].1.as_fd());
                rustix::process::waitid(pidfd, rustix::process::WaitIdOptions::EXITED).expect("it is our child");
                spawners.release(thread, later);
                assert!(!spawners.is_making(child.pid));
                spawned += 1;
            }
        }
    }

    #[test]
    fn beyond_their_number_or_their_bytes_no_more_starts_are_taken() {
        let directory = Arc::new(SpoolDirectory::new(std::env::temp_dir(), 1 << 20));
        let mut spawners = Spawners::new(true, directory).expect("one more thread");
        let mut large = job(1);
        large.launch.record.label = vec![0; WAITING_BYTES - large.launch.bytes()];
        spawners.schedule.busy_since = vec![Some(Instant::now()); SPAWN_THREADS];
        spawners.submit(large, Instant::now());
        assert!(spawners.is_full());
        spawners.withdraw(1).expect("it waits");
        for number in 0..WAITING_STARTS as u64 {
            assert!(!spawners.is_full());
            spawners.submit(job(number), Instant::now());
        }
        assert!(spawners.is_full());
    }

    fn job(number: ProcessNumber) -> SpawnJob {
        let record = ProcessRecord {
            id: ProcessId::new("p").expect("short"),
            argv: vec!["/bin/true".into()],
            cwd: "/".into(),
            io: Io::Pipes { stdin: false },
            quota: Quota { cap_bytes: 1 << 20, overflow: Overflow::DropOldest },
            started: SystemTime::UNIX_EPOCH,
            sandbox: None,
            limits: None,
            placeholders: Vec::new(),
            network_proxy: None,
            label: Vec::new(),
        };
        let limits = exec_core::ResourceLimits::default();
        let launch = LaunchRequest {
            record,
            arg0: None,
            environ: Vec::new(),
            path: None,
            time_limit: None,
            limits,
            identity: None,
            confinement: None,
            proxy_sockets: 0,
        };
        SpawnJob {
            number,
            launch: Box::new(launch),
            descriptors: Vec::new(),
            tree: ProcessTrees::new(false, true).create(&limits, false).expect("nothing is limited"),
        }
    }
}
