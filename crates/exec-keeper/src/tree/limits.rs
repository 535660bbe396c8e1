//! What a tree may use: by which means each limit is enforced on this machine, and which limits the tree has reached.
//!
//! A cgroup limits all members of a tree together, so it is taken wherever there is one: of version 2, whose processor time
//! the kernel counts in any case, or of version 1. Without one, memory and processor time are limited for each process;
//! the number of processes cannot be, because the kernel's own limit counts all processes of a user. What cannot be
//! enforced is refused with the reason. docs/decisions/0011 says why.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use exec_core::{ExitCause, ExitStatus, Limit, LimitMeans, LimitReport, LimitSet, ResourceLimits, ResourceUsage};

use super::cgroup::{Cgroup, CgroupPool};
use super::v1::{Controller, Setting, V1Cgroup, V1Cgroups};

/// How soon to look again at the processor time of a tree at the earliest and at the latest. Between them, as soon as all
/// processors together could have used up what is left.
const SOONEST_LOOK: Duration = Duration::from_millis(10);
const LATEST_LOOK: Duration = Duration::from_secs(1);

/// Linux has no more processes than this.
const MOST_PIDS: u64 = (1 << 22) - 1;

/// Why a limit cannot be enforced, for a person.
#[derive(Debug)]
pub(crate) struct LimitUnavailable {
    pub(crate) why: String,
}

/// The limits of one tree.
#[derive(Debug)]
pub(crate) struct TreeLimits {
    asked: ResourceLimits,
    report: LimitReport,
    v1: Vec<V1Cgroup>,
}

/// What a child does to itself before its program runs; `None` leaves a limit as it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rlimits {
    pub(crate) address_space: Option<u64>,
    pub(crate) cpu_seconds: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) file_bytes: Option<u64>,
}

impl TreeLimits {
    /// Puts limits on an empty tree, which has a fresh cgroup of version 2 if there is one. `v1` is `None` if no cgroups
    /// may be used.
    pub(super) fn put_on(
        asked: ResourceLimits,
        mut v2: Option<(&mut CgroupPool, &Cgroup)>,
        mut v1: Option<&mut V1Cgroups>,
    ) -> Result<Self, LimitUnavailable> {
        let mut limits = Self { asked, report: LimitReport::default(), v1: Vec::new() };
        for (limit, value) in asked.iter() {
            let means = match limit {
                Limit::OpenFiles | Limit::FileBytes => LimitMeans::Rlimit,
                _ if v2.as_mut().is_some_and(|(pool, cgroup)| limit_by_v2(limit, value, pool, cgroup)) => {
                    LimitMeans::CgroupV2
                }
                _ => match (limit_by_v1(limit, value, v1.as_deref_mut()), v1.as_deref_mut()) {
                    (Ok(cgroup), _) => {
                        limits.v1.push(cgroup);
                        LimitMeans::CgroupV1
                    }
                    (Err(why), v1) if limit == Limit::Pids => {
                        v1.into_iter().for_each(|v1| limits.v1.drain(..).for_each(|cgroup| v1.give_back(cgroup)));
                        return Err(pids_unavailable(&why));
                    }
                    (Err(_), _) => LimitMeans::Rlimit,
                },
            };
            limits.report.set(limit, means);
        }
        Ok(limits)
    }

    pub(super) fn report(&self) -> LimitReport {
        self.report
    }

    /// Whether a limit holds only as long as the tree is in its cgroup of version 2.
    pub(super) fn need_v2(&self) -> bool {
        self.report.iter().any(|(_, means)| means == LimitMeans::CgroupV2)
    }

    /// The files by which a child comes under its limits.
    pub(super) fn entries(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.v1.iter().map(V1Cgroup::procs)
    }

    pub(super) fn rlimits(&self) -> Rlimits {
        let by_rlimit = |limit| self.asked.get(limit).filter(|_| self.report.get(limit) == Some(LimitMeans::Rlimit));
        Rlimits {
            address_space: by_rlimit(Limit::MemoryBytes),
            cpu_seconds: by_rlimit(Limit::CpuSeconds),
            open_files: by_rlimit(Limit::OpenFiles),
            file_bytes: by_rlimit(Limit::FileBytes),
        }
    }

    /// Looks at the processor time that the tree has used; `None` if the kernel does that.
    pub(super) fn look_at_cpu(&self, v2: Option<&Cgroup>, now: Instant) -> Option<CpuCheck> {
        let limit = Duration::from_secs(self.asked.cpu_seconds?);
        let used = match self.report.cpu_seconds? {
            LimitMeans::CgroupV2 => Duration::from_micros(v2?.count("cpu.stat", "usage_usec")),
            LimitMeans::CgroupV1 => Duration::from_nanos(self.v1(Controller::CpuAccounting)?.number("cpuacct.usage")),
            LimitMeans::Rlimit => return None,
        };
        let Some(left) = limit.checked_sub(used).filter(|left| !left.is_zero()) else { return Some(CpuCheck::UsedUp) };
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        Some(CpuCheck::NextAt(now + (left / processors).clamp(SOONEST_LOOK, LATEST_LOOK)))
    }

    /// What the tree has reached until its leader's end.
    pub(super) fn reached(
        &self,
        v2: Option<&Cgroup>,
        (status, cause, usage): (ExitStatus, ExitCause, ResourceUsage),
    ) -> LimitSet {
        let signal = match status {
            ExitStatus::Signal { number, .. } => Some(number),
            ExitStatus::Code(_) | ExitStatus::Lost => None,
        };
        let is_reached = |(limit, means): (Limit, LimitMeans)| match (limit, means) {
            (Limit::MemoryBytes, LimitMeans::CgroupV2) => v2.is_some_and(Cgroup::was_out_of_memory),
            (Limit::MemoryBytes, LimitMeans::CgroupV1) => self.was_out_of_memory(),
            (Limit::Pids, LimitMeans::CgroupV2) => v2.is_some_and(|cgroup| cgroup.count("pids.events", "max") > 0),
            (Limit::Pids, LimitMeans::CgroupV1) => {
                self.v1(Controller::Pids).is_some_and(|cgroup| cgroup.count("pids.events", "max") > 0)
            }
            (Limit::CpuSeconds, LimitMeans::CgroupV1 | LimitMeans::CgroupV2) => cause == ExitCause::CpuLimit,
            (Limit::CpuSeconds, LimitMeans::Rlimit) => self.rlimit_of_cpu_is_reached(signal, usage),
            (Limit::FileBytes, _) => signal == Some(libc::SIGXFSZ),
            (Limit::OpenFiles, _) | (Limit::MemoryBytes | Limit::Pids, LimitMeans::Rlimit) => false,
        };
        self.report.iter().filter(|reached| is_reached(*reached)).map(|(limit, _)| limit).collect()
    }

    /// Whether the kernel has killed a member because the memory of its limit was used up.
    pub(super) fn was_out_of_memory(&self) -> bool {
        self.v1(Controller::Memory).is_some_and(|cgroup| cgroup.count("memory.oom_control", "oom_kill") > 0)
    }

    pub(super) fn give_back(self, v1: &mut V1Cgroups) {
        self.v1.into_iter().for_each(|cgroup| v1.give_back(cgroup));
    }

    /// The kernel sends XCPU at the limit, and KILL a second later.
    fn rlimit_of_cpu_is_reached(&self, signal: Option<i32>, usage: ResourceUsage) -> bool {
        let limit = Duration::from_secs(self.asked.cpu_seconds.unwrap_or(u64::MAX));
        signal == Some(libc::SIGXCPU) || (signal == Some(libc::SIGKILL) && usage.user + usage.system >= limit)
    }

    fn v1(&self, controller: Controller) -> Option<&V1Cgroup> {
        self.v1.iter().find(|cgroup| cgroup.controller == controller)
    }
}

/// What a check of the processor time of a tree has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuCheck {
    UsedUp,
    /// Check again then.
    NextAt(Instant),
}

fn limit_by_v2(limit: Limit, value: u64, pool: &mut CgroupPool, cgroup: &Cgroup) -> bool {
    let set = |file: &str| cgroup.write(file, &possible(limit, value).to_string()).is_ok();
    match limit {
        Limit::MemoryBytes => {
            let limited = pool.enable("memory") && set("memory.max");
            // What is swapped out is used all the same. A kernel without swap has no such file.
            limited && (cgroup.write("memory.swap.max", "0").is_ok() || !cgroup.has("memory.swap.max"))
        }
        Limit::Pids => pool.enable("pids") && set("pids.max"),
        // Every cgroup of version 2 counts it, whatever controllers there are.
        Limit::CpuSeconds => cgroup.has("cpu.stat"),
        Limit::OpenFiles | Limit::FileBytes => false,
    }
}

fn limit_by_v1(limit: Limit, value: u64, v1: Option<&mut V1Cgroups>) -> Result<V1Cgroup, String> {
    let v1 = v1.ok_or_else(|| "cgroups are not used".to_owned())?;
    let setting = |file, optional| Setting { file, value: possible(limit, value).to_string(), optional };
    match limit {
        Limit::MemoryBytes => {
            // The second is memory and swap together, and there if the kernel counts swap.
            let files = [setting("memory.limit_in_bytes", false), setting("memory.memsw.limit_in_bytes", true)];
            v1.make(Controller::Memory, &files)
        }
        Limit::Pids => v1.make(Controller::Pids, &[setting("pids.max", false)]),
        Limit::CpuSeconds => v1.make(Controller::CpuAccounting, &[]),
        Limit::OpenFiles | Limit::FileBytes => Err("no cgroup limits it".to_owned()),
    }
}

/// The kernel refuses to limit processes to more than it can have.
fn possible(limit: Limit, value: u64) -> u64 {
    if limit == Limit::Pids { value.min(MOST_PIDS) } else { value }
}

fn pids_unavailable(why: &str) -> LimitUnavailable {
    let advice = "run the server where it may make cgroups with the controller pids: as root, or as a systemd service with \
                  Delegate=yes and its processes in a cgroup below";
    LimitUnavailable { why: format!("pids cannot be limited for a process tree here: {why}; {advice}") }
}
