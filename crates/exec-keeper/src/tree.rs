//! Process trees: a leader and all its descendants, also those that called `setsid` or forked twice.
//!
//! Where we may create cgroups, each leader starts in one of its own: no descendant leaves it, and one write kills all.
//! Elsewhere each child gets a mark that descendants inherit and hardly ever lose, a resource limit that nobody reaches,
//! and we search `/proc` for it.

mod cgroup;

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;

use rustix::process::{Pid, PidfdFlags, Signal};

use cgroup::{Cgroup, CgroupPool};

#[derive(Debug)]
pub(crate) struct Tree {
    mark: u64,
    cgroup: Option<Cgroup>,
}

/// Creates trees, and takes them back.
#[derive(Debug)]
pub(crate) struct ProcessTrees {
    pool: Option<CgroupPool>,
    next_mark: u64,
}

impl ProcessTrees {
    pub(crate) fn new(cgroups: bool, embedded: bool) -> Self {
        // Far beyond any real limit, and different for every keeper of the machine. Not made from our pid, because a
        // keeper in a container may have the same.
        let next_mark = 1 << 62 | (RandomState::new().build_hasher().finish() >> 34) << 32;
        Self { pool: if cgroups { CgroupPool::open(embedded) } else { None }, next_mark }
    }

    /// The tree is empty until a child is spawned into it.
    pub(crate) fn create(&mut self) -> Tree {
        self.next_mark += 1;
        Tree { mark: self.next_mark, cgroup: self.pool.as_mut().and_then(CgroupPool::take) }
    }

    /// Kills what is left of a tree, and takes it back.
    pub(crate) fn kill(&mut self, tree: Tree) {
        if tree.is_empty() {
            return self.recycle(tree);
        }
        tree.kill();
        if let (Some(pool), Some(cgroup)) = (&mut self.pool, tree.cgroup) {
            pool.give_back(cgroup);
        }
    }

    /// Takes back a tree that was found empty.
    pub(crate) fn recycle(&mut self, tree: Tree) {
        if let (Some(pool), Some(cgroup)) = (&mut self.pool, tree.cgroup) {
            pool.recycle(cgroup);
        }
    }

    /// To be called if the kernel refuses to clone a child into a cgroup.
    pub(crate) fn give_up_cgroups(&mut self) {
        self.pool = None;
    }

    /// Makes cgroups for the next starts. To be called when nobody waits for us.
    pub(crate) fn prepare(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.prepare();
        }
    }
}

impl Tree {
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn cgroup(&self) -> Option<BorrowedFd<'_>> {
        self.cgroup.as_ref().map(Cgroup::directory)
    }

    /// Zombies do not count: they run nothing and hold nothing.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.cgroup {
            Some(cgroup) => !cgroup.is_populated(),
            None => self.members().is_empty(),
        }
    }

    pub(crate) fn members(&self) -> Vec<u32> {
        match &self.cgroup {
            Some(cgroup) => cgroup.members(),
            None => all_with_mark(self.mark),
        }
    }

    pub(crate) fn signal(&self, number: i32) {
        for pid in self.members() {
            self.signal_member(pid, number);
        }
    }

    /// Kills every member, also those that are just being forked.
    pub(crate) fn kill(&self) {
        if let Some(cgroup) = &self.cgroup
            && cgroup.kill()
        {
            return;
        }
        // A stopped process cannot fork. So each round finds only those that were forked during the last one.
        for _ in 0..16 {
            let members = self.members();
            if members.is_empty() {
                return;
            }
            for signal in [libc::SIGSTOP, libc::SIGKILL] {
                for pid in &members {
                    self.signal_member(*pid, signal);
                }
            }
        }
    }

    /// Whether the kernel has killed a member because memory ran out.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::was_out_of_memory)
    }

    /// The pid may belong to another process since it was listed. A pidfd pins it, and then we check again whose it is.
    fn signal_member(&self, pid: u32, number: i32) {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(pidfd) = rustix::process::pidfd_open(raw, PidfdFlags::empty()) else { return };
        let still_ours = match &self.cgroup {
            Some(cgroup) => cgroup.holds(pid),
            None => has_mark(pid, self.mark),
        };
        if still_ours && let Some(signal) = Signal::from_named_raw(number) {
            let _ = rustix::process::pidfd_send_signal(&pidfd, signal);
        }
    }
}

/// Every process of the machine with this mark, zombies excepted.
fn all_with_mark(mark: u64) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| has_mark(*pid, mark))
        .collect()
}

fn has_mark(pid: u32, mark: u64) -> bool {
    let Ok(limits) = fs::read_to_string(format!("/proc/{pid}/limits")) else { return false };
    hard_limit(&limits) == Some(mark) && !is_zombie(pid)
}

fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn is_zombie(pid: u32) -> bool {
    // The state follows the name, which stands in parentheses and may contain parentheses itself.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    matches!(stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()), None | Some("Z" | "X"))
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
}
