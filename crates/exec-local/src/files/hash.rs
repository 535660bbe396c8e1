//! The hash of a file of any size, in little memory and piece by piece.
//!
//! Each piece is a call of its own on the pool, so a large file occupies no thread for long, and a caller that is gone
//! stops the work after the current piece. Deliberately absent: the loop over the pieces, which is the verb itself.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;

use exec_env::files::limits::READ_BYTES;
use exec_env::files::{FileHash, FileReason, HashAlgorithm, LinkPolicy};
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;
use sha2::Digest;

use super::policy::CallPolicy;
use super::resolve::{open_regular, os, size_bytes};

/// What a hash reads in one short call. Between two of them others have their turn, and a caller that is gone is noticed.
const HASH_PIECE_BYTES: usize = 1 << 20;

/// What a hash reads at once. Its memory, while it waits for its turn.
const HASH_BUFFER_BYTES: usize = 64 << 10;

/// A file that is hashed up to some point.
pub(super) struct PartialHash {
    file: OwnedFd,
    hasher: Hasher,
    hashed_bytes: u64,
    limit_bytes: u64,
    buffer: Vec<u8>,
}

impl PartialHash {
    pub(super) fn open(
        policy: &CallPolicy,
        path: &Path,
        algorithm: HashAlgorithm,
        links: LinkPolicy,
    ) -> Result<Self, FileReason> {
        let (file, stat) = open_regular(policy, path, links, OFlags::RDONLY)?;
        Ok(Self {
            file,
            hasher: Hasher::new(algorithm),
            hashed_bytes: 0,
            // The size is only a hint: a file of /proc has none, and a log grows. But the end must come.
            limit_bytes: size_bytes(&stat).saturating_add(READ_BYTES),
            buffer: vec![0; HASH_BUFFER_BYTES],
        })
    }

    /// Reads the next piece. Ends with the hash at the end of the file.
    pub(super) fn add_piece(mut self) -> Result<ControlFlow<FileHash, Self>, FileReason> {
        for _ in 0..HASH_PIECE_BYTES / HASH_BUFFER_BYTES {
            let got = retry_on_intr(|| rustix::io::read(&self.file, &mut self.buffer)).map_err(os)?;
            if got == 0 {
                let hash = FileHash { digest: self.hasher.finalize(), size_bytes: self.hashed_bytes };
                return Ok(ControlFlow::Break(hash));
            }
            self.hasher.update(&self.buffer[..got]);
            self.hashed_bytes += got as u64;
            if self.hashed_bytes > self.limit_bytes {
                return Err(FileReason::TooLarge { limit_bytes: self.limit_bytes });
            }
        }
        Ok(ControlFlow::Continue(self))
    }
}

/// One of the algorithms at work.
enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
}

impl Hasher {
    fn new(algorithm: HashAlgorithm) -> Self {
        match algorithm {
            HashAlgorithm::Blake3 => Self::Blake3(Box::default()),
            HashAlgorithm::Sha256 => Self::Sha256(sha2::Sha256::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Sha256(hasher) => hasher.update(bytes),
        }
    }

    fn finalize(self) -> [u8; 32] {
        match self {
            Self::Blake3(hasher) => hasher.finalize().into(),
            Self::Sha256(hasher) => hasher.finalize().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use exec_env::files::Files as _;

    use super::super::LocalFiles;
    use super::super::blocking::{BlockingPool, PoolSize};
    use super::*;

    /// How many descriptors of this process lead to the file.
    fn descriptors(path: &Path) -> usize {
        let entries = std::fs::read_dir("/proc/self/fd").expect("Linux has it").flatten();
        entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path)).count()
    }

    #[tokio::test]
    async fn a_hash_lets_others_in_between_and_stops_when_nobody_waits_for_it() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().canonicalize().expect("it exists").join("hole");
        // To hash that many zeros takes longer than a test may.
        std::fs::File::create(&path).and_then(|file| file.set_len(1 << 42)).expect("a hole takes no space");
        let one = PoolSize { per_caller: 1, at_once: 1, threads: 1 };
        let files = LocalFiles { short: BlockingPool::new(one), ..LocalFiles::open(None) };
        let mut hashing = files.hash(&path, HashAlgorithm::Sha256, LinkPolicy::Follow);
        for _ in 0..3 {
            tokio::select! {
                biased;
                hash = &mut hashing => panic!("it cannot be done yet: {hash:?}"),
                metadata = files.metadata(&path, LinkPolicy::Follow) => drop(metadata.expect("it is there")),
            }
            assert_eq!(descriptors(&path), 1, "it is being hashed");
        }
        drop(hashing);
        // A piece that is being read ends first. There is only one thread to wait for.
        while descriptors(&path) != 0 {
            files.metadata(&path, LinkPolicy::Follow).await.expect("it is there");
        }
    }

    #[test]
    fn a_file_that_grows_is_hashed_up_to_the_limit_and_not_beyond() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 10]).expect("the directory is ours");
        let hash = |limit_bytes| {
            let policy = CallPolicy::default();
            let opened = PartialHash::open(&policy, &path, HashAlgorithm::Blake3, LinkPolicy::Follow);
            let opened = opened.expect("it is a file");
            assert_eq!(opened.limit_bytes, 10 + READ_BYTES);
            PartialHash { limit_bytes, ..opened }.add_piece().map(ControlFlow::break_value)
        };
        let digest = blake3::hash(&[7; 10]).into();
        assert_eq!(hash(10), Ok(Some(FileHash { digest, size_bytes: 10 })));
        assert_eq!(hash(9), Err(FileReason::TooLarge { limit_bytes: 9 }));
    }
}
