//! Which TCP ports some processes listen on, from `/proc`.

use std::collections::{BTreeSet, HashSet};
use std::fs;

/// Ports that any of `pids` listens on, lowest first.
pub(super) fn listened_by(pids: &[u32]) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for pid in pids {
        let sockets = sockets_of(*pid);
        if sockets.is_empty() {
            continue;
        }
        for table in ["tcp", "tcp6"] {
            // The process's own view: it may live in a network namespace of its own.
            let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            ports.extend(listeners(&table).filter(|(_, inode)| sockets.contains(inode)).map(|(port, _)| port));
        }
    }
    ports
}

fn sockets_of(pid: u32) -> HashSet<u64> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return HashSet::new() };
    let inode = |link: &str| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .filter_map(|link| inode(link.to_str()?))
        .collect()
}

/// Port and inode of every listening socket of a table.
fn listeners(table: &str) -> impl Iterator<Item = (u16, u64)> + '_ {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (*fields.get(3)? == LISTEN).then_some((port, fields.get(9)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n\
            1: 0100007F:1F91 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n";
        assert_eq!(listeners(table).collect::<Vec<_>>(), [(8080, 4242)]);
    }
}
