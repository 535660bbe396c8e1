//! Memory and processor time of a process, as `/proc` tells them.

use std::time::Duration;

/// Memory that the process uses now.
pub fn resident_bytes(pid: u32) -> u64 {
    field_bytes(pid, "VmRSS:")
}

/// The most memory that the process ever used, or has used since [`reset_peak`].
pub fn peak_resident_bytes(pid: u32) -> u64 {
    field_bytes(pid, "VmHWM:")
}

/// Memory that holds pieces of files, as a program's own: the kernel can take it back at any time.
pub fn file_bytes(pid: u32) -> u64 {
    field_bytes(pid, "RssFile:")
}

/// Makes the kernel count the peak anew. Only for a process of our own user.
pub fn reset_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("it is a process of ours");
}

/// What the process has read in all, from files, sockets and pipes, whether from the disk or from memory.
pub fn read_bytes(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("it is a process of ours");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar:")).expect("every process has it");
    line.trim().parse().expect("the kernel writes a number")
}

/// What the process has used of the processors, in steps of 10 ms.
pub fn processor_time(pid: u32) -> Duration {
    ticks(pid, [11, 12])
}

/// What the children have used that this process has waited for.
pub fn processor_time_of_children() -> Duration {
    ticks(std::process::id(), [13, 14])
}

/// Two fields of `stat`, counted from behind the name, which may have blanks in it. A tick is 10 ms on every Linux.
fn ticks(pid: u32, fields: [usize; 2]) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let behind_name: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = fields.map(|field| behind_name[field].parse::<u64>().expect("the kernel writes a number"));
    Duration::from_millis(10 * (ticks[0] + ticks[1]))
}

fn field_bytes(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("every process has it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("the kernel writes a number") << 10
}
