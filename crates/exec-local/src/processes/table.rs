//! The table of processes: which there are, which are being started, and what all of them share.
//!
//! How a process is started is in `start`; what one of them can do is in `process`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use exec_core::{Exit, ProcessId};
use exec_env::process::ProcessReason;
use exec_keeper::protocol::ProcessNumber;
use exec_keeper::spool::directory::SpoolDirectory;
use tokio::sync::Notify;

use super::ProcessSettings;
use super::process::Process;
use crate::descriptors::DescriptorBudget;
use crate::files::blocking::BlockingPool;
use crate::keeper_client::KeeperClient;
use crate::output_mover::MoverNotification;
use crate::proxy::ProxyHost;
use crate::sandbox::SandboxPlanner;
use crate::wait::{PortTurns, SearchResources};

/// What the verbs and the tasks of the processes share.
pub(super) struct ProcessTable {
    pub(super) keeper: Arc<KeeperClient>,
    pub(super) spool_directory: Arc<SpoolDirectory>,
    pub(super) settings: ProcessSettings,
    pub(super) planner: Arc<SandboxPlanner>,
    pub(super) descriptors: DescriptorBudget,
    pub(super) proxies: Arc<ProxyHost>,
    pub(super) views: BlockingPool,
    pub(super) searches: SearchResources,
    pub(super) port_turns: PortTurns,
    pub(super) flooding_movers: Arc<AtomicUsize>,
    pub(super) over_cap: Arc<Notify>,
    /// Whether a connection could be that of a sandboxed process. Set before the first one is started or taken over.
    pub(super) has_had_sandboxes: AtomicBool,
    pub(super) state: Mutex<TableState>,
}

#[derive(Default)]
pub(super) struct TableState {
    pub(super) by_id: HashMap<ProcessId, ProcessSlot>,
    pub(super) by_number: HashMap<ProcessNumber, Arc<Process>>,
    /// Exits that came before the reply to the start of their process was handled.
    pub(super) early_exits: HashMap<ProcessNumber, Exit>,
}

pub(super) enum ProcessSlot {
    /// Being started; `cancelled` if somebody terminated it meanwhile. `request_id` is that of the start once the keeper
    /// is asked.
    Reserved {
        cancelled: bool,
        request_id: Option<u64>,
    },
    Live(Arc<Process>),
}

impl ProcessTable {
    pub(super) fn lock(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, id: &ProcessId) -> Result<Arc<Process>, ProcessReason> {
        match self.lock().by_id.get(id) {
            Some(ProcessSlot::Live(process)) => Ok(process.clone()),
            _ => Err(ProcessReason::UnknownProcess),
        }
    }

    /// `None` if it is not being started; otherwise the id of the request to start it, if the keeper was asked.
    pub(super) fn cancel_start(&self, id: &ProcessId) -> Option<Option<u64>> {
        match self.lock().by_id.get_mut(id) {
            Some(ProcessSlot::Reserved { cancelled, request_id }) => {
                *cancelled = true;
                Some(*request_id)
            }
            _ => None,
        }
    }

    pub(super) fn insert(&self, process: &Arc<Process>) {
        let mut state = self.lock();
        state.by_id.insert(process.id().clone(), ProcessSlot::Live(process.clone()));
        state.by_number.insert(process.number(), process.clone());
        if let Some(exit) = state.early_exits.remove(&process.number()) {
            process.notify(MoverNotification::Exited(exit));
        }
    }

    pub(super) fn on_exit(&self, number: ProcessNumber, exit: Exit) {
        let mut state = self.lock();
        match state.by_number.get(&number) {
            Some(process) => process.notify(MoverNotification::Exited(exit)),
            None => drop(state.early_exits.insert(number, exit)),
        }
    }
}

/// An id that is reserved for a start; freed when dropped unless it was kept.
pub(super) struct Reservation {
    table: Arc<ProcessTable>,
    id: ProcessId,
    kept: bool,
}

impl Reservation {
    pub(super) fn new(table: &Arc<ProcessTable>, id: &ProcessId) -> Result<Self, ProcessReason> {
        let mut state = table.lock();
        if state.by_id.contains_key(id) {
            return Err(ProcessReason::IdInUse);
        }
        state.by_id.insert(id.clone(), ProcessSlot::Reserved { cancelled: false, request_id: None });
        drop(state);
        Ok(Self { table: table.clone(), id: id.clone(), kept: false })
    }

    pub(super) fn asked(&self, id: u64) {
        if let Some(ProcessSlot::Reserved { request_id, .. }) = self.table.lock().by_id.get_mut(&self.id) {
            *request_id = Some(id);
        }
    }

    pub(super) fn cancelled(&self) -> bool {
        matches!(self.table.lock().by_id.get(&self.id), Some(ProcessSlot::Reserved { cancelled: true, .. }))
    }

    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.kept {
            self.table.lock().by_id.remove(&self.id);
        }
    }
}
