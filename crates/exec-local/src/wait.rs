//! The verb `wait`: functions over a process's log (`output_search`), and over the TCP ports that its tree listens on
//! (`ports`).

mod output_search;
mod ports;

use std::time::Duration;

use exec_core::{Exit, Io, Seq, Stream};
use exec_env::process::{ProcessReason, WaitCondition, Waited};

use crate::keeper_client::KeeperClient;
use crate::processes::Process;
use output_search::OutputSearch;
pub(crate) use output_search::SearchResources;
pub(crate) use ports::{PortLooks, PortTurns};

/// How late whoever waits for the end of a tree may hear of it: somebody is waiting.
const LONGEST_TREE_PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn until(
    keeper: &KeeperClient,
    process: &Process,
    until: WaitCondition,
) -> Result<Waited, ProcessReason> {
    match until {
        WaitCondition::Exited => Ok(Waited::Exited(exited(process, false).await?)),
        WaitCondition::Closed => Ok(Waited::Closed(exited(process, true).await?)),
        WaitCondition::TreeEnded => {
            let exit = exited(process, false).await?;
            keeper.tree_ended(process.number(), LONGEST_TREE_PAUSE).await?;
            Ok(Waited::TreeEnded(exit))
        }
        WaitCondition::Output { regex, after } => output(process, regex, after).await,
        WaitCondition::Silence(quiet) => {
            silence(process, quiet).await;
            Ok(Waited::Silent)
        }
        WaitCondition::Port(port) => ports::listening(keeper, process, port).await,
    }
}

async fn exited(process: &Process, closed: bool) -> Result<Exit, ProcessReason> {
    let mut head = process.log().watch();
    let found = head.wait_for(|head| head.exit.is_some() && (head.closed || !closed)).await;
    // The mover is gone only if the process was forgotten.
    let exit = found.ok().and_then(|head| head.exit).map(|(_, exit)| exit);
    exit.ok_or(ProcessReason::UnknownProcess)
}

async fn output(process: &Process, regex: String, after: Seq) -> Result<Waited, ProcessReason> {
    // It keeps the log from dropping what was not searched yet, or is searched again.
    let mut follower = process.log().follow_to_search(after);
    let resources = process.search_resources();
    let streams: &[Stream] = match process.io() {
        Io::Pipes { .. } => &[Stream::Stdout, Stream::Stderr],
        Io::Pty(_) => &[Stream::Pty],
    };
    let mut search = OutputSearch::new(process.log().files().clone(), streams, regex, follower.position());
    loop {
        let (head, expressions) = (process.head(), resources.expressions.clone());
        // On another thread, because nobody else may wait for an expression that takes long.
        let look = move |cancel: &_| (search.look(head, &expressions, cancel), search);
        let (found, returned) = resources.pool.run(look).await;
        if let Some(found) = found? {
            return Ok(found);
        }
        search = returned;
        follower.pass(search.searched_upto(), search.kept_after());
        if !follower.has_more().await {
            return Err(ended(process));
        }
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

fn ended(process: &Process) -> ProcessReason {
    match process.head().exit {
        Some((_, exit)) => ProcessReason::Ended { exit },
        None => ProcessReason::UnknownProcess,
    }
}
