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
use exec_env::process::{SpawnFailure, StartError, Started, Step, UnknownProcess};
use exec_keeper::protocol::{Ask, Card, Number, Step as KeeperStep, Tell};
use exec_keeper::spool::folder::Folder;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clerk::{Clerk, Handed};
use crate::launch::launch;
use crate::mover::Notice;
pub(crate) use process::Process;

/// The processes of this machine.
pub(crate) struct LocalProcesses {
    room: Arc<Room>,
    listener: JoinHandle<()>,
    housekeeper: JoinHandle<()>,
}

/// What the verbs and the tasks share.
struct Room {
    clerk: Arc<Clerk>,
    folder: Arc<Folder>,
    spool_bytes: u64,
    /// The account's; children on a terminal are told of it.
    shell: OsString,
    durable: bool,
    busy: Arc<AtomicUsize>,
    over_cap: Arc<Notify>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<ProcessId, Slot>,
    by_number: HashMap<Number, Arc<Process>>,
    /// Exits that overtook the start they belong to.
    early_exits: HashMap<Number, Exit>,
}

enum Slot {
    /// Being started; `cancelled` if somebody terminated it meanwhile.
    Reserved {
        cancelled: bool,
    },
    Live(Arc<Process>),
}

impl LocalProcesses {
    pub(crate) fn new(
        clerk: Arc<Clerk>,
        folder: Arc<Folder>,
        spool_bytes: u64,
        shell: OsString,
        durable: bool,
        found: Vec<(Card, Handed)>,
    ) -> Self {
        let room = Arc::new(Room {
            clerk,
            folder,
            spool_bytes,
            shell,
            durable,
            busy: Arc::default(),
            over_cap: Arc::default(),
            table: Mutex::default(),
        });
        for (card, handed) in found {
            match Process::resume(&room, card, handed) {
                Ok(process) => room.enter(&process),
                Err((id, errno)) => tracing::error!(%id, %errno, "a process of an earlier owner cannot be read"),
            }
        }
        let weak = Arc::downgrade(&room);
        let on_exit = Box::new(move |number, exit| {
            if let Some(room) = weak.upgrade() {
                room.on_exit(number, exit);
            }
        });
        let listener = tokio::spawn(room.clerk.clone().listen(on_exit));
        let housekeeper = tokio::spawn(share_the_disk(Arc::downgrade(&room), room.over_cap.clone()));
        Self { room, listener, housekeeper }
    }

    pub(crate) async fn end(&self) {
        let _ = self.room.clerk.say(&Ask::End, &[]).await;
        // The keeper closes the line when every tree is gone.
        let _ = self.room.clerk.gone().wait_for(|gone| *gone).await;
        self.room.clerk.join().await;
    }

    pub(crate) async fn hand_over(&self) {
        let processes: Vec<Arc<Process>> = self.room.lock().by_number.drain().map(|(_, process)| process).collect();
        for process in &processes {
            process.stop().await;
        }
        // Whoever still holds us holds the line too; the next owner must not find us in its place.
        self.room.clerk.hang_up();
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        self.listener.abort();
        self.housekeeper.abort();
        for process in self.room.lock().by_number.values() {
            process.abort();
        }
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &ProcessId) -> Result<Arc<Process>, UnknownProcess> {
        match self.lock().by_id.get(id) {
            Some(Slot::Live(process)) => Ok(process.clone()),
            _ => Err(UnknownProcess { id: id.clone() }),
        }
    }

    fn enter(&self, process: &Arc<Process>) {
        let mut table = self.lock();
        table.by_id.insert(process.id().clone(), Slot::Live(process.clone()));
        table.by_number.insert(process.number(), process.clone());
        if let Some(exit) = table.early_exits.remove(&process.number()) {
            process.notify(Notice::Exited(exit));
        }
    }

    fn on_exit(&self, number: Number, exit: Exit) {
        let mut table = self.lock();
        match table.by_number.get(&number) {
            Some(process) => process.notify(Notice::Exited(exit)),
            None => drop(table.early_exits.insert(number, exit)),
        }
    }

    async fn start(self: &Arc<Self>, id: &ProcessId, command: Command) -> Result<Started, StartError> {
        command.check()?;
        let reservation = Reservation::new(self, id)?;
        let launch = Box::new(launch(id, command, self.spool_bytes, &self.shell));
        let card = launch.card.clone();
        // The start goes on if the caller gives up: the keeper may have it already, and somebody must take the child.
        let room = self.clone();
        let started = tokio::spawn(async move { room.ask_keeper(reservation, card, launch).await });
        started.await.unwrap_or_else(|_| Err(StartError::Unreachable(crate::clerk::keeper_gone())))
    }

    async fn ask_keeper(
        self: Arc<Self>,
        reservation: Reservation,
        card: Card,
        launch: Box<exec_keeper::protocol::Launch>,
    ) -> Result<Started, StartError> {
        let id = card.id.clone();
        let (tell, descriptors) = self.clerk.ask(|ticket| Ask::Start { ticket, launch }).await?;
        let handed = match tell {
            Tell::Started { number, pid, parts, .. } => {
                let parts = parts.into_iter().zip(descriptors).collect();
                Handed { number, pid, exit: None, parts }
            }
            Tell::Refused { step, errno, subject, .. } => {
                let failure = SpawnFailure { step: waist_step(step), errno, subject: subject.into() };
                return Err(StartError::Spawn { id, failure });
            }
            _ => return Err(StartError::Unreachable(crate::clerk::keeper_gone())),
        };
        let (number, pid) = (handed.number, handed.pid);
        if reservation.cancelled() {
            let _ = self.clerk.say(&Ask::Forget { number }, &[]).await;
            return Err(StartError::Cancelled { id });
        }
        self.enter(&Process::begin(&self, card, handed));
        reservation.keep();
        Ok(Started { pid })
    }
}

/// A name held for a start; freed unless it is kept.
struct Reservation {
    room: Arc<Room>,
    id: ProcessId,
    kept: bool,
}

impl Reservation {
    fn new(room: &Arc<Room>, id: &ProcessId) -> Result<Self, StartError> {
        let mut table = room.lock();
        if table.by_id.contains_key(id) {
            return Err(StartError::IdInUse { id: id.clone() });
        }
        table.by_id.insert(id.clone(), Slot::Reserved { cancelled: false });
        drop(table);
        Ok(Self { room: room.clone(), id: id.clone(), kept: false })
    }

    fn cancelled(&self) -> bool {
        matches!(self.room.lock().by_id.get(&self.id), Some(Slot::Reserved { cancelled: true }))
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.kept {
            self.room.lock().by_id.remove(&self.id);
        }
    }
}

/// All logs together hold too much: the fullest that may drop gives back.
async fn share_the_disk(room: Weak<Room>, over_cap: Arc<Notify>) {
    loop {
        over_cap.notified().await;
        let Some(room) = room.upgrade() else { return };
        let excess = room.folder.excess_bytes();
        let fullest = {
            let table = room.lock();
            table.by_number.values().max_by_key(|process| process.droppable_bytes()).cloned()
        };
        if let (1.., Some(fullest)) = (excess, fullest) {
            fullest.notify(Notice::Shed(excess));
        }
    }
}

fn waist_step(step: KeeperStep) -> Step {
    match step {
        KeeperStep::Spool => Step::Spool,
        KeeperStep::Pipe => Step::Pipe,
        KeeperStep::Pty => Step::Pty,
        KeeperStep::Clone => Step::Clone,
        KeeperStep::Session => Step::Session,
        KeeperStep::Cwd => Step::Cwd,
        KeeperStep::Exec => Step::Exec,
    }
}
