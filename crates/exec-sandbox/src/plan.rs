//! What will be enforced on this host, by which means; or why it cannot be, and what would help.
//!
//! The plan decides before anything is started: what the host cannot enforce is refused, never left out.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use exec_core::sandbox::{
    Confinement, FileCeiling, FilePolicy, NetworkPolicy, SandboxMeans, SandboxPolicy, SandboxReport, Supervision,
};

use crate::landlock::{self, Grant, LandlockError, SCOPING_ABI};
use crate::mounts::{self, FileFact, MountPlan, ProtectedLink};
use crate::path_rules::{self, BadGlob, MachinePaths, PathAccess, PathRules};
use crate::seccomp::{self, FilterScope};
use crate::supervised::{self, NotSupervisable};

/// Most files that are looked at to find those which a policy's globs deny.
const GLOB_SCAN_FILES: usize = 200_000;

/// What this host can enforce; found out by trying.
#[derive(Debug)]
pub struct HostMeans {
    /// The version of Landlock's interface; 0 if there is none.
    pub landlock_abi: u32,
    pub mounts: MountMeans,
    /// Whether a process can have a pid namespace of its own, beside its mounts; if not, why, for a person.
    pub pid_namespaces: Result<(), String>,
    /// Whether a process can have a network of its own; if not, why, for a person.
    pub networks: Result<(), String>,
}

/// How a process gets mounts of its own.
#[derive(Debug)]
pub enum MountMeans {
    /// We have the rights of the machine's administrator.
    Privileged,
    /// In this user namespace, in which every user may mount.
    UserNamespace(OwnedFd),
    Unavailable {
        /// What failed, for a person.
        why: String,
        /// Whether a supervisor can change files in place of a process, or why not.
        supervision: Result<(), String>,
    },
}

/// A sandbox that can be carried out.
#[derive(Debug)]
pub struct SandboxPlan {
    pub confinement: Confinement,
    /// Those that come with the confinement.
    pub descriptors: Vec<OwnedFd>,
    /// Directories that must exist while the process runs; see [`MountPlan`].
    pub placeholders: Vec<PathBuf>,
    pub report: SandboxReport,
}

/// Why a policy cannot be enforced here.
#[derive(Debug, thiserror::Error)]
pub enum Unenforceable {
    #[error(
        "the kernel keeps no signals inside a sandbox: Landlock version {needed} is needed (Linux 6.12), this one has {found}, \
         or a pid namespace, which cannot be had: {why}; use a newer kernel, or enable Landlock in it (lsm=landlock,…), or \
         allow user namespaces (sysctl user.max_user_namespaces, user.max_pid_namespaces, \
         kernel.apparmor_restrict_unprivileged_userns=0), or run the server as root with CAP_SYS_ADMIN"
    )]
    OldLandlock { found: u32, needed: u32, why: String },
    #[error(
        "for this policy a process needs mounts of its own, because {lacking}, and those cannot be had: {why}; allow user \
         namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0), or run the server as \
         root with CAP_SYS_ADMIN"
    )]
    NoMounts { lacking: String, why: String },
    #[error(
        "this policy has a proxy as its only network, for which a process needs a network of its own, and that cannot be had: \
         {why}; allow user namespaces (sysctl user.max_user_namespaces, user.max_net_namespaces, \
         kernel.apparmor_restrict_unprivileged_userns=0), or run the server as root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NoNetwork { why: String },
    #[error(transparent)]
    BeyondCeiling(#[from] BeyondCeiling),
    #[error(transparent)]
    ProtectedLink(#[from] ProtectedLink),
    #[error(transparent)]
    BadGlob(#[from] BadGlob),
    #[error(
        "the policy's globs would have to be looked for among more than {limit} files: give them a longer fixed part, or \
         set glob_scan_max_depth"
    )]
    GlobTooWide { limit: usize },
    #[error(transparent)]
    Landlock(#[from] LandlockError),
    #[error("a descriptor cannot be shared: {0}")]
    Descriptor(#[from] std::io::Error),
}

/// A policy allows more than the ceiling of whoever serves the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox could {verb} {}, which is not allowed here: ask for one that stays within the roots", path.display())]
pub struct BeyondCeiling {
    /// The rule of the ceiling.
    pub rule: String,
    pub path: PathBuf,
    pub verb: &'static str,
}

/// What no policy may go beyond.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyBounds<'a> {
    pub ceilings: &'a [FileCeiling],
    /// Where the process begins, which the ceilings must allow to be read.
    pub cwd: Option<&'a Path>,
}

impl PolicyBounds<'_> {
    /// Asked about the very rules that are then enforced, so that nobody swaps a link between the two.
    fn check(&self, rules: &PathRules, machine: &MachinePaths) -> Result<(), Unenforceable> {
        for ceiling in self.ceilings {
            let allowed = PathRules::resolve(&ceiling.files, machine)?;
            let cwd = self.cwd.map(path_rules::without_links).filter(|cwd| allowed.access(cwd) < PathAccess::Read);
            if let Some((path, access)) = rules.exceeds(&allowed).or(cwd.map(|cwd| (cwd, PathAccess::Read))) {
                let verb = if access == PathAccess::Write { "write" } else { "read" };
                return Err(BeyondCeiling { rule: ceiling.rule.clone(), path, verb }.into());
            }
        }
        Ok(())
    }
}

/// The plan for `policy`. `fact` says what is at a path, mostly [`file_fact`]. Looks at the files that the policy names; may
/// take as long as they take to answer.
pub fn plan(
    policy: &SandboxPolicy,
    machine: &MachinePaths,
    host: &HostMeans,
    fact: &dyn Fn(&Path) -> Option<FileFact>,
) -> Result<SandboxPlan, Unenforceable> {
    plan_within(policy, PolicyBounds::default(), machine, host, fact)
}

/// The same, if the policy is within these bounds.
pub fn plan_within(
    policy: &SandboxPolicy,
    bounds: PolicyBounds<'_>,
    machine: &MachinePaths,
    host: &HostMeans,
    fact: &dyn Fn(&Path) -> Option<FileFact>,
) -> Result<SandboxPlan, Unenforceable> {
    let rules = PathRules::resolve(&policy.files, machine)?;
    bounds.check(&rules, machine)?;
    if policy.network == NetworkPolicy::ProxyOnly
        && let Err(why) = &host.networks
    {
        return Err(Unenforceable::NoNetwork { why: why.clone() });
    }
    if policy.files == FilePolicy::Unrestricted {
        return network_only(policy.network, host);
    }
    if host.landlock_abi < SCOPING_ABI
        && let Err(why) = &host.pid_namespaces
    {
        let (found, needed) = (host.landlock_abi, SCOPING_ABI);
        return Err(Unenforceable::OldLandlock { found, needed, why: why.clone() });
    }
    let with_mounts = |namespace| with_mounts(policy.network, &rules, fact, host.landlock_abi, namespace);
    match &host.mounts {
        MountMeans::Privileged => with_mounts(None),
        MountMeans::UserNamespace(namespace) => with_mounts(Some(namespace.try_clone()?)),
        MountMeans::Unavailable { why, supervision } => {
            without_mounts(policy, &rules, machine, supervision).map_err(|error| match error {
                WithoutMounts::Lacking(lacking) => Unenforceable::NoMounts { lacking, why: why.clone() },
                WithoutMounts::Landlock(error) => error.into(),
            })
        }
    }
}

/// Files are not restricted, so nothing but the network is.
fn network_only(network: NetworkPolicy, host: &HostMeans) -> Result<SandboxPlan, Unenforceable> {
    let filters = seccomp::filters(FilterScope { network, without_mounts: false, supervised: false });
    let mut confinement = Confinement { filters, network: own_network(network), ..Confinement::default() };
    let (mut means, mut descriptors) = (Vec::new(), Vec::new());
    if network == NetworkPolicy::ProxyOnly {
        match &host.mounts {
            MountMeans::Privileged => {}
            MountMeans::UserNamespace(namespace) => {
                confinement.user_namespace = true;
                descriptors.push(namespace.try_clone()?);
            }
            MountMeans::Unavailable { why, .. } => return Err(Unenforceable::NoNetwork { why: why.clone() }),
        }
        means.push(SandboxMeans::NetworkNamespace);
    }
    if host.landlock_abi >= SCOPING_ABI {
        let ruleset = landlock::ruleset(None, host.landlock_abi)?;
        confinement.landlock = Some(ruleset.handled);
        descriptors.push(ruleset.descriptor);
        means.push(SandboxMeans::Landlock { abi: host.landlock_abi });
    }
    means.push(SandboxMeans::Seccomp);
    Ok(SandboxPlan { confinement, descriptors, placeholders: Vec::new(), report: SandboxReport { means } })
}

/// The ports are chosen by whoever serves them.
fn own_network(network: NetworkPolicy) -> Option<Vec<u16>> {
    (network == NetworkPolicy::ProxyOnly).then(Vec::new)
}

fn with_mounts(
    network: NetworkPolicy,
    rules: &PathRules,
    fact: &dyn Fn(&Path) -> Option<FileFact>,
    abi: u32,
    user_namespace: Option<OwnedFd>,
) -> Result<SandboxPlan, Unenforceable> {
    let denied = glob_matches(rules)?;
    let MountPlan { steps, placeholders } = mounts::plan(rules, &denied, fact)?;
    let granted = rules.by_path().iter().filter_map(|(path, _)| match rules.access(path) {
        PathAccess::Read => Some((path.as_path(), Grant::Read)),
        PathAccess::Write => Some((path.as_path(), Grant::Write)),
        PathAccess::Denied | PathAccess::Hidden => None,
    });
    // With a `/dev` of its own, its console is its own terminal; otherwise it is the machine's.
    let own_console = (Path::new("/dev/console"), Grant::Device);
    let granted: Vec<_> = granted.chain([(Path::new("/proc"), Grant::Read), own_console]).collect();
    let usable = landlock::is_usable(abi);
    let ruleset = usable.then(|| landlock::ruleset(Some(&granted), abi)).transpose()?;
    // Otherwise Landlock keeps signals inside.
    let pid_namespace = abi < SCOPING_ABI;
    let confinement = Confinement {
        user_namespace: user_namespace.is_some(),
        pid_namespace,
        network: own_network(network),
        mounts: steps,
        landlock: ruleset.as_ref().map(|ruleset| ruleset.handled),
        filters: seccomp::filters(FilterScope { network, without_mounts: false, supervised: false }),
        supervision: None,
    };
    let own_network = (network == NetworkPolicy::ProxyOnly).then_some(SandboxMeans::NetworkNamespace);
    let means = own_network.into_iter().chain([SandboxMeans::Namespaces]);
    let means = means.chain(pid_namespace.then_some(SandboxMeans::PidNamespace));
    let means = means.chain(usable.then_some(SandboxMeans::Landlock { abi })).chain([SandboxMeans::Seccomp]).collect();
    Ok(SandboxPlan {
        confinement,
        descriptors: user_namespace.into_iter().chain(ruleset.map(|ruleset| ruleset.descriptor)).collect(),
        placeholders,
        report: SandboxReport { means },
    })
}

/// Why a policy cannot be enforced without mounts.
#[derive(Debug)]
enum WithoutMounts {
    /// What is missing, for a person.
    Lacking(String),
    Landlock(LandlockError),
}

impl From<NotSupervisable> for WithoutMounts {
    fn from(error: NotSupervisable) -> Self {
        Self::Lacking(error.to_string())
    }
}

/// Landlock alone can say what may be read, but cannot take anything away from what it grants. What may be written a
/// supervisor writes.
fn without_mounts(
    policy: &SandboxPolicy,
    rules: &PathRules,
    machine: &MachinePaths,
    supervision: &Result<(), String>,
) -> Result<SandboxPlan, WithoutMounts> {
    if policy.network != NetworkPolicy::Restricted {
        // Landlock does not know who may connect to a socket with a name, and the server's own may be one.
        return Err(WithoutMounts::Lacking("it has a network".to_owned()));
    }
    let is_private = |path: &Path| machine.private.iter().any(|private| path.starts_with(private));
    let only_reads = |(path, access): &(PathBuf, PathAccess)| match access {
        PathAccess::Read => true,
        PathAccess::Denied => is_private(path),
        PathAccess::Write | PathAccess::Hidden => false,
    };
    let mut means = Vec::new();
    let supervised = if rules.by_path().iter().all(only_reads) && rules.denied_globs().0.is_empty() {
        None
    } else {
        let places = supervised::writable_paths(rules, machine)?;
        let unavailable = |why: &String| WithoutMounts::Lacking(format!("it cannot be supervised ({why})"));
        supervision.as_ref().map_err(unavailable)?;
        means.push(SandboxMeans::Supervisor);
        Some(Supervision { filter: seccomp::supervised_calls(), places })
    };
    // Devices belong to others, and the server's own directories to the server.
    let excluded: Vec<&Path> = machine.private.iter().map(PathBuf::as_path).chain([Path::new("/dev")]).collect();
    let mut granted = vec![(PathBuf::from("/proc"), Grant::Read)];
    for (path, _) in rules.by_path().iter().filter(|(_, access)| *access >= PathAccess::Read) {
        grant_around(path.clone(), &excluded, &mut granted);
    }
    let granted: Vec<_> = granted.iter().map(|(path, grant)| (path.as_path(), *grant)).collect();
    let ruleset = landlock::ruleset(Some(&granted), landlock::kernel_abi()).map_err(WithoutMounts::Landlock)?;
    let scope = FilterScope { network: policy.network, without_mounts: true, supervised: supervised.is_some() };
    let confinement = Confinement {
        landlock: Some(ruleset.handled),
        filters: seccomp::filters(scope),
        supervision: supervised,
        ..Confinement::default()
    };
    means.splice(0..0, [SandboxMeans::Landlock { abi: landlock::kernel_abi() }, SandboxMeans::Seccomp]);
    Ok(SandboxPlan {
        confinement,
        descriptors: vec![ruleset.descriptor],
        placeholders: Vec::new(),
        report: SandboxReport { means },
    })
}

/// A supervised confinement in which nothing may be written, to try whether one works.
pub fn trial_of_supervision() -> Result<SandboxPlan, Unenforceable> {
    let policy = SandboxPolicy::read_only(NetworkPolicy::Restricted);
    let machine = MachinePaths::default();
    let means = MountMeans::Unavailable { why: String::new(), supervision: Ok(()) };
    let host = HostMeans {
        landlock_abi: landlock::kernel_abi(),
        mounts: means,
        pid_namespaces: Err("there are no mounts".to_owned()),
        networks: Ok(()),
    };
    let mut plan = plan(&policy, &machine, &host, &file_fact)?;
    let rules = PathRules::resolve(&policy.files, &machine)?;
    if let Ok(places) = supervised::writable_paths(&rules, &machine) {
        plan.confinement.supervision = Some(Supervision { filter: seccomp::supervised_calls(), places });
    }
    Ok(plan)
}

/// Grants reading at `path` and below it, but for what is at or below `excluded`: there only the names can be read. What
/// comes to lie beside something excluded later is not granted.
fn grant_around(path: PathBuf, excluded: &[&Path], granted: &mut Vec<(PathBuf, Grant)>) {
    if excluded.iter().any(|out| path.starts_with(out)) {
        return;
    }
    if !excluded.iter().any(|out| out.starts_with(&path)) {
        return granted.push((path, Grant::Read));
    }
    let children = std::fs::read_dir(&path).into_iter().flatten().flatten();
    children.for_each(|child| grant_around(child.path(), excluded, granted));
    granted.push((path, Grant::List));
}

/// What the globs of the rules deny now.
fn glob_matches(rules: &PathRules) -> Result<Vec<PathBuf>, Unenforceable> {
    let (globs, depth) = rules.denied_globs();
    let mut matches = Vec::new();
    let mut looked_at = 0;
    for glob in globs {
        let wildcard = glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len());
        let root = PathBuf::from(&glob[..glob[..wildcard].rfind('/').map_or(0, |slash| slash.max(1))]);
        let mut left = vec![(root, 0)];
        while let Some((directory, at)) = left.pop() {
            for child in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                looked_at += 1;
                if looked_at > GLOB_SCAN_FILES {
                    return Err(Unenforceable::GlobTooWide { limit: GLOB_SCAN_FILES });
                }
                let path = child.path();
                if rules.is_denied_by_glob(&path) {
                    // Nothing can be mounted on a link. What it leads to is denied by every name; if that is nothing, so be it. A
                    // directory that the link itself lies in is not: that would take away all that the policy is about.
                    matches
                        .extend(path.canonicalize().ok().filter(|target| *target == path || !path.starts_with(target)));
                } else if child.file_type().is_ok_and(|kind| kind.is_dir()) && depth.is_none_or(|depth| at + 1 < depth)
                {
                    left.push((path, at + 1));
                }
            }
        }
    }
    Ok(matches)
}

/// What is at a path now, without following a link.
pub fn file_fact(path: &Path) -> Option<FileFact> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some(if metadata.is_symlink() {
        FileFact::Link { target: std::fs::read_link(path).ok()? }
    } else if metadata.is_dir() {
        FileFact::Directory
    } else {
        FileFact::File
    })
}

#[cfg(test)]
mod tests {
    use exec_core::sandbox::{FileAccess, FileRule, RuleTarget};

    use super::*;

    #[test]
    fn a_link_that_a_glob_denies_takes_along_what_it_leads_to_but_not_the_directory_it_lies_in() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let root = folder.path().canonicalize().expect("it is there");
        for made in ["work/below", "other"] {
            std::fs::create_dir_all(root.join(made)).expect("the folder is ours");
        }
        std::fs::write(root.join("file"), "x").expect("the folder is ours");
        for (link, target) in [("up", ".."), ("here", "."), ("root", "/"), ("file", "../file"), ("other", "../other")] {
            std::os::unix::fs::symlink(target, root.join("work").join(link)).expect("the folder is ours");
        }
        let deny = |glob: &str| FileRule {
            target: RuleTarget::Glob(format!("{}{glob}", root.display())),
            access: FileAccess::Deny,
        };
        let policy = FilePolicy::Restricted { rules: vec![deny("/work/*")], glob_scan_depth: None };
        let rules = PathRules::resolve(&policy, &MachinePaths::default()).expect("the glob is good");
        let mut denied = glob_matches(&rules).expect("there are few files");
        denied.sort();
        assert_eq!(denied, ["file", "other", "work/below"].map(|name| root.join(name)));
    }
}
