//! What is known about a file without reading it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::SystemTime;

use bytes::Bytes;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; where links are followed, one whose target does not exist.
    Symlink,
    /// A FIFO, socket or device.
    Special,
}

/// What the kernel knows about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Where links are followed, the kind of what they lead to.
    pub kind: FileKind,
    /// Whether the path itself is a symbolic link.
    pub is_symlink: bool,
    /// Of the contents, holes included.
    pub size_bytes: u64,
    /// `None` where the file system does not record it.
    pub created: Option<SystemTime>,
    /// When the contents last changed.
    pub modified: SystemTime,
    /// When the contents were last read, as far as the mount records that.
    pub accessed: SystemTime,
    /// When the contents or the metadata last changed.
    pub changed: SystemTime,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Unique within `device`.
    pub inode: u64,
    /// The file system.
    pub device: u64,
    /// How many hard links there are.
    pub nlink: u32,
}

impl Metadata {
    /// What `set_times` takes to give another file the times of this one.
    pub fn times(&self) -> FileTimes {
        FileTimes { accessed: self.accessed, modified: self.modified }
    }
}

/// The two times that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileTimes {
    /// When the contents were last read.
    pub accessed: SystemTime,
    /// When the contents last changed.
    pub modified: SystemTime,
}

/// Extended attributes by name.
pub type Attributes = BTreeMap<OsString, Bytes>;

/// New values of extended attributes by name; `None` removes one.
pub type AttributeChanges = BTreeMap<OsString, Option<Bytes>>;

/// A part of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectoryPage {
    /// Sorted bytewise by name. May be empty though there is more.
    pub entries: Vec<DirectoryEntry>,
    /// The name behind which the next page begins; `None` after the last.
    pub next: Option<OsString>,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, byte for byte.
    pub name: OsString,
    /// After links are followed; [`FileKind::Symlink`] is a link whose target does not exist.
    pub kind: FileKind,
    /// Whether the name itself is a symbolic link.
    pub is_symlink: bool,
}
