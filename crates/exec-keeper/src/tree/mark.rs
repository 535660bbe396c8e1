//! Finding descendants without a cgroup: by the mark they inherited.

use std::fs;

/// Every process of the machine that carries `mark`, zombies excepted.
pub(super) fn marked(mark: u64) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_marked(*pid, mark))
        .collect()
}

/// Whether `pid` carries `mark` and still runs.
pub(super) fn is_marked(pid: u32, mark: u64) -> bool {
    let Ok(limits) = fs::read_to_string(format!("/proc/{pid}/limits")) else { return false };
    hard_limit(&limits) == Some(mark) && !is_zombie(pid)
}

fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn is_zombie(pid: u32) -> bool {
    // The name in parentheses may itself contain anything, so the state is what follows the last one.
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
