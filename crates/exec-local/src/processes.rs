//! The table of processes: names, and the verbs of the waist.
//!
//! A name is reserved before the keeper is asked, so that two starts of one name cannot both succeed, and freed at once
//! if the start fails. Each process has one mover task and one stdin task; the table owns both.

mod process;
mod verbs;

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use exec_core::{Command, Exit, ProcessId};
use exec_env::process::{SpawnFailure, SpawnStep, StartError, Started, UnknownProcess};
use exec_keeper::protocol::{KeeperRequest, ProcessRecord, ProcessNumber, SpawnStep as KeeperStep, KeeperEvent};
use exec_keeper::spool::directory::SpoolDirectory;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::keeper_client::{HandedProcess, KeeperClient};
use crate::launch::launch;
use crate::output_mover::MoverNotification;
pub(crate) use process::Process;

/// The processes of this machine.
pub(crate) struct LocalProcesses {
    table: Arc<ProcessTable>,
    reply_router: JoinHandle<()>,
    disk_sharer: JoinHandle<()>,
}

/// What the verbs and the tasks share.
struct ProcessTable {
    keeper: Arc<KeeperClient>,
    folder: Arc<SpoolDirectory>,
    spool_bytes: u64,
    /// The account's; children on a terminal are told of it.
    shell: OsString,
    durable: bool,
    flooding_movers: Arc<AtomicUsize>,
    over_cap: Arc<Notify>,
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    by_id: HashMap<ProcessId, ProcessSlot>,
    by_number: HashMap<ProcessNumber, Arc<Process>>,
    /// Exits that overtook the start they belong to.
    early_exits: HashMap<ProcessNumber, Exit>,
}

enum ProcessSlot {
    /// Being started; `cancelled` if somebody terminated it meanwhile.
    Reserved {
        cancelled: bool,
    },
    Live(Arc<Process>),
}

impl LocalProcesses {
    pub(crate) fn new(
        keeper: Arc<KeeperClient>,
        folder: Arc<SpoolDirectory>,
        spool_bytes: u64,
        shell: OsString,
        durable: bool,
        found: Vec<(ProcessRecord, HandedProcess)>,
    ) -> Self {
        let table = Arc::new(ProcessTable {
            keeper,
            folder,
            spool_bytes,
            shell,
            durable,
            flooding_movers: Arc::default(),
            over_cap: Arc::default(),
            state: Mutex::default(),
        });
        for (record, handed) in found {
            match Process::resume(&table, record, handed) {
                Ok(process) => table.insert(&process),
                Err((id, errno)) => tracing::error!(%id, %errno, "a process of an earlier owner cannot be read"),
            }
        }
        let weak = Arc::downgrade(&table);
        let on_exit = Box::new(move |number, exit| {
            if let Some(table) = weak.upgrade() {
                table.on_exit(number, exit);
            }
        });
        let reply_router = tokio::spawn(table.keeper.clone().route_replies(on_exit));
        let disk_sharer = tokio::spawn(drop_from_fullest(Arc::downgrade(&table), table.over_cap.clone()));
        Self { table, reply_router, disk_sharer }
    }

    pub(crate) async fn end(&self) {
        let _ = self.table.keeper.send(&KeeperRequest::Shutdown, &[]).await;
        // The keeper closes the line when every tree is gone.
        let _ = self.table.keeper.gone().wait_for(|gone| *gone).await;
        self.table.keeper.join().await;
    }

    pub(crate) async fn hand_over(&self) {
        let processes: Vec<Arc<Process>> = self.table.lock().by_number.drain().map(|(_, process)| process).collect();
        for process in &processes {
            process.stop().await;
        }
        // Whoever still holds us holds the line too; the next owner must not find us in its place.
        self.table.keeper.disconnect();
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        self.reply_router.abort();
        self.disk_sharer.abort();
        for process in self.table.lock().by_number.values() {
            process.abort();
        }
    }
}

impl ProcessTable {
    fn lock(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &ProcessId) -> Result<Arc<Process>, UnknownProcess> {
        match self.lock().by_id.get(id) {
            Some(ProcessSlot::Live(process)) => Ok(process.clone()),
            _ => Err(UnknownProcess { id: id.clone() }),
        }
    }

    fn insert(&self, process: &Arc<Process>) {
        let mut state = self.lock();
        state.by_id.insert(process.id().clone(), ProcessSlot::Live(process.clone()));
        state.by_number.insert(process.number(), process.clone());
        if let Some(exit) = state.early_exits.remove(&process.number()) {
            process.notify(MoverNotification::Exited(exit));
        }
    }

    fn on_exit(&self, number: ProcessNumber, exit: Exit) {
        let mut state = self.lock();
        match state.by_number.get(&number) {
            Some(process) => process.notify(MoverNotification::Exited(exit)),
            None => drop(state.early_exits.insert(number, exit)),
        }
    }

    async fn start(self: &Arc<Self>, id: &ProcessId, command: Command) -> Result<Started, StartError> {
        command.check()?;
        let reservation = Reservation::new(self, id)?;
        let launch = Box::new(launch(id, command, self.spool_bytes, &self.shell));
        let record = launch.record.clone();
        // The start goes on if the caller gives up: the keeper may have it already, and somebody must take the child.
        let table = self.clone();
        let started = tokio::spawn(async move { table.start_with_keeper(reservation, record, launch).await });
        started.await.unwrap_or_else(|_| Err(StartError::Unreachable(crate::keeper_client::keeper_gone())))
    }

    async fn start_with_keeper(
        self: Arc<Self>,
        reservation: Reservation,
        record: ProcessRecord,
        launch: Box<exec_keeper::protocol::LaunchRequest>,
    ) -> Result<Started, StartError> {
        let id = record.id.clone();
        let (tell, descriptors) = self.keeper.request(|request_id| KeeperRequest::Start { request_id, launch }).await?;
        let handed = match tell {
            KeeperEvent::Started { number, pid, roles: parts, .. } => {
                let parts = parts.into_iter().zip(descriptors).collect();
                HandedProcess { number, pid, exit: None, parts }
            }
            KeeperEvent::StartFailed { step, errno, subject, .. } => {
                let failure = SpawnFailure { step: spawn_step(step), errno, subject: subject.into() };
                return Err(StartError::Spawn { id, failure });
            }
            _ => return Err(StartError::Unreachable(crate::keeper_client::keeper_gone())),
        };
        let (number, pid) = (handed.number, handed.pid);
        if reservation.cancelled() {
            let _ = self.keeper.send(&KeeperRequest::Forget { number }, &[]).await;
            return Err(StartError::Cancelled { id });
        }
        self.insert(&Process::begin(&self, record, handed));
        reservation.keep();
        Ok(Started { pid })
    }
}

/// A name held for a start; freed unless it is kept.
struct Reservation {
    table: Arc<ProcessTable>,
    id: ProcessId,
    kept: bool,
}

impl Reservation {
    fn new(table: &Arc<ProcessTable>, id: &ProcessId) -> Result<Self, StartError> {
        let mut state = table.lock();
        if state.by_id.contains_key(id) {
            return Err(StartError::IdInUse { id: id.clone() });
        }
        state.by_id.insert(id.clone(), ProcessSlot::Reserved { cancelled: false });
        drop(state);
        Ok(Self { table: table.clone(), id: id.clone(), kept: false })
    }

    fn cancelled(&self) -> bool {
        matches!(self.table.lock().by_id.get(&self.id), Some(ProcessSlot::Reserved { cancelled: true }))
    }

    fn keep(mut self) {
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

/// All logs together hold too much: the fullest that may drop gives back.
async fn drop_from_fullest(table: Weak<ProcessTable>, over_cap: Arc<Notify>) {
    loop {
        over_cap.notified().await;
        let Some(table) = table.upgrade() else { return };
        let excess = table.folder.excess_bytes();
        let fullest = {
            let state = table.lock();
            state.by_number.values().max_by_key(|process| process.droppable_bytes()).cloned()
        };
        if let (1.., Some(fullest)) = (excess, fullest) {
            fullest.notify(MoverNotification::Shed(excess));
        }
    }
}

fn spawn_step(step: KeeperStep) -> SpawnStep {
    match step {
        KeeperStep::Spool => SpawnStep::Spool,
        KeeperStep::Pipe => SpawnStep::Pipe,
        KeeperStep::Pty => SpawnStep::Pty,
        KeeperStep::Clone => SpawnStep::Clone,
        KeeperStep::Session => SpawnStep::Session,
        KeeperStep::Cwd => SpawnStep::Cwd,
        KeeperStep::Exec => SpawnStep::Exec,
    }
}
