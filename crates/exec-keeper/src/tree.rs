//! A leader and everything that descends from it, however far it ran.
//!
//! Where a cgroup can be made, each process is born in one of its own: `setsid`, double forks and daemons do not leave
//! it, and one write kills it. Elsewhere every child carries a mark that descendants inherit and cannot easily shed (a
//! resource limit nobody reaches), and a sweep over `/proc` finds it.

mod cgroup;
mod mark;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;

use rustix::process::{Pid, PidfdFlags, Signal as RawSignal};

pub(crate) use cgroup::CgroupPool;

/// One tree.
#[derive(Debug)]
pub(crate) struct Tree {
    mark: u64,
    cgroup: Option<cgroup::Cgroup>,
}

/// Where trees are planted.
#[derive(Debug)]
pub(crate) struct ProcessTrees {
    pool: Option<CgroupPool>,
    next_mark: u64,
}

impl ProcessTrees {
    pub(crate) fn new(cgroups: bool, embedded: bool) -> Self {
        // Far beyond any real limit, and different for every keeper of the machine. Not by its pid, which a keeper in a
        // container may have, too.
        let next_mark = 1 << 62 | (RandomState::new().build_hasher().finish() >> 34) << 32;
        Self { pool: if cgroups { CgroupPool::open(embedded) } else { None }, next_mark }
    }

    /// A tree without anybody in it yet.
    pub(crate) fn create(&mut self) -> Tree {
        self.next_mark += 1;
        Tree { mark: self.next_mark, cgroup: self.pool.as_mut().and_then(CgroupPool::take) }
    }

    /// Takes a tree back. One that is not empty is killed first.
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

    /// The kernel does not let children be born in a cgroup here; do without from now on.
    pub(crate) fn give_up_cgroups(&mut self) {
        self.pool = None;
    }

    /// Between requests: makes what the next start will need.
    pub(crate) fn prepare(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.prepare();
        }
    }
}

impl Tree {
    /// The mark its members carry.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// The cgroup its members are born in.
    pub(crate) fn cgroup(&self) -> Option<BorrowedFd<'_>> {
        self.cgroup.as_ref().map(cgroup::Cgroup::directory)
    }

    /// Whether nobody is left. Zombies do not count: they run nothing and hold nothing.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.cgroup {
            Some(cgroup) => !cgroup.is_populated(),
            None => self.members().is_empty(),
        }
    }

    /// Who is in it now.
    pub(crate) fn members(&self) -> Vec<u32> {
        match &self.cgroup {
            Some(cgroup) => cgroup.members(),
            None => mark::marked(self.mark),
        }
    }

    /// Sends a signal to every member.
    pub(crate) fn signal(&self, number: i32) {
        for pid in self.members() {
            self.signal_member(pid, number);
        }
    }

    /// Kills every member, also those that are being born.
    pub(crate) fn kill(&self) {
        if let Some(cgroup) = &self.cgroup
            && cgroup.kill()
        {
            return;
        }
        // Stopped ones cannot fork; so the second look finds no new ones, but for those born in between.
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

    /// Whether the kernel killed a member for want of memory.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(cgroup::Cgroup::was_out_of_memory)
    }

    /// The pid may have been recycled since it was listed. So it is pinned first and asked again.
    fn signal_member(&self, pid: u32, number: i32) {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(pidfd) = rustix::process::pidfd_open(raw, PidfdFlags::empty()) else { return };
        let still_ours = match &self.cgroup {
            Some(cgroup) => cgroup.holds(pid),
            None => mark::is_marked(pid, self.mark),
        };
        if still_ours && RawSignal::from_named_raw(number).is_some() {
            let _ = crate::sys::pidfd::signal(std::os::fd::AsFd::as_fd(&pidfd), number);
        }
    }
}
