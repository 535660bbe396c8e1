//! Memory of a process, as `/proc/PID/status` tells it.

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

fn field_bytes(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("every process has it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("the kernel writes a number") << 10
}
