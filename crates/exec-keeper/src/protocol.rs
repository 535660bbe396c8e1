//! The messages between the keeper and its owner, and their encoding.
//!
//! The owner sends [`KeeperRequest`]s, the keeper sends [`KeeperEvent`]s. A request that has an answer carries a
//! `request_id`, which comes back with the answer. The keeper gives each process a number; the owner's own id of the
//! process, and all else that a later owner needs to know, is in the [`ProcessRecord`]. The keeper stores that record and
//! uses only what a spawn takes.
//!
//! A keeper may be older than the owner that connects to it, so the bytes of a version never change (a test compares
//! them). Descriptors travel beside a message, in the order of its `roles`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub use exec_core::SpawnStep;
use exec_core::flow::Quota;
use exec_core::{Exit, Io, Overflow, ProcessId, TerminalSize, TimeLimit};

use crate::codec::{ByteReader, ByteWriter, MalformedMessage, from_tag, tag_of};
use crate::spool::LogFileKind;
use crate::spool::index::{decode_exit, encode_exit};

/// The keeper refuses an owner of another version, and names its own.
pub const VERSION: u32 = 1;

/// The keeper's name of a process; never used twice.
pub type ProcessNumber = u64;

/// A message of the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperRequest {
    /// The first message of a connection.
    Hello { version: u32 },
    /// Answered by [`KeeperEvent::Started`] or [`KeeperEvent::StartFailed`].
    Start { request_id: u64, launch: Box<LaunchRequest> },
    /// Signals the process group of the leader. Answered by [`KeeperEvent::Signalled`].
    Signal { request_id: u64, number: ProcessNumber, signal: i32 },
    /// Sends TERM to the tree, and KILL after `grace`. Answered by [`KeeperEvent::Terminated`] when the tree is gone.
    Terminate { request_id: u64, number: ProcessNumber, grace: Duration },
    /// Asks for the pids of the tree. Answered by [`KeeperEvent::Members`].
    Members { request_id: u64, number: ProcessNumber },
    /// Gives the keeper one more descriptor of a process to hold; the descriptor comes with the message.
    AddFd { number: ProcessNumber, role: FdRole },
    /// The keeper closes its duplicate of this descriptor.
    CloseFd { number: ProcessNumber, role: FdRole },
    /// The keeper drops the process and all its descriptors; a tree that is not gone is killed.
    Forget { number: ProcessNumber },
    /// The keeper kills every tree and ends.
    Shutdown,
}

/// A message of the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperEvent {
    /// Answers the hello. [`KeeperEvent::ExistingProcess`] follows `processes` times.
    Welcome {
        version: u32,
        pid: u32,
        processes: u32,
    },
    /// Another owner is connected; the keeper closes this connection.
    Busy {
        owner_pid: u32,
    },
    /// A process of an earlier owner, with its descriptors. `exit` is set if its leader was reaped.
    ExistingProcess {
        number: ProcessNumber,
        pid: u32,
        exit: Option<Exit>,
        roles: Vec<FdRole>,
        record: Box<ProcessRecord>,
    },
    /// The program runs; its descriptors come with the message.
    Started {
        request_id: u64,
        number: ProcessNumber,
        pid: u32,
        roles: Vec<FdRole>,
    },
    /// `subject` is what the step was about: the program, or a directory.
    StartFailed {
        request_id: u64,
        step: SpawnStep,
        errno: i32,
        subject: OsString,
    },
    /// The leader was reaped. Sent unasked.
    Exited {
        number: ProcessNumber,
        exit: Exit,
    },
    /// `errno` is 0 if the signal was sent.
    Signalled {
        request_id: u64,
        errno: i32,
    },
    /// `left` is not 0 if the keeper gave up waiting for members that do not die.
    Terminated {
        request_id: u64,
        was_running: bool,
        ended: u32,
        left: u32,
    },
    Members {
        request_id: u64,
        pids: Vec<u32>,
    },
}

/// What a descriptor that both sides hold is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
}

impl FdRole {
    /// Each at the position of its tag, which begins at 1.
    const ALL: [FdRole; 11] = {
        use FdRole::{
            Data0, Data1, Index, Pidfd, PtyMaster, RelayRead, RelayWrite, Stderr, Stdin, Stdout, WriteJournal,
        };
        [Pidfd, Stdin, Stdout, Stderr, PtyMaster, RelayRead, RelayWrite, Index, Data0, Data1, WriteJournal]
    };

    pub fn of_log_file(kind: LogFileKind) -> Self {
        match kind {
            LogFileKind::Index => FdRole::Index,
            LogFileKind::Data(0) => FdRole::Data0,
            LogFileKind::Data(_) => FdRole::Data1,
        }
    }
}

/// What a later owner must know of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    pub id: ProcessId,
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub io: Io,
    pub quota: Quota,
    /// When the owner asked for it.
    pub started: SystemTime,
    /// The owner's own data; the keeper does not read it.
    pub label: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchRequest {
    pub record: ProcessRecord,
    /// The child's `argv[0]`, if it is not the program's name.
    pub arg0: Option<OsString>,
    /// The child's exact environment, as `NAME=VALUE`.
    pub environ: Vec<OsString>,
    /// The child's `PATH`, in which a program name without a slash is searched.
    pub path: Option<OsString>,
    pub time_limit: Option<TimeLimit>,
}

impl KeeperRequest {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version } => ByteWriter::tagged(1).u32(*version),
            Self::Start { request_id, launch } => launch.encode(ByteWriter::tagged(2).u64(*request_id)),
            Self::Signal { request_id, number, signal } => {
                ByteWriter::tagged(3).u64(*request_id).u64(*number).u32(*signal as u32)
            }
            Self::Terminate { request_id, number, grace } => {
                ByteWriter::tagged(4).u64(*request_id).u64(*number).u64(micros(*grace))
            }
            Self::Members { request_id, number } => ByteWriter::tagged(5).u64(*request_id).u64(*number),
            Self::AddFd { number, role } => ByteWriter::tagged(6).u64(*number).u8(tag_of(&FdRole::ALL, *role)),
            Self::CloseFd { number, role } => ByteWriter::tagged(7).u64(*number).u8(tag_of(&FdRole::ALL, *role)),
            Self::Forget { number } => ByteWriter::tagged(8).u64(*number),
            Self::Shutdown => ByteWriter::tagged(9),
        }
        .finish()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut reader = ByteReader::new(bytes);
        let request = match reader.u8()? {
            1 => Self::Hello { version: reader.u32()? },
            2 => Self::Start { request_id: reader.u64()?, launch: Box::new(LaunchRequest::decode(&mut reader)?) },
            3 => Self::Signal { request_id: reader.u64()?, number: reader.u64()?, signal: reader.u32()? as i32 },
            4 => Self::Terminate {
                request_id: reader.u64()?,
                number: reader.u64()?,
                grace: Duration::from_micros(reader.u64()?),
            },
            5 => Self::Members { request_id: reader.u64()?, number: reader.u64()? },
            6 => Self::AddFd { number: reader.u64()?, role: reader.tag(&FdRole::ALL)? },
            7 => Self::CloseFd { number: reader.u64()?, role: reader.tag(&FdRole::ALL)? },
            8 => Self::Forget { number: reader.u64()? },
            9 => Self::Shutdown,
            _ => return Err(MalformedMessage),
        };
        reader.end()?;
        Ok(request)
    }
}

impl KeeperEvent {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome { version, pid, processes } => ByteWriter::tagged(1).u32(*version).u32(*pid).u32(*processes),
            Self::ExistingProcess { number, pid, exit, roles, record } => {
                let writer = ByteWriter::tagged(2).u64(*number).u32(*pid).bytes(&encode_roles(roles));
                let exit = exit.map(|exit| encode_exit(0, &exit).to_vec()).unwrap_or_default();
                record.encode(writer.bytes(&exit))
            }
            Self::Busy { owner_pid } => ByteWriter::tagged(9).u32(*owner_pid),
            Self::Started { request_id, number, pid, roles } => {
                ByteWriter::tagged(3).u64(*request_id).u64(*number).u32(*pid).bytes(&encode_roles(roles))
            }
            Self::StartFailed { request_id, step, errno, subject } => ByteWriter::tagged(4)
                .u64(*request_id)
                .u8(tag_of(&SpawnStep::ALL, *step))
                .u32(*errno as u32)
                .bytes(subject.as_bytes()),
            Self::Exited { number, exit } => ByteWriter::tagged(5).u64(*number).bytes(&encode_exit(0, exit)),
            Self::Signalled { request_id, errno } => ByteWriter::tagged(6).u64(*request_id).u32(*errno as u32),
            Self::Terminated { request_id, was_running, ended, left } => {
                ByteWriter::tagged(7).u64(*request_id).u8(u8::from(*was_running)).u32(*ended).u32(*left)
            }
            Self::Members { request_id, pids } => {
                let pids: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
                ByteWriter::tagged(8).u64(*request_id).bytes(&pids)
            }
        }
        .finish()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut reader = ByteReader::new(bytes);
        let event = match reader.u8()? {
            1 => Self::Welcome { version: reader.u32()?, pid: reader.u32()?, processes: reader.u32()? },
            2 => {
                let (number, pid, roles) = (reader.u64()?, reader.u32()?, decode_roles(reader.bytes()?)?);
                let exit = decode_exit(reader.bytes()?).map(|(_, exit)| exit);
                Self::ExistingProcess {
                    number,
                    pid,
                    exit,
                    roles,
                    record: Box::new(ProcessRecord::decode(&mut reader)?),
                }
            }
            3 => Self::Started {
                request_id: reader.u64()?,
                number: reader.u64()?,
                pid: reader.u32()?,
                roles: decode_roles(reader.bytes()?)?,
            },
            4 => Self::StartFailed {
                request_id: reader.u64()?,
                step: reader.tag(&SpawnStep::ALL)?,
                errno: reader.u32()? as i32,
                subject: reader.os()?,
            },
            5 => Self::Exited { number: reader.u64()?, exit: decode_exit(reader.bytes()?).ok_or(MalformedMessage)?.1 },
            6 => Self::Signalled { request_id: reader.u64()?, errno: reader.u32()? as i32 },
            7 => Self::Terminated {
                request_id: reader.u64()?,
                was_running: reader.u8()? != 0,
                ended: reader.u32()?,
                left: reader.u32()?,
            },
            8 => {
                let request_id = reader.u64()?;
                let pids = reader.bytes()?.chunks_exact(4);
                let pids = pids.map(|pid| u32::from_le_bytes([pid[0], pid[1], pid[2], pid[3]])).collect();
                Self::Members { request_id, pids }
            }
            9 => Self::Busy { owner_pid: reader.u32()? },
            _ => return Err(MalformedMessage),
        };
        reader.end()?;
        Ok(event)
    }
}

impl LaunchRequest {
    fn encode(&self, writer: ByteWriter) -> ByteWriter {
        let optional = |value: &Option<OsString>| -> Vec<OsString> { value.iter().cloned().collect() };
        let (after, grace) = self.time_limit.map_or((u64::MAX, 0), |limit| (micros(limit.after), micros(limit.grace)));
        let writer = writer
            .strings(optional(&self.arg0).iter())
            .strings(self.environ.iter())
            .strings(optional(&self.path).iter())
            .u64(after)
            .u64(grace);
        self.record.encode(writer)
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Self, MalformedMessage> {
        let arg0 = reader.strings()?.pop();
        let environ = reader.strings()?;
        let path = reader.strings()?.pop();
        let (after, grace) = (reader.u64()?, Duration::from_micros(reader.u64()?));
        let time_limit = (after != u64::MAX).then(|| TimeLimit { after: Duration::from_micros(after), grace });
        Ok(Self { record: ProcessRecord::decode(reader)?, arg0, environ, path, time_limit })
    }
}

impl ProcessRecord {
    fn encode(&self, writer: ByteWriter) -> ByteWriter {
        let started = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (io, size) = match self.io {
            Io::Pipes { stdin } => (u8::from(stdin), TerminalSize { rows: 0, cols: 0 }),
            Io::Pty(size) => (2, size),
        };
        writer
            .bytes(self.id.as_str().as_bytes())
            .strings(self.argv.iter())
            .bytes(self.cwd.as_os_str().as_bytes())
            .u8(io)
            .u16(size.rows)
            .u16(size.cols)
            .u64(self.quota.cap_bytes)
            .u8(u8::from(self.quota.overflow == Overflow::Block))
            .u64(micros(started))
            .bytes(&self.label)
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Self, MalformedMessage> {
        let id = ProcessId::new(reader.text()?).map_err(|_| MalformedMessage)?;
        let argv = reader.strings()?;
        let cwd = PathBuf::from(reader.os()?);
        let (io, rows, cols) = (reader.u8()?, reader.u16()?, reader.u16()?);
        let io = match io {
            0 => Io::Pipes { stdin: false },
            1 => Io::Pipes { stdin: true },
            2 => Io::Pty(TerminalSize { rows, cols }),
            _ => return Err(MalformedMessage),
        };
        let cap_bytes = reader.u64()?;
        let overflow = if reader.u8()? == 0 { Overflow::DropOldest } else { Overflow::Block };
        let started =
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(reader.u64()?)).ok_or(MalformedMessage)?;
        let label = reader.bytes()?.to_vec();
        Ok(Self { id, argv, cwd, io, quota: Quota { cap_bytes, overflow }, started, label })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX - 1)
}

fn encode_roles(roles: &[FdRole]) -> Vec<u8> {
    roles.iter().map(|role| tag_of(&FdRole::ALL, *role)).collect()
}

fn decode_roles(bytes: &[u8]) -> Result<Vec<FdRole>, MalformedMessage> {
    bytes.iter().map(|byte| from_tag(&FdRole::ALL, *byte).ok_or(MalformedMessage)).collect()
}
