//! What the machine of a sandbox has and uses, measured there by one small command, because the waist tells no numbers.

use std::path::Path;
use std::time::Duration;

use exec_core::{Command, EntryBody, Environ, ProcessId, Stream, TimeLimit};
use exec_env::Environment;
use exec_env::process::{ReadQuery, WaitCondition};

use crate::limits::{MEASURE_TIMEOUT, MEASURED_BYTES};

/// A measurement. CPU time is counted since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Measured {
    pub(crate) cpus: u64,
    pub(crate) cpu_busy: u64,
    pub(crate) cpu_all: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_used_bytes: u64,
    pub(crate) memory_cache_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) disk_used_bytes: u64,
}

impl Measured {
    /// What share of all processors was busy since `before`, in percent of one processor for each.
    pub(crate) fn cpu_used_percent(&self, before: &Measured) -> f64 {
        let all = self.cpu_all.saturating_sub(before.cpu_all);
        let busy = self.cpu_busy.saturating_sub(before.cpu_busy).min(all);
        if all == 0 { 0.0 } else { busy as f64 * 100.0 / all as f64 }
    }

    pub(crate) async fn take(environment: &dyn Environment, home: &Path) -> Self {
        match measure(environment, home).await {
            Some(text) => Self::parse(&text),
            None => Self::default(),
        }
    }

    fn parse(text: &str) -> Self {
        let mut measured = Self::default();
        let (mut free, mut buffers, mut cached) = (0, 0, 0);
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok()).unwrap_or_default();
            match words.first().copied() {
                Some("cpu") => {
                    let ticks: Vec<u64> = (1..=8).map(number).collect();
                    // The fourth and the fifth are idle, and idle while waiting for a disk.
                    measured.cpu_all = ticks.iter().sum();
                    measured.cpu_busy = measured.cpu_all - ticks[3] - ticks[4];
                }
                Some(cpu) if cpu.starts_with("cpu") => measured.cpus += 1,
                Some("MemTotal:") => measured.memory_bytes = number(1) << 10,
                Some("MemFree:") => free = number(1) << 10,
                Some("Buffers:") => buffers = number(1) << 10,
                Some("Cached:") => cached = number(1) << 10,
                // Of `df`: file system, size, used, available, share, mount point.
                Some(_) if words.len() >= 6 && words[4].ends_with('%') => {
                    (measured.disk_bytes, measured.disk_used_bytes) = (number(1) << 10, number(2) << 10);
                }
                _ => {}
            }
        }
        measured.memory_cache_bytes = buffers + cached;
        measured.memory_used_bytes = measured.memory_bytes.saturating_sub(free + buffers + cached);
        measured
    }
}

/// `None` where the command cannot run; numbers are then zero, as E2B tells them for a sandbox that is just starting.
async fn measure(environment: &dyn Environment, home: &Path) -> Option<String> {
    let script = "grep ^cpu /proc/stat; cat /proc/meminfo; df -P -k \"$1\"";
    let mut command = Command::new(["/bin/sh", "-c", script, "sh"], "/");
    command.argv.push(home.into());
    command.environ = Environ::exactly([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")]);
    command.time_limit = Some(TimeLimit { after: MEASURE_TIMEOUT, grace: Duration::ZERO });
    let id = ProcessId::new(format!("measure-{}", uuid::Uuid::new_v4().simple())).expect("far below the limit");
    let processes = environment.processes();
    processes.start(&id, command).await.ok()?;
    let closed = processes.wait(&id, WaitCondition::Closed, Some(2 * MEASURE_TIMEOUT)).await;
    let query = ReadQuery { after: 0, max_bytes: Some(MEASURED_BYTES), wait: Duration::ZERO };
    let page = processes.read(&id, query).await;
    let _ = processes.forget(&id).await;
    closed.ok()?;
    let mut text = Vec::new();
    for entry in page.ok()?.entries {
        if let EntryBody::Output { stream: Stream::Stdout, bytes } = entry.body {
            text.extend_from_slice(&bytes);
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_what_the_kernel_and_df_print() {
        let text = "cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 5 0 5 35 5\ncpu1 5 0 5 35 5\nMemTotal: 100 kB\nMemFree: 50 kB\n\
                    Buffers: 10 kB\nCached: 20 kB\nFilesystem 1024-blocks Used Available Capacity Mounted on\n\
                    /dev/sda 1000 400 600 40% /\n";
        let measured = Measured::parse(text);
        let expected = Measured {
            cpus: 2,
            cpu_busy: 20,
            cpu_all: 100,
            memory_bytes: 100 << 10,
            memory_used_bytes: 20 << 10,
            memory_cache_bytes: 30 << 10,
            disk_bytes: 1000 << 10,
            disk_used_bytes: 400 << 10,
        };
        assert_eq!(measured, expected);
        let later = Measured { cpu_busy: 40, cpu_all: 200, ..expected };
        assert_eq!(later.cpu_used_percent(&expected), 20.0);
    }
}
