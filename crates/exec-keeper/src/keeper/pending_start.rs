//! A start whose child does not run its program yet: whom to answer, how long it may take, and how it is cancelled.
//!
//! ```text
//!   under way ── terminated, out of time, or its owner left and another came ──► cancelled ── given up ──► nobody waits
//!       └── the thread comes back: the child is ours ◄─┘ the child is killed  └────────────┘
//! ```
//!
//! A child that does not run its program has no descendants and nothing to clean up, so it is killed at once, by its pid.
//! One that hangs in a way that even KILL does not end is answered for all the same, and killed when it comes back.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use exec_core::limits::{START_TIMEOUT, TREE_EXIT_TIMEOUT};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal};

use super::child::Answer;
use crate::channel::NO_REQUEST;
use crate::protocol::{KeeperEvent, LaunchRequest, SpawnStep};

/// How long to wait between two kills of a child that is not there yet, or does not die. The time doubles from the first to
/// the longest.
const FIRST_CHECK: Duration = Duration::from_millis(1);
const LONGEST_CHECK: Duration = Duration::from_secs(1);

pub(super) struct PendingStart {
    /// `None` once nobody waits for an answer: it was given, or the owner has left.
    request_id: Option<u64>,
    program: OsString,
    began: Instant,
    cancellation: Option<Cancellation>,
}

struct Cancellation {
    errno: Errno,
    /// Requests to be answered when the child is gone.
    terminations: Vec<u64>,
    /// When to kill again, and how long we waited for that.
    next_check: (Instant, Duration),
    /// When to answer even though the child is not gone.
    give_up_at: Option<Instant>,
}

impl PendingStart {
    pub(super) fn new(request_id: u64, launch: &LaunchRequest, now: Instant) -> Self {
        let program = launch.record.argv[0].clone();
        Self { request_id: Some(request_id), program, began: now, cancellation: None }
    }

    pub(super) fn answers(&self, request_id: u64) -> bool {
        self.request_id == Some(request_id)
    }

    pub(super) fn request_id(&self) -> Option<u64> {
        self.request_id
    }

    /// Whether it goes on though its owner has left.
    pub(super) fn is_left_over(&self) -> bool {
        self.request_id.is_none() && self.cancellation.is_none()
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancellation.is_some()
    }

    /// The next owner numbers its requests from the start again, and would take an answer to an old one for its own.
    pub(super) fn forget_requests(&mut self) {
        self.request_id = None;
        if let Some(cancellation) = &mut self.cancellation {
            cancellation.terminations.clear();
        }
    }

    /// From here on the child is not wanted. `termination` is the request that asks for it, if one does.
    pub(super) fn cancel(&mut self, errno: Errno, termination: Option<u64>, now: Instant) {
        let cancellation = self.cancellation.get_or_insert(Cancellation {
            errno,
            terminations: Vec::new(),
            next_check: (now, FIRST_CHECK),
            give_up_at: Some(now + TREE_EXIT_TIMEOUT),
        });
        cancellation.terminations.extend(termination.filter(|request_id| *request_id != NO_REQUEST));
    }

    pub(super) fn deadline(&self) -> Instant {
        match &self.cancellation {
            None => self.began + START_TIMEOUT,
            Some(cancellation) => {
                let (check, _) = cancellation.next_check;
                cancellation.give_up_at.map_or(check, |give_up| give_up.min(check))
            }
        }
    }

    pub(super) fn cancel_if_late(&mut self, now: Instant) {
        if self.began + START_TIMEOUT <= now {
            self.cancel(Errno::TIMEDOUT, None, now);
        }
    }

    /// Kills the child of a start that was cancelled, and gives it up at last.
    pub(super) fn on_time(&mut self, child: Option<u32>, now: Instant) -> Vec<Answer> {
        let Some(cancellation) = &mut self.cancellation else { return Vec::new() };
        let (check_at, pause) = cancellation.next_check;
        if check_at <= now {
            if let Some(pid) = child {
                kill_child(pid);
            }
            cancellation.next_check = (now + pause, (pause * 2).min(LONGEST_CHECK));
        }
        match cancellation.give_up_at {
            Some(at) if at <= now => self.give_up(),
            _ => Vec::new(),
        }
    }

    /// The thread has come back, and the child is gone or about to be. `ended` is how many that are.
    pub(super) fn answer_cancelled(&mut self, ended: u32) -> Vec<Answer> {
        self.answers_now(ended, 0)
    }

    fn give_up(&mut self) -> Vec<Answer> {
        let answers = self.answers_now(0, 1);
        if let Some(cancellation) = &mut self.cancellation {
            cancellation.give_up_at = None;
        }
        answers
    }

    fn answers_now(&mut self, ended: u32, left: u32) -> Vec<Answer> {
        let Some(cancellation) = &mut self.cancellation else { return Vec::new() };
        let (errno, terminations) = (cancellation.errno, std::mem::take(&mut cancellation.terminations));
        let failed = self.request_id.take().map(|request_id| (request_id, start_failed(&self.program, errno)));
        let terminated = |request_id| (request_id, KeeperEvent::Terminated { was_running: true, ended, left });
        failed.into_iter().chain(terminations.into_iter().map(terminated)).collect()
    }
}

fn start_failed(program: &OsString, errno: Errno) -> KeeperEvent {
    KeeperEvent::StartFailed { step: SpawnStep::Exec, errno: errno.raw_os_error(), subject: program.clone() }
}

/// The thread that made the child reaps it if it fails, and then the pid may be another's. A pidfd pins it, and whoever
/// is no child of ours cannot be waited for.
fn kill_child(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), look).is_ok() {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}
