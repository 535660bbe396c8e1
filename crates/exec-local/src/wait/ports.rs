//! The TCP ports that the tree of a process listens on, from `/proc`. The kernel has no event for a new listener, so the tree is
//! looked at again and again: once for all who wait for a port of it, and the less often the longer that takes.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_env::process::{ProcessReason, Waited};
use exec_keeper::protocol::ProcessNumber;
use tokio::sync::{Mutex, Semaphore};

use super::ended;
use crate::keeper_client::KeeperClient;
use crate::processes::Process;

/// How often a tree is looked at, if that is quick.
const INTERVAL: Duration = Duration::from_millis(50);
/// A pause is so many times as long as the look before it, which may have waited for its turn: whoever waits for ports of very
/// many trees slows only itself down.
const PAUSE_TIMES: u32 = 4;
/// Looks at once. Each costs the keeper a request that takes milliseconds where there are no cgroups, and a thread.
const LOOKS_AT_ONCE: usize = 2;

/// The turns of all looks at trees.
pub(crate) type PortTurns = Arc<Semaphore>;

/// The looks at one tree.
pub(crate) struct PortLooks {
    turns: PortTurns,
    /// Held during a look, for which all who wait for this tree wait.
    last: Mutex<Option<PortLook>>,
}

#[derive(Debug, Clone)]
struct PortLook {
    next_at: Instant,
    ports: Arc<BTreeSet<u16>>,
    tree_is_empty: bool,
}

impl PortLooks {
    pub(crate) fn turns() -> PortTurns {
        Arc::new(Semaphore::new(LOOKS_AT_ONCE))
    }

    pub(crate) fn new(turns: PortTurns) -> Self {
        Self { turns, last: Mutex::default() }
    }

    /// Looks at the tree, unless it is too early for that.
    async fn look(&self, keeper: &KeeperClient, number: ProcessNumber) -> Result<PortLook, ProcessReason> {
        let mut last = self.last.lock().await;
        let began = Instant::now();
        if let Some(look) = last.as_ref().filter(|look| began < look.next_at) {
            return Ok(look.clone());
        }
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
        let pids = keeper.members(number).await?;
        let tree_is_empty = pids.is_empty();
        let ports = tokio::task::spawn_blocking(move || listening_ports(&pids)).await.unwrap_or_default();
        let pause = INTERVAL.max(began.elapsed() * PAUSE_TIMES);
        let look = PortLook { next_at: Instant::now() + pause, ports: Arc::new(ports), tree_is_empty };
        *last = Some(look.clone());
        Ok(look)
    }
}

pub(super) async fn listening(
    keeper: &KeeperClient,
    process: &Process,
    port: Option<u16>,
) -> Result<Waited, ProcessReason> {
    loop {
        let look = process.port_looks().look(keeper, process.number()).await?;
        if look.tree_is_empty && process.head().exit.is_some() {
            return Err(ended(process));
        }
        if let Some(port) = look.ports.iter().find(|found| port.is_none_or(|port| port == **found)) {
            return Ok(Waited::Listening { port: *port });
        }
        tokio::time::sleep_until(look.next_at.into()).await;
    }
}

/// Ports that any of `pids` listens on, lowest first.
fn listening_ports(pids: &[u32]) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for pid in pids {
        let sockets = sockets_of(*pid);
        if sockets.is_empty() {
            continue;
        }
        for table in ["tcp", "tcp6"] {
            // Its own table, because it may be in another network namespace.
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

/// Port and inode of every listening socket in a table of `/proc/PID/net`.
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
