//! Sandboxes of processes: what this host can enforce, found out once by trying; a plan for each start; and the
//! placeholders that stand for protected directories which do not exist.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use exec_core::sandbox::{Confinement, MountStep, SandboxPolicy, SandboxReport};
use exec_env::process::ProcessReason;
use exec_keeper::trial;
use exec_sandbox::landlock::{self, NEEDED_ABI};
use exec_sandbox::{HostMeans, MachinePaths, MountMeans, SandboxPlan};

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
    /// No sandbox reaches what is `private`.
    pub(crate) fn new(temporary: Vec<PathBuf>, private: Vec<PathBuf>) -> Self {
        Self { machine: MachinePaths { temporary, private }, host: OnceLock::new(), placeholders: Arc::default() }
    }

    /// Plans the sandbox that `policy` asks for. Looks at files, so that it may take its time.
    pub(crate) fn plan(&self, policy: &SandboxPolicy) -> Result<PlannedSandbox, ProcessReason> {
        let host = self.host.get_or_init(host_means);
        let planned = exec_sandbox::plan(policy, &self.machine, host);
        let SandboxPlan { confinement, descriptors, placeholders, report } =
            planned.map_err(|error| ProcessReason::SandboxUnavailable { why: error.to_string() })?;
        let placeholders = self.placeholders.make(placeholders).map_err(|(path, error)| {
            let why = format!("{path:?} is protected and missing, and cannot be made for the time being: {error}");
            ProcessReason::SandboxUnavailable { why }
        })?;
        Ok(PlannedSandbox { confinement, descriptors, report, placeholders })
    }

    /// Takes over placeholders of a process that an earlier owner has started.
    pub(crate) fn adopt(&self, paths: Vec<PathBuf>) -> PlaceholderGuard {
        self.placeholders.hold(paths)
    }
}

/// What this host can enforce. Tries it, in a process that ends at once.
pub fn host_means() -> HostMeans {
    let landlock_abi = landlock::kernel_abi();
    HostMeans { landlock_abi, mounts: mount_means(landlock_abi) }
}

fn mount_means(landlock_abi: u32) -> MountMeans {
    let trial = |user_namespace: Option<OwnedFd>| {
        let mut confinement = Confinement {
            user_namespace: user_namespace.is_some(),
            mounts: vec![MountStep::ReadOnlyRoot, MountStep::Devices],
            ..Confinement::default()
        };
        let mut descriptors: Vec<OwnedFd> = user_namespace.into_iter().collect();
        if landlock_abi >= NEEDED_ABI
            && let Ok(ruleset) = landlock::ruleset(Some(&[]))
        {
            confinement.landlock = Some(ruleset.handled);
            descriptors.push(ruleset.descriptor);
        }
        trial::try_confinement(&confinement, &descriptors)
    };
    let unavailable = |error: &dyn std::fmt::Display| MountMeans::Unavailable { why: error.to_string() };
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

/// Empty directories that stand for protected paths which do not exist, with the number of processes that need each.
#[derive(Debug, Default)]
struct Placeholders {
    needed: Mutex<HashMap<PathBuf, usize>>,
}

/// Holds the placeholders of one process. When the last process that needs one is gone, it is removed, unless somebody has
/// put something into it.
#[derive(Debug)]
pub(crate) struct PlaceholderGuard {
    paths: Vec<PathBuf>,
    all: Arc<Placeholders>,
}

impl Placeholders {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, usize>> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(self: &Arc<Self>, paths: Vec<PathBuf>) -> Result<PlaceholderGuard, (PathBuf, std::io::Error)> {
        let mut guard = self.hold(Vec::new());
        for path in paths {
            // Under the lock, so that nobody removes it as the last one who needs it meanwhile.
            let mut needed = self.lock();
            match std::fs::create_dir(&path) {
                Ok(()) => {}
                // Another process needs it too, or it has come into existence since the plan was made: then the process sees
                // what is there, and cannot change it either.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err((path, error)),
            }
            *needed.entry(path.clone()).or_insert(0) += 1;
            guard.paths.push(path);
        }
        Ok(guard)
    }

    fn hold(self: &Arc<Self>, paths: Vec<PathBuf>) -> PlaceholderGuard {
        let mut needed = self.lock();
        for path in &paths {
            *needed.entry(path.clone()).or_insert(0) += 1;
        }
        drop(needed);
        PlaceholderGuard { paths, all: Arc::clone(self) }
    }
}

impl PlaceholderGuard {
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for PlaceholderGuard {
    fn drop(&mut self) {
        let mut needed = self.all.lock();
        for path in &self.paths {
            let Some(count) = needed.get_mut(path) else { continue };
            *count -= 1;
            if *count == 0 {
                needed.remove(path);
                // Fails if it is not empty: somebody outside uses that name now.
                let _ = std::fs::remove_dir(path);
            }
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
        let first = placeholders.make(vec![git.clone(), used.clone()]).expect("the directory is ours");
        let second = placeholders.make(vec![git.clone()]).expect("it is there already");
        drop(first);
        assert!(git.is_dir() && !used.exists());
        drop(second);
        assert!(!git.exists());

        let third = placeholders.make(vec![git.clone()]).expect("the directory is ours");
        std::fs::write(git.join("config"), "real").expect("it is ours");
        drop(third);
        assert!(git.join("config").exists());
    }
}
