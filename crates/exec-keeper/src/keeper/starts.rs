//! Starts, from the request to the child: what the loop does before a thread spawns and when it has, and how a start is
//! cancelled. What a start under way remembers is in [`super::pending_start`], the threads are in [`super::spawners`].

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::child::{Answer, Child};
use super::pending_start::PendingStart;
use super::spawners::{SpawnJob, SpawnResult};
use super::{EpollToken, Keeper, timespec};
use crate::channel::NO_REQUEST;
use crate::protocol::{KeeperEvent, LaunchRequest, ProcessNumber, SpawnStep, request_id_of_start};
use crate::spawn::{SpawnError, above_stdio};
use crate::tree::LimitUnavailable;

/// How long a new owner waits for the starts of the last one. It is told of those that have ended; those that hang are
/// cancelled.
const LEFT_OVER_STARTS_WAIT: Duration = Duration::from_millis(500);

impl Keeper {
    /// `descriptors` are those of the confinement that the launch asks for.
    pub(super) fn start(&mut self, request_id: u64, launch: Box<LaunchRequest>, descriptors: Vec<OwnedFd>) {
        let descriptors: Vec<OwnedFd> = match descriptors.into_iter().map(above_stdio).collect() {
            Ok(descriptors) => descriptors,
            Err(errno) => return self.refuse(request_id, errno),
        };
        let number = self.next_number;
        self.next_number += 1;
        let now = Instant::now();
        let tree = match self.trees.create(&launch.limits, launch.record.sandbox.is_some()) {
            Ok(tree) => tree,
            Err(error) => return self.send(request_id, &limits_unavailable(error), &[]),
        };
        self.starting.insert(number, PendingStart::new(request_id, &launch, now));
        self.spawners.submit(SpawnJob { number, launch, descriptors, tree }, now);
        if self.spawners.spawn_in_the_loop() {
            self.on_spawned();
        }
    }

    pub(super) fn on_spawned(&mut self) {
        // A result may lead to another try, whose result is there at once if there are no threads.
        loop {
            let results = self.spawners.take_results();
            if results.is_empty() {
                break;
            }
            for result in results {
                let thread = result.thread;
                self.finish_start(result);
                self.spawners.release(thread, Instant::now());
            }
        }
        // While it met a child that was being made, it looked no further.
        self.reap_orphans();
    }

    fn finish_start(&mut self, SpawnResult { job, outcome, .. }: SpawnResult) {
        let Some(mut start) = self.starting.remove(&job.number) else { return };
        let spawned = match outcome {
            Err(error) if error.cgroup_refused && !start.is_cancelled() => {
                self.starting.insert(job.number, start);
                return self.start_another_way(job);
            }
            Err(error) => {
                self.trees.kill(job.tree);
                let answers = if start.is_cancelled() { start.answer_cancelled(1) } else { failed(&start, error) };
                return self.send_all(answers);
            }
            Ok(spawned) => spawned,
        };
        let SpawnJob { number, launch, mut tree, .. } = job;
        let pid = spawned.pid;
        if let Some(init) = spawned.init {
            tree.set_init(init);
        }
        let limited = self.trees.on_spawned(&mut tree, pid, spawned.marked);
        let child = Child::new(number, &launch, spawned, tree, Instant::now());
        let _ = self.watch(child.pidfd(), EpollToken::LeaderExit(number));
        if let Err(error) = limited {
            self.forget(child);
            let answer = start.request_id().map(|request_id| (request_id, limits_unavailable(error)));
            return self.send_all(answer.into_iter().collect());
        }
        if start.is_cancelled() && !self.done {
            self.forget(child);
            return self.send_all(start.answer_cancelled(1));
        }
        if let Some(request_id) = start.request_id().filter(|_| !start.is_cancelled()) {
            let (roles, descriptors) = child.fds();
            let limits = child.limit_report();
            self.send(request_id, &KeeperEvent::Started { number, pid, roles, limits }, &descriptors);
        }
        self.children.insert(number, child);
        // Its owner has left meanwhile, and the next one will find it.
        if self.owner.is_none() && self.past_owner.is_none() {
            self.start_moving(number);
        }
    }

    /// Without a cgroup, or with another way into it.
    fn start_another_way(&mut self, job: SpawnJob) {
        self.trees.give_up_way_of(&job.tree);
        self.trees.recycle(job.tree);
        let tree = match self.trees.create(&job.launch.limits, job.launch.record.sandbox.is_some()) {
            Ok(tree) => tree,
            Err(error) => {
                let start = self.starting.remove(&job.number);
                let request_id = start.and_then(|start| start.request_id());
                let answer = request_id.map(|request_id| (request_id, limits_unavailable(error)));
                return self.send_all(answer.into_iter().collect());
            }
        };
        self.spawners.submit(SpawnJob { tree, ..job }, Instant::now());
    }

    /// The start is answered, and so is the termination, when the child is gone.
    pub(super) fn cancel_start(&mut self, number: ProcessNumber, termination: u64) {
        let request_id = request_id_of_start(number);
        let mut starts = self.starting.iter_mut();
        let Some((number, start)) = starts.find(|(_, start)| request_id.is_some_and(|id| start.answers(id))) else {
            if termination != NO_REQUEST {
                let nobody = KeeperEvent::Terminated { was_running: false, ended: 0, left: 0 };
                self.send(termination, &nobody, &[]);
            }
            return;
        };
        let (number, now) = (*number, Instant::now());
        start.cancel(Errno::CANCELED, Some(termination), now);
        self.withdraw_or_kill(number, now);
    }

    /// Nobody was told of the starts that still hang for an owner that has left, and its client asks the next owner again.
    /// That one has no place for them.
    pub(super) fn cancel_left_over_starts(&mut self) {
        let now = Instant::now();
        let numbers: Vec<ProcessNumber> = self.starting.keys().copied().collect();
        for number in numbers {
            if let Some(start) = self.starting.get_mut(&number).filter(|start| start.is_left_over()) {
                start.cancel(Errno::CANCELED, None, now);
                self.withdraw_or_kill(number, now);
            }
        }
    }

    /// Of a start that was cancelled.
    fn withdraw_or_kill(&mut self, number: ProcessNumber, now: Instant) {
        let answers = match self.spawners.withdraw(number) {
            Some(job) => {
                self.trees.kill(job.tree);
                self.starting.remove(&number).map(|mut start| start.answer_cancelled(0))
            }
            None => {
                let child = self.spawners.child_of(number);
                self.starting.get_mut(&number).map(|start| start.on_time(child, now))
            }
        };
        self.send_all(answers.unwrap_or_default());
    }

    pub(super) fn starts_on_time(&mut self, now: Instant) {
        let due = |start: &PendingStart| start.deadline() <= now;
        let due: Vec<ProcessNumber> =
            self.starting.iter().filter(|(_, start)| due(start)).map(|(number, _)| *number).collect();
        for number in due {
            if let Some(start) = self.starting.get_mut(&number) {
                start.cancel_if_late(now);
                self.withdraw_or_kill(number, now);
            }
        }
        for job in self.spawners.on_time(now) {
            self.trees.kill(job.tree);
            if let Some(start) = self.starting.remove(&job.number) {
                let subject = job.launch.record.argv[0].clone();
                let error = SpawnError { step: SpawnStep::Clone, errno: Errno::BUSY, subject, cgroup_refused: false };
                self.send_all(failed(&start, error));
            }
        }
        if self.starts_allow_requests()
            && let Some(owner) = self.owner.as_mut().filter(|owner| owner.is_paused())
        {
            owner.resume(&self.epoll);
        }
    }

    /// Whether requests may be read now: those that wait for a thread are not too many, and a new owner will hear of all
    /// that were started before it, except those that hang.
    pub(super) fn starts_allow_requests(&self) -> bool {
        !self.spawners.is_full() && self.hello_may_be_read_at().is_none_or(|at| at <= Instant::now())
    }

    pub(super) fn hello_may_be_read_at(&self) -> Option<Instant> {
        let owner = self.owner.as_ref().filter(|owner| !owner.said_hello())?;
        let left_over = self.starting.values().any(PendingStart::is_left_over);
        left_over.then(|| owner.connected_at() + LEFT_OVER_STARTS_WAIT)
    }

    /// Kills the children that are being made. Those that run meanwhile join the others.
    pub(super) fn end_starts(&mut self, give_up_at: Instant) {
        let mut pause = Duration::from_millis(1);
        loop {
            let now = Instant::now();
            let numbers: Vec<ProcessNumber> = self.starting.keys().copied().collect();
            for number in numbers {
                if let Some(start) = self.starting.get_mut(&number) {
                    start.cancel(Errno::CANCELED, None, now);
                    self.withdraw_or_kill(number, now);
                }
            }
            if self.starting.is_empty() || give_up_at <= now {
                return;
            }
            let mut ready = [PollFd::from_borrowed_fd(self.spawners.event(), PollFlags::IN)];
            let _ = rustix::event::poll(&mut ready, Some(&timespec(pause)));
            pause = (pause * 2).min(Duration::from_millis(20));
            self.on_spawned();
        }
    }
}

/// What is told of a start whose limits cannot be enforced.
fn limits_unavailable(LimitUnavailable { why }: LimitUnavailable) -> KeeperEvent {
    KeeperEvent::StartFailed { step: SpawnStep::Limits, errno: Errno::OPNOTSUPP.raw_os_error(), subject: why.into() }
}

/// What is told of a start that failed by itself.
fn failed(start: &PendingStart, error: SpawnError) -> Vec<Answer> {
    let (step, errno, subject) = (error.step, error.errno.raw_os_error(), error.subject);
    let event = KeeperEvent::StartFailed { step, errno, subject };
    start.request_id().map(|request_id| (request_id, event)).into_iter().collect()
}
