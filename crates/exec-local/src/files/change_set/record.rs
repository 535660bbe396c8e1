//! What a journal says about a change set: the directories, the side files, and the steps. Values and bytes; no file here.
//!
//! A change set never writes into a file that has a name of the caller's. New contents are in a side file before, old ones
//! in a side file after; the steps only rename. Inode, size and time of modification tell for every name which of the two
//! has it, so that every step can be made again or undone, however far it had come.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::Stat;

/// Everything that is needed to finish a change set, or to clean up after it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) directories: Vec<DirectoryRecord>,
    /// All side files, whether they exist yet or not.
    pub(super) sides: Vec<Name>,
    /// Empty as long as nothing is decided.
    pub(super) steps: Vec<Step>,
}

/// A directory of the record's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DirectoryRecord {
    /// It was there. A directory that has this path by now but another inode is another one, and is left alone.
    Found { path: PathBuf, inode: u64 },
    /// The change set makes it, in the directory with that index.
    Made { parent: u32, name: OsString },
}

/// A name in one of the record's directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) directory: u32,
    pub(super) name: OsString,
}

/// Tells one file from another under the same name. A rename changes none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    size: i64,
    modified: i64,
    modified_nanos: i64,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        let modified_nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Self { inode: stat.st_ino, size: stat.st_size, modified: stat.st_mtime, modified_nanos }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    MakeDirectory {
        directory: u32,
    },
    /// A new file: from its side to a name that nothing has.
    Put {
        side: Name,
        target: Name,
        new: Identity,
    },
    /// New contents: side and target change places.
    Swap {
        side: Name,
        target: Name,
        old: Identity,
        new: Identity,
    },
    /// The file goes to the side.
    Take {
        side: Name,
        target: Name,
        old: Identity,
    },
    /// Another name for a file.
    Move {
        from: Name,
        to: Name,
        file: Identity,
    },
}

const FORMAT: &[u8; 8] = b"execed01";

impl Record {
    /// With a checksum at the end, so that a torn record is recognised.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(FORMAT.to_vec());
        out.list(&self.directories, |out, directory| match directory {
            DirectoryRecord::Found { path, inode } => out.tag(0).bytes(path.as_os_str()).number(*inode),
            DirectoryRecord::Made { parent, name } => out.tag(1).number(u64::from(*parent)).bytes(name),
        });
        out.list(&self.sides, Encoder::name);
        out.list(&self.steps, |out, step| match step {
            Step::MakeDirectory { directory } => out.tag(0).number(u64::from(*directory)),
            Step::Put { side, target, new } => out.tag(1).name(side).name(target).identity(new),
            Step::Swap { side, target, old, new } => out.tag(2).name(side).name(target).identity(old).identity(new),
            Step::Take { side, target, old } => out.tag(3).name(side).name(target).identity(old),
            Step::Move { from, to, file } => out.tag(4).name(from).name(to).identity(file),
        });
        let checksum = blake3::hash(&out.0);
        out.0.extend_from_slice(checksum.as_bytes());
        out.0
    }

    /// `None` if these bytes are no whole record.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if blake3::hash(body).as_bytes() != checksum {
            return None;
        }
        let mut input = Decoder(body.strip_prefix(FORMAT)?);
        let directories = input.list(|input| match input.tag()? {
            0 => Some(DirectoryRecord::Found { path: PathBuf::from(input.bytes()?), inode: input.number()? }),
            1 => Some(DirectoryRecord::Made { parent: input.index()?, name: input.bytes()? }),
            _ => None,
        })?;
        let sides = input.list(Decoder::name)?;
        let steps = input.list(|input| match input.tag()? {
            0 => Some(Step::MakeDirectory { directory: input.index()? }),
            1 => Some(Step::Put { side: input.name()?, target: input.name()?, new: input.identity()? }),
            2 => {
                let (side, target) = (input.name()?, input.name()?);
                Some(Step::Swap { side, target, old: input.identity()?, new: input.identity()? })
            }
            3 => Some(Step::Take { side: input.name()?, target: input.name()?, old: input.identity()? }),
            4 => Some(Step::Move { from: input.name()?, to: input.name()?, file: input.identity()? }),
            _ => None,
        })?;
        Some(Self { directories, sides, steps })
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn tag(&mut self, tag: u8) -> &mut Self {
        self.0.push(tag);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &OsStr) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes.as_bytes());
        self
    }

    fn name(&mut self, name: &Name) -> &mut Self {
        self.number(u64::from(name.directory)).bytes(&name.name)
    }

    fn identity(&mut self, identity: &Identity) -> &mut Self {
        self.number(identity.inode);
        for signed in [identity.size, identity.modified, identity.modified_nanos] {
            self.0.extend_from_slice(&signed.to_le_bytes());
        }
        self
    }

    fn list<T>(&mut self, items: &[T], each: impl for<'a> Fn(&'a mut Self, &T) -> &'a mut Self) {
        self.number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }
}

struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn tag(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
    }

    fn signed(&mut self) -> Option<i64> {
        self.take(8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_le_bytes)
    }

    fn index(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<OsString> {
        let len = self.number()?.try_into().ok()?;
        self.take(len).map(|bytes| OsString::from_vec(bytes.to_vec()))
    }

    fn name(&mut self) -> Option<Name> {
        Some(Name { directory: self.index()?, name: self.bytes()? })
    }

    fn identity(&mut self) -> Option<Identity> {
        let inode = self.number()?;
        Some(Identity { inode, size: self.signed()?, modified: self.signed()?, modified_nanos: self.signed()? })
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // The number is only a promise; memory grows with what is really there.
        let count = self.number()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(each(self)?);
        }
        Some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let identity = |inode| Identity { inode, size: 5, modified: -1, modified_nanos: 999 };
        let name = |directory, name: &[u8]| Name { directory, name: OsString::from_vec(name.to_vec()) };
        let (side, target) = (name(0, b".side"), name(1, b"\xff\n"));
        Record {
            directories: vec![
                DirectoryRecord::Found { path: "/a b".into(), inode: u64::MAX },
                DirectoryRecord::Made { parent: 0, name: "new".into() },
            ],
            sides: vec![side.clone()],
            steps: vec![
                Step::MakeDirectory { directory: 1 },
                Step::Put { side: side.clone(), target: target.clone(), new: identity(1) },
                Step::Swap { side: side.clone(), target: target.clone(), old: identity(2), new: identity(3) },
                Step::Take { side: side.clone(), target: target.clone(), old: identity(4) },
                Step::Move { from: side, to: target, file: identity(5) },
            ],
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        assert_eq!(Record::decode(&record().encode()), Some(record()));
    }

    #[test]
    fn a_record_that_is_torn_or_damaged_anywhere_is_none() {
        let whole = record().encode();
        for end in 0..whole.len() {
            assert_eq!(Record::decode(&whole[..end]), None, "cut at {end}");
            let mut damaged = whole.clone();
            damaged[end] ^= 1;
            assert_eq!(Record::decode(&damaged), None, "damaged at {end}");
        }
    }
}
