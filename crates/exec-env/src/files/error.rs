//! How the verbs over files fail: one error that keeps verb, path and errno from the kernel to the caller.
//!
//! Deliberately absent: the codes and sentences of any protocol, which its front makes from [`FileReason`].

use std::fmt;
use std::path::PathBuf;

use super::content::ContentHash;
use super::limits;

/// A verb over files failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The verb that failed.
    pub verb: FileVerb,
    /// The path it failed at; for a verb over trees this may be below the one that was requested.
    pub path: PathBuf,
    /// Why it failed there.
    pub reason: FileReason,
}

/// Why a verb over files failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileReason {
    /// The kernel refused, with this errno.
    Os(i32),
    /// A directory, FIFO, socket or device where a regular file is needed.
    NotAFile,
    /// The same, where links are refused.
    NotRegular,
    /// The file is larger than `read` may return, or grows without end while it is hashed.
    TooLarge {
        /// For `read`, [`limits::READ_BYTES`], or less on another machine; for `hash`, so much more than its size was.
        limit_bytes: u64,
    },
    /// The last component is a symbolic link, and links are refused.
    SymlinkInPath,
    /// A whole tree cannot be removed while links are refused.
    RecursiveNoFollow,
    /// A directory can only be copied with `recursive`.
    RecursiveRequired,
    /// A directory cannot be copied into itself.
    CopyIntoItself,
    /// A file cannot be copied onto itself.
    CopyOntoItself,
    /// A FIFO, socket or device cannot be copied.
    CopySpecial,
    /// There are more entries than `read_directory` may return.
    TooManyEntries {
        /// How many there are.
        found: usize,
    },
    /// The options of a walk exceed [`limits`].
    WalkLimitsTooLarge,
    /// The options of a walk allow no entry at all.
    WalkLimitsZero,
    /// A block to read is empty or too long.
    ReadBlockLength,
    /// A block to write is empty or too long.
    WriteBlockLength,
    /// A block would end beyond the largest file offset.
    WriteRange,
    /// The file is not what the caller expected.
    Changed {
        /// What it is now; `None` if it does not exist.
        present: Option<ContentHash>,
    },
    /// A line of a file is longer than a search can hold, and only its beginning was searched.
    LineTooLong {
        /// How much of a line is searched.
        limit_bytes: usize,
    },
    /// A file has a NUL byte, and behind it nothing was searched: it may be no text.
    BinaryBehind {
        /// Where the byte is, or in a file with lines that are too long, about where.
        offset: u64,
    },
    /// The kernel has no more watches for this user.
    WatchLimit(WatchLimit),
    /// As many files are open, or watches made, as may be at once.
    TooManyOpenFiles {
        /// How many descriptors are set aside for this.
        limit: usize,
    },
    /// A regular expression or a glob does not parse.
    BadPattern {
        /// The parser's message.
        why: String,
    },
    /// Whoever serves the environment does not allow it there.
    Forbidden {
        /// The rule that forbids it.
        rule: String,
        /// What would be allowed, for a person.
        why: String,
    },
    /// The call cannot have the rights of the user that it names.
    UserUnavailable {
        /// Why, for a person.
        why: String,
    },
    /// This environment was built without the verb.
    Unsupported {
        /// What is missing, and how to get it.
        why: String,
    },
    /// The connection to the environment was given up.
    Unreachable {
        /// What happened, for a person.
        why: String,
    },
}

/// Which of the kernel's limits on watches was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchLimit {
    /// Directories that this user watches.
    Watches,
    /// Inotify queues that this user has.
    Instances,
}

/// A verb of [`super::Files`] or [`super::OpenFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the verb of the same name in `Files`")]
pub enum FileVerb {
    Read,
    Open,
    ReadBlock,
    WriteBlock,
    Close,
    Write,
    ChangeSet,
    CreateDirectory,
    Remove,
    Copy,
    Rename,
    Metadata,
    Canonicalize,
    ReadDirectory,
    Walk,
    SetPermissions,
    SetTimes,
    Attributes,
    SetAttributes,
    ReadLink,
    CreateSymlink,
    Watch,
    Search,
    Glob,
}

impl FileError {
    /// `verb` failed at `path` because of `reason`.
    pub fn new(verb: FileVerb, path: impl Into<PathBuf>, reason: FileReason) -> Self {
        Self { verb, path: path.into(), reason }
    }

    /// The kernel's number, if it was the kernel that refused.
    pub fn errno(&self) -> Option<i32> {
        match self.reason {
            FileReason::Os(errno) => Some(errno),
            FileReason::WatchLimit(WatchLimit::Watches) => Some(28),
            FileReason::WatchLimit(WatchLimit::Instances) | FileReason::TooManyOpenFiles { .. } => Some(24),
            _ => None,
        }
    }

    /// Whether something that was named does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(2)
    }
}

impl std::error::Error for FileError {}

/// For a person: what failed, where, and why.
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {:?}: {}", self.verb, self.path, self.reason)
    }
}

impl FileReason {
    /// One word for programs to compare: the name of the errno where callers are known to use it, else of the variant.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Os(errno) => errno_name(*errno).unwrap_or("os"),
            Self::NotAFile => "notAFile",
            Self::NotRegular => "notRegular",
            Self::TooLarge { .. } => "tooLarge",
            Self::SymlinkInPath => "symlinkInPath",
            Self::RecursiveNoFollow => "recursiveNoFollow",
            Self::RecursiveRequired => "recursiveRequired",
            Self::CopyIntoItself => "copyIntoItself",
            Self::CopyOntoItself => "copyOntoItself",
            Self::CopySpecial => "copySpecial",
            Self::TooManyEntries { .. } => "tooManyEntries",
            Self::WalkLimitsTooLarge => "walkLimitsTooLarge",
            Self::WalkLimitsZero => "walkLimitsZero",
            Self::ReadBlockLength => "readBlockLength",
            Self::WriteBlockLength => "writeBlockLength",
            Self::WriteRange => "writeRange",
            Self::Changed { .. } => "changed",
            Self::LineTooLong { .. } => "lineTooLong",
            Self::BinaryBehind { .. } => "binaryBehind",
            Self::WatchLimit(WatchLimit::Watches) => "watchLimit",
            Self::WatchLimit(WatchLimit::Instances) => "watcherLimit",
            Self::TooManyOpenFiles { .. } => "tooManyOpenFiles",
            Self::BadPattern { .. } => "badPattern",
            Self::Forbidden { .. } => "forbidden",
            Self::UserUnavailable { .. } => "user",
            Self::Unsupported { .. } => "unsupported",
            Self::Unreachable { .. } => "unreachable",
        }
    }

    /// What the name and the errno do not say.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::TooLarge { limit_bytes } => Some(limit_bytes.to_string()),
            Self::TooManyEntries { found } => Some(found.to_string()),
            Self::LineTooLong { limit_bytes } => Some(limit_bytes.to_string()),
            Self::BinaryBehind { offset } => Some(offset.to_string()),
            Self::TooManyOpenFiles { limit } => Some(limit.to_string()),
            Self::Changed { present } => present.map(|hash| hash.to_string()),
            Self::BadPattern { why }
            | Self::Forbidden { why, .. }
            | Self::UserUnavailable { why }
            | Self::Unsupported { why }
            | Self::Unreachable { why } => Some(why.clone()),
            _ => None,
        }
    }

    /// The reason that has this name, errno and detail.
    pub fn from_name(name: &str, errno: Option<i32>, detail: Option<&str>) -> Option<Self> {
        let why = detail.unwrap_or_default().to_owned();
        let mut known = vec![
            Self::NotAFile,
            Self::NotRegular,
            Self::SymlinkInPath,
            Self::RecursiveNoFollow,
            Self::RecursiveRequired,
            Self::CopyIntoItself,
            Self::CopyOntoItself,
            Self::CopySpecial,
            Self::WalkLimitsTooLarge,
            Self::WalkLimitsZero,
            Self::ReadBlockLength,
            Self::WriteBlockLength,
            Self::WriteRange,
            Self::WatchLimit(WatchLimit::Watches),
            Self::WatchLimit(WatchLimit::Instances),
            Self::BadPattern { why: why.clone() },
            Self::UserUnavailable { why: why.clone() },
            Self::Unsupported { why: why.clone() },
            Self::Unreachable { why },
        ];
        known.extend(detail.and_then(|bytes| bytes.parse().ok()).map(|limit_bytes| Self::TooLarge { limit_bytes }));
        known.extend(detail.and_then(|count| count.parse().ok()).map(|found| Self::TooManyEntries { found }));
        known.extend(detail.and_then(|bytes| bytes.parse().ok()).map(|limit_bytes| Self::LineTooLong { limit_bytes }));
        known.extend(detail.and_then(|offset| offset.parse().ok()).map(|offset| Self::BinaryBehind { offset }));
        known.extend(detail.and_then(|count| count.parse().ok()).map(|limit| Self::TooManyOpenFiles { limit }));
        known.extend(detail.map(str::parse).transpose().ok().map(|present| Self::Changed { present }));
        known.into_iter().find(|reason| reason.name() == name).or(errno.map(Self::Os))
    }
}

impl fmt::Display for FileReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = limits::BLOCK_BYTES;
        match self {
            Self::Os(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
            Self::NotAFile | Self::NotRegular => write!(f, "it is no regular file"),
            Self::TooLarge { limit_bytes } => write!(f, "it is larger than {limit_bytes} bytes"),
            Self::SymlinkInPath => write!(f, "there is a symbolic link in its path"),
            Self::RecursiveNoFollow => write!(f, "a whole tree cannot be removed while links are refused"),
            Self::RecursiveRequired => write!(f, "it is a directory: copy it recursively"),
            Self::CopyIntoItself => write!(f, "a directory cannot be copied into itself"),
            Self::CopyOntoItself => write!(f, "source and destination are the same file"),
            Self::CopySpecial => write!(f, "only files, directories and links can be copied"),
            Self::TooManyEntries { found } => {
                write!(f, "it has {found} entries, and a listing has at most {}", limits::DIRECTORY_ENTRIES)
            }
            Self::WalkLimitsTooLarge => write!(
                f,
                "a walk may have {} levels, {} directories and {} entries",
                limits::WALK_DEPTH,
                limits::WALK_DIRECTORIES,
                limits::WALK_ENTRIES
            ),
            Self::WalkLimitsZero => write!(f, "a walk must have room for a directory and an entry"),
            Self::ReadBlockLength | Self::WriteBlockLength => write!(f, "a block has 1 to {block} bytes"),
            Self::WriteRange => write!(f, "the block would end beyond the largest offset of a file"),
            Self::Changed { present: Some(hash) } => {
                write!(f, "it is not what was expected: its content hash is {hash}; read it again")
            }
            Self::Changed { present: None } => write!(f, "it is not what was expected: it does not exist; look again"),
            Self::LineTooLong { limit_bytes } => {
                write!(f, "it has a line of more than {limit_bytes} bytes, of which only the beginning was searched")
            }
            Self::BinaryBehind { offset } => {
                write!(f, "it has a NUL byte at {offset}, behind which nothing was searched, because it may be no text")
            }
            Self::WatchLimit(limit) => write!(f, "{limit}"),
            Self::TooManyOpenFiles { limit } => write!(
                f,
                "too many open files: {limit} descriptors are set aside for this: close some, or raise the limit of open files"
            ),
            Self::BadPattern { why } => write!(f, "bad pattern: {why}"),
            Self::Forbidden { why, .. } | Self::UserUnavailable { why } | Self::Unsupported { why } => f.write_str(why),
            Self::Unreachable { why } => write!(f, "the environment cannot be reached: {why}"),
        }
    }
}

impl fmt::Display for WatchLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, key) = match self {
            Self::Watches => ("watches", "max_user_watches"),
            Self::Instances => ("watchers", "max_user_instances"),
        };
        write!(f, "no more {what} for this user: raise fs.inotify.{key} (sysctl -w fs.inotify.{key}=…)")
    }
}

impl fmt::Display for FileVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Open => "open",
            Self::ReadBlock => "read a block of",
            Self::WriteBlock => "write a block of",
            Self::Close => "close",
            Self::Write => "write",
            Self::ChangeSet => "change",
            Self::CreateDirectory => "create directory",
            Self::Remove => "remove",
            Self::Copy => "copy",
            Self::Rename => "rename",
            Self::Metadata => "look at",
            Self::Canonicalize => "resolve",
            Self::ReadDirectory => "list",
            Self::Walk => "walk",
            Self::SetPermissions => "set permissions of",
            Self::SetTimes => "set times of",
            Self::Attributes => "read attributes of",
            Self::SetAttributes => "set attributes of",
            Self::ReadLink => "read link",
            Self::CreateSymlink => "create link",
            Self::Watch => "watch",
            Self::Search => "search",
            Self::Glob => "match patterns in",
        })
    }
}

/// The name of an errno that callers are known to compare (Linux numbers, x86-64 and arm64).
fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        1 => "EPERM",
        2 => "ENOENT",
        5 => "EIO",
        6 => "ENXIO",
        9 => "EBADF",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        16 => "EBUSY",
        17 => "EEXIST",
        18 => "EXDEV",
        19 => "ENODEV",
        20 => "ENOTDIR",
        21 => "EISDIR",
        22 => "EINVAL",
        23 => "ENFILE",
        24 => "EMFILE",
        26 => "ETXTBSY",
        27 => "EFBIG",
        28 => "ENOSPC",
        30 => "EROFS",
        31 => "EMLINK",
        32 => "EPIPE",
        36 => "ENAMETOOLONG",
        39 => "ENOTEMPTY",
        40 => "ELOOP",
        95 => "EOPNOTSUPP",
        116 => "ESTALE",
        122 => "EDQUOT",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_where_and_why() {
        let error = FileError::new(FileVerb::Read, "/x", FileReason::Os(2));
        assert_eq!(error.to_string(), "cannot read \"/x\": No such file or directory (os error 2)");
        assert_eq!(error.reason.name(), "ENOENT");
    }

    #[test]
    fn a_full_watch_table_names_the_sysctl() {
        let error = FileError::new(FileVerb::Watch, "/x", FileReason::WatchLimit(WatchLimit::Watches));
        assert!(error.to_string().contains("fs.inotify.max_user_watches"));
        assert_eq!(error.errno(), Some(28));
    }
}
