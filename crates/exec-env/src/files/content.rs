//! Contents: how a file is opened, written, and recognised.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use super::LinkPolicy;

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenMode {
    /// Reading what is there.
    #[default]
    Read,
    /// Writing from nothing: it is created, or emptied at once.
    Replace,
    /// Writing on: it is created, or kept as it is. Blocks still go where their offset says, so that one that is
    /// sent twice after a broken connection lands in the same place.
    Append,
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBlock {
    /// The bytes.
    pub bytes: Bytes,
    /// Fewer bytes were there than were asked for. A block that ends exactly at the end does not know it.
    pub eof: bool,
}

/// How to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Add to the end instead of replacing.
    pub append: bool,
    /// Write only if the file is what the caller thinks it is.
    pub expect: ExpectedFile,
    /// Answer only when the bytes would survive a power cut.
    pub sync: bool,
    /// What links in the path are worth.
    pub links: LinkPolicy,
    /// Permission bits of the result. `None`: as they were, or 0666 less the umask for a new file.
    pub mode: Option<u32>,
}

/// What the caller thinks a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpectedFile {
    /// Does not matter.
    #[default]
    Anything,
    /// It does not exist.
    Absent,
    /// It has these contents.
    Content(ContentHash),
}

/// BLAKE3 of a file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

/// Text that is no content hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a content hash is 64 hexadecimal digits (BLAKE3)")]
pub struct BadContentHash;

impl FromStr for ContentHash {
    type Err = BadContentHash;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(BadContentHash);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(hash))
    }
}

fn nibble(digit: u8) -> Result<u8, BadContentHash> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(BadContentHash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_what_it_prints() {
        let hash = ContentHash(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!("zz".repeat(32).parse::<ContentHash>(), Err(BadContentHash));
        assert_eq!("ab".parse::<ContentHash>(), Err(BadContentHash));
    }
}
