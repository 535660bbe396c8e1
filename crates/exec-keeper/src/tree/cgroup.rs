//! A pool of cgroups below our own. They are made ahead of time and used again, because to make one takes a good part of
//! the time of a start.

use std::cell::{Cell, OnceCell};
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

/// Made ahead of time.
const SPARE: usize = 2;
/// Kept for use again; those beyond are removed.
const KEPT: usize = 16;
/// Removed ones of sandboxes that are still known as such: what was connected from there may be asked for a moment later.
const REMEMBERED: usize = 1024;

/// Prefixes of our directories, before the pid namespace and the pid. An embedded keeper has died with its owner, so
/// nobody wants what it left.
const EMBEDDED: &str = "exec-server-embedded-";
/// The owner of a keeper process that was killed may still read.
const OWN_PROCESS: &str = "exec-server-keeper-";

static POOLS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(crate) struct CgroupPool {
    /// The directory that all of them are in.
    path: PathBuf,
    made: u64,
    spare: VecDeque<Cgroup>,
    /// Whether the kernel counts memory here, and so also the members it killed because memory ran out.
    counts_memory: bool,
    /// Given back before they were empty.
    dying: Vec<Cgroup>,
    /// The numbers of those that had a sandboxed tree. What was connected from there may still wait to be accepted, so they are
    /// used again for such trees only. The kernel does not use a number again.
    sandboxed: HashSet<u64>,
    /// Those of them that were removed, bounded by [`REMEMBERED`].
    removed: VecDeque<u64>,
}

#[derive(Debug)]
pub(crate) struct Cgroup {
    directory: OwnedFd,
    /// The number of its directory is that by which the kernel knows it.
    number: u64,
    /// The file by which a child moves here; opened when one must.
    procs: OnceCell<Option<OwnedFd>>,
    path: PathBuf,
    /// Out-of-memory kills counted before this use.
    kills_before: u64,
    /// Never used again. The kernel (6.18) kills a child that is cloned into a cgroup which was killed at any time
    /// before, because it compares the kill count of the parent's cgroup with that of the child's; and one that had
    /// limits keeps them.
    spent: Cell<bool>,
}

impl CgroupPool {
    /// `None` unless there is a cgroup hierarchy of version 2 that we may write to.
    pub(crate) fn open(embedded: bool) -> Option<Self> {
        let parent = OwnCgroups::read()?.v2()?;
        remove_leftovers(&parent);
        let path = parent.join(pool_name(embedded));
        fs::create_dir(&path).ok()?;
        if !path.join("cgroup.procs").exists() {
            let _ = fs::remove_dir(&path);
            return None;
        }
        // If the kernel counts memory for us, this makes it count for each of our cgroups. It is allowed because no
        // process is in this directory itself.
        let counts_memory = fs::write(path.join("cgroup.subtree_control"), "+memory").is_ok();
        let mut pool = Self {
            path,
            made: 0,
            spare: VecDeque::new(),
            counts_memory,
            dying: Vec::new(),
            sandboxed: HashSet::new(),
            removed: VecDeque::new(),
        };
        pool.prepare();
        Some(pool)
    }

    /// One for a tree that is sandboxed, or for one that is not.
    pub(crate) fn take(&mut self, is_sandboxed: bool) -> Option<Cgroup> {
        let used = self.spare.iter().position(|cgroup| self.is_sandboxed(cgroup.number) == is_sandboxed);
        // One that nobody has used serves a sandbox as well.
        let fits = used.or_else(|| is_sandboxed.then_some(0));
        let mut cgroup = fits.and_then(|at| self.spare.remove(at)).or_else(|| self.make())?;
        if self.counts_memory {
            cgroup.kills_before = cgroup.kills();
        }
        Some(cgroup)
    }

    /// A cgroup that nobody has used before and nobody will use again, so that all that it counts is of one tree.
    pub(super) fn take_for_limits(&mut self) -> Option<Cgroup> {
        let cgroup = self.make()?;
        cgroup.spent.set(true);
        Some(cgroup)
    }

    /// To be called before the first process of a sandboxed tree runs in this cgroup.
    pub(super) fn mark_sandboxed(&mut self, cgroup: &Cgroup) {
        self.sandboxed.insert(cgroup.number);
    }

    /// Whether the cgroup with this number has, or had, a sandboxed tree.
    pub(super) fn is_sandboxed(&self, number: u64) -> bool {
        self.sandboxed.contains(&number)
    }

    /// Whether the kernel can limit what our cgroups use of this (`memory`, `pids`); tries to make it so. A cgroup that has
    /// processes of its own passes nothing on to those below it, unless it is the root; then its owner must have done it.
    pub(super) fn enable(&mut self, controller: &str) -> bool {
        let below_us = self.path.join("cgroup.subtree_control");
        let enabled =
            || fs::read_to_string(&below_us).is_ok_and(|found| found.split_whitespace().any(|name| name == controller));
        let request = format!("+{controller}");
        if !enabled() && fs::write(&below_us, &request).is_err() {
            let above_us = self.path.parent().map(|parent| parent.join("cgroup.subtree_control"));
            let passed_on = above_us.is_some_and(|above_us| fs::write(above_us, &request).is_ok());
            if !passed_on || fs::write(&below_us, &request).is_err() {
                return false;
            }
        }
        self.counts_memory |= controller == "memory";
        enabled()
    }

    /// Takes back a cgroup that may not be empty yet.
    pub(crate) fn give_back(&mut self, cgroup: Cgroup) {
        if cgroup.is_populated() {
            self.dying.push(cgroup);
        } else {
            self.recycle(cgroup);
        }
    }

    pub(crate) fn prepare(&mut self) {
        for cgroup in std::mem::take(&mut self.dying) {
            self.give_back(cgroup);
        }
        while self.spare_like(false) < SPARE {
            let Some(cgroup) = self.make() else { return };
            self.spare.push_back(cgroup);
        }
    }

    /// How many are kept for trees that are sandboxed, or for others.
    fn spare_like(&self, is_sandboxed: bool) -> usize {
        self.spare.iter().filter(|cgroup| self.is_sandboxed(cgroup.number) == is_sandboxed).count()
    }

    /// Takes back a cgroup that was found empty.
    pub(super) fn recycle(&mut self, cgroup: Cgroup) {
        if self.spare_like(self.is_sandboxed(cgroup.number)) < KEPT && !cgroup.spent.get() {
            self.spare.push_back(cgroup);
        } else {
            if self.is_sandboxed(cgroup.number) {
                self.removed.push_back(cgroup.number);
            }
            if self.removed.len() > REMEMBERED
                && let Some(oldest) = self.removed.pop_front()
            {
                self.sandboxed.remove(&oldest);
            }
            cgroup.remove();
        }
    }

    fn make(&mut self) -> Option<Cgroup> {
        self.made += 1;
        let path = self.path.join(format!("{}", self.made));
        fs::create_dir(&path).ok()?;
        let directory = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let number = rustix::fs::fstat(&directory).ok()?.st_ino;
        Some(Cgroup { directory, number, procs: OnceCell::new(), path, kills_before: 0, spent: Cell::new(false) })
    }
}

impl Drop for CgroupPool {
    fn drop(&mut self) {
        for cgroup in self.spare.drain(..).chain(self.dying.drain(..)) {
            cgroup.remove();
        }
        let _ = fs::remove_dir(&self.path);
    }
}

impl Cgroup {
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub(super) fn procs(&self) -> Option<BorrowedFd<'_>> {
        let open = || {
            let file =
                rustix::fs::openat(&self.directory, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            crate::spawn::above_stdio(file.ok()?).ok()
        };
        self.procs.get_or_init(open).as_ref().map(AsFd::as_fd)
    }

    pub(super) fn is_populated(&self) -> bool {
        self.read("cgroup.events").lines().any(|line| line == "populated 1")
    }

    pub(super) fn members(&self) -> Vec<u32> {
        members_below(&self.path)
    }

    pub(super) fn holds(&self, pid: u32) -> bool {
        let Some(name) = self.path.to_str() else { return false };
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let own = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        // Inside a container the two paths may begin at different roots. Their last two names are ours alone.
        let tail: Vec<&str> = name.rsplit('/').take(2).collect();
        own.split('/').zip(own.split('/').skip(1)).any(|(parent, child)| [child, parent] == tail[..])
    }

    /// One write kills all members, also those that are just being forked. `false` on kernels before 5.14.
    pub(super) fn kill(&self) -> bool {
        self.spent.set(true);
        fs::write(self.path.join("cgroup.kill"), "1").is_ok()
    }

    pub(super) fn was_out_of_memory(&self) -> bool {
        self.kills() > self.kills_before
    }

    fn kills(&self) -> u64 {
        self.count("memory.events", "oom_kill")
    }

    /// The number that stands behind a word in one of its files; 0 if there is none.
    pub(super) fn count(&self, file: &str, word: &str) -> u64 {
        count_in(&self.path.join(file), word)
    }

    pub(super) fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    /// Sets one of its limits.
    pub(super) fn write(&self, file: &str, value: &str) -> std::io::Result<()> {
        fs::write(self.path.join(file), value)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap_or_default()
    }

    fn remove(self) {
        // A program may have made cgroups of its own inside; a container runtime does.
        remove_below(&self.path);
    }
}

/// The number that stands behind a word in a file of lines; 0 if there is none.
pub(super) fn count_in(file: &Path, word: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// The name of a directory for the cgroups of one keeper.
pub(super) fn pool_name(embedded: bool) -> String {
    let number = POOLS.fetch_add(1, Ordering::Relaxed);
    let prefix = if embedded { EMBEDDED } else { OWN_PROCESS };
    format!("{prefix}{}-{}-{number}", pid_namespace(), std::process::id())
}

pub(super) fn members_below(path: &Path) -> Vec<u32> {
    let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let mut members: Vec<u32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
    for child in subdirectories(path) {
        members.extend(members_below(&child));
    }
    members
}

pub(super) fn remove_below(path: &Path) {
    for child in subdirectories(path) {
        remove_below(&child);
    }
    let _ = fs::remove_dir(path);
}

fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// What the kernel says of the cgroups that we are in, and of where their hierarchies are mounted.
pub(super) struct OwnCgroups {
    cgroups: String,
    mounts: String,
}

impl OwnCgroups {
    pub(super) fn read() -> Option<Self> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Some(Self { cgroups, mounts: fs::read_to_string("/proc/self/mountinfo").ok()? })
    }

    /// The directory of our cgroup in the hierarchy of version 2.
    fn v2(&self) -> Option<PathBuf> {
        self.find(|line| line.strip_prefix("0::"), |mounted| mounted.starts_with("cgroup2 "))
    }

    /// The same in the hierarchy of version 1 that has this controller.
    pub(super) fn v1(&self, controller: &str) -> Option<PathBuf> {
        let has = |list: &str| list.split(',').any(|name| name == controller);
        self.find(
            |line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                has(controllers).then_some(path)
            },
            |mounted| mounted.starts_with("cgroup ") && mounted.rsplit(' ').next().is_some_and(has),
        )
    }

    /// A hierarchy is known by its line in the list of our cgroups, and by what is mounted.
    fn find(&self, own: impl Fn(&str) -> Option<&str>, is_mounted: impl Fn(&str) -> bool) -> Option<PathBuf> {
        let own = self.cgroups.lines().find_map(own)?;
        let (mount, root) = self.mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ').skip(3);
            let (root, mount) = (left.next()?, left.next()?);
            is_mounted(right).then_some((mount, root))
        })?;
        let below = own.strip_prefix(root.trim_end_matches('/')).unwrap_or(own);
        Some(Path::new(mount).join(below.trim_start_matches('/')))
    }
}

/// Removes the empty cgroups of keepers that were killed. The members of an embedded keeper are killed first, as its end
/// would have done; those of a keeper process are left alone.
pub(super) fn remove_leftovers(parent: &Path) {
    let namespace = pid_namespace();
    for directory in subdirectories(parent) {
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((pid, embedded)) = keeper_of(name, namespace) else { continue };
        if Path::new("/proc").join(pid.to_string()).exists() {
            continue;
        }
        if embedded && fs::write(directory.join("cgroup.kill"), "1").is_err() {
            let members = || members_below(&directory);
            members().into_iter().for_each(|pid| super::signal_pinned(pid, Signal::KILL, || members().contains(&pid)));
        }
        if members_below(&directory).is_empty() {
            remove_below(&directory);
        }
    }
}

/// The pid of the keeper that made this directory, and whether it was embedded. `None` if another pid namespace made it:
/// containers may share a hierarchy, and a pid means nothing outside its namespace.
fn keeper_of(name: &str, namespace: u64) -> Option<(u32, bool)> {
    let embedded = name.strip_prefix(EMBEDDED);
    let mut rest = embedded.or_else(|| name.strip_prefix(OWN_PROCESS))?.split('-');
    let theirs: u64 = rest.next()?.parse().ok()?;
    let pid = rest.next()?.parse().ok()?;
    (theirs == namespace && namespace != 0).then_some((pid, embedded.is_some()))
}

/// 0 if the kernel does not tell.
fn pid_namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").ok();
    let number = link.as_ref().and_then(|link| link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_directory_is_found_in_the_hierarchy_of_a_controller() {
        let own = OwnCgroups {
            cgroups: "4:memory:/jobs/7\n3:cpu,cpuacct:/\n0::/jobs/7\n".to_owned(),
            mounts: "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     41 31 0:38 /jobs /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                .to_owned(),
        };
        assert_eq!(own.v1("memory"), Some("/sys/fs/cgroup/memory/jobs/7".into()));
        assert_eq!(own.v1("cpuacct"), Some("/sys/fs/cgroup/cpu,cpuacct/".into()));
        assert_eq!(own.v1("pids"), None);
        assert_eq!(own.v2(), Some("/sys/fs/cgroup/unified/7".into()), "a part of the hierarchy is mounted");
    }

    #[test]
    fn only_what_keepers_of_our_own_pid_namespace_left_is_judged() {
        assert_eq!(keeper_of("exec-server-embedded-4026531836-17-0", 4_026_531_836), Some((17, true)));
        assert_eq!(keeper_of("exec-server-keeper-4026531836-17-0", 4_026_531_836), Some((17, false)));
        for strange in [
            "exec-server-embedded-4026532999-17-0",
            "exec-server-embedded-17-0",
            "exec-server-embedded-x-17-0",
            "somebody-4026531836-17-0",
        ] {
            assert_eq!(keeper_of(strange, 4_026_531_836), None, "{strange}");
        }
        assert_eq!(keeper_of("exec-server-embedded-0-17-0", 0), None, "a kernel that does not tell");
        assert_ne!(pid_namespace(), 0, "this one does");
    }

    #[test]
    fn a_sandbox_is_known_by_its_cgroup_which_is_used_again_for_sandboxes_only() {
        // Where we may make none, nobody asks.
        let Some(mut pool) = CgroupPool::open(true) else { return };
        let first = pool.take(true).expect("one is spare");
        let number = first.number;
        assert!(!pool.is_sandboxed(number));
        pool.mark_sandboxed(&first);
        pool.recycle(first);
        assert!(pool.is_sandboxed(number), "what it has left may ask a moment later");
        let others: Vec<Cgroup> = (0..2 * KEPT).map(|_| pool.take(false).expect("we may make them")).collect();
        assert!(others.iter().all(|other| other.number != number));
        let again = pool.take(true).expect("one was given back");
        assert_eq!(again.number, number);
        others.into_iter().for_each(|other| pool.recycle(other));
        assert_eq!((pool.spare_like(false), pool.spare_like(true)), (KEPT, 0));
        again.spent.set(true);
        pool.recycle(again);
        assert!(pool.is_sandboxed(number), "it was removed, and its number is not used again");
        for _ in 0..REMEMBERED {
            let other = pool.take_for_limits().expect("we may make them");
            pool.mark_sandboxed(&other);
            pool.recycle(other);
        }
        assert!(!pool.is_sandboxed(number) && pool.sandboxed.len() == REMEMBERED);
    }
}
