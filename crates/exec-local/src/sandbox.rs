//! Sandboxes of processes: what this host can enforce, found out once by trying; a plan for each start; and the
//! placeholders that stand for protected directories which do not exist.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use exec_core::sandbox::{Confinement, MountStep, NetworkPolicy, SandboxPolicy, SandboxReport};
use exec_core::{Limit, LimitMeans};
use exec_env::process::ProcessReason;
use exec_keeper::trial;
use exec_sandbox::landlock::{self, SCOPING_ABI};
use exec_sandbox::{FileFact, HostMeans, MachinePaths, MountMeans, PolicyBounds, SandboxPlan, Unenforceable};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::proxy::PROXY_PORTS;

/// Plans sandboxes for this machine.
#[derive(Debug)]
pub(crate) struct SandboxPlanner {
    machine: MachinePaths,
    /// Found out with the first sandbox that is asked for.
    host: OnceLock<HostMeans>,
    placeholders: Arc<Placeholders>,
}

/// A sandbox ready to be carried out.
pub(crate) struct PlannedSandbox {
    pub(crate) confinement: Confinement,
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) report: SandboxReport,
    pub(crate) placeholders: PlaceholderGuard,
}

impl SandboxPlanner {
    pub(crate) fn new(machine: MachinePaths) -> Self {
        Self { machine, host: OnceLock::new(), placeholders: Arc::default() }
    }

    /// Plans the sandbox that `policy` asks for. Looks at files, so that it may take its time.
    pub(crate) fn plan(
        &self,
        policy: &SandboxPolicy,
        bounds: PolicyBounds<'_>,
    ) -> Result<PlannedSandbox, ProcessReason> {
        let host = self.host.get_or_init(host_means);
        // What is not there needs no protection, and must be left free for whoever makes it.
        let private = self.machine.private.iter().filter(|path| path.symlink_metadata().is_ok()).cloned().collect();
        let machine = MachinePaths { private, ..self.machine.clone() };
        let planned = exec_sandbox::plan_within(policy, bounds, &machine, host, &|path| self.placeholders.fact(path));
        let SandboxPlan { mut confinement, descriptors, placeholders, report } =
            planned.map_err(|error| match error {
                Unenforceable::BeyondCeiling(beyond) => {
                    ProcessReason::Forbidden { why: beyond.to_string(), rule: beyond.rule }
                }
                other => ProcessReason::SandboxUnavailable { why: other.to_string() },
            })?;
        let (placeholders, not_ours) = self.placeholders.make(placeholders).map_err(|(path, errno)| {
            let why = format!("{path:?} is protected and missing, and cannot be made for the time being: {errno}");
            ProcessReason::SandboxUnavailable { why }
        })?;
        confinement.mounts.retain(|step| match step {
            MountStep::EmptyDirectory { path } | MountStep::HideDirectory { path, .. } => !not_ours.contains(path),
            _ => true,
        });
        Ok(PlannedSandbox { confinement, descriptors, report, placeholders })
    }

    /// Takes over placeholders of a process that an earlier owner has started. What cannot be held any more was removed.
    pub(crate) fn adopt(&self, paths: Vec<PathBuf>) -> Option<PlaceholderGuard> {
        let there = paths.into_iter().filter(|path| is_placeholder(path)).collect();
        self.placeholders.make(there).ok().map(|(guard, _)| guard)
    }
}

/// What this host can enforce, for a person or a program that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxDiagnosis {
    /// The version of Landlock's interface; 0 if there is none.
    pub landlock_abi: u32,
    /// The version that keeps signals inside a sandbox.
    pub landlock_needed: u32,
    /// Whether a process can have a pid namespace of its own, which keeps them inside where Landlock is older; or why not.
    pub pid_namespaces: Result<(), String>,
    /// How a process gets mounts of its own, or why it does not.
    pub mounts: Result<&'static str, String>,
    /// Whether a supervisor can change files in place of a process, where there are no mounts; or why not.
    pub supervision: Result<(), String>,
    /// The usual policies by name, each with what would confine a process, or why it cannot be enforced and what to do.
    pub policies: Vec<(&'static str, Result<SandboxReport, String>)>,
    /// What would enforce each limit of a process, or why it cannot be enforced and what to do.
    pub limits: Vec<(Limit, Result<LimitMeans, String>)>,
}

/// Finds out what this host can enforce. Tries it, in processes that end at once.
pub fn diagnose() -> SandboxDiagnosis {
    let host = host_means();
    let machine = MachinePaths::default();
    let planned = |policy: SandboxPolicy| match exec_sandbox::plan(&policy, &machine, &host, &exec_sandbox::file_fact) {
        Ok(plan) => Ok(plan.report),
        Err(error) => Err(error.to_string()),
    };
    let workspace = [PathBuf::from("/tmp")];
    let policies = vec![
        ("read-only", planned(SandboxPolicy::read_only(NetworkPolicy::Restricted))),
        ("read-only with network", planned(SandboxPolicy::read_only(NetworkPolicy::Enabled))),
        ("workspace-write", planned(SandboxPolicy::workspace_write(&workspace, NetworkPolicy::Restricted))),
        ("workspace-write with a proxy", planned(SandboxPolicy::workspace_write(&workspace, NetworkPolicy::ProxyOnly))),
        ("workspace-write with network", planned(SandboxPolicy::workspace_write(&workspace, NetworkPolicy::Enabled))),
    ];
    let mounts = match &host.mounts {
        MountMeans::Privileged => Ok("as root"),
        MountMeans::UserNamespace(_) => Ok("in a user namespace"),
        MountMeans::Unavailable { why, .. } => Err(why.clone()),
    };
    SandboxDiagnosis {
        landlock_abi: host.landlock_abi,
        landlock_needed: SCOPING_ABI,
        pid_namespaces: host.pid_namespaces.clone(),
        mounts,
        supervision: supervision(),
        policies,
        limits: exec_keeper::try_limits(),
    }
}

fn host_means() -> HostMeans {
    let landlock_abi = landlock::kernel_abi();
    let mounts = mount_means(landlock_abi);
    let pid_namespaces = pid_namespace_means(&mounts);
    let networks = network_means(&mounts);
    HostMeans { landlock_abi, mounts, pid_namespaces, networks }
}

fn mount_means(landlock_abi: u32) -> MountMeans {
    let trial = |user_namespace: Option<OwnedFd>| {
        let mut confinement = Confinement {
            user_namespace: user_namespace.is_some(),
            mounts: vec![MountStep::ReadOnlyRoot, MountStep::Devices],
            ..Confinement::default()
        };
        let mut descriptors: Vec<OwnedFd> = user_namespace.into_iter().collect();
        if landlock::is_usable(landlock_abi)
            && let Ok(ruleset) = landlock::ruleset(Some(&[]), landlock_abi)
        {
            confinement.landlock = Some(ruleset.handled);
            descriptors.push(ruleset.descriptor);
        }
        trial::try_confinement(&confinement, &descriptors)
    };
    let unavailable =
        |error: &dyn std::fmt::Display| MountMeans::Unavailable { why: error.to_string(), supervision: supervision() };
    if trial(None).is_ok() {
        return MountMeans::Privileged;
    }
    let namespace = match trial::new_user_namespace() {
        Ok(namespace) => namespace,
        Err(error) => return unavailable(&error),
    };
    match namespace.try_clone() {
        Err(error) => unavailable(&error),
        Ok(copy) => match trial(Some(copy)) {
            Ok(()) => MountMeans::UserNamespace(namespace),
            Err(error) => unavailable(&error),
        },
    }
}

/// With a `/proc` of its own, or it would see the processes of others in there.
fn pid_namespace_means(mounts: &MountMeans) -> Result<(), String> {
    let namespace = match mounts {
        MountMeans::Privileged => None,
        MountMeans::UserNamespace(namespace) => Some(namespace.try_clone().map_err(|error| error.to_string())?),
        MountMeans::Unavailable { why, .. } => return Err(why.clone()),
    };
    let confinement = Confinement {
        user_namespace: namespace.is_some(),
        pid_namespace: true,
        mounts: vec![MountStep::ReadOnlyRoot, MountStep::Processes],
        ..Confinement::default()
    };
    let descriptors: Vec<OwnedFd> = namespace.into_iter().collect();
    trial::try_confinement(&confinement, &descriptors).map_err(|error| error.to_string())
}

fn network_means(mounts: &MountMeans) -> Result<(), String> {
    let namespace = match mounts {
        MountMeans::Privileged => None,
        MountMeans::UserNamespace(namespace) => Some(namespace.try_clone().map_err(|error| error.to_string())?),
        MountMeans::Unavailable { why, .. } => return Err(why.clone()),
    };
    let ports = Some(PROXY_PORTS.to_vec());
    let confinement = Confinement { user_namespace: namespace.is_some(), network: ports, ..Confinement::default() };
    let descriptors: Vec<OwnedFd> = namespace.into_iter().collect();
    trial::try_confinement(&confinement, &descriptors).map_err(|error| error.to_string())
}

/// Whether a supervisor can change files in place of a process, or why not.
fn supervision() -> Result<(), String> {
    let plan = exec_sandbox::plan::trial_of_supervision().map_err(|error| error.to_string())?;
    trial::try_supervision(&plan.confinement, &plan.descriptors).map_err(|error| error.to_string())
}

/// Empty directories that stand for protected paths which do not exist.
///
/// Other servers and other `exec-server run` may protect the same paths, and a directory that is removed takes the mounts
/// of everybody on it along. So whoever needs one holds a shared lock on it, and it is removed only by somebody who gets
/// the exclusive lock. By its mode everybody knows it from a directory that somebody else has made.
#[derive(Debug, Default)]
struct Placeholders {
    held: Mutex<HashMap<PathBuf, HeldPlaceholder>>,
}

#[derive(Debug)]
struct HeldPlaceholder {
    /// Has the shared lock.
    directory: OwnedFd,
    /// How many processes need it.
    count: usize,
}

/// Nobody makes such a directory by accident.
const PLACEHOLDER_MODE: u32 = 0o1755;

/// How often it is tried to make one that others remove.
const PLACEHOLDER_TRIES: usize = 100;

/// Holds the placeholders of one process. When the last process that needs one is gone, it is removed, unless somebody has
/// put something into it.
#[derive(Debug)]
pub(crate) struct PlaceholderGuard {
    paths: Vec<PathBuf>,
    all: Arc<Placeholders>,
}

impl Placeholders {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, HeldPlaceholder>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is at a path: a placeholder is nothing.
    fn fact(&self, path: &Path) -> Option<FileFact> {
        exec_sandbox::file_fact(path).filter(|_| !is_placeholder(path))
    }

    /// Also returns those that our user may not make. Neither may the process, so they need none.
    fn make(self: &Arc<Self>, paths: Vec<PathBuf>) -> Result<(PlaceholderGuard, Vec<PathBuf>), (PathBuf, Errno)> {
        let mut guard = PlaceholderGuard { paths: Vec::new(), all: Arc::clone(self) };
        let mut not_ours = Vec::new();
        for path in paths {
            let mut held = self.lock();
            if let Some(placeholder) = held.get_mut(&path) {
                placeholder.count += 1;
            } else {
                match make_and_lock(&path) {
                    Ok(directory) => drop(held.insert(path.clone(), HeldPlaceholder { directory, count: 1 })),
                    Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                        not_ours.push(path);
                        continue;
                    }
                    Err(errno) => return Err((path, errno)),
                }
            }
            guard.paths.push(path);
        }
        Ok((guard, not_ours))
    }
}

/// Makes a placeholder, or takes the one that is there, and locks it.
fn make_and_lock(path: &Path) -> Result<OwnedFd, Errno> {
    for _ in 0..PLACEHOLDER_TRIES {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
            Ok(()) => rustix::fs::chmod(path, Mode::from_raw_mode(PLACEHOLDER_MODE))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        // Somebody who has the exclusive lock is just removing it.
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => continue,
            other => other?,
        }
        if is_still_at(&directory, path) {
            return Ok(directory);
        }
    }
    Err(Errno::BUSY)
}

/// Whosever it is: in `/tmp` it may be that of another user, who has it locked as well.
fn is_placeholder(path: &Path) -> bool {
    rustix::fs::lstat(path)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir() && stat.st_mode & 0o7777 == PLACEHOLDER_MODE)
}

fn is_still_at(directory: &OwnedFd, path: &Path) -> bool {
    match (rustix::fs::fstat(directory), rustix::fs::lstat(path)) {
        (Ok(held), Ok(found)) => (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino),
        _ => false,
    }
}

impl PlaceholderGuard {
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for PlaceholderGuard {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        for path in &self.paths {
            let Some(placeholder) = all.get_mut(path) else { continue };
            placeholder.count -= 1;
            if placeholder.count > 0 {
                continue;
            }
            let alone = rustix::fs::flock(&placeholder.directory, FlockOperation::NonBlockingLockExclusive).is_ok();
            if alone && is_placeholder(path) && is_still_at(&placeholder.directory, path) {
                // Fails if it is not empty: somebody outside uses that name now.
                let _ = rustix::fs::rmdir(path);
            }
            all.remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_removed_with_the_last_who_needs_it_unless_somebody_uses_it() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let (git, used) = (dir.path().join(".git"), dir.path().join("used"));
        let placeholders = Arc::new(Placeholders::default());
        let (first, _) = placeholders.make(vec![git.clone(), used.clone()]).expect("the directory is ours");
        let (second, _) = placeholders.make(vec![git.clone()]).expect("it is there already");
        drop(first);
        assert!(git.is_dir() && !used.exists());
        drop(second);
        assert!(!git.exists());

        let elsewhere = Arc::new(Placeholders::default());
        let (ours, theirs) = (placeholders.make(vec![git.clone()]), elsewhere.make(vec![git.clone()]));
        assert_eq!(elsewhere.fact(&git), None, "a placeholder is nothing");
        drop(ours);
        assert!(git.is_dir(), "another server needs it");
        drop(theirs);
        assert!(!git.exists());

        let (third, _) = placeholders.make(vec![git.clone()]).expect("the directory is ours");
        std::fs::write(git.join("config"), "real").expect("it is ours");
        drop(third);
        assert!(git.join("config").exists());
    }

    /// This kernel knows all earlier versions of Landlock's interface, so what would be enforced on an older one works here.
    #[test]
    fn what_is_planned_for_an_older_kernel_can_be_carried_out() {
        let workspace = tempfile::tempdir().expect("a temporary directory can be made");
        let policy = SandboxPolicy::workspace_write(&[workspace.path().to_owned()], NetworkPolicy::Restricted);
        for abi in 0..=landlock::kernel_abi().min(SCOPING_ABI) {
            let host = HostMeans { landlock_abi: abi, ..host_means() };
            if let Err(why) = &host.pid_namespaces {
                return eprintln!("SKIPPED: this host has no pid namespaces: {why}");
            }
            let plan = exec_sandbox::plan(&policy, &MachinePaths::default(), &host, &|path| {
                // Nobody makes the directories that stand for what is missing here.
                exec_sandbox::file_fact(path).or(path.starts_with(workspace.path()).then_some(FileFact::Directory))
            });
            let mut plan = plan.expect("it can be enforced");
            plan.confinement.mounts.retain(|step| !matches!(step, MountStep::Bind { path, .. } if !path.exists()));
            let names: Vec<String> = plan.report.means.iter().map(|means| means.name()).collect();
            let own_pids = names.contains(&"pid-namespace".to_owned());
            assert_eq!(own_pids, abi < SCOPING_ABI, "{names:?}");
            assert_eq!(names.contains(&format!("landlock-{abi}")), abi >= 2, "{names:?}");
            assert_eq!(trial::try_confinement(&plan.confinement, &plan.descriptors), Ok(()), "version {abi}");
        }
    }
}
