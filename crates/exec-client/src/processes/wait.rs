//! Waiting: the server waits if it can; otherwise this file does, by following the log.

use std::time::Duration;

use exec_core::{EntryBody, Exit, ProcessId, Seq, Stream};
use exec_env::process::{
    MATCH_WINDOW_BYTES, MatchWindow, ProcessReason, Unreachable, WaitCondition, Waited, wait_expression,
};
use exec_env::view::REGEX_BYTES;
use exec_wire::process::{WaitParams, round_up_to_millis};
use exec_wire::{Method, RetryPolicy};
use regex::bytes::Regex;
use tokio::time::{Instant, timeout};

use super::follow::follow;
use super::{reachable, unsupported};
use crate::error::CallError;
use crate::limits::{LONG_CALL, REFETCH_BYTES};
use crate::link::{CallOptions, Link};
use crate::{convert, error};

/// How much later than the deadline the server's answer may come.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

pub(super) async fn wait(
    link: &Link,
    id: &ProcessId,
    until: WaitCondition,
    deadline: Option<Duration>,
) -> Result<Waited, ProcessReason> {
    reachable(link, id)?;
    let waiting = async {
        if link.has(Method::ProcessWait) {
            wait_on_server(link, id, until, deadline).await
        } else {
            wait_locally(link, id, until).await
        }
    };
    let Some(deadline) = deadline else { return waiting.await };
    // The server keeps the deadline; so do we, a moment later, in case its answer is lost.
    let margin = if link.has(Method::ProcessWait) { ANSWER_MARGIN } else { Duration::ZERO };
    timeout(deadline.saturating_add(margin), waiting).await.unwrap_or(Ok(Waited::DeadlinePassed))
}

/// Lets the server wait, for a limited time per call.
async fn wait_on_server(
    link: &Link,
    id: &ProcessId,
    until: WaitCondition,
    deadline: Option<Duration>,
) -> Result<Waited, ProcessReason> {
    let began = Instant::now();
    // Each call measures silence anew, so one call must last longer than the silence that is waited for.
    let longest = match &until {
        WaitCondition::Silence(quiet) => LONG_CALL.max(quiet.saturating_add(link.call_deadline())),
        _ => LONG_CALL,
    };
    let until = convert::wire_until(until);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_sub(began.elapsed()));
        let time = left.unwrap_or(longest).min(longest);
        let params = WaitParams {
            process_id: id.as_str().to_owned(),
            until: until.clone(),
            timeout_ms: round_up_to_millis(time),
        };
        // After a break the loop calls again, for the time that is left then.
        let options = CallOptions { deadline: link.call_deadline().saturating_add(time), retry: RetryPolicy::IfUnsent };
        let result = match link.call_with(&params, options).await.result {
            Err(CallError::Interrupted { .. }) => continue,
            other => other.map_err(|error| error::process_reason(id, error))?,
        };
        match convert::waited(result.outcome) {
            Ok(Waited::DeadlinePassed) if left.is_none_or(|left| left > time) => {}
            Ok(waited) => return Ok(waited),
            Err(exit) => return Err(ProcessReason::Ended { exit }),
        }
    }
}

async fn wait_locally(link: &Link, id: &ProcessId, until: WaitCondition) -> Result<Waited, ProcessReason> {
    match until {
        WaitCondition::Exited => Ok(Waited::Exited(wait_for_end(link, id, false).await?)),
        WaitCondition::Closed => Ok(Waited::Closed(wait_for_end(link, id, true).await?)),
        WaitCondition::Output { regex, after } => {
            // A gateway does this for its clients, and none of them may wait for an expression of another.
            let compile = move || wait_expression(&regex, REGEX_BYTES);
            let compiled =
                tokio::task::spawn_blocking(compile).await.unwrap_or_else(|_| Err("the runtime ends".into()));
            let regex = compiled.map_err(|why| ProcessReason::BadRegex { why })?;
            wait_for_output(link, id, &regex, after).await
        }
        WaitCondition::Silence(quiet) => wait_for_silence(link, id, quiet).await,
        WaitCondition::Port(_) | WaitCondition::TreeEnded => Err(unsupported(Method::ProcessWait).into()),
    }
}

async fn wait_for_end(link: &Link, id: &ProcessId, closed: bool) -> Result<Exit, ProcessReason> {
    let mut follower = follow(link, id, 0).await?;
    let mut exit = None;
    while let Some(page) = follower.advance(REFETCH_BYTES).await? {
        exit = exit.or(page.head.exit.map(|(_, exit)| exit));
        if let (Some(exit), true) = (exit, page.head.closed || !closed) {
            return Ok(exit);
        }
    }
    exit.ok_or_else(|| no_exit_known(id))
}

/// Such a server holds little, and all of it is read, because a match may begin before `after`.
async fn wait_for_output(link: &Link, id: &ProcessId, regex: &Regex, after: Seq) -> Result<Waited, ProcessReason> {
    let mut windows: [MatchWindow; 3] = Default::default();
    let mut exit = None;
    let mut follower = follow(link, id, 0).await?;
    while let Some(page) = follower.advance(2 * MATCH_WINDOW_BYTES).await? {
        exit = exit.or(page.head.exit.map(|(_, exit)| exit));
        if page.gap.is_some() {
            // No match spans what nobody can read.
            windows = Default::default();
        }
        for entry in page.entries {
            let EntryBody::Output { stream, bytes } = entry.body else { continue };
            let window = &mut windows[match stream {
                Stream::Stdout => 0,
                Stream::Stderr => 1,
                Stream::Pty => 2,
            }];
            window.push(&bytes, &[(bytes.len(), entry.seq)], after);
            if let Some((seq, text)) = window.search(regex) {
                return Ok(Waited::Matched { seq, text });
            }
        }
    }
    let exit = exit.ok_or_else(|| no_exit_known(id))?;
    Err(ProcessReason::Ended { exit })
}

async fn wait_for_silence(link: &Link, id: &ProcessId, quiet: Duration) -> Result<Waited, ProcessReason> {
    let after = super::read_once(link, id, exec_env::process::ReadQuery::default()).await?.head.next_seq - 1;
    let mut follower = follow(link, id, after).await?;
    loop {
        match timeout(quiet, follower.advance(REFETCH_BYTES)).await {
            Err(_) => return Ok(Waited::Silent),
            Ok(Ok(Some(_))) => {}
            // Nothing can come any more, so the process is silent for as long as was asked.
            Ok(Ok(None)) => {
                tokio::time::sleep(quiet).await;
                return Ok(Waited::Silent);
            }
            Ok(Err(reason)) => return Err(reason),
        }
    }
}

/// The log is complete and has no exit in it. Only a server that forgot its oldest entries can have such a log.
fn no_exit_known(id: &ProcessId) -> ProcessReason {
    Unreachable { why: format!("the server no longer knows how process {id} ended") }.into()
}
