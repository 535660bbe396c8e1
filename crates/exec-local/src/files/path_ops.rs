//! Verbs over one path, of one or two system calls each: metadata, listing, create, rename, permissions, times,
//! attributes, links.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_env::files::limits::{ATTRIBUTE_BYTES, DIRECTORY_ENTRIES};
use exec_env::files::{
    AttributeChanges, Attributes, CreateDirectoryOptions, DirectoryEntry, DirectoryPage, FileKind, FileReason,
    FileTimes, LinkPolicy, Metadata, RenameOptions,
};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps,
    XattrFlags, chmodat, fstat, getxattr, linkat, listxattr, makedev, mkdirat, openat, removexattr, renameat,
    renameat_with, setxattr, statx, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::descent::{Descent, names_after};
use super::policy::{CallPolicy, PolicyPath, Wanted};
use super::resolve::{
    LastLink, ResolvedPath, entry_kind, kind_of, kind_of_type, list, open_directory, open_handle, open_listing, os,
    proc_path, target_kind, why_not_created,
};

pub(super) fn metadata(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Result<Metadata, FileReason> {
    if policy.is_restricted()
        && let Some(metadata) = metadata_of_a_name(policy, path, links)
    {
        return Ok(metadata);
    }
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let own = match links {
        LinkPolicy::Follow if !policy.is_restricted() => statx(CWD, path, flags, wanted),
        _ => ResolvedPath::resolve(policy, path, links).and_then(|resolved| {
            resolved.require(Wanted::Read)?;
            statx(&resolved.dir, &resolved.name, flags, wanted)
        }),
    }
    .map_err(os)?;
    let is_symlink = kind_of_statx(&own) == FileKind::Symlink;
    let stat = match (is_symlink, links) {
        (false, _) => own,
        (true, LinkPolicy::Refuse) => return Err(FileReason::SymlinkInPath),
        (true, LinkPolicy::Follow) => open_handle(policy, path, links, Wanted::Read)
            .and_then(|handle| statx(&handle, "", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, wanted))
            .map_err(os)?,
    };
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(Metadata {
        kind: kind_of_statx(&stat),
        is_symlink,
        size_bytes: stat.stx_size,
        created: has_birth.then(|| time(&stat.stx_btime)),
        modified: time(&stat.stx_mtime),
        accessed: time(&stat.stx_atime),
        changed: time(&stat.stx_ctime),
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        inode: stat.stx_ino,
        device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        nlink: stat.stx_nlink,
    })
}

/// Of what may be listed but not looked into: its kind, and nothing else. A process in a sandbox sees a mask there, also
/// through a link.
fn metadata_of_a_name(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Option<Metadata> {
    let resolved = ResolvedPath::resolve(policy, path, links).ok()?;
    let is_symlink = links == LinkPolicy::Follow && resolved.kind_of_name() == Some(FileKind::Symlink);
    let end = if is_symlink { resolved.follow(links).ok()? } else { resolved };
    let kind = end.kind_of_mask()?;
    let unknown = SystemTime::UNIX_EPOCH;
    Some(Metadata {
        kind,
        is_symlink,
        size_bytes: 0,
        created: None,
        modified: unknown,
        accessed: unknown,
        changed: unknown,
        mode: 0,
        uid: 0,
        gid: 0,
        inode: 0,
        device: 0,
        nlink: 1,
    })
}

fn kind_of_statx(stat: &Statx) -> FileKind {
    kind_of_type(FileType::from_raw_mode(u32::from(stat.stx_mode)))
}

fn time(stamp: &StatxTimestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(stamp.tv_nsec));
    let seconds = Duration::from_secs(stamp.tv_sec.unsigned_abs());
    let whole = if stamp.tv_sec < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(super) fn canonicalize(policy: &CallPolicy, path: &Path) -> Result<PathBuf, FileReason> {
    if policy.is_restricted() {
        let resolved = ResolvedPath::resolve_to_end(policy, path, LinkPolicy::Follow).map_err(os)?;
        if !resolved.policy_path().is_only_a_name() || resolved.kind_of_name().is_none() {
            resolved.stat().map_err(os)?;
        }
        return resolved.policy_path().path().map(Path::to_owned).ok_or(os(Errno::NOENT));
    }
    // An error without a number is about the path itself (a NUL byte), which the kernel would call EINVAL.
    std::fs::canonicalize(path)
        .map_err(|error| FileReason::Os(error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())))
}

/// Kinds come with the names; only links cost another system call.
pub(super) fn read_directory(policy: &CallPolicy, path: &Path) -> Result<Vec<DirectoryEntry>, FileReason> {
    let (dir, policy_path) = open_directory(policy, path, LastLink::Follow).map_err(os)?;
    let dir = open_listing(dir).map_err(os)?;
    let mut entries = Vec::new();
    let mut found = 0;
    for entry in list(&dir).map_err(os)? {
        let entry = entry.map_err(os)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !policy_path.shows(name) {
            continue;
        }
        found += 1;
        if found <= DIRECTORY_ENTRIES {
            entries.extend(directory_entry(&dir, &policy_path, name, entry.file_type()));
        }
    }
    if found > DIRECTORY_ENTRIES {
        return Err(FileReason::TooManyEntries { found });
    }
    Ok(entries)
}

/// Reads the whole directory for every page, so that what is there all the time comes exactly once, and holds no more than
/// the page.
pub(super) fn read_directory_page(
    policy: &CallPolicy,
    path: &Path,
    after: Option<&OsStr>,
    max_entries: usize,
) -> Result<DirectoryPage, FileReason> {
    let (dir, policy_path) = open_directory(policy, path, LastLink::Follow).map_err(os)?;
    let max_entries = max_entries.clamp(1, DIRECTORY_ENTRIES);
    let (names, more) = names_after(dir.as_fd(), &policy_path, after, max_entries).map_err(os)?;
    let next = names.last().filter(|_| more).map(|(name, _)| name.clone());
    let entries = names.iter().filter_map(|(name, file_type)| directory_entry(&dir, &policy_path, name, *file_type));
    Ok(DirectoryPage { entries: entries.collect(), next })
}

/// `None` if it is gone again.
fn directory_entry(
    dir: &OwnedFd,
    policy_path: &PolicyPath,
    name: &OsStr,
    file_type: FileType,
) -> Option<DirectoryEntry> {
    let own = match entry_kind(dir, name, file_type) {
        Err(Errno::NOENT) => return None,
        kind => kind.unwrap_or(FileKind::Special),
    };
    let kind = match own {
        FileKind::Symlink => target_kind(dir, policy_path, name).unwrap_or(FileKind::Symlink),
        other => other,
    };
    Some(DirectoryEntry { name: name.to_owned(), kind, is_symlink: own == FileKind::Symlink })
}

pub(super) fn create_directory(
    policy: &CallPolicy,
    path: &Path,
    options: CreateDirectoryOptions,
) -> Result<(), FileReason> {
    if path.as_os_str().is_empty() {
        return Err(os(Errno::NOENT));
    }
    let made = make_directory(policy, path, options.links, options.mode);
    if !options.recursive {
        return made.map_err(os);
    }
    // Usually the parent exists. Only if it does not, go up until one exists, and then create downwards.
    let mut missing = vec![path];
    let mut outcome = made;
    while outcome == Err(Errno::NOENT) {
        let Some(parent) =
            missing.last().and_then(|path| path.parent()).filter(|parent| !parent.as_os_str().is_empty())
        else {
            return Err(os(Errno::NOENT));
        };
        outcome = make_directory(policy, parent, options.links, None);
        missing.push(parent);
    }
    while let Some(path) = missing.pop() {
        match outcome {
            Ok(()) => {}
            // It existed before, or somebody else created it meanwhile. A file at that name is an error.
            Err(Errno::EXIST) if is_directory(policy, path, options.links) => {}
            // What Codex's server answers, which enters one component after the other where links are refused.
            Err(Errno::EXIST) if options.links == LinkPolicy::Refuse => return Err(os(Errno::NOTDIR)),
            Err(errno) => return Err(os(errno)),
        }
        if let Some(next) = missing.last() {
            let mode = options.mode.filter(|_| missing.len() == 1);
            outcome = make_directory(policy, next, options.links, mode);
        }
    }
    Ok(())
}

fn make_directory(policy: &CallPolicy, path: &Path, links: LinkPolicy, mode: Option<u32>) -> Result<(), Errno> {
    let resolved = ResolvedPath::resolve(policy, path, links);
    let resolved = resolved.map_err(|errno| why_not_created(policy, path, links, errno))?;
    match resolved.require(Wanted::Write) {
        // What is there already comes first, as it does on a read-only file system.
        Err(Errno::ROFS) if resolved.stat().is_ok() || resolved.is_missing_protected() => return Err(Errno::EXIST),
        Err(Errno::ACCESS) if resolved.kind_of_mask().is_some() => return Err(Errno::EXIST),
        permitted => permitted?,
    }
    mkdirat(&resolved.dir, &resolved.name, Mode::from_raw_mode(mode.unwrap_or(0o777)))?;
    if let Some(mode) = mode {
        // An explicit mode is not subject to the umask. It is set through a handle, so that a link that is swapped in
        // does not lead it elsewhere.
        let handle = openat(
            &resolved.dir,
            &resolved.name,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        chmodat(CWD, proc_path(&handle), Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    Ok(())
}

fn is_directory(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> bool {
    let is_seen_as_one =
        |name: &ResolvedPath| name.is_missing_protected() || name.kind_of_mask() == Some(FileKind::Directory);
    if policy.is_restricted() && ResolvedPath::resolve(policy, path, links).is_ok_and(|name| is_seen_as_one(&name)) {
        return true;
    }
    open_handle(policy, path, links, Wanted::Read)
        .and_then(|handle| fstat(&handle))
        .is_ok_and(|stat| kind_of(&stat) == FileKind::Directory)
}

pub(super) fn rename(policy: &CallPolicy, from: &Path, to: &Path, options: RenameOptions) -> Result<(), Errno> {
    let from = ResolvedPath::resolve(policy, from, options.links)?;
    let to = ResolvedPath::resolve(policy, to, options.links)?;
    if policy.is_restricted() {
        let stat = from.stat()?;
        from.policy_path().require_removing()?;
        to.policy_path().require_replacing()?;
        if kind_of(&stat) == FileKind::Directory
            && (from.policy_path().may_deny_below() || to.policy_path().may_deny_below())
        {
            require_nothing_denied_below(&from, to.policy_path())?;
        }
    }
    if !options.no_replace {
        return renameat(&from.dir, &from.name, &to.dir, &to.name);
    }
    let flags = RenameFlags::NOREPLACE;
    match renameat_with(&from.dir, &from.name, &to.dir, &to.name, flags) {
        // The file system lacks the flag. Except for directories, a hard link and an unlink do the same.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let stat = from.stat()?;
            if kind_of(&stat) == FileKind::Directory {
                return Err(Errno::INVAL);
            }
            linkat(&from.dir, &from.name, &to.dir, &to.name, AtFlags::empty())?;
            unlinkat(&from.dir, &from.name, AtFlags::empty())
        }
        other => other,
    }
}

/// Names that are looked at before a directory is renamed in which something may be denied. A larger one stays.
const LOOKED_AT_NAMES: usize = 100_000;

/// Below a new name a denial by glob may no longer match, so nothing that is denied moves with its directory; nor does
/// anything come where it would be denied. Who may write there can add something meanwhile, but knows what that is.
fn require_nothing_denied_below(from: &ResolvedPath, mut to: PolicyPath) -> Result<(), Errno> {
    let mut tree = Descent::new(from.handle(Wanted::Write)?, from.policy_path(), None)?;
    for _ in 0..LOOKED_AT_NAMES {
        let Some((name, file_type)) = tree.next()? else {
            if !tree.leave()? {
                return Ok(());
            }
            to.leave();
            continue;
        };
        tree.directories.policy_path().name(&name).require(Wanted::Write)?;
        to.name(&name).require(Wanted::Write)?;
        if entry_kind(tree.directories.current(), &name, file_type)? == FileKind::Directory {
            tree.enter(&name, None)?;
            to.enter(&name);
        }
    }
    Err(Errno::ROFS)
}

pub(super) fn set_permissions(
    policy: &CallPolicy,
    path: &Path,
    mode: u32,
    links: LinkPolicy,
) -> Result<(), FileReason> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    set_on(policy, path, links, |path| chmodat(CWD, path, mode, AtFlags::empty()))
}

pub(super) fn set_times(
    policy: &CallPolicy,
    path: &Path,
    times: FileTimes,
    links: LinkPolicy,
) -> Result<(), FileReason> {
    let times = Timestamps { last_access: stamp(times.accessed), last_modification: stamp(times.modified) };
    set_on(policy, path, links, |path| utimensat(CWD, path, &times, AtFlags::empty()))
}

pub(super) fn attributes(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Result<Attributes, FileReason> {
    let read = |path: &Path| {
        let names = read_attribute(|buffer| listxattr(path, buffer))?;
        let mut found = Attributes::new();
        let mut bytes = 0;
        for full in names.split(|byte| *byte == 0).filter(|name| name.starts_with(USER_ATTRIBUTES)) {
            let value = match read_attribute(|buffer| getxattr(path, full, buffer)) {
                // It was removed meanwhile.
                Err(Errno::NODATA) => continue,
                value => value?,
            };
            bytes += full.len() + value.len();
            if bytes > ATTRIBUTE_BYTES {
                return Err(Errno::TOOBIG);
            }
            let name = OsStr::from_bytes(&full[USER_ATTRIBUTES.len()..]);
            found.insert(name.to_owned(), value.into());
        }
        Ok(found)
    };
    match with_path(policy, path, links, Wanted::Read, read) {
        Err(FileReason::Os(errno)) if errno == Errno::TOOBIG.raw_os_error() => {
            Err(FileReason::TooLarge { limit_bytes: ATTRIBUTE_BYTES as u64 })
        }
        found => found,
    }
}

fn read_attribute(read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; LONGEST_ATTRIBUTE];
    let length = read(&mut buffer)?;
    buffer.truncate(length);
    buffer.shrink_to_fit();
    Ok(buffer)
}

/// The kernel has neither longer values nor more names of one file, in bytes.
const LONGEST_ATTRIBUTE: usize = 64 << 10;

/// How the names of attributes begin that every owner of a file may set.
const USER_ATTRIBUTES: &[u8] = b"user.";

pub(super) fn set_attributes(
    policy: &CallPolicy,
    path: &Path,
    attributes: &AttributeChanges,
    links: LinkPolicy,
) -> Result<(), FileReason> {
    let length = |(name, value): (&OsString, &Option<Bytes>)| name.len() + value.as_ref().map_or(0, Bytes::len);
    if attributes.iter().map(length).sum::<usize>() > ATTRIBUTE_BYTES {
        return Err(FileReason::TooLarge { limit_bytes: ATTRIBUTE_BYTES as u64 });
    }
    with_path(policy, path, links, Wanted::Write, |path| {
        for (name, value) in attributes {
            let full = [USER_ATTRIBUTES, name.as_bytes()].concat();
            match value {
                Some(value) => setxattr(path, &full[..], value, XattrFlags::empty())?,
                None => match removexattr(path, &full[..]) {
                    Err(Errno::NODATA) => {}
                    removed => removed?,
                },
            }
        }
        Ok(())
    })
}

/// Calls `set` with a path that contains no link where links are refused, or a policy has to know where they lead: the
/// path of a handle, because nobody can swap what is open, and because a handle of this kind can be changed only
/// through its path.
fn set_on(
    policy: &CallPolicy,
    path: &Path,
    links: LinkPolicy,
    set: impl FnOnce(&Path) -> Result<(), Errno>,
) -> Result<(), FileReason> {
    with_path(policy, path, links, Wanted::Write, set)
}

/// The same for calls that want less.
fn with_path<T>(
    policy: &CallPolicy,
    path: &Path,
    links: LinkPolicy,
    wanted: Wanted,
    call: impl FnOnce(&Path) -> Result<T, Errno>,
) -> Result<T, FileReason> {
    if links == LinkPolicy::Follow && !policy.is_restricted() {
        return call(path).map_err(os);
    }
    match open_handle(policy, path, links, wanted) {
        Err(Errno::LOOP) if links == LinkPolicy::Refuse => Err(FileReason::SymlinkInPath),
        handle => handle.and_then(|handle| call(Path::new(&proc_path(&handle)))).map_err(os),
    }
}

fn stamp(time: SystemTime) -> Timespec {
    let (seconds, nanoseconds) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        // Before 1970 the seconds are negative, and the nanoseconds still count upwards.
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (-whole, 0),
                nanos => (-whole - 1, 1_000_000_000 - nanos),
            }
        }
    };
    Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) }
}

pub(super) fn read_link(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Result<PathBuf, Errno> {
    ResolvedPath::resolve(policy, path, links)?.read_link()
}

pub(super) fn create_symlink(policy: &CallPolicy, target: &Path, path: &Path, links: LinkPolicy) -> Result<(), Errno> {
    ResolvedPath::resolve(policy, path, links)?.make_link(target)
}
