//! A semaphore between a test and its actors: an actor waits in the verb `acquire PATH` until the test releases it.
//!
//! It is a FIFO in which each byte is one permit. The test holds both of its ends, so that neither side ever waits for
//! the other to open it, and an actor can still be waiting when everything else of its process has ended.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};

#[derive(Debug)]
pub struct FifoSemaphore {
    path: PathBuf,
    both_ends: File,
}

impl FifoSemaphore {
    /// Creates the FIFO, without a permit.
    pub fn new(path: PathBuf) -> Self {
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("the scratch directory is ours and the name is new");
        let both_ends = File::options().read(true).write(true).open(&path).expect("it was made a moment ago");
        Self { path, both_ends }
    }

    /// The verb with which an actor waits for a permit, for use inside a script.
    pub fn acquire(&self) -> String {
        format!("acquire {}", self.path().display())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets one actor go on, now or when it comes to wait.
    pub fn release(&self) {
        (&self.both_ends).write_all(b"!").expect("a FIFO that we read ourselves has room for a byte");
    }

    /// Takes `permits` that shell scripts have released with `echo > PATH`; waits until there are so many.
    pub async fn acquire_many(&self, permits: usize) {
        let mut both_ends = self.both_ends.try_clone().expect("one more descriptor");
        let wait = tokio::task::spawn_blocking(move || both_ends.read_exact(&mut vec![0; permits]));
        wait.await.expect("reading does not panic").expect("a FIFO that we write ourselves never ends");
    }
}
