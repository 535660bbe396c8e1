//! Contents: how a file is opened and written, and how its contents are recognised.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use super::LinkPolicy;

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenMode {
    /// Reading a file that exists.
    #[default]
    Read,
    /// Writing an empty file: it is created, or truncated at once.
    Replace,
    /// Writing more: it is created, or kept as it is. Blocks still go where their offset says, so that one that is sent
    /// twice after a broken connection is written to the same offset.
    Append,
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBlock {
    /// As many as were asked for, or fewer at the end of the file.
    pub bytes: Bytes,
    /// There were fewer bytes than were asked for. Not set by a block that ends exactly at the end of the file.
    pub eof: bool,
}

/// Options of [`super::Files::write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Add to the end instead of replacing.
    pub append: bool,
    /// Write only if the file is what the caller expects.
    pub expect: ExpectedFile,
    /// Return only when the bytes would survive a power cut.
    pub sync: bool,
    /// What to do with links in the path.
    pub links: LinkPolicy,
    /// Permission bits of the result. `None`: as they were, or 0666 less the umask for a new file.
    pub mode: Option<u32>,
}

/// What the caller expects a file to be before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpectedFile {
    /// The caller does not care.
    #[default]
    Anything,
    /// The file does not exist.
    Absent,
    /// The file has these contents.
    Content(ContentHash),
}

/// BLAKE3 of a file's contents; as text, 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(pub blake3::Hash);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

/// The text is no content hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a content hash is 64 hexadecimal digits (BLAKE3)")]
pub struct BadContentHash;

impl FromStr for ContentHash {
    type Err = BadContentHash;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text).map(Self).map_err(|_| BadContentHash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_what_it_prints() {
        let hash = ContentHash(std::array::from_fn(|i| i as u8 * 7).into());
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
        assert_eq!("zz".repeat(32).parse::<ContentHash>(), Err(BadContentHash));
        assert_eq!("ab".parse::<ContentHash>(), Err(BadContentHash));
    }
}
