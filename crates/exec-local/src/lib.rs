//! The environment of this machine.
//!
//! ```text
//! start:   processes (reserves the id) ─► keeper_client ─► the keeper, which spawns
//! output:  output_mover (one task per process, fills the keeper's spool) ─► process_log ─► its readers
//! stdin:   stdin (a queue per process), write_journal (which writes happened, for the next owner)
//! ```
//!
//! - `processes`: the verbs over processes; `processes/table`, `processes/start`, `processes/process`: the table behind
//!   them, how one is started, and what one can do;
//! - `sandbox`: what this host can enforce, and a plan for each sandboxed start; `held_placeholders`: the files that stand
//!   in for what its policy names and is missing; `socket_cgroup`: whose connection it is;
//! - `proxy`: the proxies of processes, each with its own rules;
//! - `accounts`: the users that processes may run as, and file calls; `call_rights`: whose rights a file call has;
//!   `user_rights`: those of another user;
//! - `keeper_client`: requests to the keeper and their replies;
//! - `output_mover`, `process_log`, `readers`: output on its way to the readers, and how far each of them has read;
//! - `stdin`, `write_journal`: writes to a child, each of which happens once;
//! - [`descriptors`]: how many descriptors each of all these may open;
//! - `view`, `screen`: what is shown of a log;
//! - `wait`: waiting for an exit, for output, for silence or for a port;
//! - [`streams`]: connections that the machine makes and accepts for others;
//! - [`files`]: the machine's files; [`http`]: requests from this machine; `machine_info`: what the machine is.
//!
//! Features: `http` (an HTTP client) and `search` (search in contents), both on by default. Without one, its verb
//! answers an error that names the feature.
//!
//! Nothing here knows of connections, sessions or JSON.

#![warn(missing_docs)]

mod accounts;
mod call_rights;
pub mod descriptors;
pub mod files;
mod held_placeholders;
#[cfg(feature = "http")]
pub mod http;
#[cfg(not(feature = "http"))]
#[path = "http_absent.rs"]
pub mod http;
mod keeper_client;
mod machine_info;
mod output_mover;
mod process_log;
mod processes;
mod proxy;
mod readers;
mod sandbox;
mod screen;
mod socket_cgroup;
mod stdin;
pub mod streams;
mod user_rights;
mod view;
mod wait;
mod write_journal;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exec_core::limits::{ORPHAN_TTL, SPOOL_BYTES, SPOOL_TOTAL_BYTES};
use exec_env::{Environment, Files, Http, MachineInfo, Processes, Streams};
use exec_keeper::private_directory;
use exec_keeper::spool::directory::SpoolDirectory;
use exec_keeper::start_keeper::{self, KeeperProgram, KeeperStartError};
use exec_sandbox::path_rules::MachinePaths;

use descriptors::DescriptorBudget;
use files::LocalFiles;
use http::LocalHttp;
use keeper_client::{KeeperClient, KeeperHost};
use processes::{LocalProcesses, ProcessSettings};
use sandbox::SandboxPlanner;
pub use sandbox::{SandboxDiagnosis, diagnose};
use streams::LocalStreams;

/// Where the keeper runs.
#[derive(Debug, Clone)]
pub enum KeeperChoice {
    /// In a thread of this process. All processes end with us.
    Thread,
    /// In a process of its own that ends with us, however we end.
    Process(KeeperProgram),
    /// In a process that outlives us; the next owner finds it through the state directory.
    Durable {
        /// How to start one, if none runs.
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
    /// Where the keeper runs.
    pub keeper: KeeperChoice,
    /// Where logs are kept; should be on an ordinary disk. `None`: the state directory, or a temporary directory.
    pub spool_folder: Option<PathBuf>,
    /// How much output one process may hold, unless its command has another number.
    pub spool_bytes: u64,
    /// How much output all processes may hold together.
    pub spool_total_bytes: u64,
    /// Use cgroups where they can be created.
    pub cgroups: bool,
    /// Where the tasks of processes run that an earlier owner has left, in turn. Empty: on the runtime that opens the
    /// environment. The tasks of a process that is started run where it is started.
    pub runtimes: Vec<tokio::runtime::Handle>,
    /// What no sandboxed process and no sandboxed file call reaches, beside the logs and the state directory: the sockets
    /// on which whoever embeds us listens, and its secrets.
    pub private_paths: Vec<PathBuf>,
    /// Raise our limit of open files as far as it goes, after the keeper was started (its children keep the old one) and
    /// before its processes are adopted. For programs of our own; a host program may have reasons for its limit.
    pub raise_open_files: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            keeper: KeeperChoice::Thread,
            spool_folder: None,
            spool_bytes: SPOOL_BYTES,
            spool_total_bytes: SPOOL_TOTAL_BYTES,
            cgroups: true,
            runtimes: Vec::new(),
            private_paths: Vec::new(),
            raise_open_files: false,
        }
    }
}

impl LocalOptions {
    /// A keeper that outlives us, and its state directory.
    pub fn durable(program: KeeperProgram, state: impl Into<PathBuf>) -> Self {
        let keeper = KeeperChoice::Durable { program, state: state.into(), orphan_ttl: ORPHAN_TTL };
        Self { keeper, ..Self::default() }
    }
}

/// Why the environment could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The keeper could not be started or found.
    #[error(transparent)]
    Keeper(#[from] KeeperStartError),
    /// The keeper of the state directory has another owner.
    #[error("state folder {state:?} is in use by process {owner_pid}: stop it first, or choose another folder")]
    Busy {
        /// The state directory.
        state: PathBuf,
        /// The process that owns it.
        owner_pid: u32,
    },
    /// The keeper is of another version.
    #[error(
        "the keeper of {state:?} speaks version {theirs}, this program {ours}: let its processes end, or use the program that started it"
    )]
    Version {
        /// The state directory.
        state: PathBuf,
        /// The version of the keeper's protocol.
        theirs: u32,
        /// The version of ours.
        ours: u32,
    },
    /// What answered does not speak the keeper's protocol.
    #[error("the keeper does not answer: {why}")]
    NoAnswer {
        /// What happened, for a person.
        why: String,
    },
}

/// This machine.
pub struct LocalEnvironment {
    processes: LocalProcesses,
    files: LocalFiles,
    /// Makes its client with the first request.
    http: LocalHttp,
    streams: LocalStreams,
    info: MachineInfo,
    descriptors: DescriptorBudget,
}

impl LocalEnvironment {
    /// Sets it up, and resumes the processes that a durable keeper holds. Must be called inside a tokio runtime, on
    /// which its tasks run.
    pub async fn open(options: LocalOptions) -> Result<Self, OpenError> {
        let (state, durable) = match &options.keeper {
            KeeperChoice::Durable { state, .. } => (state.clone(), true),
            _ => (PathBuf::new(), false),
        };
        let path = match &options.spool_folder {
            Some(path) => path.clone(),
            None if durable => state.clone(),
            None => temporary_directory()?,
        };
        private_directory::create(&path)?;
        let spool_directory = Arc::new(SpoolDirectory::new(&path, options.spool_total_bytes));
        let total = options.spool_total_bytes;
        let (channel, host) = match &options.keeper {
            KeeperChoice::Thread => {
                let (channel, thread) = start_keeper::as_thread(spool_directory.clone(), options.cgroups)?;
                (channel, KeeperHost::Thread(thread))
            }
            KeeperChoice::Process(program) => {
                let (channel, child) = start_keeper::as_process(program, &path, total)?;
                (channel, KeeperHost::Process(child))
            }
            KeeperChoice::Durable { program, state, orphan_ttl } => {
                (start_keeper::connect_or_start(program, state, &path, total, *orphan_ttl)?, KeeperHost::None)
            }
        };
        if options.raise_open_files {
            descriptors::raise_limit();
        }
        let descriptors = DescriptorBudget::of_this_process();
        let (keeper, found) = KeeperClient::open(channel, host, &state).await?;
        let info = machine_info::of_this_machine();
        let mut private = options.private_paths.clone();
        private.push(path.clone());
        private.extend(durable.then(|| state.clone()));
        let machine_paths = MachinePaths { temporary: info.temporary_directories.clone(), private };
        let planner = SandboxPlanner::new(machine_paths.clone());
        let settings = ProcessSettings {
            spool_bytes: options.spool_bytes,
            shell: info.shell.path.clone().into_os_string(),
            durable,
        };
        let processes = LocalProcesses::new(keeper, spool_directory, settings, planner, descriptors.clone());
        processes.resume(found, &options.runtimes);
        // Beside the logs in either case: the next environment that uses this directory removes what we leave if
        // killed.
        let temp_registries = path.join(TEMP_REGISTRIES);
        let files = LocalFiles::open_on(machine_paths, Some(&temp_registries)).with_descriptors(descriptors.clone());
        let http = LocalHttp::new().with_descriptors(descriptors.clone());
        let streams = LocalStreams::new(descriptors.clone(), processes.dialled_ports());
        Ok(Self { processes, files, http, streams, info, descriptors })
    }

    /// Whether the TCP connection from `peer` to `own` was made by a sandboxed process of this environment. Such a process must
    /// not be served: it could ask for another one without a sandbox. True also where that cannot be known, once there was such
    /// a process: what it has left behind may connect later. What came through the proxy of a process, sandboxed or not, or
    /// through a stream, is not served either.
    pub async fn is_from_a_sandbox(&self, peer: std::net::SocketAddr, own: std::net::SocketAddr) -> bool {
        self.processes.is_from_a_sandbox(peer, own).await
    }

    /// The descriptors of this process, from which its fronts take theirs.
    pub fn descriptors(&self) -> &DescriptorBudget {
        &self.descriptors
    }

    /// Ends every process and waits until the keeper is gone. Dropping does the same without waiting, except that a
    /// durable keeper is ended only here.
    pub async fn end(&self) {
        self.processes.end().await;
    }

    /// Leaves all processes to a durable keeper, for the next owner. When this returns, we touch nothing of them.
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

    fn files_for_caller(&self) -> Arc<dyn Files> {
        Arc::new(self.files.for_caller())
    }

    fn http(&self) -> &dyn Http {
        &self.http
    }

    fn streams(&self) -> &dyn Streams {
        &self.streams
    }

    fn info(&self) -> &MachineInfo {
        &self.info
    }
}

/// The directory, below that of the logs, that records where temporary files are.
const TEMP_REGISTRIES: &str = "writes";

/// Where logs are kept without a state directory: below `TMPDIR` if it is set, because its user knows where there is room;
/// else below `/var/tmp`, which is on a disk where `/tmp` may be memory. The files have no names, so the directory is always
/// empty and several environments can share it.
///
/// Anybody may make something of that name in `/var/tmp` before we do. Then we keep ours at home, or below a name that
/// nobody could know.
fn temporary_directory() -> Result<PathBuf, KeeperStartError> {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|named| named.is_absolute() && named.is_dir());
    let usual = || Some(PathBuf::from("/var/tmp")).filter(|usual| usual.is_dir());
    let shared = named.or_else(usual).unwrap_or_else(std::env::temp_dir);
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    choose_temporary_directory(&shared, home.as_deref())
}

fn choose_temporary_directory(shared: &Path, home: Option<&Path>) -> Result<PathBuf, KeeperStartError> {
    let name = format!("exec-server-{}", rustix::process::geteuid().as_raw());
    let unknown = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), &name);
    let first = shared.join(&name);
    let Err(error) = private_directory::create(&first) else { return Ok(first) };
    let home = home.filter(|home| home.is_dir()).map(|home| home.join(".cache/exec-server/spool"));
    let fallback = home.into_iter().chain([shared.join(format!("{name}-{unknown:016x}"))]);
    let chosen = fallback.into_iter().find(|path| private_directory::create(path).is_ok()).ok_or(error)?;
    tracing::warn!(instead = %chosen.display(), "{} cannot be used for logs; remove it", first.display());
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_squatted_temporary_folder_is_left_alone_and_another_is_used() {
        let (shared, home) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let usual = choose_temporary_directory(shared.path(), None).expect("nobody is in the way");
        std::fs::remove_dir(&usual).expect("it is empty");
        let bait = home.path().join("bait");
        std::fs::create_dir(&bait).expect("the folder is ours");
        std::os::unix::fs::symlink(&bait, &usual).expect("the folder is ours");

        let at_home = choose_temporary_directory(shared.path(), Some(home.path())).expect("there is a home");
        assert_eq!(at_home, home.path().join(".cache/exec-server/spool"));
        let secret = choose_temporary_directory(shared.path(), None).expect("there is a name that nobody knows");
        assert!(secret.starts_with(shared.path()) && secret != usual, "{secret:?}");
        assert_eq!(std::fs::read_dir(&bait).expect("it is ours").count(), 0);
    }
}
