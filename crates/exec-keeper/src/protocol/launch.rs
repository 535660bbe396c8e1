//! What travels with a process: the request to start it, and the record by which a later owner knows it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use exec_core::flow::Quota;
use exec_core::{Io, Overflow, ProcessId, TerminalSize, TimeLimit};

use crate::codec::{MalformedMessage, Reader, Writer};

/// What a later owner must know of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    /// The owner's name for it.
    pub id: ProcessId,
    /// What was asked to run.
    pub argv: Vec<OsString>,
    /// Where.
    pub cwd: PathBuf,
    /// How it is wired.
    pub io: Io,
    /// How much it may hold.
    pub quota: Quota,
    /// When it was asked for.
    pub started: SystemTime,
    /// The owner's own words.
    pub label: Vec<u8>,
}

/// A request to start something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchRequest {
    /// What is kept of it.
    pub record: ProcessRecord,
    /// The child's own name for itself, if not `argv[0]`.
    pub arg0: Option<OsString>,
    /// The child's exact environment, as `NAME=VALUE`.
    pub environ: Vec<OsString>,
    /// Where plain program names are looked for.
    pub path: Option<OsString>,
    /// When to end it.
    pub time_limit: Option<TimeLimit>,
}

impl LaunchRequest {
    pub(super) fn encode(&self, writer: Writer) -> Writer {
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

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let arg0 = reader.strings()?.pop();
        let environ = reader.strings()?;
        let path = reader.strings()?.pop();
        let (after, grace) = (reader.u64()?, Duration::from_micros(reader.u64()?));
        let time_limit = (after != u64::MAX).then(|| TimeLimit { after: Duration::from_micros(after), grace });
        Ok(Self { record: ProcessRecord::decode(reader)?, arg0, environ, path, time_limit })
    }
}

impl ProcessRecord {
    pub(crate) fn encode(&self, writer: Writer) -> Writer {
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

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let id = ProcessId::new(reader.text()?).map_err(|_| MalformedMessage)?;
        let argv = reader.strings()?;
        let cwd = PathBuf::from(OsString::from_vec(reader.bytes()?.to_vec()));
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

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX - 1)
}
