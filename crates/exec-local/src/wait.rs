//! Waiting until something is true of a process: functions over its log and its tree.

mod ports;

use std::time::Duration;

use bytes::Bytes;
use exec_core::{EntryBody, Exit, Stream};
use exec_env::process::{WaitCondition, WaitError, Waited};
use exec_keeper::protocol::{KeeperRequest, KeeperEvent};
use regex::bytes::Regex;

use crate::keeper_client::KeeperClient;
use crate::processes::Process;

/// How much of a stream is looked at together: a match may span entries, but not more than this.
const WINDOW_BYTES: usize = 256 << 10;
/// What is returned of a match.
const MATCH_BYTES: usize = 4096;
/// How often a tree is asked for its ports. The kernel has no event for it.
const PORT_LOOK: Duration = Duration::from_millis(50);
/// Most output read in one go.
const PAGE_BYTES: usize = 256 << 10;

pub(crate) async fn until(keeper: &KeeperClient, process: &Process, until: WaitCondition) -> Result<Waited, WaitError> {
    match until {
        WaitCondition::Exited => Ok(Waited::Exited(exited(process, false).await?)),
        WaitCondition::Closed => Ok(Waited::Closed(exited(process, true).await?)),
        WaitCondition::Output { regex, after } => {
            let regex = Regex::new(&regex).map_err(|error| WaitError::BadRegex { why: error.to_string() })?;
            output(process, &regex, after).await
        }
        WaitCondition::Silence(quiet) => {
            silence(process, quiet).await;
            Ok(Waited::Silent)
        }
        WaitCondition::Port(port) => listening(keeper, process, port).await,
    }
}

async fn exited(process: &Process, closed: bool) -> Result<Exit, WaitError> {
    let mut head = process.log().watch();
    let found = head.wait_for(|head| head.exit.is_some() && (head.closed || !closed)).await;
    // Only a process that is forgotten has no mover any more.
    let exit = found.ok().and_then(|head| head.exit).map(|(_, exit)| exit);
    exit.ok_or_else(|| exec_env::process::UnknownProcess { id: process.id().clone() }.into())
}

async fn output(process: &Process, regex: &Regex, after: u64) -> Result<Waited, WaitError> {
    let mut windows: [Vec<u8>; 3] = Default::default();
    let mut follower = process.log().follow(after);
    while let Some(page) = follower.advance(PAGE_BYTES).await? {
        for entry in page.entries {
            let EntryBody::Output { stream, bytes } = entry.body else { continue };
            let window = &mut windows[match stream {
                Stream::Stdout => 0,
                Stream::Stderr => 1,
                Stream::Pty => 2,
            }];
            window.extend_from_slice(&bytes);
            if let Some(found) = regex.find(window) {
                let text = &found.as_bytes()[..found.len().min(MATCH_BYTES)];
                return Ok(Waited::Matched { seq: entry.seq, text: Bytes::copy_from_slice(text) });
            }
            if window.len() > WINDOW_BYTES {
                window.drain(..window.len() - WINDOW_BYTES / 2);
            }
        }
    }
    Err(ended(process))
}

async fn silence(process: &Process, quiet: Duration) {
    let mut head = process.log().watch();
    loop {
        let seen = head.borrow_and_update().next_seq;
        let more = async { head.wait_for(|head| head.next_seq != seen).await.is_ok() };
        match tokio::time::timeout(quiet, more).await {
            Err(_elapsed) => return,
            Ok(true) => {}
            // The mover is gone: it stays silent, for as long as was asked.
            Ok(false) => return tokio::time::sleep(quiet).await,
        }
    }
}

async fn listening(keeper: &KeeperClient, process: &Process, port: Option<u16>) -> Result<Waited, WaitError> {
    loop {
        let number = process.number();
        let (answer, _) = keeper.request(|request_id| KeeperRequest::Members { request_id, number }).await?;
        let KeeperEvent::Members { pids, .. } = answer else { return Err(crate::keeper_client::keeper_gone().into()) };
        if pids.is_empty() && process.head().exit.is_some() {
            return Err(ended(process));
        }
        let found = tokio::task::spawn_blocking(move || ports::listened_by(&pids)).await.unwrap_or_default();
        if let Some(port) = found.into_iter().find(|found| port.is_none_or(|port| port == *found)) {
            return Ok(Waited::Listening { port });
        }
        tokio::time::sleep(PORT_LOOK).await;
    }
}

fn ended(process: &Process) -> WaitError {
    match process.head().exit {
        Some((_, exit)) => WaitError::Ended { id: process.id().clone(), exit },
        None => exec_env::process::UnknownProcess { id: process.id().clone() }.into(),
    }
}
