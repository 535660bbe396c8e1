//! What is known about a file without reading it.

use std::ffi::OsString;
use std::time::SystemTime;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; where links are followed, one that leads nowhere.
    Symlink,
    /// A FIFO, socket or device.
    Special,
}

/// What the kernel knows about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// What it is; where links are followed, what they lead to.
    pub kind: FileKind,
    /// Whether the path itself is a symbolic link.
    pub is_symlink: bool,
    /// Its size.
    pub size_bytes: u64,
    /// When it was made, where the file system remembers.
    pub created: Option<SystemTime>,
    /// When its contents changed.
    pub modified: SystemTime,
    /// When it was read, as far as the mount keeps that.
    pub accessed: SystemTime,
    /// When anything about it changed.
    pub changed: SystemTime,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its number on its file system.
    pub inode: u64,
    /// Its file system.
    pub device: u64,
    /// How many names it has.
    pub nlink: u32,
}

impl Metadata {
    /// What `set_times` takes to make another file as old as this one.
    pub fn times(&self) -> FileTimes {
        FileTimes { accessed: self.accessed, modified: self.modified }
    }
}

/// The two times that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileTimes {
    /// When it was read.
    pub accessed: SystemTime,
    /// When its contents changed.
    pub modified: SystemTime,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, byte for byte.
    pub name: OsString,
    /// What it is, links resolved; [`FileKind::Symlink`] is a link that leads nowhere.
    pub kind: FileKind,
    /// Whether the name itself is a symbolic link.
    pub is_symlink: bool,
}
