//! The thread whose call is carried out: its memory, its directories and its descriptors.
//!
//! A thread is known by its number, and numbers are used again. So after everything that was read by it the kernel is asked
//! whether the thread still waits for us: then it was the right one.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::listener::{Listener, Notification, read_memory};

/// As much as the kernel itself takes of a path.
const PATH_BYTES: usize = libc::PATH_MAX as usize;
const PAGE_BYTES: u64 = 4096;

pub(super) struct Caller<'a> {
    listener: &'a Listener,
    id: u64,
    thread: u32,
}

impl<'a> Caller<'a> {
    pub(super) fn new(listener: &'a Listener, asked: &Notification) -> Self {
        Self { listener, id: asked.id, thread: asked.thread }
    }

    pub(super) fn path(&self, address: u64) -> Result<PathBuf, Errno> {
        Ok(PathBuf::from(OsStr::from_bytes(self.string(address, PATH_BYTES, Errno::NAMETOOLONG)?.as_bytes())))
    }

    /// A string of fewer than `limit` bytes, else `too_long`. Read page by page, because the next one may not be there.
    pub(super) fn string(&self, address: u64, limit: usize, too_long: Errno) -> Result<CString, Errno> {
        let mut bytes = Vec::new();
        let mut at = address;
        loop {
            let to_page_end = (PAGE_BYTES - at % PAGE_BYTES) as usize;
            let piece = self.memory(at, to_page_end.min(limit - bytes.len()))?;
            if piece.is_empty() {
                return Err(Errno::FAULT);
            }
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&piece[..end]);
                return CString::new(bytes).map_err(|_| Errno::INVAL);
            }
            at = at.checked_add(piece.len() as u64).ok_or(Errno::FAULT)?;
            bytes.extend_from_slice(&piece);
            if bytes.len() >= limit {
                return Err(too_long);
            }
        }
    }

    /// Exactly `length` bytes.
    pub(super) fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let bytes = if length == 0 { Vec::new() } else { self.memory(address, length)? };
        if bytes.len() == length { Ok(bytes) } else { Err(Errno::FAULT) }
    }

    /// `N` numbers of 64 bits.
    pub(super) fn numbers<const N: usize>(&self, address: u64) -> Result<[i64; N], Errno> {
        let bytes = self.bytes(address, N * 8)?;
        let mut numbers = [0; N];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = bytes.first_chunk().copied().map_or(0, i64::from_ne_bytes);
        }
        Ok(numbers)
    }

    fn memory(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let bytes = read_memory(self.thread, address, length)?;
        self.confirmed(bytes)
    }

    /// A handle of what a descriptor of the caller is, or of its working directory ([`libc::AT_FDCWD`]).
    pub(super) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        let path = match number {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.thread),
            number if number < 0 => return Err(Errno::BADF),
            number => format!("/proc/{}/fd/{number}", self.thread),
        };
        match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(handle) => self.confirmed(handle),
            Err(Errno::NOENT) => Err(Errno::BADF),
            Err(errno) => Err(errno),
        }
    }

    /// The number of the descriptor that a path names: `/dev/stdout`, `/proc/self/fd/1`. The kernel would take these for ours.
    pub(super) fn descriptor_named_by(&self, path: &Path) -> Option<i32> {
        let text = path.to_str()?;
        match text {
            "/dev/stdin" => return Some(0),
            "/dev/stdout" => return Some(1),
            "/dev/stderr" => return Some(2),
            _ => {}
        }
        let own = format!("/proc/{}/fd/", self.thread);
        let prefixes = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/", own.as_str()];
        let number = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
    }

    /// Which bits its new files do not get.
    pub(super) fn umask(&self) -> Result<u32, Errno> {
        let mask = umask_of(&format!("/proc/{}/status", self.thread))?;
        self.confirmed(mask)
    }

    /// The device number of its controlling terminal, as the kernel writes it; 0 if it has none.
    pub(super) fn terminal(&self) -> Result<u64, Errno> {
        let stat = read(&format!("/proc/{}/stat", self.thread))?;
        // The name of the program is in brackets and may have any bytes. Behind it: state, parent, group, session, terminal.
        let behind_name = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let number: i64 = behind_name.split_ascii_whitespace().nth(4).and_then(|word| word.parse().ok()).unwrap_or(0);
        self.confirmed(number as u64 & 0xffff_ffff)
    }

    fn confirmed<T>(&self, read: T) -> Result<T, Errno> {
        if self.listener.still_waits(self.id) { Ok(read) } else { Err(Errno::SRCH) }
    }
}

/// The mask that the kernel tells in a `status` file of `/proc`.
pub(super) fn umask_of(status: &str) -> Result<u32, Errno> {
    let status = read(status)?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).ok_or(Errno::IO)
}

fn read(path: &str) -> Result<String, Errno> {
    let bytes = std::fs::read(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
