//! Worker threads: each runs a single-threaded runtime, and a connection with all that it starts lives on one of them.
//!
//! So a session that floods keeps one thread busy and delays nobody on another, and the throughput of several sessions
//! grows with the cores. Workers share nothing that is used for each byte. A session that is resumed may get another
//! worker than its processes have, because the connection is placed before it says which session it wants; the two then
//! share the head of each log and its files, as any two readers do.

use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle as ThreadHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::limits::HOUSEKEEPING_INTERVAL;

/// The threads on which connections are served.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    /// Dropped to end the threads.
    running: watch::Sender<()>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    thread: ThreadHandle<()>,
}

/// One connection of a worker, as long as it is held.
struct CountedConnection(Arc<AtomicUsize>);

impl Workers {
    /// Starts so many threads.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let running = watch::Sender::new(());
        let workers = (0..count.get()).map(|at| Worker::start(at, running.subscribe())).collect::<io::Result<_>>()?;
        Ok(Self { workers, running })
    }

    /// One per core that this process may use.
    pub fn default_count() -> NonZeroUsize {
        std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
    }

    /// The runtimes of all workers.
    pub fn runtimes(&self) -> Vec<Handle> {
        self.workers.iter().map(|worker| worker.runtime.clone()).collect()
    }

    /// Runs a connection on the worker that has the fewest. Must not be called from two threads at once, or both may
    /// choose the same worker; nothing else would happen.
    pub fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let least_busy = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let worker = least_busy.expect("there is at least one worker");
        let counted = CountedConnection::new(&worker.connections);
        worker.runtime.spawn(async move {
            connection.await;
            drop(counted);
        })
    }

    /// Ends the threads with everything that still runs on them, and waits for them.
    pub fn stop(self) {
        let Self { workers, running } = self;
        drop(running);
        for worker in workers {
            // A worker that panicked has said so on stderr.
            let _ = worker.thread.join();
        }
    }
}

impl Worker {
    fn start(at: usize, mut running: watch::Receiver<()>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        keep_blocking_thread(&handle);
        let run = move || {
            runtime.block_on(async {
                let mut tick = tokio::time::interval(HOUSEKEEPING_INTERVAL);
                loop {
                    tokio::select! {
                        _ = tick.tick() => keep_blocking_thread(&Handle::current()),
                        // The sender was dropped.
                        Err(_) = running.changed() => return,
                    }
                }
            });
            // A thread of its blocking pool may hang in a file call, and must not keep us from exiting.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(format!("worker-{at}")).spawn(run)?;
        Ok(Self { runtime: handle, connections: Arc::default(), thread })
    }
}

/// Has a runtime keep one of its threads for calls that block; to be called more often than every 10 s, after which an idle one
/// ends. Where there are as many threads as there may be (a fork bomb in the same container), no other can be started: then
/// calls wait for this one, while without any the runtime panics at each of them.
pub(crate) fn keep_blocking_thread(runtime: &Handle) {
    // There is nothing to wait for: it does nothing. The panic is that of the runtime, if even the first thread is refused.
    let kept = catch_unwind(AssertUnwindSafe(|| drop(runtime.spawn_blocking(|| ()))));
    if kept.is_err() {
        tracing::error!(
            "no thread can be started: there are too many of them, or of processes; calls of files will fail"
        );
    }
}

impl CountedConnection {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(connections.clone())
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_over_the_workers_and_a_blocked_worker_delays_no_other() {
        let workers = Workers::start(NonZeroUsize::new(2).expect("two")).expect("threads can be started");
        let (release, blocked) = std::sync::mpsc::sync_channel::<()>(1);
        let (entered, in_work) = std::sync::mpsc::sync_channel(1);
        // It blocks its whole thread, as no connection should: whoever shares the thread gets nowhere.
        let first = workers.spawn(async move {
            entered.send(()).expect("the test waits");
            let _ = blocked.recv();
        });
        in_work.recv().expect("it runs");
        let (done, second_done) = std::sync::mpsc::sync_channel(1);
        drop(workers.spawn(async move { done.send(()).expect("the test waits") }));
        second_done.recv().expect("the other worker is free");
        assert!(!first.is_finished());
        drop(release);
        workers.stop();
    }

    #[test]
    fn a_connection_that_ended_or_was_aborted_no_longer_counts() {
        let workers = Workers::start(NonZeroUsize::MIN).expect("a thread can be started");
        let waiting = Builder::new_current_thread().build().expect("a runtime");
        let aborted = workers.spawn(std::future::pending());
        assert_eq!(workers.workers[0].connections.load(Ordering::Relaxed), 1);
        aborted.abort();
        let _ = waiting.block_on(aborted);
        waiting.block_on(workers.spawn(async {})).expect("it ends");
        assert_eq!(workers.workers[0].connections.load(Ordering::Relaxed), 0);
        workers.stop();
    }
}
