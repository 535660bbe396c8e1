//! Reading whole files, and files that stay open for blocks.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use exec_env::files::limits::{BLOCK_BYTES, READ_BYTES};
use exec_env::files::{
    FileBlock, FileError, FileFuture, FileKind, FileReason, FileVerb, LinkPolicy, OpenFile, OpenMode,
};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags, fstat, ftruncate};
use rustix::io::{Errno, pread, pwrite, read as read_some, retry_on_intr};

use super::blocking::PoolWithRights;
use super::policy::{CallPolicy, Wanted};
use super::resolve::{
    ResolvedPath, kind_of, not_a_file, open_handle, open_regular, os, refused_as_mount, size_bytes, why_not_created,
};
use crate::descriptors::DescriptorPermit;

pub(super) fn read(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Result<Bytes, FileReason> {
    let too_large = FileReason::TooLarge { limit_bytes: READ_BYTES };
    let (file, stat) = open_regular(policy, path, links, OFlags::RDONLY)?;
    if size_bytes(&stat) > READ_BYTES {
        return Err(too_large);
    }
    // Files of /proc have a size of 0 and are not empty, so the size is only a hint.
    let mut bytes = Vec::new();
    let hint = usize::try_from(size_bytes(&stat)).unwrap_or(0).max(4096) + 1;
    bytes.try_reserve_exact(hint).map_err(|_| os(Errno::NOMEM))?;
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.try_reserve(bytes.len()).map_err(|_| os(Errno::NOMEM))?;
        }
        let got = retry_on_intr(|| read_some(&file, spare_capacity(&mut bytes))).map_err(os)?;
        if got == 0 {
            return Ok(Bytes::from(bytes));
        }
        if bytes.len() as u64 > READ_BYTES {
            return Err(too_large);
        }
    }
}

pub(super) fn open(
    policy: &CallPolicy,
    path: PathBuf,
    mode: OpenMode,
    links: LinkPolicy,
    permit: DescriptorPermit,
    pool: PoolWithRights,
) -> Result<LocalFile, FileError> {
    let opened = match mode {
        OpenMode::Read => open_regular(policy, &path, links, OFlags::RDONLY),
        OpenMode::Replace => open_for_writing(policy, &path, links).and_then(|(file, mut stat)| {
            ftruncate(&file, 0).map_err(os)?;
            stat.st_size = 0;
            Ok((file, stat))
        }),
        OpenMode::Append => open_for_writing(policy, &path, links),
    };
    let (file, stat) = opened.map_err(|reason| FileError::new(FileVerb::Open, path.clone(), reason))?;
    let file = Arc::new(HeldFile { descriptor: file, _permit: permit });
    Ok(LocalFile { file, size_bytes: size_bytes(&stat), path, pool })
}

fn open_for_writing(
    policy: &CallPolicy,
    path: &Path,
    links: LinkPolicy,
) -> Result<(OwnedFd, rustix::fs::Stat), FileReason> {
    match open_handle(policy, path, links, Wanted::Read).and_then(|handle| fstat(&handle)) {
        Ok(stat) if kind_of(&stat) == FileKind::Directory => return Err(os(Errno::ISDIR)),
        Ok(_) => return open_regular(policy, path, links, OFlags::WRONLY),
        Err(Errno::NOENT) => {}
        Err(errno) => {
            let resolved = ResolvedPath::resolve_to_end(policy, path, links);
            return Err(os(resolved.map_or(errno, |resolved| refused_as_mount(&resolved, errno))));
        }
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // Also through a link to a file that does not exist: the file is created.
    let file = ResolvedPath::resolve_to_end(policy, path, links)
        .and_then(|resolved| match resolved.is_missing_protected() {
            true => Err(Errno::ISDIR),
            false => resolved.open(flags, Mode::from_raw_mode(0o666)),
        })
        .map_err(|errno| os(why_not_created(policy, path, links, errno)))?;
    let stat = fstat(&file).map_err(os)?;
    match kind_of(&stat) {
        FileKind::File => Ok((file, stat)),
        _ => Err(not_a_file(links)),
    }
}

/// An open file, and the right to have it open, which ends after it.
struct HeldFile {
    descriptor: OwnedFd,
    _permit: DescriptorPermit,
}

/// A file of this machine, open for blocks.
pub(super) struct LocalFile {
    /// Shared with calls that are running, which may outlive a caller that stopped waiting.
    file: Arc<HeldFile>,
    path: PathBuf,
    size_bytes: u64,
    pool: PoolWithRights,
}

impl LocalFile {
    fn error(&self, verb: FileVerb, reason: FileReason) -> FileError {
        FileError::new(verb, self.path.clone(), reason)
    }
}

impl OpenFile for LocalFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_block(&self, offset: u64, len: usize) -> FileFuture<'_, FileBlock> {
        Box::pin(async move {
            if !(1..=BLOCK_BYTES).contains(&len) {
                return Err(self.error(FileVerb::ReadBlock, FileReason::ReadBlockLength));
            }
            let file = Arc::clone(&self.file);
            // Allocated here and not on the blocking thread: the allocator keeps freed memory per thread, and there are
            // many of those threads.
            let block = Vec::with_capacity(len);
            let read = self.pool.run(move |_| read_at(&file.descriptor, offset, len, block)).await.flatten();
            let bytes = read.map_err(|errno| self.error(FileVerb::ReadBlock, os(errno)))?;
            Ok(FileBlock { eof: bytes.len() < len, bytes: Bytes::from(bytes) })
        })
    }

    fn write_block(&self, offset: u64, bytes: Bytes) -> FileFuture<'_, ()> {
        Box::pin(async move {
            if !(1..=BLOCK_BYTES).contains(&bytes.len()) {
                return Err(self.error(FileVerb::WriteBlock, FileReason::WriteBlockLength));
            }
            let end = offset.checked_add(bytes.len() as u64);
            if end.is_none_or(|end| i64::try_from(end).is_err()) {
                return Err(self.error(FileVerb::WriteBlock, FileReason::WriteRange));
            }
            let file = Arc::clone(&self.file);
            let written = self.pool.run(move |_| write_at(&file.descriptor, offset, &bytes)).await.flatten();
            written.map_err(|errno| self.error(FileVerb::WriteBlock, os(errno)))
        })
    }

    fn close(self: Box<Self>) -> FileFuture<'static, ()> {
        Box::pin(async move {
            let Self { file, pool, .. } = *self;
            // Closing a file on a network file system may have to write first, which blocks.
            // Without a thread for it, the file is closed with the call that did not begin.
            let _closed = pool.run(move |_| drop(file)).await;
            Ok(())
        })
    }
}

/// Reads `len` bytes, fewer only at the end of the file, into the memory of `bytes`.
fn read_at(file: &OwnedFd, mut offset: u64, len: usize, mut bytes: Vec<u8>) -> Result<Vec<u8>, Errno> {
    while bytes.len() < len {
        match retry_on_intr(|| pread(file, spare_capacity(&mut bytes), offset))? {
            0 => break,
            got => offset += got as u64,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn write_at(file: &OwnedFd, mut offset: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let put = retry_on_intr(|| pwrite(file, bytes, offset))?;
        if put == 0 {
            return Err(Errno::IO);
        }
        bytes = &bytes[put..];
        offset += put as u64;
    }
    Ok(())
}
