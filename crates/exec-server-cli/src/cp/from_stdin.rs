//! `cp - PATH` and `fs write`: our stdin becomes a file, of any size, in little memory. It appears under its name whole or
//! not at all, unless it is added to a file that is there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use exec_client::files::stream::{WriteStream, fingerprint};
use exec_env::files::{
    FileError, FileKind, FileReason, FileVerb, LinkPolicy, OpenMode, RemoveOptions, RenameOptions, WriteOptions,
};
use exec_wire::{Extension, Method};
use libc::{EISDIR, ENOSYS};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::copier::retry_unreachable;
use crate::connection_status::LinkMonitors;
use crate::location::FilePath;
use crate::{runtime, signal_listener, stdio};

/// As much as is read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Blocks that were read and are not on their way yet.
const BLOCKS: usize = 2;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StdinOptions {
    /// Add to the end of what is there.
    pub(crate) append: bool,
    /// Permission bits; those of the file that is replaced, or the usual ones, if `None`.
    pub(crate) mode: Option<u32>,
}

pub(crate) enum StdinEnd {
    Written {
        bytes: u64,
    },
    /// By this signal; nothing is left behind, but for what `append` has added.
    Interrupted(i32),
}

pub(crate) async fn write(
    file: &FilePath,
    options: StdinOptions,
    links: &mut LinkMonitors,
) -> anyhow::Result<StdinEnd> {
    let mut signals = signal_listener::stop_signals().context("cannot wait for signals")?;
    let target = StdinTarget::inspect(file, options).await?;
    let outcome = tokio::select! {
        written = links.report_during(target.fill(options)) => written.map(|bytes| StdinEnd::Written { bytes }),
        number = signals.next() => Ok(StdinEnd::Interrupted(number)),
    };
    if !matches!(outcome, Ok(StdinEnd::Written { .. })) {
        target.clean_up().await;
    }
    outcome
}

struct StdinTarget<'a> {
    file: &'a FilePath,
    /// Where links lead to: what is there is replaced, and the link stays.
    path: PathBuf,
    /// Filled and then renamed; the file itself if we add to it.
    written: PathBuf,
    mode: Option<u32>,
}

impl<'a> StdinTarget<'a> {
    async fn inspect(file: &'a FilePath, options: StdinOptions) -> anyhow::Result<Self> {
        let files = file.files();
        let present = match files.metadata(&file.path, LinkPolicy::Follow).await {
            Ok(metadata) => Some(metadata),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        if present.as_ref().is_some_and(|metadata| metadata.kind == FileKind::Directory) || file.must_be_directory() {
            let reason = FileReason::Os(EISDIR);
            return Err(FileError { verb: FileVerb::Write, path: file.path.clone(), reason }.into());
        }
        let path = match &present {
            Some(_) => files.canonicalize(&file.path).await?,
            None => file.path.clone(),
        };
        // A device or a FIFO is written to, and not replaced.
        let in_place = options.append || present.as_ref().is_some_and(|metadata| metadata.kind != FileKind::File);
        let written = match in_place {
            true => path.clone(),
            false => path.with_file_name(format!(".exec-server-write-{:016x}", runtime::random())),
        };
        // Without set-user-id and set-group-id: the new file is ours, whosever the old one was.
        let mode = options.mode.or(present.map(|metadata| metadata.mode & 0o1777));
        Ok(Self { file, path, written, mode })
    }

    fn is_temporary(&self) -> bool {
        self.written != self.path
    }

    async fn fill(&self, options: StdinOptions) -> anyhow::Result<u64> {
        // Errors name the file that the user knows.
        let named = |error: FileError| FileError { path: self.path.clone(), ..error };
        let (files, location) = (self.file.files(), &self.file.location);
        let sets_mode = self.mode.filter(|_| location.supports(Method::FsSetPermissions));
        if self.is_temporary() && sets_mode.is_some() && location.supports(Extension::WRITE_FILE_MODE) {
            // While it is filled, nobody may read what its mode will forbid.
            let private = WriteOptions { mode: Some(0o600), ..WriteOptions::default() };
            files.write(&self.written, Bytes::new(), private).await.map_err(named)?;
        }
        let open_mode = if options.append { OpenMode::Append } else { OpenMode::Replace };
        let opened = files.open(&self.written, open_mode, LinkPolicy::Follow).await.map_err(named)?;
        let begin = if options.append { opened.size_bytes() } else { 0 };
        let mut stream = WriteStream::new(Arc::from(opened), begin);
        let mut blocks = read_stdin()?;
        while let Some(block) = blocks.recv().await {
            let block = block.context("cannot read stdin")?;
            stream.write_all(&block).await.map_err(|error| self.write_error(error))?;
        }
        stream.flush().await.map_err(|error| self.write_error(error))?;
        let (bytes, hash) = (stream.position() - begin, stream.hash());
        drop(stream);
        if let Some(mode) = sets_mode.filter(|_| self.is_temporary() || options.mode.is_some()) {
            files.set_permissions(&self.written, mode, LinkPolicy::Follow).await.map_err(named)?;
        }
        if self.is_temporary() {
            match fingerprint(files, &self.written, LinkPolicy::Follow).await {
                Ok(written) if written != hash => bail!("{} was not written as it was sent", self.path.display()),
                Err(error) if error.errno() != Some(ENOSYS) => return Err(named(error).into()),
                _ => {}
            }
            self.rename().await.map_err(named)?;
        }
        Ok(bytes)
    }

    async fn rename(&self) -> Result<(), FileError> {
        let options = RenameOptions { no_replace: false, links: LinkPolicy::Follow };
        let (renamed, unsure) =
            retry_unreachable(|| self.file.files().rename(&self.written, &self.path, options)).await;
        match renamed {
            // Nobody else knows the temporary name, so an earlier attempt, whose reply was lost, has renamed it.
            Err(error) if error.is_not_found() && unsure => Ok(()),
            other => other,
        }
    }

    /// tokio's traits carry a number only.
    fn write_error(&self, error: std::io::Error) -> anyhow::Error {
        match error.raw_os_error() {
            Some(errno) => {
                let reason = FileReason::Os(errno);
                FileError { verb: FileVerb::Write, path: self.path.clone(), reason }.into()
            }
            None => anyhow::Error::new(error).context(format!("cannot write {}", self.path.display())),
        }
    }

    /// A failure is not reported: the user has seen already why the file is removed.
    async fn clean_up(&self) {
        if self.is_temporary() {
            let options = RemoveOptions { recursive: false, force: true, links: LinkPolicy::Follow };
            if let Err(error) = self.file.files().remove(Path::new(&self.written), options).await {
                tracing::debug!(%error, path = %self.written.display(), "a temporary file stays");
            }
        }
    }
}

/// A thread reads, because a read may last for ever; it is not joined, and ends with our process.
fn read_stdin() -> anyhow::Result<mpsc::Receiver<std::io::Result<Bytes>>> {
    let (sender, blocks) = mpsc::channel(BLOCKS);
    let read = move || {
        loop {
            let mut block = Vec::with_capacity(BLOCK_BYTES);
            let read = std::io::Read::take(stdio::stdin(), BLOCK_BYTES as u64);
            let block = match std::io::Read::read_to_end(&mut { read }, &mut block) {
                Ok(0) => return,
                Ok(_) => Ok(block.into()),
                Err(error) => Err(error),
            };
            let failed = block.is_err();
            if sender.blocking_send(block).is_err() || failed {
                return;
            }
        }
    };
    std::thread::Builder::new().name("stdin".into()).spawn(read).context("cannot start the thread of stdin")?;
    Ok(blocks)
}
