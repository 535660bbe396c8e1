//! A door between a test and its actors: the actor waits at it (`gate PATH`) until the test lets it through.
//!
//! It is a FIFO. The test holds both of its ends, so that neither side ever waits for the other to open it, and an
//! actor can still be waiting when everything else of its process has ended.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};

/// One FIFO, held open.
#[derive(Debug)]
pub struct Gate {
    path: PathBuf,
    both_ends: File,
}

impl Gate {
    /// Makes a closed gate.
    pub fn new(path: PathBuf) -> Self {
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("the scratch folder is ours and the name is new");
        let both_ends = File::options().read(true).write(true).open(&path).expect("it was made a moment ago");
        Self { path, both_ends }
    }

    /// The verb with which an actor waits here: for use inside a script.
    pub fn wait(&self) -> String {
        format!("gate {}", self.path().display())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets one waiting actor through, now or when it comes.
    pub fn open_once(&self) {
        (&self.both_ends).write_all(b"!").expect("a FIFO that we read ourselves has room for a byte");
    }
}
