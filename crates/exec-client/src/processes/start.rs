//! Starting: a name is reserved here first, so that an answer "it exists" after a break can be understood.

use std::time::Duration;

use exec_core::{Command, Io, Overflow, ProcessId, TerminalSize};
use exec_env::process::{StartError, Started, Unreachable};
use exec_wire::Method;
use exec_wire::process::StartParams;
use tokio::time::Instant;

use super::RemoteProcesses;
use crate::link::Link;
use crate::process_cache::{CachedProcess, ProcessStatus};
use crate::{convert, error};

/// How often a start that another connection has begun is looked at. The wire has no event for it.
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) async fn start(
    processes: &RemoteProcesses,
    id: &ProcessId,
    command: Command,
) -> Result<Started, StartError> {
    command.check()?;
    let link = &processes.link;
    refuse_unsupported(link, &command)?;
    let params = convert::start_params(id, &command).map_err(|error| Unreachable { why: error.to_string() })?;
    let reserved = ReservedId::take(link, id, &command)?;
    let answered = link.call_with(&params, link.default_options(Method::ProcessStart)).await;
    match answered.result {
        Ok(result) => {
            reserved.confirm();
            Ok(Started { pid: result.pid.unwrap_or(0) })
        }
        // It was sent twice, and nobody else of ours asked for that name: the first one did it.
        Err(error) if answered.resent && reserved.fresh && error::is_id_in_use(&error, id) => {
            let pid = find_started(processes, id, &command, &params).await?;
            reserved.confirm();
            Ok(Started { pid })
        }
        Err(error) => Err(error::start_error(id, &command, error)),
    }
}

/// The pid of what the first of two starts began. It may be under way still, or fail after all; so the start is asked
/// for again until it is one or the other.
async fn find_started(
    processes: &RemoteProcesses,
    id: &ProcessId,
    command: &Command,
    params: &StartParams,
) -> Result<u32, StartError> {
    let link = &processes.link;
    if !link.has("process/list") {
        return Ok(0);
    }
    let options = link.default_options(Method::ProcessStart);
    let until = Instant::now() + options.deadline;
    loop {
        let listed = processes.list_all().await.map_err(Unreachable::from)?;
        if let Some(info) = listed.iter().find(|info| info.id == *id) {
            let ours = link.shared().lock().processes.get(id).is_some_and(|record| record.matches(info));
            return if ours { Ok(info.pid) } else { Err(StartError::IdInUse { id: id.clone() }) };
        }
        match link.call_with(params, options).await.result {
            Ok(result) => return Ok(result.pid.unwrap_or(0)),
            Err(error) if error::is_id_in_use(&error, id) && Instant::now() < until => {
                tokio::time::sleep(START_POLL_INTERVAL).await;
            }
            Err(error) => return Err(error::start_error(id, command, error)),
        }
    }
}

/// What a plain server would not do is refused rather than left out.
fn refuse_unsupported(link: &Link, command: &Command) -> Result<(), Unreachable> {
    let refuse = |what: &str| Err(Unreachable { why: format!("this server cannot {what}") });
    if command.time_limit.is_some() && !link.has("process/start.timeoutMs") {
        return refuse("limit the time of a process");
    }
    if command.overflow == Overflow::Block && !link.has("process/start.overflow") {
        return refuse("let a child wait when its output is not read");
    }
    if let Io::Pty(size) = command.io
        && size != TerminalSize::default()
        && !link.has("process/start.size")
    {
        return refuse("begin with a terminal of another size than 24x80");
    }
    let mut words = command.argv.iter().chain(&command.arg0).chain(command.environ.vars.values());
    if words.any(|word| word.to_str().is_none()) && !link.has("osText") {
        return refuse("take words that are not UTF-8");
    }
    Ok(())
}

/// A name on its way to be taken. Dropped without [`Self::confirm`], it is free again.
struct ReservedId<'a> {
    link: &'a Link,
    id: &'a ProcessId,
    /// Whether nothing of that name was known before.
    fresh: bool,
    record: Option<CachedProcess>,
}

impl<'a> ReservedId<'a> {
    fn take(link: &'a Link, id: &'a ProcessId, command: &Command) -> Result<Self, StartError> {
        let mut state = link.shared().lock();
        let record = CachedProcess::starting(command);
        match state.processes.get(id).map(|record| &record.status) {
            Some(ProcessStatus::Starting) => Err(StartError::IdInUse { id: id.clone() }),
            // The server decides: it may have forgotten what we remember.
            Some(ProcessStatus::Known) => Ok(Self { link, id, fresh: false, record: Some(record) }),
            Some(ProcessStatus::Lost(_)) | None => {
                state.processes.insert(id.clone(), record);
                // From now on, because output may come before the answer.
                state.inbox.open(id);
                Ok(Self { link, id, fresh: true, record: None })
            }
        }
    }

    fn confirm(mut self) {
        let mut state = self.link.shared().lock();
        if let Some(record) = self.record.take() {
            // Another process than the one we knew; followers of that one find that it is gone.
            state.inbox.close(self.id);
            state.inbox.open(self.id);
            state.inbox.mark_stale(self.id);
            state.processes.insert(self.id.clone(), record);
        }
        if let Some(record) = state.processes.get_mut(self.id)
            && record.status == ProcessStatus::Starting
        {
            record.status = ProcessStatus::Known;
        }
        drop(state);
        self.fresh = false;
    }
}

impl Drop for ReservedId<'_> {
    fn drop(&mut self) {
        if self.fresh {
            let mut state = self.link.shared().lock();
            state.processes.remove(self.id);
            state.inbox.close(self.id);
        }
    }
}
