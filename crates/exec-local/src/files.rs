//! The files of this machine.
//!
//! Every verb is a blocking function that runs on a `BlockingPool`. In the order in which a verb meets them:
//!
//! - `blocking`: how many calls run at once and for whom, and how a long one learns that its caller is gone;
//! - `policy`: what a call under a policy may reach, and why nobody gets around it;
//! - `resolve`: from a path to a handle; symbolic links are followed or refused there and nowhere else;
//! - `path_ops`: verbs over one path (metadata, listing, create, rename, permissions, links);
//! - `read`: whole files and open files; `hash`: one short call for each piece of a file;
//! - `write`, through `write_target` (what is at the path now), `atomic_replace` (a temporary file and a rename) and
//!   `temp_registry` (which finds temporary files again after a kill);
//! - `change_set`: several changes, all or none, by a journal;
//! - `copy`, `remove`, `walk`, `walk_page`, `filtered_walk` (globs and ignore files), `search`, `watch`: verbs over
//!   trees; some go through them by `descent`.
//!
//! Nothing here knows of connections, handle names, URIs or JSON.

mod atomic_replace;
pub(crate) mod blocking;
mod change_set;
mod copy;
mod descent;
mod filtered_walk;
mod hash;
mod path_ops;
mod policy;
mod read;
mod remove;
mod resolve;
#[cfg(feature = "search")]
mod search;
#[cfg(not(feature = "search"))]
#[path = "files/search_absent.rs"]
mod search;
mod temp_registry;
mod walk;
mod walk_page;
mod watch;
mod write;
mod write_target;

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use exec_core::sandbox::{FileCeiling, FilePolicy, SandboxPolicy};
use exec_env::BoxFuture;
use exec_env::files::{
    AttributeChanges, Attributes, ChangeSet, ChangeStream, Copied, CopyFailures, CopyOptions, CreateDirectoryOptions,
    DirectoryEntry, DirectoryPage, FileError, FileFuture, FileHash, FileReason, FileTimes, FileVerb, Files,
    GlobMatches, GlobQuery, HashAlgorithm, LinkPolicy, Metadata, MissingPathWatch, OpenFile, OpenMode, RemoveOptions,
    RenameOptions, SearchQuery, SearchResults, WalkListing, WalkOptions, WalkPage, WalkPosition, WatchOptions,
    WriteOptions,
};

use exec_sandbox::path_rules::{GlobCache, MachinePaths, PathRules};

use crate::accounts;
use crate::call_rights::CallRights;
use crate::descriptors::{DescriptorBudget, DescriptorPermit, DescriptorUse};
use crate::user_rights::UserRights;
use blocking::{BlockingPool, CancelFlag, PoolSize, PoolWithRights};
use change_set::Journals;
use hash::PartialHash;
use policy::{CallPolicy, CeilingRules};
use resolve::os;
use temp_registry::TempRegistry;
use write::FileLocks;

/// Short calls. More at once would only queue at the disk; those that hang are not counted there, but need a thread.
const SHORT_CALLS: PoolSize = PoolSize { per_caller: 16, at_once: 32, threads: 256 };

/// Walks, copies and removals of trees. They have a pool of their own, so that a short call never waits for a long one.
const LONG_CALLS: PoolSize = PoolSize { per_caller: 4, at_once: 64, threads: 64 };

/// Searches. A search whose reader is slow occupies its thread all the while, so searches have a pool of their own.
const SEARCHES: PoolSize = PoolSize { per_caller: 4, at_once: 64, threads: 64 };

/// The directory of journals, beside that of the temporary files.
const CHANGE_SETS: &str = "change-sets";

/// This machine's files, for one of its callers.
#[derive(Clone)]
pub struct LocalFiles {
    short: BlockingPool,
    long: BlockingPool,
    searches: BlockingPool,
    shared: Arc<Shared>,
    descriptors: DescriptorBudget,
    /// Whose rights every verb has; those of this process if `None`, or what a policy leaves of them.
    user: Option<Arc<UserRights>>,
    /// What binds every verb.
    policy: Option<Arc<SandboxPolicy>>,
    /// What binds every verb besides.
    ceilings: Vec<Arc<FileCeiling>>,
}

/// What running calls share with each other.
struct Shared {
    /// `None` without a directory of our own: then there are no change sets.
    journals: Option<Journals>,
    temp_registry: TempRegistry,
    file_locks: FileLocks,
    machine_paths: MachinePaths,
    globs: GlobCache,
}

impl Shared {
    /// The links in the policy's rules are resolved anew for every call, so that no call is decided by where a link led
    /// before. That takes a system call for each rule.
    fn call_policy(
        &self,
        policy: Option<&SandboxPolicy>,
        ceilings: &[Arc<FileCeiling>],
        is_another_user: bool,
    ) -> Result<CallPolicy, FileReason> {
        if policy.is_none() && ceilings.is_empty() && !is_another_user {
            return Ok(CallPolicy::default());
        }
        let resolve = |files: &FilePolicy| {
            let rules = PathRules::resolve_with(files, &self.machine_paths, &self.globs);
            rules.map_err(|bad| FileReason::BadPattern { why: bad.to_string() })
        };
        let mut rules = resolve(policy.map_or(&FilePolicy::Unrestricted, |policy| &policy.files))?;
        let mut bounds = Vec::new();
        for ceiling in ceilings {
            let bound = resolve(&ceiling.files)?;
            rules = rules.intersect(&bound);
            bounds.push(CeilingRules { rule: ceiling.rule.clone(), rules: bound });
        }
        Ok(match is_another_user {
            // For the kernel it is still this process, whose descriptors procfs would open for it.
            true => CallPolicy::without_procfs(rules, bounds),
            false => CallPolicy::new(rules, bounds),
        })
    }
}

impl LocalFiles {
    /// `registry_directory` is a directory of our own in which an earlier server, if it was killed, has left a record
    /// of its temporary files; they are removed before this returns. The change sets that it was killed in are finished, too.
    /// Without it, temporary files of killed writes stay, and there are no change sets.
    pub fn open(registry_directory: Option<&Path>) -> Self {
        Self::open_on(MachinePaths::default(), registry_directory)
    }

    /// The same on a machine with paths that policies refer to without naming them.
    pub fn open_on(machine_paths: MachinePaths, registry_directory: Option<&Path>) -> Self {
        let journals = registry_directory.map(|directory| Journals::new(directory.with_file_name(CHANGE_SETS)));
        if let Some(journals) = &journals {
            journals.recover();
        }
        Self {
            short: BlockingPool::new(SHORT_CALLS),
            long: BlockingPool::new(LONG_CALLS),
            searches: BlockingPool::new(SEARCHES),
            shared: Arc::new(Shared {
                journals,
                temp_registry: TempRegistry::open(registry_directory),
                file_locks: FileLocks::new(),
                machine_paths,
                globs: GlobCache::default(),
            }),
            descriptors: DescriptorBudget::of_this_process(),
            user: None,
            policy: None,
            ceilings: Vec::new(),
        }
    }

    /// The same files, whose handles and watches share the descriptors of this process with others.
    pub fn with_descriptors(self, descriptors: DescriptorBudget) -> Self {
        Self { descriptors, ..self }
    }

    /// The same files for another caller, who waits for none of this one's calls.
    pub fn for_caller(&self) -> Self {
        Self {
            short: self.short.for_caller(),
            long: self.long.for_caller(),
            searches: self.searches.for_caller(),
            ..self.clone()
        }
    }

    /// The right to hold one descriptor open for a caller.
    fn take_descriptor(&self, purpose: DescriptorUse) -> Result<DescriptorPermit, FileReason> {
        self.descriptors.take(purpose, 1).map_err(|full| FileReason::TooManyOpenFiles { limit: full.limit })
    }

    /// Finds out, where that may block, what this call may reach. That takes the rights of this process: a user who may
    /// not follow a link in a rule must not be out of the rule's reach.
    fn call_policy(&self) -> impl FnOnce() -> Result<CallPolicy, FileReason> + Send + 'static + use<> {
        let (shared, policy, ceilings) = (Arc::clone(&self.shared), self.policy.clone(), self.ceilings.clone());
        let is_another_user = self.user.is_some();
        move || shared.call_policy(policy.as_deref(), &ceilings, is_another_user)
    }

    /// Whose rights a call has. Under a policy it has no capabilities, as a process has none in a sandbox; but where
    /// all files may be read, to read them is left to the server, as Codex leaves it to its own.
    fn rights(&self, effect: Effect) -> CallRights {
        match (&self.user, &self.policy) {
            (Some(user), _) => CallRights::OfUser(Arc::clone(user)),
            (None, None) => CallRights::OfServer,
            (None, Some(policy)) if effect == Effect::Reads && policy.files.reads_everything() => CallRights::OfServer,
            (None, Some(_)) => CallRights::WithoutCapabilities,
        }
    }

    /// The same pool for calls with the rights that they have to have. Without those there is none.
    fn with_rights(&self, pool: &BlockingPool, effect: Effect) -> Result<PoolWithRights, FileReason> {
        let rights = self.rights(effect);
        rights.are_given().map_err(|errno| FileReason::Unsupported {
            why: format!("under a policy files are used without capabilities, and the kernel does not let this server put them down: {errno}"),
        })?;
        Ok(pool.with_rights(rights))
    }

    /// Runs a verb that takes microseconds, unless the disk is slow.
    fn short<'a, T: Send + 'static>(
        &'a self,
        verb: FileVerb,
        path: &Path,
        work: impl FnOnce(&CallPolicy, &Path, &Shared) -> Result<T, FileReason> + Send + 'static,
    ) -> FileFuture<'a, T> {
        self.run_on(&self.short, verb, effect_of(verb), path, move |policy, path, shared, _| {
            work(policy, path, shared).map_err(|reason| FileError::new(verb, path, reason))
        })
    }

    /// Runs a verb over a whole tree. `verb` and `path` are for the case that it cannot begin.
    fn long<'a, T: Send + 'static>(
        &'a self,
        verb: FileVerb,
        path: &Path,
        work: impl FnOnce(&CallPolicy, &Path, &Shared, &CancelFlag) -> Result<T, FileError> + Send + 'static,
    ) -> FileFuture<'a, T> {
        self.run_on(&self.long, verb, effect_of(verb), path, work)
    }

    fn run_on<'a, T: Send + 'static>(
        &'a self,
        pool: &BlockingPool,
        verb: FileVerb,
        effect: Effect,
        path: &Path,
        work: impl FnOnce(&CallPolicy, &Path, &Shared, &CancelFlag) -> Result<T, FileError> + Send + 'static,
    ) -> FileFuture<'a, T> {
        let work = move |policy: &_, (), path: &_, shared: &_, cancel: &_| work(policy, path, shared, cancel);
        self.run_prepared_on(pool, verb, effect, path, |_| (), work)
    }

    /// The same with a first part for what the server keeps about the call, which the caller's rights need not reach.
    fn run_prepared_on<'a, P: Send + 'static, T: Send + 'static>(
        &'a self,
        pool: &BlockingPool,
        verb: FileVerb,
        effect: Effect,
        path: &Path,
        prepare: impl FnOnce(&Shared) -> P + Send + 'static,
        work: impl FnOnce(&CallPolicy, P, &Path, &Shared, &CancelFlag) -> Result<T, FileError> + Send + 'static,
    ) -> FileFuture<'a, T> {
        let (path, shared) = (path.to_owned(), Arc::clone(&self.shared));
        let pool = self.with_rights(pool, effect);
        Box::pin(async move {
            let pool = pool.map_err(|reason| FileError::new(verb, path.clone(), reason))?;
            let (resolve, keeps, of) = (self.call_policy(), Arc::clone(&shared), path.clone());
            let prepare = move || resolve().map(|policy| (policy, prepare(&keeps)));
            let performed = pool.run_prepared(prepare, move |prepared, cancel| match prepared {
                Ok((policy, prepared)) => work(&policy, prepared, &path, &shared, cancel)
                    .map_err(|error| FileError { reason: policy.explain(error.reason), ..error }),
                Err(reason) => Err(FileError::new(verb, path, reason)),
            });
            performed.await.unwrap_or_else(|errno| Err(FileError::new(verb, of, os(errno))))
        })
    }

    fn copy_telling<'a>(
        &'a self,
        source: &'a Path,
        destination: &'a Path,
        options: CopyOptions,
        failed: Option<CopyFailures>,
    ) -> FileFuture<'a, Copied> {
        let destination = destination.to_owned();
        let register = |shared: &Shared| shared.temp_registry.open_file();
        let work = move |policy: &_, (), source: &_, shared: &Shared, cancel: &_| {
            copy::copy(policy, source, &destination, &options, failed.as_ref(), &shared.temp_registry, cancel)
        };
        self.run_prepared_on(&self.long, FileVerb::Copy, Effect::Changes, source, register, work)
    }
}

/// What a call does to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

fn effect_of(verb: FileVerb) -> Effect {
    match verb {
        FileVerb::Read
        | FileVerb::ReadBlock
        | FileVerb::Metadata
        | FileVerb::Canonicalize
        | FileVerb::ReadDirectory
        | FileVerb::Walk
        | FileVerb::Attributes
        | FileVerb::ReadLink
        | FileVerb::Watch
        | FileVerb::Search
        | FileVerb::Glob => Effect::Reads,
        FileVerb::Open
        | FileVerb::WriteBlock
        | FileVerb::Close
        | FileVerb::Write
        | FileVerb::ChangeSet
        | FileVerb::CreateDirectory
        | FileVerb::Remove
        | FileVerb::Copy
        | FileVerb::Rename
        | FileVerb::SetPermissions
        | FileVerb::SetTimes
        | FileVerb::SetAttributes
        | FileVerb::CreateSymlink => Effect::Changes,
    }
}

impl Files for LocalFiles {
    fn read<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Bytes> {
        self.short(FileVerb::Read, path, move |policy, path, _| read::read(policy, path, links))
    }

    fn hash<'a>(&'a self, path: &'a Path, algorithm: HashAlgorithm, links: LinkPolicy) -> FileFuture<'a, FileHash> {
        Box::pin(async move {
            let permit = self.take_descriptor(DescriptorUse::FileHandles);
            let _permit = permit.map_err(|reason| FileError::new(FileVerb::Read, path, reason))?;
            let opened = self
                .short(FileVerb::Read, path, move |policy, path, _| PartialHash::open(policy, path, algorithm, links));
            let mut partial = opened.await?;
            let pool = self.with_rights(&self.short, Effect::Reads);
            let pool = pool.map_err(|reason| FileError::new(FileVerb::Read, path, reason))?;
            // A call of its own for each piece: a file of any size occupies no thread for long, and when the caller drops
            // this future, no further piece is read.
            loop {
                let added = pool.run(move |_| partial.add_piece()).await.map_err(os).flatten();
                match added.map_err(|reason| FileError::new(FileVerb::Read, path, reason))? {
                    ControlFlow::Continue(more) => partial = more,
                    ControlFlow::Break(hash) => return Ok(hash),
                }
            }
        })
    }

    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode, links: LinkPolicy) -> FileFuture<'a, Box<dyn OpenFile>> {
        let effect = if mode == OpenMode::Read { Effect::Reads } else { Effect::Changes };
        Box::pin(async move {
            let failed = |reason| FileError::new(FileVerb::Open, path, reason);
            let permit = self.take_descriptor(DescriptorUse::FileHandles).map_err(failed)?;
            let pool = self.with_rights(&self.short, effect).map_err(failed)?;
            let opened = self.run_on(&self.short, FileVerb::Open, effect, path, move |policy, path, _, _| {
                read::open(policy, path.to_owned(), mode, links, permit, pool)
            });
            Ok(Box::new(opened.await?) as Box<dyn OpenFile>)
        })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: Bytes, options: WriteOptions) -> FileFuture<'a, ()> {
        let register = |shared: &Shared| shared.temp_registry.open_file();
        let work = move |policy: &_, (), path: &_, shared: &Shared, _: &_| {
            let written = write::write(policy, path, &bytes, options, &shared.file_locks, &shared.temp_registry);
            written.map_err(|reason| FileError::new(FileVerb::Write, path, reason))
        };
        self.run_prepared_on(&self.short, FileVerb::Write, Effect::Changes, path, register, work)
    }

    fn change_set(&self, changes: ChangeSet) -> FileFuture<'_, ()> {
        let first = changes.changes.first().map(|change| change.path.clone()).unwrap_or_default();
        let is_another_user = self.user.is_some();
        // What a killed server has left is finished, and the journal is opened, before the call's rights are taken: those
        // may not reach either.
        let begin = move |shared: &Shared| {
            let journals = shared.journals.as_ref().filter(|_| !is_another_user)?;
            journals.recover();
            Some(journals.begin())
        };
        let work = move |policy: &_, journal, first: &Path, shared: &Shared, cancel: &_| {
            let unsupported = |why: &str| {
                let reason = FileReason::Unsupported { why: why.to_owned() };
                Err(FileError::new(FileVerb::ChangeSet, first, reason))
            };
            if is_another_user {
                // Whoever finishes them after a kill would do so with the rights of the server.
                return unsupported(
                    "several changes at once are made with the server's own rights only: make one at a time",
                );
            }
            let Some(journal) = journal else {
                return unsupported(
                    "several changes at once need a directory for their journal: open the environment with one",
                );
            };
            change_set::change_set(policy, &changes, journal, &shared.file_locks, cancel)
        };
        self.run_prepared_on(&self.long, FileVerb::ChangeSet, Effect::Changes, &first, begin, work)
    }

    fn create_directory<'a>(&'a self, path: &'a Path, options: CreateDirectoryOptions) -> FileFuture<'a, ()> {
        self.short(FileVerb::CreateDirectory, path, move |policy, path, _| {
            path_ops::create_directory(policy, path, options)
        })
    }

    fn remove<'a>(&'a self, path: &'a Path, options: RemoveOptions) -> FileFuture<'a, ()> {
        let pool = if options.recursive { &self.long } else { &self.short };
        self.run_on(pool, FileVerb::Remove, Effect::Changes, path, move |policy, path, _, cancel| {
            remove::remove(policy, path, options, cancel)
        })
    }

    fn copy<'a>(&'a self, source: &'a Path, destination: &'a Path, options: CopyOptions) -> FileFuture<'a, Copied> {
        self.copy_telling(source, destination, options, None)
    }

    fn copy_what_can_be<'a>(
        &'a self,
        source: &'a Path,
        destination: &'a Path,
        options: CopyOptions,
        failed: CopyFailures,
    ) -> FileFuture<'a, Copied> {
        self.copy_telling(source, destination, options, Some(failed))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, options: RenameOptions) -> FileFuture<'a, ()> {
        let to = to.to_owned();
        self.short(FileVerb::Rename, from, move |policy, from, _| {
            path_ops::rename(policy, from, &to, options).map_err(os)
        })
    }

    fn metadata<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Metadata> {
        self.short(FileVerb::Metadata, path, move |policy, path, _| path_ops::metadata(policy, path, links))
    }

    fn canonicalize<'a>(&'a self, path: &'a Path) -> FileFuture<'a, PathBuf> {
        self.short(FileVerb::Canonicalize, path, |policy, path, _| path_ops::canonicalize(policy, path))
    }

    fn read_directory<'a>(&'a self, path: &'a Path) -> FileFuture<'a, Vec<DirectoryEntry>> {
        self.short(FileVerb::ReadDirectory, path, |policy, path, _| path_ops::read_directory(policy, path))
    }

    fn read_directory_page<'a>(
        &'a self,
        path: &'a Path,
        after: Option<&'a OsStr>,
        max_entries: usize,
    ) -> FileFuture<'a, DirectoryPage> {
        let after = after.map(OsStr::to_owned);
        self.short(FileVerb::ReadDirectory, path, move |policy, path, _| {
            path_ops::read_directory_page(policy, path, after.as_deref(), max_entries)
        })
    }

    fn walk<'a>(&'a self, root: &'a Path, options: WalkOptions) -> FileFuture<'a, WalkListing> {
        self.long(FileVerb::Walk, root, move |policy, root, _, cancel| {
            let listing = walk::walk(policy, root, options, cancel);
            listing.map_err(|reason| FileError::new(FileVerb::Walk, root, reason))
        })
    }

    fn walk_page<'a>(
        &'a self,
        root: &'a Path,
        options: WalkOptions,
        after: Option<WalkPosition>,
    ) -> FileFuture<'a, WalkPage> {
        self.long(FileVerb::Walk, root, move |policy, root, _, cancel| {
            let page = walk_page::walk_page(policy, root, options, after, cancel);
            page.map_err(|reason| FileError::new(FileVerb::Walk, root, reason))
        })
    }

    fn set_permissions<'a>(&'a self, path: &'a Path, mode: u32, links: LinkPolicy) -> FileFuture<'a, ()> {
        self.short(FileVerb::SetPermissions, path, move |policy, path, _| {
            path_ops::set_permissions(policy, path, mode, links)
        })
    }

    fn set_times<'a>(&'a self, path: &'a Path, times: FileTimes, links: LinkPolicy) -> FileFuture<'a, ()> {
        self.short(FileVerb::SetTimes, path, move |policy, path, _| path_ops::set_times(policy, path, times, links))
    }

    fn attributes<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Attributes> {
        self.short(FileVerb::Attributes, path, move |policy, path, _| path_ops::attributes(policy, path, links))
    }

    fn set_attributes<'a>(
        &'a self,
        path: &'a Path,
        attributes: AttributeChanges,
        links: LinkPolicy,
    ) -> FileFuture<'a, ()> {
        self.short(FileVerb::SetAttributes, path, move |policy, path, _| {
            path_ops::set_attributes(policy, path, &attributes, links)
        })
    }

    fn read_link<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, PathBuf> {
        self.short(FileVerb::ReadLink, path, move |policy, path, _| {
            path_ops::read_link(policy, path, links).map_err(os)
        })
    }

    fn create_symlink<'a>(&'a self, target: &'a Path, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, ()> {
        let target = target.to_owned();
        self.short(FileVerb::CreateSymlink, path, move |policy, path, _| {
            path_ops::create_symlink(policy, &target, path, links).map_err(os)
        })
    }

    fn watch_missing<'a>(
        &'a self,
        missing: &'a [PathBuf],
        present: Option<&'a Path>,
    ) -> FileFuture<'a, Option<Box<dyn MissingPathWatch>>> {
        let (missing, present) = (missing.to_vec(), present.map(Path::to_owned));
        Box::pin(async move {
            let permit = self.take_descriptor(DescriptorUse::Watches);
            let pool = self.with_rights(&self.short, Effect::Reads);
            let first = missing.first().cloned().unwrap_or_default();
            let pool = pool.map_err(|reason| FileError::new(FileVerb::Watch, first, reason))?;
            watch::watch_missing(self.call_policy(), missing, present, permit, &pool).await
        })
    }

    fn watch<'a>(&'a self, root: &'a Path, options: WatchOptions) -> FileFuture<'a, Box<dyn ChangeStream>> {
        Box::pin(async move {
            let root = root.to_owned();
            let permit = self.take_descriptor(DescriptorUse::Watches);
            let failed = |reason| FileError::new(FileVerb::Watch, root.clone(), reason);
            let long = self.with_rights(&self.long, Effect::Reads).map_err(failed)?;
            let short = self.with_rights(&self.short, Effect::Reads).map_err(failed)?;
            let changes = watch::watch(self.call_policy(), root, options, permit, &long, short).await?;
            Ok(Box::new(changes) as Box<dyn ChangeStream>)
        })
    }

    fn search<'a>(&'a self, query: SearchQuery) -> FileFuture<'a, Box<dyn SearchResults>> {
        Box::pin(async move {
            let failed = |reason| FileError::new(FileVerb::Search, query.root.clone(), reason);
            let short = self.with_rights(&self.short, Effect::Reads).map_err(failed)?;
            let searches = self.with_rights(&self.searches, Effect::Reads).map_err(failed)?;
            search::search(self.call_policy(), query, &short, searches).await
        })
    }

    fn glob<'a>(&'a self, query: GlobQuery) -> FileFuture<'a, GlobMatches> {
        let root = query.root.clone();
        self.long(FileVerb::Glob, &root, move |policy, _, _, cancel| filtered_walk::glob(policy, &query, cancel))
    }

    fn as_user<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Arc<dyn Files>, FileReason>> {
        let user = user.to_owned();
        Box::pin(async move {
            let found = self.short.run(move |_| rights_of(&user)).await;
            let user = found.map_err(|why| FileReason::UserUnavailable { why })?.map(Arc::new);
            Ok(Arc::new(Self { user, ..self.clone() }) as Arc<dyn Files>)
        })
    }

    fn under_policy(&self, policy: Arc<SandboxPolicy>) -> Arc<dyn Files> {
        let policy = Some(policy).filter(|policy| policy.files != FilePolicy::Unrestricted);
        Arc::new(Self { policy, ..self.clone() })
    }

    fn under_ceiling(&self, ceiling: Arc<FileCeiling>) -> Arc<dyn Files> {
        let mut bound = self.clone();
        bound.ceilings.push(ceiling);
        Arc::new(bound)
    }
}

/// The rights of a user, tried; `None` if it is the user that we are. The error is for a person.
fn rights_of(user: &str) -> Result<Option<UserRights>, String> {
    let own = rustix::process::geteuid().as_raw();
    let identity = accounts::find(user)?.into_identity().filter(|identity| identity.uid != own);
    let Some(rights) = identity.map(|identity| UserRights::of(&identity)) else { return Ok(None) };
    // Root in a container may have been left without the capabilities for it.
    let tried = rights.perform(|| ());
    tried.map_err(|error| format!("the kernel does not let this server act as {user}: {error}"))?;
    Ok(Some(rights))
}
