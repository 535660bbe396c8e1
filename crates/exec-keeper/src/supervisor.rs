//! Changes files in place of a process that may change none itself: where no mounts can be had, Landlock grants a sandboxed
//! process reading only, and the kernel sends its calls that would change a file to us.
//!
//! ```text
//!   the process calls ──► the kernel suspends it and asks ──► caller     reads its arguments, once
//!                                                             call       what they mean
//!                                                             path_lookup the handle, and where that is
//!                                                             changes    judged by where that is, done on that handle
//!   it goes on  ◄── descriptor, 0 or an error ◄───────────────┘
//! ```
//!
//! Nothing is looked at twice: arguments are copied before they are understood, a path becomes a handle, the kernel is asked
//! where the handle is (`/proc/self/fd`), and the change is made on the handle or on a name in it, without following a
//! link. Somebody may rename a directory between the question and the change; why that changes no decision is in
//! `exec_core::writable_paths`. We have no more rights than the process: the thread drops all capabilities, and the user
//! is the same.
//!
//! There is a thread for every supervised process, so that nobody waits for files of a stranger. It ends with the last
//! descendant. In the keeper, because the process must go on when the server is killed.

mod call;
mod caller;
mod changes;
mod path_lookup;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use exec_core::writable_paths::WritablePaths;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::sys::listener::{Listener, Notification, drop_capabilities_of_thread};
use call::Call;
use caller::Caller;
use changes::{Answer, Changes};

/// A thread needs little: paths are short, and nothing recurses.
const THREAD_STACK_BYTES: usize = 256 << 10;

/// How often to look whether somebody reads a FIFO that was opened for writing, and how many such opens may wait.
const FIFO_CHECK: Duration = Duration::from_millis(5);
const WAITING_OPENS: usize = 64;

/// Begins to answer the calls that arrive at `listener`. The thread ends when no process is left that could make one.
pub(crate) fn start(listener: OwnedFd, places: WritablePaths) -> Result<(), Errno> {
    let thread = std::thread::Builder::new().name("supervisor".to_owned()).stack_size(THREAD_STACK_BYTES);
    // Nobody waits for it: it holds nothing but its listener, and the kernel tells it when to end.
    let spawned = thread.spawn(move || {
        // Without the listener all calls fail, which is as it should be if our rights could not be dropped.
        if drop_capabilities_of_thread().is_ok() {
            Supervisor { listener: Listener::new(listener), changes: Changes::new(places), waiting: Vec::new() }.run();
        }
    });
    spawned.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

struct Supervisor {
    listener: Listener,
    changes: Changes,
    /// FIFOs that are to be opened for writing when somebody reads them. At most [`WAITING_OPENS`].
    waiting: Vec<WaitingOpen>,
}

struct WaitingOpen {
    id: u64,
    open: changes::FifoOpen,
    next_check: Instant,
}

impl Supervisor {
    fn run(mut self) {
        loop {
            let timeout =
                (!self.waiting.is_empty()).then(|| Timespec { tv_sec: 0, tv_nsec: FIFO_CHECK.as_nanos() as i64 });
            let mut ready = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
            match poll(&mut ready, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let events = ready[0].revents();
            if events.contains(PollFlags::IN) {
                if let Ok(notification) = self.listener.receive() {
                    self.serve(notification);
                }
            } else if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return;
            }
            self.retry_waiting();
        }
    }

    fn serve(&mut self, asked: Notification) {
        let caller = Caller::new(&self.listener, &asked);
        let answer = Call::read(&caller, &asked).and_then(|call| self.changes.carry_out(&caller, call));
        match answer {
            Ok(Answer::Done) => self.listener.answer(asked.id, Ok(0)),
            Ok(Answer::Opened { file, cloexec }) => self.hand_in(asked.id, file, cloexec),
            Ok(Answer::KernelDecides) => self.listener.let_the_kernel_decide(asked.id),
            Ok(Answer::OpenWhenRead(open)) if self.waiting.len() < WAITING_OPENS => {
                self.waiting.push(WaitingOpen { id: asked.id, open, next_check: Instant::now() + FIFO_CHECK });
            }
            Ok(Answer::OpenWhenRead(_)) => self.listener.answer(asked.id, Err(Errno::NFILE)),
            Err(errno) => self.listener.answer(asked.id, Err(errno)),
        }
    }

    /// The process goes on only when we have closed our own copy: a program that was written and is run at once must not
    /// be open for writing any more.
    fn hand_in(&self, id: u64, file: OwnedFd, cloexec: bool) {
        let installed = self.listener.install(id, file.as_fd(), cloexec);
        drop(file);
        self.listener.answer(id, installed);
    }

    fn retry_waiting(&mut self) {
        let now = Instant::now();
        for mut waiting in std::mem::take(&mut self.waiting) {
            if !self.listener.still_waits(waiting.id) {
                continue;
            }
            let due = waiting.next_check <= now;
            match due.then(|| waiting.open.try_now()) {
                Some(Ok(file)) => self.hand_in(waiting.id, file, waiting.open.cloexec()),
                Some(Err(errno)) if errno != Errno::NXIO => self.listener.answer(waiting.id, Err(errno)),
                _ => {
                    if due {
                        waiting.next_check = now + FIFO_CHECK;
                    }
                    self.waiting.push(waiting);
                }
            }
        }
    }
}
