//! Process trees: a leader and all its descendants, also those that called `setsid` or forked twice.
//!
//! Where we may create cgroups, each leader starts in one of its own: no descendant leaves it, and one write kills all.
//! Elsewhere each child gets a mark that descendants inherit and hardly ever lose, a resource limit that nobody reaches,
//! and we search `/proc` for it. A descendant may have lost the mark (another exec-server sets its own), so we also take
//! the children of those that have it.
//!
//! Nothing is believed without looking: the way into a cgroup is tried out with the first child, and the leader is
//! signalled through its own pidfd whatever else is found.

mod cgroup;
mod limits;
mod v1;

use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use exec_core::{ExitCause, ExitStatus, Limit, LimitReport, LimitSet, ResourceLimits, ResourceUsage};
use rustix::process::{Pid, PidfdFlags, Resource, Signal, getrlimit, pidfd_open, pidfd_send_signal};

use crate::stderr_log::log;
use crate::sys::clone::CgroupEntry;
use cgroup::{Cgroup, CgroupPool};
use limits::TreeLimits;
pub(crate) use limits::{CpuCheck, LimitUnavailable, Rlimits};
use v1::V1Cgroups;

/// Marks are above this, so that none is a limit that somebody meant.
const LOWEST_MARK: u64 = 1 << 40;

#[derive(Debug)]
pub(crate) struct Tree {
    mark: u64,
    cgroup: Option<Cgroup>,
    born_inside: bool,
    /// `None` if nothing is limited.
    limits: Option<TreeLimits>,
    /// The init of its pid namespace, if that is its own. It ends with the last of the others, so nobody needs to know of it.
    init: Option<u32>,
}

/// The first process of a tree, as long as it was not reaped: until then its pid is its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leader<'a> {
    pub(crate) pid: u32,
    pub(crate) pidfd: BorrowedFd<'a>,
}

/// Creates trees, and takes them back.
#[derive(Debug)]
pub(crate) struct ProcessTrees {
    pool: Option<CgroupPool>,
    /// For trees that have limits, where the host has cgroups of version 1. `None` if no cgroups may be used.
    v1: Option<V1Cgroups>,
    /// Whether children are born in their cgroup, or move there themselves.
    born_inside: bool,
    /// Whether a child was found where it should have been born.
    checked: bool,
    told_about_marks: bool,
    next_mark: u64,
}

impl ProcessTrees {
    pub(crate) fn new(cgroups: bool, embedded: bool) -> Self {
        let pool = if cgroups { CgroupPool::open(embedded) } else { None };
        let v1 = cgroups.then(|| V1Cgroups::new(embedded));
        Self { pool, v1, born_inside: true, checked: false, told_about_marks: false, next_mark: first_mark() }
    }

    /// The tree is empty until a child is spawned into it. Fails if one of its limits cannot be enforced.
    pub(crate) fn create(&mut self, limits: &ResourceLimits, is_sandboxed: bool) -> Result<Tree, LimitUnavailable> {
        let tree = self.create_with(limits, is_sandboxed)?;
        if let (Some(pool), Some(cgroup)) = (&mut self.pool, tree.cgroup.as_ref().filter(|_| is_sandboxed)) {
            pool.mark_sandboxed(cgroup);
        }
        Ok(tree)
    }

    /// Whether the cgroup that the kernel knows by this number is, or was, that of a sandboxed tree.
    pub(crate) fn is_sandboxed(&self, cgroup: u64) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_sandboxed(cgroup))
    }

    fn create_with(&mut self, limits: &ResourceLimits, is_sandboxed: bool) -> Result<Tree, LimitUnavailable> {
        self.next_mark += 1;
        let (mark, born_inside) = (self.next_mark, self.born_inside);
        if limits.is_empty() {
            let cgroup = self.pool.as_mut().and_then(|pool| pool.take(is_sandboxed));
            return Ok(Tree { mark, cgroup, born_inside, limits: None, init: None });
        }
        let cgroup = self.pool.as_mut().and_then(CgroupPool::take_for_limits);
        let v2 = self.pool.as_mut().zip(cgroup.as_ref());
        match TreeLimits::put_on(*limits, v2, self.v1.as_mut()) {
            Ok(limits) => Ok(Tree { mark, cgroup, born_inside, limits: Some(limits), init: None }),
            Err(error) => {
                if let (Some(pool), Some(cgroup)) = (&mut self.pool, cgroup) {
                    pool.recycle(cgroup);
                }
                Err(error)
            }
        }
    }

    /// Kills what is left of a tree without a leader, and takes it back.
    pub(crate) fn kill(&mut self, mut tree: Tree) {
        if tree.is_empty() {
            return self.recycle(tree);
        }
        tree.kill(None);
        self.lift_limits(&mut tree);
        if let (Some(pool), Some(cgroup)) = (&mut self.pool, tree.cgroup) {
            pool.give_back(cgroup);
        }
    }

    /// Takes back a tree that was found empty.
    pub(crate) fn recycle(&mut self, mut tree: Tree) {
        self.lift_limits(&mut tree);
        if let (Some(pool), Some(cgroup)) = (&mut self.pool, tree.cgroup) {
            pool.recycle(cgroup);
        }
    }

    fn lift_limits(&mut self, tree: &mut Tree) {
        if let (Some(v1), Some(limits)) = (&mut self.v1, tree.limits.take()) {
            limits.give_back(v1);
        }
    }

    /// To be called if a child did not come into the cgroup of this tree. The next children move there themselves; if
    /// that fails too, they are marked only. Several children may have tried the same way at once.
    pub(crate) fn give_up_way_of(&mut self, tree: &Tree) {
        if self.born_inside {
            self.born_inside = false;
        } else if !tree.born_inside {
            self.pool = None;
        }
    }

    /// A child runs. Looks, for the first one, whether it is where it should be, and makes its tree findable if not. Fails
    /// if the limits of the tree do not hold then.
    pub(crate) fn on_spawned(&mut self, tree: &mut Tree, pid: u32, marked: bool) -> Result<(), LimitUnavailable> {
        if !self.checked
            && let Some(cgroup) = &tree.cgroup
        {
            self.checked = is_alive(pid);
            if self.checked && !cgroup.holds(pid) {
                self.give_up_way_of(tree);
                self.checked = false;
                tree.cgroup = None;
            }
        }
        if tree.cgroup.is_none() && !marked && !self.told_about_marks {
            self.told_about_marks = true;
            log(
                "exec-server keeper: children can be put neither into a cgroup nor under the limit RTTIME; a descendant \
                 that leaves its parent and its session may outlive its tree",
            );
        }
        if tree.cgroup.is_none() && tree.limits.as_ref().is_some_and(TreeLimits::need_v2) {
            let why = "the kernel did not put the process into its cgroup; the next start does without".to_owned();
            return Err(LimitUnavailable { why });
        }
        Ok(())
    }

    /// Makes cgroups for the next starts. To be called when nobody waits for us.
    pub(crate) fn prepare(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.prepare();
        }
        if let Some(v1) = &mut self.v1 {
            v1.prepare();
        }
    }
}

impl Tree {
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn cgroup_entry(&self) -> Option<CgroupEntry<'_>> {
        let cgroup = self.cgroup.as_ref()?;
        match cgroup.procs() {
            Some(procs) if !self.born_inside => Some(CgroupEntry::ByWrite(procs)),
            _ => Some(CgroupEntry::AtBirth(cgroup.directory())),
        }
    }

    /// Whether there is nobody but perhaps a leader. Zombies do not count: they run nothing and hold nothing.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.cgroup {
            Some(cgroup) => !cgroup.is_populated(),
            None => self.members(None).is_empty(),
        }
    }

    pub(crate) fn members(&self, leader: Option<Leader<'_>>) -> Vec<u32> {
        let mut members: Vec<u32> = match &self.cgroup {
            Some(cgroup) => cgroup.members(),
            None => self.search(leader).into_iter().map(|found| found.pid).collect(),
        };
        members.retain(|pid| Some(*pid) != self.init);
        members
    }

    /// A child runs in a pid namespace of its own, and this is the first process there.
    pub(crate) fn set_init(&mut self, init: u32) {
        self.init = Some(init);
    }

    pub(crate) fn signal(&self, leader: Option<Leader<'_>>, signal: Signal) {
        if let Some(leader) = leader {
            let _ = pidfd_send_signal(leader.pidfd, signal);
        }
        let is_leader = |pid: u32| leader.is_some_and(|leader| leader.pid == pid);
        match &self.cgroup {
            Some(cgroup) => {
                for pid in cgroup.members().into_iter().filter(|pid| !is_leader(*pid)) {
                    signal_pinned(pid, signal, || cgroup.holds(pid));
                }
            }
            None => {
                for found in self.search(leader).into_iter().filter(|found| !is_leader(found.pid)) {
                    signal_pinned(found.pid, signal, || {
                        ProcStat::read(found.pid, false).is_some_and(|now| now.start == found.start)
                    });
                }
            }
        }
    }

    /// Kills every member, also those that are just being forked.
    pub(crate) fn kill(&self, leader: Option<Leader<'_>>) {
        if let Some(cgroup) = &self.cgroup
            && cgroup.kill()
        {
            if let Some(leader) = leader {
                let _ = pidfd_send_signal(leader.pidfd, Signal::KILL);
            }
            return;
        }
        // A stopped process cannot fork. So each round finds only those that were forked during the last one.
        for _ in 0..16 {
            self.signal(leader, Signal::STOP);
            self.signal(leader, Signal::KILL);
            if self.members(None).is_empty() {
                return;
            }
        }
    }

    /// Whether the kernel has killed a member because memory ran out.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::was_out_of_memory)
            || self.limits.as_ref().is_some_and(TreeLimits::was_out_of_memory)
    }

    /// What enforces its limits; `None` if it has none.
    pub(crate) fn limit_report(&self) -> Option<LimitReport> {
        self.limits.as_ref().map(TreeLimits::report)
    }

    /// Which limits it has reached, if its leader ended like this.
    pub(crate) fn limits_reached(&self, end: (ExitStatus, ExitCause, ResourceUsage)) -> LimitSet {
        self.limits.as_ref().map_or(LimitSet::NONE, |limits| limits.reached(self.cgroup.as_ref(), end))
    }

    /// Looks at the processor time that it has used; `None` if we need not watch that.
    pub(crate) fn look_at_cpu(&self, now: Instant) -> Option<CpuCheck> {
        self.limits.as_ref()?.look_at_cpu(self.cgroup.as_ref(), now)
    }

    /// The files by which a child comes under the limits of cgroups of version 1.
    pub(crate) fn limit_entries(&self) -> Vec<BorrowedFd<'_>> {
        self.limits.iter().flat_map(TreeLimits::entries).collect()
    }

    /// The limits that a child puts on itself.
    pub(crate) fn rlimits(&self) -> Rlimits {
        self.limits.as_ref().map(TreeLimits::rlimits).unwrap_or_default()
    }

    fn search(&self, leader: Option<Leader<'_>>) -> Vec<ProcStat> {
        let leader = leader.map(|leader| leader.pid);
        tree_of(all_processes(self.mark, leader), leader)
    }
}

/// By which means each limit would be enforced on a process of ours, or why it would not be. Tries it, with cgroups that
/// are removed at once.
pub fn try_limits() -> Vec<(Limit, Result<exec_core::LimitMeans, String>)> {
    let mut trees = ProcessTrees::new(true, true);
    let try_one = |limit: Limit| {
        let mut asked = ResourceLimits::default();
        asked.set(limit, 1 << 30);
        let tree = trees.create(&asked, false).map_err(|LimitUnavailable { why }| why)?;
        let means = tree.limit_report().and_then(|report| report.get(limit));
        trees.recycle(tree);
        means.ok_or_else(|| "it was left out".to_owned())
    };
    Limit::ALL.map(try_one).into_iter().zip(Limit::ALL).map(|(means, limit)| (limit, means)).collect()
}

/// The pid may belong to another process since it was listed. A pidfd pins it, and then we check again whose it is.
fn signal_pinned(pid: u32, signal: Signal, still_ours: impl FnOnce() -> bool) {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if let Ok(pidfd) = pidfd_open(raw, PidfdFlags::empty())
        && still_ours()
    {
        let _ = pidfd_send_signal(&pidfd, signal);
    }
}

/// Far beyond any real limit, and different for every keeper of the machine. Not made from our pid, because a keeper in a
/// container may have the same. Below the limit that we have ourselves, if we have one (another exec-server has started
/// us): a limit can be lowered by everybody, and raised by root only.
fn first_mark() -> u64 {
    let random = RandomState::new().build_hasher().finish();
    let far = 1 << 62 | (random >> 34) << 32;
    match getrlimit(Resource::Rttime).maximum {
        Some(hard) if hard / 2 >= LOWEST_MARK && hard < u64::MAX / 2 => hard / 2 + random % (hard / 4),
        _ => far,
    }
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcStat {
    pid: u32,
    parent: u32,
    session: u32,
    /// When it started; with the pid it names one process for ever.
    start: u64,
    /// Not a zombie, or one with threads that live on.
    alive: bool,
    marked: bool,
}

impl ProcStat {
    fn read(pid: u32, marked: bool) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, marked)
    }

    fn parse(pid: u32, stat: &str, marked: bool) -> Option<Self> {
        // The state follows the name, which stands in parentheses and may contain parentheses itself.
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        let state = fields.next()?;
        let number = |field: Option<&str>| field?.parse::<u64>().ok();
        let parent = number(fields.next())? as u32;
        let session = number(fields.nth(1))? as u32;
        let threads = number(fields.nth(13))?;
        let start = number(fields.nth(1))?;
        let alive = !matches!(state, "Z" | "X") || threads > 1;
        Some(Self { pid, parent, session, start, alive, marked })
    }
}

fn is_alive(pid: u32) -> bool {
    ProcStat::read(pid, false).is_some_and(|found| found.alive)
}

fn has_mark(pid: u32, mark: u64) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    hard_limit(&limits) == Some(mark)
}

/// All processes of the machine, or none if none of them can be in the tree.
fn all_processes(mark: u64, leader: Option<u32>) -> Vec<ProcStat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pids: Vec<(u32, bool)> = pids.map(|pid| (pid, has_mark(pid, mark))).collect();
    if leader.is_none() && !pids.iter().any(|(_, marked)| *marked) {
        return Vec::new();
    }
    pids.into_iter().filter_map(|(pid, marked)| ProcStat::read(pid, marked)).collect()
}

/// Those with the mark, the leader, its session, and the children of all these.
fn tree_of(all: Vec<ProcStat>, leader: Option<u32>) -> Vec<ProcStat> {
    let ours = std::process::id();
    let begins = |found: &&ProcStat| found.marked || Some(found.pid) == leader || Some(found.session) == leader;
    let mut members: HashSet<u32> = all.iter().filter(begins).map(|found| found.pid).collect();
    loop {
        let known = members.len();
        let children = all.iter().filter(|found| members.contains(&found.parent)).map(|found| found.pid);
        let children: Vec<u32> = children.collect();
        members.extend(children);
        members.remove(&ours);
        if members.len() == known {
            return all.into_iter().filter(|found| found.alive && members.contains(&found.pid)).collect();
        }
    }
}

fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_the_second_number() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax realtime timeout      7   4611686018427387905   us\n";
        assert_eq!(hard_limit(limits), Some((1 << 62) + 1));
        assert_eq!(hard_limit("Max realtime timeout unlimited unlimited us\n"), None);
    }

    fn found(pid: u32, parent: u32, session: u32, marked: bool) -> ProcStat {
        ProcStat { pid, parent, session, start: 1, alive: true, marked }
    }

    #[test]
    fn a_tree_is_the_marked_and_the_children_of_its_members() {
        let outsider = found(9, 1, 9, false);
        let zombie = ProcStat { alive: false, ..found(15, 10, 10, true) };
        let all = vec![found(12, 11, 12, false), outsider, found(10, 2, 10, true), found(11, 10, 11, false), zombie];
        let pids = |leader| tree_of(all.clone(), leader).into_iter().map(|found| found.pid).collect::<Vec<_>>();
        assert_eq!(pids(None), [12, 10, 11]);
        assert_eq!(pids(Some(9)), [12, 9, 10, 11], "a leader without a mark");
    }

    #[test]
    fn a_zombie_with_threads_is_alive() {
        let stat = |state, threads| {
            format!(
                "7 (a) b) {state} 3 7 5 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 {threads} 0 987 0 0 18446744073709551615\n"
            )
        };
        let read = |state, threads| ProcStat::parse(7, &stat(state, threads), false).expect("it is one");
        assert_eq!((read("S", 1).parent, read("S", 1).session, read("S", 1).start), (3, 5, 987));
        assert!(read("S", 1).alive && read("Z", 2).alive && !read("Z", 1).alive);
    }

    #[test]
    fn our_own_tree_is_found_and_we_are_not_in_it() {
        let all = all_processes(0, Some(std::process::id()));
        assert!(all.iter().any(|found| found.pid == std::process::id() && found.alive));
        assert!(tree_of(all, Some(std::process::id())).iter().all(|found| found.pid != std::process::id()));
    }
}
