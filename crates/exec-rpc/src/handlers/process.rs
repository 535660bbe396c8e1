//! Processes: from the wire's verbs to the environment's.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use exec_core::limits::PAGE_ENTRIES;
use exec_core::sandbox::{FileCeiling, FilePolicy, NetworkPolicy, SandboxPolicy};
use exec_core::{Command, EntryBody, Page, WriteId};
use exec_env::process::{ProcessError, ProcessInfo, ProcessReason, ReadQuery, Signalled, Written};
use exec_env::screen::{ScreenQuery, ScreenRow};
use exec_env::view::LINE_OVERHEAD_BYTES;
use exec_wire::base64::Base64;
use exec_wire::error::RpcError;
use exec_wire::limits::READ_PAGE_BYTES;
use exec_wire::process as wire;
use exec_wire::process::{
    Chunk, CloseStdinParams, CloseStdinResult, DenialEvidence, Exit, ForgetParams, ForgetResult, ListParams,
    ListResult, ReadParams, ReadResult, ResizeParams, ResizeResult, SandboxType, ScreenParams, ScreenResult,
    SignalParams, SignalResult, SignalStatus, StartParams, StartResult, TerminateParams, TerminateResult,
    UnreachableEnvironment, ViewParams, ViewResult, WaitOutcome, WaitParams, WaitResult, WriteParams, WriteResult,
    WriteStatus,
};
use futures_util::future::join_all;

use crate::audit::StartAudit;
use crate::ceiling::RequestedStart;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::{LABEL_BYTES, PAGE_ENTRY_BYTES, PROCESS_PAGE_BYTES, SCREEN_RUN_BYTES, SIGNAL_ID_BYTES};
use crate::reply;
use crate::reservations::Lookup;
use crate::routing::NamedEnvironment;
use crate::session::denial;
use crate::session::{ProcessLabel, ReadInProgress, SessionProcess};
use crate::writer::WriterCommand;

mod unsupported;

impl RequestContext {
    /// What the session has under this id. Refuses a request that names another environment than the process is in.
    fn look_up(&self, wire_id: &str) -> Result<Lookup<Arc<SessionProcess>>, RpcError> {
        let found = self.session.find(wire_id);
        match &found {
            Lookup::Present(process) => self.require_environment("process", wire_id, &process.environment.id)?,
            Lookup::Reserved => {}
            Lookup::Free => self.connection.server.require_all_asked(&self.session, wire_id)?,
        }
        Ok(found)
    }

    fn find_process(&self, wire_id: &str) -> Result<Arc<SessionProcess>, RpcError> {
        match self.look_up(wire_id)? {
            Lookup::Present(process) => Ok(process),
            Lookup::Reserved => Err(reply::starting(wire_id)),
            Lookup::Free => Err(reply::process_error(ProcessReason::UnknownProcess, wire_id)),
        }
    }
}

impl RequestContext {
    /// What the sandbox of a start must stay within, if the start is permitted at all.
    fn ceilings_of_start(
        &self,
        params: &StartParams,
        sandbox: Option<&SandboxPolicy>,
    ) -> Result<Vec<FileCeiling>, RpcError> {
        let requested = RequestedStart {
            sandbox,
            asks_for_network: params.network_proxy.is_some() || params.enforce_managed_network,
            spool_bytes: params.spool_bytes,
        };
        let permissions = &self.connection.permissions;
        permissions.allow_start(&requested).map_err(reply::violation)?;
        Ok(permissions.file_ceilings())
    }
}

fn sandbox_of_start(params: &StartParams) -> Result<Option<SandboxPolicy>, RpcError> {
    let asked = params.sandbox.as_ref().map(|context| context.policy_of_process(&params.cwd));
    let asked = asked.transpose().map_err(reply::bad_sandbox)?.flatten();
    if params.enforce_managed_network && params.sandbox.is_some() {
        // Whatever else the context asks for, or if it asks for nothing: the proxy is all there is.
        let files = asked.map_or(FilePolicy::Unrestricted, |policy| policy.files);
        return Ok(Some(SandboxPolicy { files, network: NetworkPolicy::ProxyOnly }));
    }
    Ok(asked.filter(|policy| !policy.allows_everything()))
}

pub(crate) async fn start(context: RequestContext, params: StartParams) -> HandlerResult<StartResult> {
    let wire_id = params.process_id.clone();
    unsupported::check_proxy(&params)?;
    let cwd = params.cwd.to_path().map_err(reply::foreign_cwd)?;
    unsupported::check(&params)?;
    let sandbox = sandbox_of_start(&params)?;
    let sandboxed = sandbox.is_some();
    let ceilings = context.ceilings_of_start(&params, sandbox.as_ref())?;
    let client_label = params.label.as_ref().map_or_else(Vec::new, |label| label.0.to_vec());
    if client_label.len() > LABEL_BYTES {
        return Err(reply::too_long("label", client_label.len(), LABEL_BYTES));
    }
    let environment = context.environment()?;
    let start_key = context.request_key();
    if context.session.has_started(&start_key) {
        // It was asked for again. The process may be closed or forgotten by now, but it ran.
        return Err(reply::process_error(ProcessReason::IdInUse, &wire_id));
    }
    let keep = params.keep_ms.map(Duration::from_millis);
    let label = ProcessLabel {
        session: context.session.id.clone(),
        wire_id: wire_id.clone(),
        sandboxed,
        keep,
        start_key: start_key.clone(),
        client_label,
    };
    let id = context.session.process_id(&wire_id).map_err(reply::bad_id)?;
    let tty = params.tty;
    let command = params.into_command(cwd, sandbox, label.encode());
    let command = command.map_err(|bad| unsupported::bad_command_error(bad, tty))?;
    let command = Command { ceilings, ..command };
    let reserved = context.session.reserve(&wire_id, Instant::now());
    let (reservation, old) = reserved.ok_or_else(|| reply::process_error(ProcessReason::IdInUse, &wire_id))?;
    if let Some(old) = old {
        let _ = old.environment.processes().forget(&old.id).await;
    }
    let server = &context.connection.server;
    server.routing.record_use(&environment);
    server.store_unsaved(&context.session);
    let _starting = context.session.record_starting(&wire_id, &environment);
    let limits = context.connection.permissions.process_limits();
    let counted = server.count_process(&context.session, limits).map_err(reply::violation)?;
    let audit = StartAudit::begin(&context, &wire_id, &command);
    let started = environment.processes().start(&id, command).await;
    if let Some(audit) = audit {
        audit.finish(&started).await;
    }
    let started = started.map_err(|error| reply::process_error(error.reason, &wire_id))?;
    let bounds = context.connection.permissions.process_bounds();
    let process = SessionProcess::new(wire_id.clone(), id, environment, keep, sandboxed).started_within(bounds);
    let process = Arc::new(process);
    reservation.commit(process.clone());
    server.await_exit(&context.session, &process, counted);
    if !start_key.is_empty() {
        context.session.record_start(start_key);
    }
    if context.session.is_ended() {
        // The session was closed meanwhile, and whoever ended its processes did not see this one.
        context.session.remove_process(&process);
        let _ = process.environment.processes().forget(&process.id).await;
        return Err(reply::process_error(ProcessReason::StartCancelled, &wire_id));
    }
    // The client may have lost its connection meanwhile and resumed its session on another one, which must push the
    // output then.
    let follow = WriterCommand::FollowAfterFirstRead { process: process.clone() };
    context.connection.send_to_successor(&context.session, follow);
    context.session.tell_observers_of_start(&process, context.connection.id());
    context.connection.server.wake_housekeeping_if_crowded(&context.session);
    let sandbox_type = Some(match started.sandbox {
        Some(_) => SandboxType::LinuxSeccomp,
        None => SandboxType::None,
    });
    Ok(Response {
        result: StartResult {
            process_id: wire_id,
            sandbox_type,
            pid: Some(started.pid),
            sandbox: started.sandbox.map(Into::into),
            limits: started.limits.map(Into::into),
        },
        then: Some(WriterCommand::Follow { process, after: 0 }),
        memory: None,
    })
}

pub(crate) async fn read(context: RequestContext, params: ReadParams) -> HandlerResult<ReadResult> {
    let process = context.find_process(&params.process_id)?;
    let read = ReadInProgress::of(process.clone());
    let after = convert::seq(params.after_seq.unwrap_or(0));
    let load = async |max_bytes, wait| {
        let query = ReadQuery { after, max_bytes: Some(max_bytes), wait };
        let page = process.environment.processes().read(&process.id, query).await;
        page.map_err(|error| reply::process_error(error.reason, &params.process_id))
    };
    let wait = Duration::from_millis(params.wait_ms.unwrap_or(0));
    if !wait.is_zero() {
        load(0, wait).await?;
    }
    // Memory for the page is reserved before it is read, so that many large reads together cannot use too much.
    let max_bytes = params.max_bytes.unwrap_or(READ_PAGE_BYTES).min(READ_PAGE_BYTES);
    let head = load(0, Duration::ZERO).await?.head;
    let held_entries =
        usize::try_from(head.next_seq.saturating_sub(head.first_seq.max(after + 1))).unwrap_or(usize::MAX);
    let expected = usize::try_from(head.held_bytes).unwrap_or(usize::MAX).min(max_bytes)
        + held_entries.min(PAGE_ENTRIES) * PAGE_ENTRY_BYTES;
    let memory = context.connection.reserve_if_large(expected).await;
    let page = load(max_bytes, Duration::ZERO).await?;
    if let Some((exit_seq, exit)) = page.head.exit {
        denial::find(process.environment.processes(), &process, exit_seq, exit).await;
    }
    let (result, upto) = read_result(page, after, params.max_bytes.is_some(), process.denial());
    Ok(Response { result, then: Some(WriterCommand::ClientHasRead { read, after: upto }), memory })
}

/// The page as Codex's server reports it, and the last seq that it covers.
fn read_result(mut page: Page, after: u64, limited: bool, denial: Option<DenialEvidence>) -> (ReadResult, u64) {
    // Whatever the environment returns: a client must be able to read the response.
    page.entries.truncate(PAGE_ENTRIES);
    let head = page.head;
    let reaches_end = page.cursor(after) + 1 >= head.next_seq;
    let mut chunks = Vec::new();
    for entry in page.entries {
        if let EntryBody::Output { stream, bytes } = entry.body {
            chunks.push(Chunk { seq: entry.seq, stream: stream.into(), chunk: Base64(bytes) });
        }
    }
    let next_seq = match chunks.last() {
        Some(last) if limited || !reaches_end => last.seq + 1,
        _ => head.next_seq,
    };
    // A page that was cut because it would not fit a message must not report an end that it does not reach.
    let report_end = limited || reaches_end;
    let exit = head.exit.filter(|_| report_end).map(|(_, exit)| exit);
    let result = ReadResult {
        chunks,
        next_seq,
        exited: exit.is_some(),
        exit_code: exit.map(|exit| exit.shell_code()),
        closed: head.closed && report_end,
        failure: None,
        sandbox_denied: exit.is_some() && denial.is_some(),
        first_seq: Some(head.first_seq),
        dropped_bytes: Some(head.dropped_bytes),
        exit: exit.map(|exit| Exit { denial, ..exit.into() }),
        head: Some((&head).into()),
    };
    let upto = next_seq - 1;
    (result, upto)
}

pub(crate) async fn view(context: RequestContext, params: ViewParams) -> HandlerResult<ViewResult> {
    let process = context.find_process(&params.process_id)?;
    let query = convert::view_query(&params).map_err(reply::bad_view)?;
    let view = process.environment.processes().view(&process.id, query).await;
    let view = view.map_err(|error| reply::process_error(error.reason, &params.process_id))?;
    // Not before: to search a long log takes long, and other responses need not wait for that.
    let bytes = view.lines.iter().map(|line| line.text.len() + LINE_OVERHEAD_BYTES).sum();
    let memory = context.connection.reserve_if_large(bytes).await;
    Ok(Response { memory, ..convert::view(view).into() })
}

pub(crate) async fn screen(context: RequestContext, params: ScreenParams) -> HandlerResult<ScreenResult> {
    let process = context.find_process(&params.process_id)?;
    let query = ScreenQuery { seq: params.seq.map(convert::seq), colors: params.colors };
    let screen = process.environment.processes().screen(&process.id, query).await;
    let screen = screen.map_err(|error| reply::process_error(error.reason, &params.process_id))?;
    let row_bytes = |row: &ScreenRow| row.text.len() + row.runs.len() * SCREEN_RUN_BYTES + LINE_OVERHEAD_BYTES;
    let memory = context.connection.reserve_if_large(screen.rows.iter().map(row_bytes).sum()).await;
    Ok(Response { memory, ..convert::screen(screen).into() })
}

pub(crate) async fn write(context: RequestContext, params: WriteParams) -> HandlerResult<WriteResult> {
    if params.write_id.is_empty() {
        return Err(reply::empty_write_id());
    }
    let write_id = WriteId::new(&params.write_id).map_err(reply::bad_id)?;
    let process = match context.look_up(&params.process_id)? {
        Lookup::Present(process) => process,
        Lookup::Reserved => return Ok(WriteResult { status: WriteStatus::Starting }.into()),
        Lookup::Free => return Ok(WriteResult { status: WriteStatus::UnknownProcess }.into()),
    };
    context.connection.permissions.allow_input(process.bounds.as_ref()).map_err(reply::violation)?;
    let status = match process.environment.processes().write(&process.id, write_id, params.chunk.0).await {
        Ok(written) => write_status(written),
        Err(ProcessError { reason: ProcessReason::UnknownProcess, .. }) => WriteStatus::UnknownProcess,
        Err(error) => return Err(reply::process_error(error.reason, &params.process_id)),
    };
    Ok(WriteResult { status }.into())
}

pub(crate) async fn close_stdin(context: RequestContext, params: CloseStdinParams) -> HandlerResult<CloseStdinResult> {
    let process = context.find_process(&params.process_id)?;
    let written = process.environment.processes().close_stdin(&process.id).await;
    let written = written.map_err(|error| reply::process_error(error.reason, &params.process_id))?;
    Ok(CloseStdinResult { status: write_status(written) }.into())
}

fn write_status(written: Written) -> WriteStatus {
    match written {
        Written::Accepted => WriteStatus::Accepted,
        Written::StdinClosed => WriteStatus::StdinClosed,
        Written::InDoubt => WriteStatus::InDoubt,
    }
}

pub(crate) async fn signal(context: RequestContext, params: SignalParams) -> HandlerResult<SignalResult> {
    let unknown = SignalResult { status: Some(SignalStatus::UnknownProcess) };
    let Lookup::Present(process) = context.look_up(&params.process_id)? else { return Ok(unknown.into()) };
    let processes = process.environment.processes();
    let signal = params.signal.into();
    let signalled = match &params.signal_id {
        Some(key) if key.len() > SIGNAL_ID_BYTES => {
            return Err(reply::too_long("signalId", key.len(), SIGNAL_ID_BYTES));
        }
        Some(key) => processes.signal_once(&process.id, signal, key).await,
        None => processes.signal(&process.id, signal).await,
    };
    match signalled {
        Ok(Signalled::Sent) => Ok(SignalResult { status: Some(SignalStatus::Sent) }.into()),
        Ok(Signalled::AlreadyExited) => Ok(SignalResult { status: Some(SignalStatus::AlreadyExited) }.into()),
        Err(ProcessError { reason: ProcessReason::UnknownProcess, .. }) => Ok(unknown.into()),
        Err(error) => Err(reply::process_error(error.reason, &params.process_id)),
    }
}

pub(crate) async fn terminate(context: RequestContext, params: TerminateParams) -> HandlerResult<TerminateResult> {
    let unknown = TerminateResult { running: false, ended: Some(0), left: Some(0), known: Some(false) };
    let (id, environment) = match context.look_up(&params.process_id)? {
        Lookup::Free => return Ok(unknown.into()),
        Lookup::Present(process) => (process.id.clone(), process.environment.clone()),
        // The environment cancels the start.
        Lookup::Reserved => {
            let Some(environment) = context.session.starting_in(&params.process_id) else { return Ok(unknown.into()) };
            context.require_environment("process", &params.process_id, &environment.id)?;
            (context.session.process_id(&params.process_id).map_err(reply::bad_id)?, environment)
        }
    };
    let grace = Duration::from_millis(params.grace_ms.unwrap_or(0));
    match environment.processes().terminate(&id, grace).await {
        Ok(done) => Ok(TerminateResult {
            running: done.was_running,
            ended: Some(done.ended),
            left: Some(done.left),
            known: Some(true),
        }
        .into()),
        Err(ProcessError { reason: ProcessReason::UnknownProcess, .. }) => Ok(unknown.into()),
        Err(error) => Err(reply::process_error(error.reason, &params.process_id)),
    }
}

pub(crate) async fn resize(context: RequestContext, params: ResizeParams) -> HandlerResult<ResizeResult> {
    let process = context.find_process(&params.process_id)?;
    let resized = process.environment.processes().resize(&process.id, params.size.into()).await;
    resized.map_err(|error| reply::process_error(error.reason, &params.process_id))?;
    Ok(ResizeResult {}.into())
}

pub(crate) async fn list(context: RequestContext, params: ListParams) -> HandlerResult<ListResult> {
    let after = match params.cursor.as_deref() {
        None | Some("") => None,
        Some(cursor) => Some(ListPosition::decode(cursor).ok_or_else(reply::bad_cursor)?),
    };
    let memory = context.connection.reserve_response_memory(PROCESS_PAGE_BYTES).await;
    let (listed, unreachable) = list_everywhere(&context).await?;
    let named = context.connection.server.routing.has_several();
    let mine = |(environment, info): (NamedEnvironment, ProcessInfo)| {
        let label = ProcessLabel::decode(&info.label).filter(|label| label.session == context.session.id)?;
        let position = ListPosition { started: info.started, wire_id: label.wire_id.clone() };
        let info = convert::process_info(label.wire_id, info, label.client_label);
        let environment_id = named.then(|| environment.id.to_string());
        Some((position, wire::ProcessInfo { environment_id, ..info }))
    };
    let mine = listed.into_iter().filter_map(mine);
    if params.cursor.is_none() {
        let processes = mine.map(|(_, info)| info).collect();
        return Ok(Response { memory, ..ListResult { processes, next_cursor: None, unreachable }.into() });
    }
    let mut behind: Vec<_> = mine.filter(|(position, _)| after.as_ref().is_none_or(|after| position > after)).collect();
    behind.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(Response { memory, ..ListResult { unreachable, ..process_page(behind) }.into() })
}

/// The processes of the environment that the request names; without one, those of all in which the session has any, and
/// which of them cannot be asked.
async fn list_everywhere(
    context: &RequestContext,
) -> Result<(Vec<(NamedEnvironment, ProcessInfo)>, Vec<UnreachableEnvironment>), RpcError> {
    let server = &context.connection.server;
    if let Some(id) = &context.environment_id {
        let environment = server.environment(Some(id))?;
        let _ = context.carried_out_in.set(environment.id.clone());
        let listed = environment.processes().list().await;
        let listed = listed.map_err(|error| reply::process_error(error.into(), ""))?;
        return Ok((listed.into_iter().map(|info| (environment.clone(), info)).collect(), Vec::new()));
    }
    let unasked = server.unasked_for(&context.session);
    let mut unreachable: Vec<UnreachableEnvironment> = unasked
        .into_iter()
        .map(|(id, error)| UnreachableEnvironment { environment_id: id.to_string(), error })
        .collect();
    let lists = context.session.environments().into_iter().map(|environment| async move {
        let listed = environment.processes().list().await;
        (environment, listed)
    });
    let mut found = Vec::new();
    for (environment, listed) in join_all(lists).await {
        match listed {
            Ok(listed) => found.extend(listed.into_iter().map(|info| (environment.clone(), info))),
            Err(error) if server.routing.has_several() => {
                let environment_id = environment.id.to_string();
                unreachable.push(UnreachableEnvironment { environment_id, error: error.to_string() });
            }
            Err(error) => return Err(reply::process_error(error.into(), "")),
        }
    }
    // One environment lists them in the order of their start; so do several.
    found.sort_by_key(|(_, info)| info.started);
    Ok((found, unreachable))
}

/// As many of these processes as a page has room for, one at least.
fn process_page(behind: Vec<(ListPosition, wire::ProcessInfo)>) -> ListResult {
    let mut page = ListResult { processes: Vec::new(), next_cursor: None, unreachable: Vec::new() };
    let (mut bytes, mut last): (usize, Option<ListPosition>) = (0, None);
    for (position, info) in behind {
        bytes += convert::process_info_bytes(&info);
        if let Some(last) = last.filter(|_| bytes > PROCESS_PAGE_BYTES) {
            page.next_cursor = Some(last.encode());
            return page;
        }
        page.processes.push(info);
        last = Some(position);
    }
    page
}

/// Where a process stands in the list of its session. It stays there, whichever others come and go.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListPosition {
    started: SystemTime,
    wire_id: String,
}

impl ListPosition {
    fn encode(&self) -> String {
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{} {}", since.as_nanos(), self.wire_id)
    }

    fn decode(cursor: &str) -> Option<Self> {
        let (nanoseconds, wire_id) = cursor.split_once(' ')?;
        let since = Duration::from_nanos(nanoseconds.parse().ok()?);
        Some(Self { started: UNIX_EPOCH.checked_add(since)?, wire_id: wire_id.to_owned() })
    }
}

pub(crate) async fn wait(context: RequestContext, params: WaitParams) -> HandlerResult<WaitResult> {
    let process = context.find_process(&params.process_id)?;
    let deadline = params.timeout_ms.map(Duration::from_millis);
    let waited = process.environment.processes().wait(&process.id, convert::until(params.until), deadline).await;
    let outcome = match waited {
        Ok(waited) => convert::waited(waited),
        Err(ProcessError { reason: ProcessReason::Ended { exit }, .. }) => WaitOutcome::Ended { exit: exit.into() },
        Err(error) => return Err(reply::process_error(error.reason, &params.process_id)),
    };
    Ok(WaitResult { outcome }.into())
}

pub(crate) async fn forget(context: RequestContext, params: ForgetParams) -> HandlerResult<ForgetResult> {
    let process = context.find_process(&params.process_id)?;
    let forgotten = process.environment.processes().forget(&process.id).await;
    forgotten.map_err(|error| reply::process_error(error.reason, &params.process_id))?;
    context.session.remove_process(&process);
    Ok(Response { result: ForgetResult {}, then: Some(WriterCommand::Unfollow { process }), memory: None })
}
