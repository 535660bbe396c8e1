//! The verb `wait`: functions over a process's log, and over the TCP ports that its tree listens on (from `/proc`).

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::time::Duration;

use bytes::Bytes;
use exec_core::{Entry, EntryBody, Exit, Seq};
use exec_env::process::{ProcessReason, WaitCondition, Waited};
use exec_keeper::protocol::{KeeperEvent, KeeperRequest};
use regex::bytes::Regex;

use crate::keeper_client::KeeperClient;
use crate::processes::Process;

/// How much of a stream is searched together: a match may span entries, but not more than this.
const WINDOW_BYTES: usize = 256 << 10;
/// What is returned of a match.
const MATCH_BYTES: usize = 4096;
/// How often the ports of a tree are read. The kernel has no event for a new listener.
const PORT_INTERVAL: Duration = Duration::from_millis(50);
/// Most output that is read at once.
const PAGE_BYTES: usize = 256 << 10;

pub(crate) async fn until(
    keeper: &KeeperClient,
    process: &Process,
    until: WaitCondition,
) -> Result<Waited, ProcessReason> {
    match until {
        WaitCondition::Exited => Ok(Waited::Exited(exited(process, false).await?)),
        WaitCondition::Closed => Ok(Waited::Closed(exited(process, true).await?)),
        WaitCondition::Output { regex, after } => {
            let regex = Regex::new(&regex).map_err(|error| ProcessReason::BadRegex { why: error.to_string() })?;
            output(process, regex, after).await
        }
        WaitCondition::Silence(quiet) => {
            silence(process, quiet).await;
            Ok(Waited::Silent)
        }
        WaitCondition::Port(port) => listening(keeper, process, port).await,
    }
}

async fn exited(process: &Process, closed: bool) -> Result<Exit, ProcessReason> {
    let mut head = process.log().watch();
    let found = head.wait_for(|head| head.exit.is_some() && (head.closed || !closed)).await;
    // The mover is gone only if the process was forgotten.
    let exit = found.ok().and_then(|head| head.exit).map(|(_, exit)| exit);
    exit.ok_or(ProcessReason::UnknownProcess)
}

async fn output(process: &Process, regex: Regex, after: u64) -> Result<Waited, ProcessReason> {
    let mut search = OutputSearch { regex, windows: Default::default() };
    let mut follower = process.log().follow(after);
    while let Some(page) = follower.advance(PAGE_BYTES).await? {
        // On another thread, because nobody else may wait for an expression that takes long.
        let searched = tokio::task::spawn_blocking(move || (search.next(page.entries), search)).await;
        // It can fail only if the runtime is being shut down.
        let Ok((found, returned)) = searched else { break };
        if let Some(found) = found {
            return Ok(found);
        }
        search = returned;
    }
    Err(ended(process))
}

/// Looks for an expression in output that comes page by page.
struct OutputSearch {
    regex: Regex,
    /// One for each `Stream`: its end, in which a match may begin.
    windows: [Vec<u8>; 3],
}

impl OutputSearch {
    /// A page is searched as a whole, because to search the window again for each entry of a chatty process would take
    /// thousands of times as long.
    fn next(&mut self, entries: Vec<Entry>) -> Option<Waited> {
        // Per stream: where each new entry ends in the window.
        let mut ends: [Vec<(usize, Seq)>; 3] = Default::default();
        for entry in entries {
            let EntryBody::Output { stream, bytes } = entry.body else { continue };
            self.windows[stream as usize].extend_from_slice(&bytes);
            ends[stream as usize].push((self.windows[stream as usize].len(), entry.seq));
        }
        let mut first: Option<(Seq, Bytes)> = None;
        for (window, ends) in self.windows.iter_mut().zip(ends).filter(|(_, ends)| !ends.is_empty()) {
            if let Some(found) = self.regex.find(window) {
                let completed = ends.iter().find(|(end, _)| *end >= found.end()).map_or(0, |(_, seq)| *seq);
                let text = Bytes::copy_from_slice(&found.as_bytes()[..found.len().min(MATCH_BYTES)]);
                if first.as_ref().is_none_or(|(seq, _)| completed < *seq) {
                    first = Some((completed, text));
                }
            }
            if window.len() > WINDOW_BYTES {
                window.drain(..window.len() - WINDOW_BYTES / 2);
            }
        }
        first.map(|(seq, text)| Waited::Matched { seq, text })
    }
}

async fn silence(process: &Process, quiet: Duration) {
    let mut head = process.log().watch();
    loop {
        let seen = head.borrow_and_update().next_seq;
        let more = async { head.wait_for(|head| head.next_seq != seen).await.is_ok() };
        match tokio::time::timeout(quiet, more).await {
            Err(_elapsed) => return,
            Ok(true) => {}
            // The mover is gone, so there will be no output.
            Ok(false) => return tokio::time::sleep(quiet).await,
        }
    }
}

async fn listening(keeper: &KeeperClient, process: &Process, port: Option<u16>) -> Result<Waited, ProcessReason> {
    loop {
        let number = process.number();
        let (answer, _) = keeper.request(KeeperRequest::Members { number }).await?;
        let KeeperEvent::Members { pids, .. } = answer else { return Err(crate::keeper_client::keeper_gone().into()) };
        if pids.is_empty() && process.head().exit.is_some() {
            return Err(ended(process));
        }
        let found = tokio::task::spawn_blocking(move || listening_ports(&pids)).await.unwrap_or_default();
        if let Some(port) = found.into_iter().find(|found| port.is_none_or(|port| port == *found)) {
            return Ok(Waited::Listening { port });
        }
        tokio::time::sleep(PORT_INTERVAL).await;
    }
}

fn ended(process: &Process) -> ProcessReason {
    match process.head().exit {
        Some((_, exit)) => ProcessReason::Ended { exit },
        None => ProcessReason::UnknownProcess,
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

    fn output(seq: Seq, text: &str) -> Entry {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Entry { seq, body: EntryBody::Output { stream: exec_core::Stream::Stdout, bytes } }
    }

    #[test]
    fn a_match_has_the_seq_of_the_entry_that_completes_it() {
        let regex = Regex::new("ready").expect("an expression");
        let mut search = OutputSearch { regex, windows: Default::default() };
        assert_eq!(search.next(vec![output(1, "not yet r"), output(2, "ea")]), None);
        let found = search.next(vec![output(3, "d"), output(4, "y, "), output(5, "ready")]);
        assert_eq!(found, Some(Waited::Matched { seq: 4, text: Bytes::from_static(b"ready") }));
    }

    #[test]
    fn only_listening_sockets_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n\
            1: 0100007F:1F91 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n";
        assert_eq!(listeners(table).collect::<Vec<_>>(), [(8080, 4242)]);
    }
}
