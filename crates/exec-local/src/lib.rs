//! The environment of this machine.
//!
//! The way of a request: `processes` (the table: reserves the name) → `launch` (what exactly to run) → `keeper`
//! (the line to the keeper). The way of a byte: `mover` (one task per process, calls the keeper's spool) → `journal`
//! (the log's head in a `watch`, its bytes in files) → whoever reads. `stdin` is the way in, `wait` waits for
//! something to be true.
//!
//! [`files`] and [`http`] stand beside them and share nothing with them but the folder where unfinished writes are noted.
//!
//! Nothing here knows of connections, sessions or JSON.

#![warn(missing_docs)]

pub mod files;
pub mod http;
mod keeper_client;
mod launch;
mod machine_info;
mod output_mover;
mod process_log;
mod processes;
mod readers;
mod stdin;
mod wait;
mod write_journal;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exec_core::limits::{ORPHAN_TTL, SPOOL_BYTES, SPOOL_TOTAL_BYTES};
use exec_env::{Environment, Files, Http, MachineInfo, Processes};
use exec_keeper::start_keeper::{self, KeeperStartError, KeeperProgram};
use exec_keeper::spool::directory::SpoolDirectory;

use files::LocalFiles;
use http::LocalHttp;
use keeper_client::KeeperClient;
use processes::LocalProcesses;

/// Who carries the keeper.
#[derive(Debug, Clone)]
pub enum KeeperChoice {
    /// A thread of this process. Everything ends with us.
    Thread,
    /// A process of its own that ends with us, however we end.
    Process(KeeperProgram),
    /// A process that outlives us and is found again through the state folder.
    Durable {
        /// How to start one, if none is there.
        program: KeeperProgram,
        /// Where its socket and the logs are.
        state: PathBuf,
        /// How long it waits for the next owner.
        orphan_ttl: Duration,
    },
}

/// How to set up the environment of this machine.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Who carries the keeper.
    pub keeper: KeeperChoice,
    /// Where logs lie; an ordinary disk. The state folder, or a temporary folder, if `None`.
    pub spool_folder: Option<PathBuf>,
    /// What one process may hold, unless its command says otherwise.
    pub spool_bytes: u64,
    /// What all processes may hold together.
    pub spool_total_bytes: u64,
    /// Use cgroups where they can be made.
    pub cgroups: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            keeper: KeeperChoice::Thread,
            spool_folder: None,
            spool_bytes: SPOOL_BYTES,
            spool_total_bytes: SPOOL_TOTAL_BYTES,
            cgroups: true,
        }
    }
}

impl LocalOptions {
    /// A keeper that outlives us, with its folder.
    pub fn durable(program: KeeperProgram, state: impl Into<PathBuf>) -> Self {
        let keeper = KeeperChoice::Durable { program, state: state.into(), orphan_ttl: ORPHAN_TTL };
        Self { keeper, ..Self::default() }
    }
}

/// Why the environment could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no keeper.
    #[error(transparent)]
    Keeper(#[from] KeeperStartError),
    /// The keeper of the state folder serves somebody else.
    #[error("state folder {state:?} is in use by process {owner_pid}: stop it first, or choose another folder")]
    Busy {
        /// The folder.
        state: PathBuf,
        /// Who has it.
        owner_pid: u32,
    },
    /// The keeper is of another version.
    #[error(
        "the keeper of {state:?} speaks version {theirs}, this program {ours}: let its processes end, or use the program that started it"
    )]
    Version {
        /// The folder.
        state: PathBuf,
        /// Its version.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// The keeper did not answer as one.
    #[error("the keeper does not answer: {why}")]
    NoAnswer {
        /// What happened.
        why: String,
    },
}

/// This machine.
pub struct LocalEnvironment {
    processes: LocalProcesses,
    files: LocalFiles,
    /// Costs nothing until the first request.
    http: LocalHttp,
    info: MachineInfo,
}

impl LocalEnvironment {
    /// Sets it up, and finds again what a durable keeper holds. Must be called inside a tokio runtime, which carries
    /// its tasks.
    pub async fn open(options: LocalOptions) -> Result<Self, OpenError> {
        let (state, durable) = match &options.keeper {
            KeeperChoice::Durable { state, .. } => (state.clone(), true),
            _ => (PathBuf::new(), false),
        };
        let path = match &options.spool_folder {
            Some(path) => path.clone(),
            None if durable => state.clone(),
            None => temporary_directory(),
        };
        start_keeper::create_private_directory(&path)?;
        let folder = Arc::new(SpoolDirectory::new(&path, options.spool_total_bytes));
        let total = options.spool_total_bytes;
        let (channel, carrier) = match &options.keeper {
            KeeperChoice::Thread => {
                let (channel, thread) = start_keeper::as_thread(folder.clone(), options.cgroups)?;
                (channel, keeper_client::KeeperHost::Thread(thread))
            }
            KeeperChoice::Process(program) => {
                let (channel, child) = start_keeper::as_process(program, &path, total)?;
                (channel, keeper_client::KeeperHost::Process(child))
            }
            KeeperChoice::Durable { program, state, orphan_ttl } => {
                (start_keeper::connect_or_start(program, state, &path, total, *orphan_ttl)?, keeper_client::KeeperHost::None)
            }
        };
        let (keeper, found) = KeeperClient::open(channel, carrier, &state).await?;
        let info = machine_info::of_this_machine();
        let shell = info.shell.path.clone().into_os_string();
        let processes = LocalProcesses::new(keeper, folder, options.spool_bytes, shell, durable, found);
        // Beside the logs in either case: whoever comes next for the same folder cleans up after the dead.
        let temp_registries = path.join(TEMP_REGISTRIES);
        let files = LocalFiles::open(Some(&temp_registries));
        Ok(Self { processes, files, http: LocalHttp::new(), info })
    }

    /// Ends every process and waits until the keeper is gone. Dropping does the same without waiting; a durable keeper
    /// is only ended here.
    pub async fn end(&self) {
        self.processes.end().await;
    }

    /// Leaves everything to a durable keeper: the next owner finds it. Nothing is moved by us when this returns.
    pub async fn hand_over(&self) {
        self.processes.hand_over().await;
    }
}

impl Environment for LocalEnvironment {
    fn processes(&self) -> &dyn Processes {
        &self.processes
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn http(&self) -> &dyn Http {
        &self.http
    }

    fn info(&self) -> &MachineInfo {
        &self.info
    }
}

/// The folder, below that of the logs, where unfinished writes are noted.
const TEMP_REGISTRIES: &str = "writes";

/// Logs of an environment without a state folder. Its files have no names, so the folder is always empty and can be
/// shared; it is private all the same.
fn temporary_directory() -> PathBuf {
    let base = if std::path::Path::new("/var/tmp").is_dir() { PathBuf::from("/var/tmp") } else { std::env::temp_dir() };
    base.join(format!("exec-server-{}", rustix::process::getuid().as_raw()))
}
