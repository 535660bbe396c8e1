//! The messages between the keeper and its owner, and their encoding.
//!
//! The owner sends [`KeeperRequest`]s, the keeper sends [`KeeperEvent`]s. A request that has an answer is sent with a
//! request id beside it (see [`crate::channel`]), and the answer comes with the same one. The keeper gives each process a
//! number; the owner's own id of the process, and all else that a later owner needs to know, is in the [`ProcessRecord`].
//! The keeper stores that record and uses only what a spawn takes.
//!
//! Messages are written by postcard. A keeper may be older than the owner that connects to it, so the bytes of a version
//! never change (a test compares them), and the greeting (`Hello`, `Welcome`, `Busy`) is the same in all versions: it is
//! how either side learns that the other is of another one. So these keep their place among the variants, and have
//! numbers of a fixed width. Descriptors travel beside a message, in the order of its `roles`.

mod plain;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub use exec_core::SpawnStep;
use exec_core::flow::Quota;
use exec_core::network::NetworkProxy;
use exec_core::sandbox::{Confinement, SandboxReport};
use exec_core::{Exit, Io, LimitReport, ProcessId, ResourceLimits, TimeLimit};
use serde::{Deserialize, Serialize};

use crate::spool::LogFileKind;

/// The keeper refuses an owner of another version, and names its own.
pub const VERSION: u32 = 7;

/// The keeper's name of a process; never used twice.
pub type ProcessNumber = u64;

/// What stands for the caller's key of a signal: a hash of it, so that all take the same little memory.
pub type SignalKey = [u8; 16];

/// No number has this bit. With it, the id of a request to start stands for the process that has no number yet.
const START_UNDER_WAY: u64 = 1 << 63;

/// What [`KeeperRequest::Terminate`] and [`KeeperRequest::Forget`] take in place of a number to cancel a start that was
/// not answered yet. If it was answered meanwhile, they say that there is no such process.
pub fn start_under_way(request_id: u64) -> ProcessNumber {
    START_UNDER_WAY | request_id
}

/// The id of the request to start, if the number stands for one.
pub(crate) fn request_id_of_start(number: ProcessNumber) -> Option<u64> {
    (number & START_UNDER_WAY != 0).then_some(number & !START_UNDER_WAY)
}

/// A message of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeeperRequest {
    /// The keeper kills every tree and ends.
    Shutdown,
    /// The first message of a connection.
    Hello {
        #[serde(with = "postcard::fixint::le")]
        version: u32,
    },
    /// Answered by [`KeeperEvent::Started`] or [`KeeperEvent::StartFailed`].
    Start { launch: Box<LaunchRequest> },
    /// Signals the process group of the leader, once for each key. Answered by [`KeeperEvent::Signalled`].
    Signal { number: ProcessNumber, signal: i32, key: Option<SignalKey> },
    /// Sends TERM to the tree, and KILL after `grace`. Answered by [`KeeperEvent::Terminated`] when the tree is gone.
    Terminate { number: ProcessNumber, grace: Duration },
    /// Asks for the pids of the tree. Answered by [`KeeperEvent::Members`].
    Members { number: ProcessNumber },
    /// Gives the keeper one more descriptor of a process to hold; the descriptor comes with the message.
    AddFd { number: ProcessNumber, role: FdRole },
    /// The keeper closes its duplicate of this descriptor.
    CloseFd { number: ProcessNumber, role: FdRole },
    /// The keeper drops the process and all its descriptors; a tree that is not gone is killed.
    Forget { number: ProcessNumber },
    /// Asks whether the cgroup that the kernel knows by this number is, or was, that of a sandboxed process. The keeper knows
    /// it before the process runs, and after it was forgotten. Answered by [`KeeperEvent::SandboxFound`].
    FindSandbox { cgroup: u64 },
}

/// A message of the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeeperEvent {
    /// The leader was reaped. Sent unasked.
    Exited {
        number: ProcessNumber,
        #[serde(with = "plain")]
        exit: Exit,
    },
    /// Answers the hello. [`KeeperEvent::ExistingProcess`] follows `processes` times.
    Welcome {
        #[serde(with = "postcard::fixint::le")]
        version: u32,
        #[serde(with = "postcard::fixint::le")]
        pid: u32,
        #[serde(with = "postcard::fixint::le")]
        processes: u32,
    },
    /// A process of an earlier owner, with its descriptors. `exit` is set if its leader was reaped.
    ExistingProcess {
        number: ProcessNumber,
        pid: u32,
        #[serde(with = "plain")]
        exit: Option<Exit>,
        roles: Vec<FdRole>,
        record: Box<ProcessRecord>,
    },
    /// The program runs; its descriptors come with the message.
    Started {
        number: ProcessNumber,
        pid: u32,
        roles: Vec<FdRole>,
        /// What enforces its limits, if it has any.
        #[serde(with = "plain")]
        limits: Option<LimitReport>,
    },
    /// `subject` is what the step was about: the program, or a directory; or what is missing, if it was a limit.
    StartFailed {
        #[serde(with = "plain")]
        step: SpawnStep,
        errno: i32,
        subject: OsString,
    },
    /// `errno` is 0 if the signal was sent.
    Signalled {
        errno: i32,
    },
    /// `left` is not 0 if the keeper gave up waiting for members that do not die.
    Terminated {
        was_running: bool,
        ended: u32,
        left: u32,
    },
    Members {
        pids: Vec<u32>,
    },
    /// The request could not be read, or not with its descriptors; nothing was done.
    Refused {
        errno: i32,
    },
    /// Another owner is connected; the keeper closes this connection.
    Busy {
        #[serde(with = "postcard::fixint::le")]
        owner_pid: u32,
    },
    SandboxFound {
        found: bool,
    },
}

/// What a descriptor that both sides hold is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FdRole {
    /// With it the owner notices the leader's end even if the keeper is gone.
    Pidfd,
    /// Our ends of the child's pipes.
    Stdin,
    Stdout,
    Stderr,
    PtyMaster,
    /// Ends of the pipe between the terminal and its data file.
    RelayRead,
    RelayWrite,
    /// The index file of the log.
    Index,
    /// The data file of stdout or of the terminal.
    Data0,
    /// The data file of stderr.
    Data1,
    /// The owner's journal of stdin writes.
    WriteJournal,
    /// Where the process's proxy listens: for HTTP, and for SOCKS5.
    ProxyHttp,
    ProxySocks,
    /// Where the proxy takes datagrams of a process that has a network of its own, by number.
    ProxyUdp(u8),
}

/// The sockets of a proxy, in the order in which they travel. The first two listen, the others take datagrams.
pub const PROXY_ROLES: [FdRole; 6] = [
    FdRole::ProxyHttp,
    FdRole::ProxySocks,
    FdRole::ProxyUdp(0),
    FdRole::ProxyUdp(1),
    FdRole::ProxyUdp(2),
    FdRole::ProxyUdp(3),
];

impl FdRole {
    /// Whether it is a socket of the process's proxy.
    pub fn is_of_proxy(self) -> bool {
        PROXY_ROLES.contains(&self)
    }

    pub fn of_log_file(kind: LogFileKind) -> Self {
        match kind {
            LogFileKind::Index => FdRole::Index,
            LogFileKind::Data(0) => FdRole::Data0,
            LogFileKind::Data(_) => FdRole::Data1,
        }
    }
}

/// What a later owner must know of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    #[serde(with = "plain")]
    pub id: ProcessId,
    pub argv: Vec<OsString>,
    #[serde(with = "plain")]
    pub cwd: PathBuf,
    #[serde(with = "plain")]
    pub io: Io,
    #[serde(with = "plain")]
    pub quota: Quota,
    /// When the owner asked for it; not before 1970.
    pub started: SystemTime,
    /// What confines it.
    #[serde(with = "plain")]
    pub sandbox: Option<SandboxReport>,
    /// What enforces its limits; the keeper fills it in.
    #[serde(with = "plain")]
    pub limits: Option<LimitReport>,
    /// Directories that its owner has made for its sandbox, to be removed when its tree is gone.
    pub placeholders: Vec<OsString>,
    /// What its proxy does. Its sockets are among the descriptors; the owner accepts.
    #[serde(with = "plain")]
    pub network_proxy: Option<NetworkProxy>,
    /// The owner's own data; the keeper does not read it.
    pub label: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    pub record: ProcessRecord,
    /// The child's `argv[0]`, if it is not the program's name.
    pub arg0: Option<OsString>,
    /// The child's exact environment, as `NAME=VALUE`.
    pub environ: Vec<OsString>,
    /// The child's `PATH`, in which a program name without a slash is searched.
    pub path: Option<OsString>,
    #[serde(with = "plain")]
    pub time_limit: Option<TimeLimit>,
    #[serde(with = "plain")]
    pub limits: ResourceLimits,
    /// Whose rights the child has, if not ours.
    pub identity: Option<Identity>,
    /// What the child does to itself before its program runs. Its descriptors come with the message: the user
    /// namespace, then the Landlock ruleset, as far as there are any.
    #[serde(with = "plain")]
    pub confinement: Option<Confinement>,
    /// So many sockets of its proxy come behind those descriptors. A child with a network of its own makes them itself.
    pub proxy_sockets: u8,
}

/// A user, as the kernel knows one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl LaunchRequest {
    /// What its strings hold, as good as all of it.
    pub(crate) fn bytes(&self) -> usize {
        let record = &self.record;
        let strings = record.argv.iter().chain(&self.arg0).chain(&self.environ).chain(&self.path);
        strings.map(|string| string.len()).sum::<usize>() + record.label.len() + record.cwd.as_os_str().len()
    }

    /// Whether its strings can be passed to a program at all. The owner has checked the command; this is for a message
    /// that was damaged and still reads.
    pub(crate) fn can_be_passed(&self) -> bool {
        let record = &self.record;
        let strings = record.argv.iter().chain(&self.arg0).chain(&self.environ).chain(&self.path);
        let no_nul = |string: &OsStr| !string.as_bytes().contains(&0);
        !record.argv.is_empty() && strings.map(OsString::as_os_str).chain([record.cwd.as_os_str()]).all(no_nul)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keeper's socket brought a message that does not read: are both sides of one version?")]
pub struct MalformedMessage;

/// A message is bytes on the socket.
pub trait Message: Serialize + for<'de> Deserialize<'de> {
    fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("memory takes all bytes, and no field refuses: `started` is after 1970")
    }

    /// The other side may be of another build: all lengths are checked, and bytes behind the message are refused too.
    fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Ok(message),
            _ => Err(MalformedMessage),
        }
    }
}

impl Message for KeeperRequest {}
impl Message for KeeperEvent {}
