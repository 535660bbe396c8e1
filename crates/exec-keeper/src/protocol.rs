//! What owner and keeper say to each other.
//!
//! Requests carry a `ticket` that comes back with the answer. Processes are named by a `number` the keeper gives; the
//! owner's own name for it and everything else a later owner needs travels on the [`Card`], which the keeper keeps but
//! never reads beyond what starting takes.

mod card;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use exec_core::{Exit, Stream};

use crate::codec::{Garbled, Reader, Writer};
use crate::spool::Kept;
use crate::spool::index::{decode_exit, encode_exit};
use card::micros;
pub use card::{Card, Launch};

/// Both sides must speak the same; an owner of another version is refused by name.
pub const VERSION: u32 = 1;

/// The keeper's name of a process; never used twice.
pub type Number = u64;

/// What an owner says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// First words.
    Hello {
        /// The owner's version.
        version: u32,
    },
    /// Start this. Comes with no descriptors; answered by [`Tell::Started`] or [`Tell::Refused`].
    Start {
        /// Comes back.
        ticket: u64,
        /// What.
        launch: Box<Launch>,
    },
    /// Signal its group. Answered by [`Tell::Signalled`].
    Signal {
        /// Comes back.
        ticket: u64,
        /// Which.
        number: Number,
        /// What.
        signal: i32,
    },
    /// End its tree. Answered by [`Tell::Terminated`], when it is gone.
    Terminate {
        /// Comes back.
        ticket: u64,
        /// Which.
        number: Number,
        /// Between TERM and KILL.
        grace: Duration,
    },
    /// Who is in its tree? Answered by [`Tell::Members`].
    Members {
        /// Comes back.
        ticket: u64,
        /// Which.
        number: Number,
    },
    /// Hold this file too (one descriptor).
    Keep {
        /// Whose.
        number: Number,
        /// What it is.
        part: Part,
    },
    /// Close your side of these.
    Drop {
        /// Whose.
        number: Number,
        /// Which.
        part: Part,
    },
    /// Let go of it altogether; its tree is killed if it is not gone.
    Forget {
        /// Which.
        number: Number,
    },
    /// Kill every tree and end.
    End,
}

/// What a keeper says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    /// Answer to hello; then come `processes` times [`Tell::Found`].
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
    Found {
        /// Its number.
        number: Number,
        /// Its pid.
        pid: u32,
        /// How its leader ended, if it did.
        exit: Option<Exit>,
        /// Which descriptors came, in order.
        parts: Vec<Part>,
        /// What was kept of it.
        card: Box<Card>,
    },
    /// It runs; its descriptors come along.
    Started {
        /// From the request.
        ticket: u64,
        /// Its number.
        number: Number,
        /// Its pid.
        pid: u32,
        /// Which descriptors came, in order.
        parts: Vec<Part>,
    },
    /// It could not be started.
    Refused {
        /// From the request.
        ticket: u64,
        /// Which step.
        step: Step,
        /// The kernel's reason.
        errno: i32,
        /// What the step was about.
        subject: OsString,
    },
    /// Its leader was reaped.
    Exited {
        /// Which.
        number: Number,
        /// How.
        exit: Exit,
    },
    /// The signal was sent (0) or why not.
    Signalled {
        /// From the request.
        ticket: u64,
        /// 0 or the kernel's reason.
        errno: i32,
    },
    /// The tree is gone, or what is left of it.
    Terminated {
        /// From the request.
        ticket: u64,
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
        ticket: u64,
        /// Their pids.
        pids: Vec<u32>,
    },
}

/// A descriptor both sides hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Part {
    /// The leader, to notice its end if the keeper is gone.
    Pidfd = 1,
    /// Write end of its stdin.
    Stdin = 2,
    /// Read end of its stdout.
    Stdout = 3,
    /// Read end of its stderr.
    Stderr = 4,
    /// Its terminal.
    Master = 5,
    /// Read end of the pipe between terminal and file.
    RelayOut = 6,
    /// Write end of it.
    RelayIn = 7,
    /// The index of its log.
    Index = 8,
    /// Data file of stdout or the terminal.
    Data0 = 9,
    /// Data file of stderr.
    Data1 = 10,
    /// The notes of its stdin writes.
    Ledger = 11,
}

impl Part {
    const ALL: [Part; 11] = [
        Part::Pidfd,
        Part::Stdin,
        Part::Stdout,
        Part::Stderr,
        Part::Master,
        Part::RelayOut,
        Part::RelayIn,
        Part::Index,
        Part::Data0,
        Part::Data1,
        Part::Ledger,
    ];

    fn decode(byte: u8) -> Result<Self, Garbled> {
        Self::ALL.into_iter().find(|part| *part as u8 == byte).ok_or(Garbled)
    }

    /// A file of a log.
    pub fn of(kept: Kept) -> Self {
        match kept {
            Kept::Index => Part::Index,
            Kept::Data(0) => Part::Data0,
            Kept::Data(_) => Part::Data1,
        }
    }

    /// The stream this is the source of.
    pub fn stream(self) -> Option<Stream> {
        match self {
            Part::Stdout => Some(Stream::Stdout),
            Part::Stderr => Some(Stream::Stderr),
            Part::Master => Some(Stream::Pty),
            _ => None,
        }
    }
}

/// The steps of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
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

impl Step {
    fn decode(byte: u8) -> Result<Self, Garbled> {
        use Step::{Clone, Cwd, Exec, Pipe, Pty, Session, Spool};
        [Spool, Pipe, Pty, Clone, Session, Cwd, Exec].into_iter().find(|step| *step as u8 == byte).ok_or(Garbled)
    }
}

impl Ask {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Ask::Hello { version } => Writer::tagged(1).u32(*version),
            Ask::Start { ticket, launch } => launch.encode(Writer::tagged(2).u64(*ticket)),
            Ask::Signal { ticket, number, signal } => Writer::tagged(3).u64(*ticket).u64(*number).u32(*signal as u32),
            Ask::Terminate { ticket, number, grace } => Writer::tagged(4).u64(*ticket).u64(*number).u64(micros(*grace)),
            Ask::Members { ticket, number } => Writer::tagged(5).u64(*ticket).u64(*number),
            Ask::Keep { number, part } => Writer::tagged(6).u64(*number).u8(*part as u8),
            Ask::Drop { number, part } => Writer::tagged(7).u64(*number).u8(*part as u8),
            Ask::Forget { number } => Writer::tagged(8).u64(*number),
            Ask::End => Writer::tagged(9),
        }
        .finish()
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader::new(bytes);
        let ask = match reader.u8()? {
            1 => Ask::Hello { version: reader.u32()? },
            2 => Ask::Start { ticket: reader.u64()?, launch: Box::new(Launch::decode(&mut reader)?) },
            3 => Ask::Signal { ticket: reader.u64()?, number: reader.u64()?, signal: reader.u32()? as i32 },
            4 => Ask::Terminate {
                ticket: reader.u64()?,
                number: reader.u64()?,
                grace: Duration::from_micros(reader.u64()?),
            },
            5 => Ask::Members { ticket: reader.u64()?, number: reader.u64()? },
            6 => Ask::Keep { number: reader.u64()?, part: Part::decode(reader.u8()?)? },
            7 => Ask::Drop { number: reader.u64()?, part: Part::decode(reader.u8()?)? },
            8 => Ask::Forget { number: reader.u64()? },
            9 => Ask::End,
            _ => return Err(Garbled),
        };
        reader.end()?;
        Ok(ask)
    }
}

impl Tell {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Tell::Welcome { version, pid, processes } => Writer::tagged(1).u32(*version).u32(*pid).u32(*processes),
            Tell::Found { number, pid, exit, parts, card } => {
                let writer = Writer::tagged(2).u64(*number).u32(*pid).bytes(&parts_bytes(parts));
                let exit = exit.map(|exit| encode_exit(0, &exit).to_vec()).unwrap_or_default();
                card.encode(writer.bytes(&exit))
            }
            Tell::Busy { owner_pid } => Writer::tagged(9).u32(*owner_pid),
            Tell::Started { ticket, number, pid, parts } => {
                Writer::tagged(3).u64(*ticket).u64(*number).u32(*pid).bytes(&parts_bytes(parts))
            }
            Tell::Refused { ticket, step, errno, subject } => {
                Writer::tagged(4).u64(*ticket).u8(*step as u8).u32(*errno as u32).bytes(subject.as_bytes())
            }
            Tell::Exited { number, exit } => Writer::tagged(5).u64(*number).bytes(&encode_exit(0, exit)),
            Tell::Signalled { ticket, errno } => Writer::tagged(6).u64(*ticket).u32(*errno as u32),
            Tell::Terminated { ticket, was_running, ended, left } => {
                Writer::tagged(7).u64(*ticket).u8(u8::from(*was_running)).u32(*ended).u32(*left)
            }
            Tell::Members { ticket, pids } => {
                let pids: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
                Writer::tagged(8).u64(*ticket).bytes(&pids)
            }
        }
        .finish()
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader::new(bytes);
        let tell = match reader.u8()? {
            1 => Tell::Welcome { version: reader.u32()?, pid: reader.u32()?, processes: reader.u32()? },
            2 => {
                let (number, pid, parts) = (reader.u64()?, reader.u32()?, parts_from(reader.bytes()?)?);
                let exit = decode_exit(reader.bytes()?).map(|(_, exit)| exit);
                Tell::Found { number, pid, exit, parts, card: Box::new(Card::decode(&mut reader)?) }
            }
            3 => Tell::Started {
                ticket: reader.u64()?,
                number: reader.u64()?,
                pid: reader.u32()?,
                parts: parts_from(reader.bytes()?)?,
            },
            4 => Tell::Refused {
                ticket: reader.u64()?,
                step: Step::decode(reader.u8()?)?,
                errno: reader.u32()? as i32,
                subject: reader.os()?,
            },
            5 => Tell::Exited { number: reader.u64()?, exit: decode_exit(reader.bytes()?).ok_or(Garbled)?.1 },
            6 => Tell::Signalled { ticket: reader.u64()?, errno: reader.u32()? as i32 },
            7 => Tell::Terminated {
                ticket: reader.u64()?,
                was_running: reader.u8()? != 0,
                ended: reader.u32()?,
                left: reader.u32()?,
            },
            8 => {
                let ticket = reader.u64()?;
                let pids = reader.bytes()?.chunks_exact(4);
                let pids = pids.map(|pid| u32::from_le_bytes([pid[0], pid[1], pid[2], pid[3]])).collect();
                Tell::Members { ticket, pids }
            }
            9 => Tell::Busy { owner_pid: reader.u32()? },
            _ => return Err(Garbled),
        };
        reader.end()?;
        Ok(tell)
    }
}

fn parts_bytes(parts: &[Part]) -> Vec<u8> {
    parts.iter().map(|part| *part as u8).collect()
}

fn parts_from(bytes: &[u8]) -> Result<Vec<Part>, Garbled> {
    bytes.iter().map(|byte| Part::decode(*byte)).collect()
}
