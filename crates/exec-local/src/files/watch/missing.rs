//! Watching for paths that do not exist yet.
//!
//! For every missing path, the nearest directory that exists is watched for the name that is missing in it. So the
//! watch also ends when an intermediate directory appears, and the caller then watches again. It may end too early,
//! never too late.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use exec_env::BoxFuture;
use exec_env::files::limits::{MISSING_PATHS, MISSING_WATCHES};
use exec_env::files::{FileError, FileReason, FileVerb, LinkPolicy, MissingPathWatch};
use rustix::fs::inotify::{Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::super::blocking::PoolWithRights;
use super::super::path_ops::canonicalize;
use super::super::policy::{CallPolicy, Wanted};
use super::super::resolve::{LastLink, ResolvedPath, open_directory, os};
use super::watched_tree::watch_path;
use super::{EventQueue, watch_error};
use crate::descriptors::DescriptorPermit;

/// `None`: it is impossible, or there is nothing to wait for.
pub(crate) async fn watch_missing(
    policy: impl FnOnce() -> Result<CallPolicy, FileReason> + Send + 'static,
    missing: Vec<PathBuf>,
    present: Option<PathBuf>,
    permit: Result<DescriptorPermit, FileReason>,
    pool: &PoolWithRights,
) -> Result<Option<Box<dyn MissingPathWatch>>, FileError> {
    let first = missing.first().cloned().unwrap_or_default();
    let failed = |reason| FileError::new(FileVerb::Watch, first.clone(), reason);
    let permit = permit.map_err(&failed)?;
    let begin = move |policy: Result<CallPolicy, FileReason>| {
        let policy = policy?;
        let begun = match WatchedNames::begin(&policy, &missing, present.as_deref(), permit) {
            Ok(None) if policy.has_refused() => Err(Errno::NOENT),
            begun => begun,
        };
        begun.map_err(|errno| policy.explain(watch_error(errno)))
    };
    let watched = pool.run_prepared(policy, move |policy, _| begin(policy)).await;
    let watched = watched.map_err(os).flatten().map_err(&failed)?;
    let Some((queue, watched)) = watched else {
        return Ok(None);
    };
    let queue = queue.into_async().map_err(|errno| failed(watch_error(errno)))?;
    Ok(Some(Box::new(LocalMissingPathWatch { queue, watched })))
}

/// A watch for something to appear.
struct LocalMissingPathWatch {
    queue: AsyncFd<EventQueue>,
    watched: WatchedNames,
}

impl MissingPathWatch for LocalMissingPathWatch {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                // If the queue cannot be waited for, something may have changed, so the watch ends.
                let Ok(mut ready) = self.queue.readable().await else {
                    return;
                };
                if self.watched.read_events(&self.queue.get_ref().descriptor) {
                    return;
                }
                ready.clear_ready();
            }
        })
    }
}

/// The names whose events end the watch, by the directory's watch number.
#[derive(Default)]
struct WatchedNames {
    names: HashMap<i32, HashSet<OsString>>,
    /// Any event of these ends the watch.
    whole: HashSet<i32>,
}

impl WatchedNames {
    fn begin(
        policy: &CallPolicy,
        missing: &[PathBuf],
        present: Option<&Path>,
        permit: DescriptorPermit,
    ) -> Result<Option<(EventQueue, Self)>, Errno> {
        if missing.is_empty() || missing.len() > MISSING_PATHS {
            return Ok(None);
        }
        let mut directories_on_the_way = HashSet::new();
        let mut missing_names = Vec::new();
        for path in missing {
            let Some(missing_name) = MissingName::of(policy, path, &mut directories_on_the_way) else {
                return Ok(None);
            };
            missing_names.push(missing_name);
        }
        if let Some(present) = present {
            if !has_no_links(policy, present) {
                return Ok(None);
            }
            directories_on_the_way.extend(present.ancestors().skip(1).map(Path::to_owned));
        }
        if directories_on_the_way.len() > MISSING_WATCHES {
            return Ok(None);
        }
        let queue = EventQueue::new(permit)?;
        let mut watched = Self::default();
        for missing_name in &missing_names {
            let flags = WatchFlags::CREATE
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR
                | WatchFlags::MASK_ADD;
            match watch_path(policy, &queue.descriptor, &missing_name.directory, flags, LastLink::Follow) {
                Ok(watch) => {
                    let names = watched.names.entry(watch).or_default();
                    names.insert(missing_name.name.clone());
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        if let Some(present) = present
            && !watched.add_present(policy, &queue.descriptor, present)?
        {
            return Ok(None);
        }
        // Checked after the watches exist: what was created before them made no event.
        let appeared =
            missing_names.iter().any(|missing_name| exists(policy, &missing_name.directory.join(&missing_name.name)));
        Ok((!appeared).then_some((queue, watched)))
    }

    fn add_present(&mut self, policy: &CallPolicy, queue: &OwnedFd, present: &Path) -> Result<bool, Errno> {
        let own = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MASK_ADD;
        match watch_path(policy, queue, present, own, LastLink::Follow) {
            Ok(watch) => self.whole.insert(watch),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        // If the path is a link and the link is replaced, the file it led to has no event.
        if let (Some(parent), Some(name)) = (present.parent(), present.file_name()) {
            let flags = WatchFlags::MOVED_TO
                | WatchFlags::MOVED_FROM
                | WatchFlags::DELETE
                | WatchFlags::CREATE
                | WatchFlags::ONLYDIR
                | WatchFlags::MASK_ADD;
            if let Ok(watch) = watch_path(policy, queue, parent, flags, LastLink::Follow) {
                self.names.entry(watch).or_default().insert(name.to_owned());
            }
        }
        Ok(true)
    }

    /// Reads the queue, without blocking; returns whether an event ends the watch.
    fn read_events(&self, queue: &OwnedFd) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4 << 10];
        let mut reader = Reader::new(queue, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name();
                    let of_name = name.map(|name| OsStr::from_bytes(name.to_bytes()));
                    let ends_watch = match (of_name, self.names.get(&event.wd())) {
                        _ if self.whole.contains(&event.wd()) => true,
                        (Some(name), Some(names)) => names.contains(name),
                        // The directory itself was removed, or the queue overflowed.
                        _ => true,
                    };
                    if ends_watch {
                        return true;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
    }
}

/// The name that is missing, and the directory in which it is missing.
struct MissingName {
    directory: PathBuf,
    name: OsString,
}

impl MissingName {
    /// `None`: the path exists, or cannot be watched.
    fn of(policy: &CallPolicy, path: &Path, directories_on_the_way: &mut HashSet<PathBuf>) -> Option<Self> {
        // Of what the caller may not see it does not learn when it appears.
        if exists(policy, path) || policy.policy_path(path).require(Wanted::Read).is_err() {
            return None;
        }
        directories_on_the_way.extend(path.ancestors().skip(1).map(Path::to_owned));
        let mut path = path;
        loop {
            let (parent, name) = (path.parent()?, path.file_name()?);
            if open_directory(policy, parent, LastLink::Follow).is_ok() {
                let missing_name = Self { directory: parent.to_owned(), name: name.to_owned() };
                return has_no_links(policy, parent).then_some(missing_name);
            }
            // It exists and is no directory, so no name can be created in it.
            if exists(policy, parent) {
                return None;
            }
            path = parent;
        }
    }
}

/// Whether no component is a link: replacing a link makes no event of what it led to.
fn has_no_links(policy: &CallPolicy, path: &Path) -> bool {
    canonicalize(policy, path).is_ok_and(|real| real == path)
}

/// A link whose target does not exist counts as existing.
fn exists(policy: &CallPolicy, path: &Path) -> bool {
    ResolvedPath::resolve(policy, path, LinkPolicy::Follow).and_then(|resolved| resolved.stat()).is_ok()
}
