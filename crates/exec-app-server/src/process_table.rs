//! The processes of a connection by the client's ids. `command/exec` and `process/spawn` have names of their own each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use exec_core::TerminalSize;
use exec_wire::{RequestId, RpcError};
use tokio::sync::mpsc;

use crate::limits::{CONTROL_QUEUE, PROCESSES};
use crate::reply;
use crate::stdin_queue::StdinQueue;

/// Which of the two families of methods a process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    Exec,
    Spawn,
}

/// A process that was asked for and has not been answered for.
#[derive(Debug)]
pub(crate) struct ProcessEntry {
    pub(crate) tty: bool,
    /// `None`: its stdin is not the client's to write.
    pub(crate) stdin: Option<StdinQueue>,
    exited: ExitMark,
    /// What waits until it runs.
    controls: mpsc::Sender<Control>,
}

/// Set once a process has exited. It stays in the table while others that hold its output may still print.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExitMark(Arc<AtomicBool>);

impl ExitMark {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request about a process that does not wait for its stdin.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) request: RequestId,
    pub(crate) action: ControlAction,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ControlAction {
    Resize(TerminalSize),
    Terminate,
}

impl ProcessEntry {
    pub(crate) fn new(tty: bool, stdin: Option<StdinQueue>, exited: ExitMark) -> (Self, mpsc::Receiver<Control>) {
        let (controls, receiver) = mpsc::channel(CONTROL_QUEUE);
        (Self { tty, stdin, exited, controls }, receiver)
    }

    pub(crate) fn control(&self, control: Control) -> Result<(), RpcError> {
        self.controls.try_send(control).map_err(|_| reply::controls_full())
    }
}

/// Tells a process from a later one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation(u64);

#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    processes: Mutex<Processes>,
}

#[derive(Debug, Default)]
struct Processes {
    by_name: HashMap<(Family, String), (Reservation, Arc<ProcessEntry>)>,
    reservations: u64,
    /// Those without a name included.
    count: usize,
}

impl ProcessTable {
    /// Reserves a name; a process without one only counts.
    pub(crate) fn insert(
        &self,
        family: Family,
        name: Option<&str>,
        entry: ProcessEntry,
    ) -> Result<Reservation, RpcError> {
        let mut processes = self.lock();
        let key = name.map(|name| (family, name.to_owned()));
        if let Some((family, name)) = &key
            && processes.by_name.contains_key(&(*family, name.clone()))
        {
            return Err(reply::duplicate_process(*family, name));
        }
        if processes.count >= PROCESSES {
            return Err(reply::too_many_processes());
        }
        processes.count += 1;
        processes.reservations += 1;
        let reservation = Reservation(processes.reservations);
        if let Some(key) = key {
            processes.by_name.insert(key, (reservation, Arc::new(entry)));
        }
        Ok(reservation)
    }

    /// A process that has not exited yet.
    pub(crate) fn find_running(&self, family: Family, name: &str) -> Result<Arc<ProcessEntry>, RpcError> {
        let processes = self.lock();
        match processes.by_name.get(&(family, name.to_owned())) {
            Some((_, entry)) if entry.exited.is_set() => Err(reply::no_longer_running(family, name)),
            Some((_, entry)) => Ok(Arc::clone(entry)),
            None => Err(reply::no_active_process(family, name)),
        }
    }

    /// From now on the name is free, though the process may still have to be answered for.
    pub(crate) fn free_name(&self, family: Family, name: &str, reservation: Reservation) {
        let mut processes = self.lock();
        let key = (family, name.to_owned());
        if processes.by_name.get(&key).is_some_and(|(of, _)| *of == reservation) {
            processes.by_name.remove(&key);
        }
    }

    /// The process is gone, and its name is free.
    pub(crate) fn remove(&self, family: Family, name: Option<&str>, reservation: Reservation) {
        if let Some(name) = name {
            self.free_name(family, name, reservation);
        }
        self.lock().count -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().expect("no holder of this lock panics")
    }
}
