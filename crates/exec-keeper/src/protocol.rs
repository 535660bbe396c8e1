//! What owner and keeper say to each other.
//!
//! Requests carry a `request_id` that comes back with the answer. Processes are named by a `number` the keeper gives; the
//! owner's own name for it and everything else a later owner needs travels on the [`ProcessRecord`], which the keeper keeps but
//! never reads beyond what starting takes.

mod launch;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use exec_core::{Exit, Stream};

use crate::codec::{MalformedMessage, Reader, Writer};
use crate::spool::LogFileKind;
use crate::spool::index::{decode_exit, encode_exit};
use launch::micros;
pub use launch::{LaunchRequest, ProcessRecord};

/// Both sides must speak the same; an owner of another version is refused by name.
pub const VERSION: u32 = 1;

/// The keeper's name of a process; never used twice.
pub type ProcessNumber = u64;

/// What an owner says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperRequest {
    /// First words.
    Hello {
        /// The owner's version.
        version: u32,
    },
    /// Start this. Comes with no descriptors; answered by [`KeeperEvent::Started`] or [`KeeperEvent::StartFailed`].
    Start {
        /// Comes back.
        request_id: u64,
        /// What.
        launch: Box<LaunchRequest>,
    },
    /// Signal its group. Answered by [`KeeperEvent::Signalled`].
    Signal {
        /// Comes back.
        request_id: u64,
        /// Which.
        number: ProcessNumber,
        /// What.
        signal: i32,
    },
    /// End its tree. Answered by [`KeeperEvent::Terminated`], when it is gone.
    Terminate {
        /// Comes back.
        request_id: u64,
        /// Which.
        number: ProcessNumber,
        /// Between TERM and KILL.
        grace: Duration,
    },
    /// Who is in its tree? Answered by [`KeeperEvent::Members`].
    Members {
        /// Comes back.
        request_id: u64,
        /// Which.
        number: ProcessNumber,
    },
    /// Hold this file too (one descriptor).
    AddFd {
        /// Whose.
        number: ProcessNumber,
        /// What it is.
        role: FdRole,
    },
    /// Close your side of these.
    CloseFd {
        /// Whose.
        number: ProcessNumber,
        /// Which.
        role: FdRole,
    },
    /// Let go of it altogether; its tree is killed if it is not gone.
    Forget {
        /// Which.
        number: ProcessNumber,
    },
    /// Kill every tree and end.
    Shutdown,
}

/// What a keeper says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperEvent {
    /// Answer to hello; then come `processes` times [`KeeperEvent::ExistingProcess`].
    Welcome {
        /// The keeper's version.
        version: u32,
        /// The keeper's process.
        pid: u32,
        /// How many there are.
        processes: u32,
    },
    /// Another owner is here.
    Busy {
        /// Its process.
        owner_pid: u32,
    },
    /// A process there is, with its descriptors.
    ExistingProcess {
        /// Its number.
        number: ProcessNumber,
        /// Its pid.
        pid: u32,
        /// How its leader ended, if it did.
        exit: Option<Exit>,
        /// Which descriptors came, in order.
        roles: Vec<FdRole>,
        /// What was kept of it.
        record: Box<ProcessRecord>,
    },
    /// It runs; its descriptors come along.
    Started {
        /// From the request.
        request_id: u64,
        /// Its number.
        number: ProcessNumber,
        /// Its pid.
        pid: u32,
        /// Which descriptors came, in order.
        roles: Vec<FdRole>,
    },
    /// It could not be started.
    StartFailed {
        /// From the request.
        request_id: u64,
        /// Which step.
        step: SpawnStep,
        /// The kernel's reason.
        errno: i32,
        /// What the step was about.
        subject: OsString,
    },
    /// Its leader was reaped.
    Exited {
        /// Which.
        number: ProcessNumber,
        /// How.
        exit: Exit,
    },
    /// The signal was sent (0) or why not.
    Signalled {
        /// From the request.
        request_id: u64,
        /// 0 or the kernel's reason.
        errno: i32,
    },
    /// The tree is gone, or what is left of it.
    Terminated {
        /// From the request.
        request_id: u64,
        /// Whether the leader ran.
        was_running: bool,
        /// How many were ended.
        ended: u32,
        /// How many are left.
        left: u32,
    },
    /// Who is in the tree.
    Members {
        /// From the request.
        request_id: u64,
        /// Their pids.
        pids: Vec<u32>,
    },
}

/// A descriptor both sides hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FdRole {
    /// The leader, to notice its end if the keeper is gone.
    Pidfd = 1,
    /// Write end of its stdin.
    Stdin = 2,
    /// Read end of its stdout.
    Stdout = 3,
    /// Read end of its stderr.
    Stderr = 4,
    /// Its terminal.
    PtyMaster = 5,
    /// Read end of the pipe between terminal and file.
    RelayRead = 6,
    /// Write end of it.
    RelayWrite = 7,
    /// The index of its log.
    Index = 8,
    /// Data file of stdout or the terminal.
    Data0 = 9,
    /// Data file of stderr.
    Data1 = 10,
    /// The notes of its stdin writes.
    WriteJournal = 11,
}

impl FdRole {
    const ALL: [FdRole; 11] = [
        FdRole::Pidfd,
        FdRole::Stdin,
        FdRole::Stdout,
        FdRole::Stderr,
        FdRole::PtyMaster,
        FdRole::RelayRead,
        FdRole::RelayWrite,
        FdRole::Index,
        FdRole::Data0,
        FdRole::Data1,
        FdRole::WriteJournal,
    ];

    fn decode(byte: u8) -> Result<Self, MalformedMessage> {
        Self::ALL.into_iter().find(|role| *role as u8 == byte).ok_or(MalformedMessage)
    }

    /// A file of a log.
    pub fn of_log_file(kind: LogFileKind) -> Self {
        match kind {
            LogFileKind::Index => FdRole::Index,
            LogFileKind::Data(0) => FdRole::Data0,
            LogFileKind::Data(_) => FdRole::Data1,
        }
    }

    /// The stream this is the source of.
    pub fn stream(self) -> Option<Stream> {
        match self {
            FdRole::Stdout => Some(Stream::Stdout),
            FdRole::Stderr => Some(Stream::Stderr),
            FdRole::PtyMaster => Some(Stream::Pty),
            _ => None,
        }
    }
}

/// The steps of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SpawnStep {
    /// Making the log.
    Spool = 1,
    /// Making pipes.
    Pipe = 2,
    /// Making a terminal.
    Pty = 3,
    /// Making the process.
    Clone = 4,
    /// Making it a session.
    Session = 5,
    /// Entering the folder.
    Cwd = 6,
    /// Running the program.
    Exec = 7,
}

impl SpawnStep {
    fn decode(byte: u8) -> Result<Self, MalformedMessage> {
        use SpawnStep::{Clone, Cwd, Exec, Pipe, Pty, Session, Spool};
        [Spool, Pipe, Pty, Clone, Session, Cwd, Exec]
            .into_iter()
            .find(|step| *step as u8 == byte)
            .ok_or(MalformedMessage)
    }
}

impl KeeperRequest {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            KeeperRequest::Hello { version } => Writer::tagged(1).u32(*version),
            KeeperRequest::Start { request_id, launch } => launch.encode(Writer::tagged(2).u64(*request_id)),
            KeeperRequest::Signal { request_id, number, signal } => {
                Writer::tagged(3).u64(*request_id).u64(*number).u32(*signal as u32)
            }
            KeeperRequest::Terminate { request_id, number, grace } => {
                Writer::tagged(4).u64(*request_id).u64(*number).u64(micros(*grace))
            }
            KeeperRequest::Members { request_id, number } => Writer::tagged(5).u64(*request_id).u64(*number),
            KeeperRequest::AddFd { number, role } => Writer::tagged(6).u64(*number).u8(*role as u8),
            KeeperRequest::CloseFd { number, role } => Writer::tagged(7).u64(*number).u8(*role as u8),
            KeeperRequest::Forget { number } => Writer::tagged(8).u64(*number),
            KeeperRequest::Shutdown => Writer::tagged(9),
        }
        .finish()
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut reader = Reader::new(bytes);
        let request = match reader.u8()? {
            1 => KeeperRequest::Hello { version: reader.u32()? },
            2 => KeeperRequest::Start {
                request_id: reader.u64()?,
                launch: Box::new(LaunchRequest::decode(&mut reader)?),
            },
            3 => {
                KeeperRequest::Signal { request_id: reader.u64()?, number: reader.u64()?, signal: reader.u32()? as i32 }
            }
            4 => KeeperRequest::Terminate {
                request_id: reader.u64()?,
                number: reader.u64()?,
                grace: Duration::from_micros(reader.u64()?),
            },
            5 => KeeperRequest::Members { request_id: reader.u64()?, number: reader.u64()? },
            6 => KeeperRequest::AddFd { number: reader.u64()?, role: FdRole::decode(reader.u8()?)? },
            7 => KeeperRequest::CloseFd { number: reader.u64()?, role: FdRole::decode(reader.u8()?)? },
            8 => KeeperRequest::Forget { number: reader.u64()? },
            9 => KeeperRequest::Shutdown,
            _ => return Err(MalformedMessage),
        };
        reader.end()?;
        Ok(request)
    }
}

impl KeeperEvent {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            KeeperEvent::Welcome { version, pid, processes } => {
                Writer::tagged(1).u32(*version).u32(*pid).u32(*processes)
            }
            KeeperEvent::ExistingProcess { number, pid, exit, roles, record } => {
                let writer = Writer::tagged(2).u64(*number).u32(*pid).bytes(&encode_roles(roles));
                let exit = exit.map(|exit| encode_exit(0, &exit).to_vec()).unwrap_or_default();
                record.encode(writer.bytes(&exit))
            }
            KeeperEvent::Busy { owner_pid } => Writer::tagged(9).u32(*owner_pid),
            KeeperEvent::Started { request_id, number, pid, roles } => {
                Writer::tagged(3).u64(*request_id).u64(*number).u32(*pid).bytes(&encode_roles(roles))
            }
            KeeperEvent::StartFailed { request_id, step, errno, subject } => {
                Writer::tagged(4).u64(*request_id).u8(*step as u8).u32(*errno as u32).bytes(subject.as_bytes())
            }
            KeeperEvent::Exited { number, exit } => Writer::tagged(5).u64(*number).bytes(&encode_exit(0, exit)),
            KeeperEvent::Signalled { request_id, errno } => Writer::tagged(6).u64(*request_id).u32(*errno as u32),
            KeeperEvent::Terminated { request_id, was_running, ended, left } => {
                Writer::tagged(7).u64(*request_id).u8(u8::from(*was_running)).u32(*ended).u32(*left)
            }
            KeeperEvent::Members { request_id, pids } => {
                let pids: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
                Writer::tagged(8).u64(*request_id).bytes(&pids)
            }
        }
        .finish()
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut reader = Reader::new(bytes);
        let event = match reader.u8()? {
            1 => KeeperEvent::Welcome { version: reader.u32()?, pid: reader.u32()?, processes: reader.u32()? },
            2 => {
                let (number, pid, roles) = (reader.u64()?, reader.u32()?, decode_roles(reader.bytes()?)?);
                let exit = decode_exit(reader.bytes()?).map(|(_, exit)| exit);
                KeeperEvent::ExistingProcess {
                    number,
                    pid,
                    exit,
                    roles,
                    record: Box::new(ProcessRecord::decode(&mut reader)?),
                }
            }
            3 => KeeperEvent::Started {
                request_id: reader.u64()?,
                number: reader.u64()?,
                pid: reader.u32()?,
                roles: decode_roles(reader.bytes()?)?,
            },
            4 => KeeperEvent::StartFailed {
                request_id: reader.u64()?,
                step: SpawnStep::decode(reader.u8()?)?,
                errno: reader.u32()? as i32,
                subject: reader.os()?,
            },
            5 => KeeperEvent::Exited {
                number: reader.u64()?,
                exit: decode_exit(reader.bytes()?).ok_or(MalformedMessage)?.1,
            },
            6 => KeeperEvent::Signalled { request_id: reader.u64()?, errno: reader.u32()? as i32 },
            7 => KeeperEvent::Terminated {
                request_id: reader.u64()?,
                was_running: reader.u8()? != 0,
                ended: reader.u32()?,
                left: reader.u32()?,
            },
            8 => {
                let request_id = reader.u64()?;
                let pids = reader.bytes()?.chunks_exact(4);
                let pids = pids.map(|pid| u32::from_le_bytes([pid[0], pid[1], pid[2], pid[3]])).collect();
                KeeperEvent::Members { request_id, pids }
            }
            9 => KeeperEvent::Busy { owner_pid: reader.u32()? },
            _ => return Err(MalformedMessage),
        };
        reader.end()?;
        Ok(event)
    }
}

fn encode_roles(roles: &[FdRole]) -> Vec<u8> {
    roles.iter().map(|role| *role as u8).collect()
}

fn decode_roles(bytes: &[u8]) -> Result<Vec<FdRole>, MalformedMessage> {
    bytes.iter().map(|byte| FdRole::decode(*byte)).collect()
}
