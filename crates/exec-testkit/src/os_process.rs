//! What the kernel's process table says of one process, so that a test can prove that a descendant is gone.
//!
//! A pid alone proves nothing, because the kernel gives it again; a pid with its start time names one process for ever.
//! The suite runs on the machine that it judges, so it may read `/proc`.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a dead process may take to leave the table: its new parent must be scheduled to reap it.
const REAPED_WITHIN: Duration = Duration::from_secs(15);

/// One process, whatever becomes of its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OsProcess {
    pub pid: u32,
    start_ticks: u64,
}

impl OsProcess {
    /// The process that has this pid now.
    pub fn of(pid: u32) -> Option<Self> {
        let start_ticks = ProcStat::read(pid)?.start_ticks;
        Some(Self { pid, start_ticks })
    }

    /// The process that an actor announced with the line `pid N`.
    pub fn from_pid_line(line: &str) -> Option<Self> {
        Self::of(line.trim_end().strip_prefix("pid ")?.parse().ok()?)
    }

    /// The children of this pid.
    pub fn children_of(pid: u32) -> Vec<Self> {
        // The kernel lists them by the thread that made them.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children =
            threads.map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
        let children: String = children.collect();
        children.split_whitespace().filter_map(|child| Self::of(child.parse().ok()?)).collect()
    }

    /// Whether it is in the process table, be it as a zombie.
    pub fn is_present(&self) -> bool {
        self.stat().is_some()
    }

    /// Whether it can still do anything: present and not a zombie.
    pub fn is_alive(&self) -> bool {
        self.stat().is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    /// The kernel's letter for what it does: `R`, `S`, `T`, `Z` …
    pub fn state(&self) -> Option<char> {
        self.stat().map(|stat| stat.state)
    }

    /// The group it is in. 0 where the leader lives outside our pid namespace, as in many a container: no pid at all,
    /// which is why the process table is asked and not `getpgid`, whose answer must be one.
    pub fn group(&self) -> Option<u32> {
        self.stat().map(|stat| stat.group)
    }

    /// The session it is in; 0 as with [`OsProcess::group`].
    pub fn session(&self) -> Option<u32> {
        self.stat().map(|stat| stat.session)
    }

    /// The processor time that it has used, in user and in kernel mode: in ticks, of which a second has a hundred.
    pub fn processor_ticks(&self) -> Option<u64> {
        self.stat().map(|stat| stat.processor_ticks)
    }

    /// Sends a signal. The process must be ours and present.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).expect("the kernel gave it");
        kill_process(pid, signal).expect("it is present and ours");
    }

    /// Waits until it has left the process table; panics if it stays.
    pub async fn wait_until_gone(&self) {
        eventually(&format!("process {} leaves the process table", self.pid), || !self.is_present()).await;
    }

    pub async fn wait_for_state(&self, state: char) {
        eventually(&format!("process {} comes to state {state}", self.pid), || self.state() == Some(state)).await;
    }

    fn stat(&self) -> Option<ProcStat> {
        ProcStat::read(self.pid).filter(|stat| stat.start_ticks == self.start_ticks)
    }
}

/// Polls until `holds`. Only for facts about which the kernel sends no event.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + REAPED_WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "waited {REAPED_WITHIN:?} in vain: {what}");
        poll_pause().await;
    }
}

/// Between two looks at a fact that has no event, others get the processor.
pub async fn poll_pause() {
    // not a wait: see above
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// What we use of `/proc/PID/stat`.
struct ProcStat {
    state: char,
    group: u32,
    session: u32,
    processor_ticks: u64,
    start_ticks: u64,
}

impl ProcStat {
    fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The program's name comes first, in brackets, and may itself contain spaces and brackets.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let fields = String::from_utf8_lossy(&stat[name_end + 1..]).into_owned();
        let mut fields = fields.split_whitespace();
        let state = fields.next()?.chars().next()?;
        // The state is field 3 of proc_pid_stat(5), the group 5, the session 6, user and kernel time 14 and 15, the
        // start time 22.
        let group = fields.nth(1)?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let user_ticks: u64 = fields.nth(7)?.parse().ok()?;
        let kernel_ticks: u64 = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(6)?.parse().ok()?;
        Some(Self { state, group, session, processor_ticks: user_ticks + kernel_ticks, start_ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_nobody_is_pid_zero() {
        let own = OsProcess::of(std::process::id()).expect("we run");
        assert!(own.is_alive());
        let other = OsProcess { start_ticks: own.start_ticks + 1, ..own };
        assert!(!other.is_present(), "another start time is another process");
        assert_eq!(OsProcess::of(0), None);
    }
}
