//! Bounds on what a process and all that it starts may use: which there are, what enforces each on a machine, and which
//! of them a process has reached.

/// One value for each limit that there is; `None` where it was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerLimit<T> {
    pub memory_bytes: Option<T>,
    pub pids: Option<T>,
    pub cpu_seconds: Option<T>,
    pub open_files: Option<T>,
    pub file_bytes: Option<T>,
}

/// What a process tree may use at most.
pub type ResourceLimits = PerLimit<u64>;

/// What enforces each limit that was asked for.
pub type LimitReport = PerLimit<LimitMeans>;

/// A kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory that the tree uses, the kernel's for it included. The kernel kills the largest process of a tree that wants
    /// more.
    MemoryBytes,
    /// Processes and threads of the tree at the same time. A `fork` beyond it fails with `EAGAIN`.
    Pids,
    /// Processor time of the tree. It is killed when that is used up.
    CpuSeconds,
    /// Open files of each process. What would open one more fails with `EMFILE`.
    OpenFiles,
    /// Size of each file that is written. Who would write more gets SIGXFSZ.
    FileBytes,
}

/// A part of the kernel that enforces a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitMeans {
    /// A cgroup of version 1: the limit is of all processes of the tree together.
    CgroupV1,
    /// A cgroup of version 2: likewise.
    CgroupV2,
    /// A resource limit of each process, which its children get too: two processes may use twice as much. For memory it is
    /// the size of the address space, which is more than the memory that is used.
    Rlimit,
}

/// Some limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitSet(u8);

impl Limit {
    pub const ALL: [Limit; 5] = [Self::MemoryBytes, Self::Pids, Self::CpuSeconds, Self::OpenFiles, Self::FileBytes];

    /// One word for programs to compare.
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryBytes => "memoryBytes",
            Self::Pids => "pids",
            Self::CpuSeconds => "cpuSeconds",
            Self::OpenFiles => "openFiles",
            Self::FileBytes => "fileBytes",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }
}

impl LimitMeans {
    pub const ALL: [LimitMeans; 3] = [Self::CgroupV1, Self::CgroupV2, Self::Rlimit];

    /// One word for programs to compare.
    pub fn name(self) -> &'static str {
        match self {
            Self::CgroupV1 => "cgroupV1",
            Self::CgroupV2 => "cgroupV2",
            Self::Rlimit => "rlimit",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|means| means.name() == name)
    }

    /// Whether all processes of a tree together have the limit, rather than each of them.
    pub fn is_of_the_tree(self) -> bool {
        self != Self::Rlimit
    }
}

impl<T> Default for PerLimit<T> {
    fn default() -> Self {
        Self { memory_bytes: None, pids: None, cpu_seconds: None, open_files: None, file_bytes: None }
    }
}

impl<T: Copy> PerLimit<T> {
    pub fn get(&self, limit: Limit) -> Option<T> {
        match limit {
            Limit::MemoryBytes => self.memory_bytes,
            Limit::Pids => self.pids,
            Limit::CpuSeconds => self.cpu_seconds,
            Limit::OpenFiles => self.open_files,
            Limit::FileBytes => self.file_bytes,
        }
    }

    pub fn set(&mut self, limit: Limit, value: T) {
        let slot = match limit {
            Limit::MemoryBytes => &mut self.memory_bytes,
            Limit::Pids => &mut self.pids,
            Limit::CpuSeconds => &mut self.cpu_seconds,
            Limit::OpenFiles => &mut self.open_files,
            Limit::FileBytes => &mut self.file_bytes,
        };
        *slot = Some(value);
    }

    /// Those that have a value.
    pub fn iter(&self) -> impl Iterator<Item = (Limit, T)> {
        Limit::ALL.into_iter().filter_map(|limit| Some((limit, self.get(limit)?)))
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl LimitSet {
    pub const NONE: Self = Self(0);

    pub fn insert(&mut self, limit: Limit) {
        self.0 |= Self::bit(limit);
    }

    pub fn contains(self, limit: Limit) -> bool {
        self.0 & Self::bit(limit) != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Limit> {
        Limit::ALL.into_iter().filter(move |limit| self.contains(*limit))
    }

    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// A bit for each limit, in the order of [`Limit::ALL`].
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Bits that stand for no limit are left out.
    pub fn from_bits(bits: u8) -> Self {
        Limit::ALL.into_iter().filter(|limit| bits & Self::bit(*limit) != 0).collect()
    }

    fn bit(limit: Limit) -> u8 {
        1 << limit as u8
    }
}

impl FromIterator<Limit> for LimitSet {
    fn from_iter<I: IntoIterator<Item = Limit>>(limits: I) -> Self {
        let mut set = Self::NONE;
        limits.into_iter().for_each(|limit| set.insert(limit));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_and_means_is_found_by_its_name() {
        assert_eq!(Limit::ALL.map(|limit| Limit::from_name(limit.name())), Limit::ALL.map(Some));
        assert_eq!(LimitMeans::ALL.map(|means| LimitMeans::from_name(means.name())), LimitMeans::ALL.map(Some));
        assert_eq!((Limit::from_name("disk"), LimitMeans::from_name("hope")), (None, None));
    }

    #[test]
    fn a_set_has_what_was_put_into_it_and_keeps_no_bit_that_means_nothing() {
        let set: LimitSet = [Limit::Pids, Limit::FileBytes].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Limit::Pids, Limit::FileBytes]);
        assert_eq!(LimitSet::from_bits(set.bits() | 0b1110_0000), set);
        assert!(LimitSet::NONE.is_empty() && !set.is_empty() && !set.contains(Limit::MemoryBytes));
    }

    #[test]
    fn each_limit_has_a_place_of_its_own() {
        for (at, limit) in Limit::ALL.into_iter().enumerate() {
            let mut limits = ResourceLimits::default();
            assert!(limits.is_empty());
            limits.set(limit, at as u64);
            assert_eq!(limits.iter().collect::<Vec<_>>(), [(limit, at as u64)]);
        }
    }
}
