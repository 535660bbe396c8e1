//! One connection: messages in, the handshake, dispatch.
//!
//! The loop reads one message at a time and does itself only what never waits: it decodes, checks the state, reserves ids
//! and queues what a process must see in order. The rest runs in tasks that this connection owns. It reads nothing more
//! while as many requests are under way as may be, so that no request is lost or refused for being one of many.
//!
//! A message that is no request is not answered, as with Codex, and the connection goes on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::ProcessId;
use exec_env::{Files, SharedEnvironment};
use exec_transport::{CloseReason, Connection, Grant, Message, Received, Receiver};
use exec_wire::{Incoming, RequestId, RpcError, base64, envelope};
use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::command::{self, Surroundings};
use crate::environments::is_header_value;
use crate::files;
use crate::limits::{FINISH_TIME, REQUEST_BYTES_UNDER_WAY, REQUESTS_UNDER_WAY};
use crate::method::{self, Call};
use crate::outbox::{self, Outbox};
use crate::process::ReservedProcess;
use crate::process_table::{Control, ControlAction, Family, ProcessTable};
use crate::reply;
use crate::server::AppServer;
use crate::shapes::{ClientInfo, Empty, InitializeParams, InitializeResponse};
use crate::watches::Watches;

/// What the tasks of a connection share.
pub(crate) struct ConnectionContext {
    pub(crate) server: Arc<AppServer>,
    pub(crate) environment: SharedEnvironment,
    pub(crate) outbox: Outbox,
    pub(crate) processes: ProcessTable,
    files: Arc<dyn Files>,
    watches: Arc<Watches>,
    read_budget: Semaphore,
    /// Set when the connection has ended, and its processes shall.
    closing: watch::Sender<bool>,
    number: u64,
    started: AtomicU64,
}

impl ConnectionContext {
    /// Returns once the connection has ended.
    pub(crate) async fn closing(&self) {
        // The sender is ours, so waiting for it cannot fail.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// The id of the next process in the environment; the client never sees it.
    pub(crate) fn next_process_id(&self) -> ProcessId {
        let (run, connection) = (self.server.run, self.number);
        let process = self.started.fetch_add(1, Ordering::Relaxed);
        ProcessId::new(format!("app-{run:x}-{connection}-{process}")).expect("it is short")
    }
}

pub(crate) async fn serve(
    server: Arc<AppServer>,
    connection: Connection,
    number: u64,
    mut stopping: watch::Receiver<bool>,
) {
    // What a scope permits is told by the methods of exec-server's own protocol, which are not spoken here.
    if let Grant::Scope(_) = connection.identity.grant {
        let reason = "a token with a scope does not count here: use one without";
        tracing::warn!("a connection was refused: {reason}");
        return connection.sender.close(CloseReason::new(CloseReason::POLICY, reason)).await;
    }
    let (outbox, queue) = Outbox::new();
    let mut writer = JoinSet::new();
    writer.spawn(outbox::write(connection.sender, queue));
    let context = Arc::new(ConnectionContext {
        environment: Arc::clone(&server.environment),
        files: server.environment.files_for_caller(),
        server,
        outbox,
        processes: ProcessTable::default(),
        watches: Arc::default(),
        read_budget: files::read_budget(),
        closing: watch::Sender::new(false),
        number,
        started: AtomicU64::new(0),
    });
    let mut reader = Reader {
        context: Arc::clone(&context),
        handshake: Handshake::Missing,
        tasks: JoinSet::new(),
        requests: Arc::new(Semaphore::new(REQUESTS_UNDER_WAY)),
        request_bytes: Arc::new(Semaphore::new(REQUEST_BYTES_UNDER_WAY)),
    };
    let mut receiver = connection.receiver;
    tokio::select! {
        () = reader.read(&mut receiver) => {}
        () = context.outbox.closed() => {}
        () = expired(connection.identity.expires) => tracing::info!("a connection ends with its token"),
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    context.closing.send_replace(true);
    context.watches.end_all().await;
    let Reader { mut tasks, context: of_reader, .. } = reader;
    drop((of_reader, context));
    let finished = async {
        while let Some(ended) = tasks.join_next().await {
            log_failure(ended);
        }
        // The writer ends when nobody is left who could write.
        while writer.join_next().await.is_some() {}
    };
    if tokio::time::timeout(FINISH_TIME, finished).await.is_err() {
        tracing::warn!("a connection has ended, and something of it is stuck");
    }
}

/// Returns when a token counts no more.
async fn expired(expires: Option<SystemTime>) {
    let Some(expires) = expires else { return std::future::pending().await };
    // A wait is no longer than a minute, because it does not notice when the clock is set.
    while let Ok(left) = expires.duration_since(SystemTime::now()) {
        tokio::time::sleep(left.min(Duration::from_secs(60))).await;
    }
}

fn log_failure(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!("a task of a connection failed: {error}");
    }
}

enum Handshake {
    Missing,
    Done { experimental: bool },
}

/// The reading side of a connection.
struct Reader {
    context: Arc<ConnectionContext>,
    handshake: Handshake,
    tasks: JoinSet<()>,
    requests: Arc<Semaphore>,
    request_bytes: Arc<Semaphore>,
}

/// The room that a request takes while it is under way.
struct RequestPermit {
    _request: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Reader {
    async fn read(&mut self, receiver: &mut Receiver) {
        loop {
            match receiver.next().await {
                Received::Message(Message::Text(message)) => self.handle(&message).await,
                Received::Message(Message::Binary(_)) => tracing::debug!("a binary message is ignored"),
                Received::Malformed { reason } => tracing::debug!("the client broke the framing: {reason}"),
                Received::Closed(end) => {
                    tracing::debug!("a connection has ended: {end}");
                    return;
                }
            }
            while let Some(ended) = self.tasks.try_join_next() {
                log_failure(ended);
            }
        }
    }

    async fn handle(&mut self, message: &Bytes) {
        let text = std::str::from_utf8(message).expect("the transport has checked it");
        let request = match envelope::decode(text) {
            Ok(Incoming::Request(request)) => request,
            // `initialized` says nothing that we would have to know.
            Ok(Incoming::Notification(_) | Incoming::Response(_) | Incoming::Error(_)) => return,
            Err(malformed) => return tracing::debug!("a message that cannot be read is ignored: {malformed}"),
        };
        let params = Some(request.params.as_str()).filter(|params| *params != "null");
        let id = request.id;
        match self.admit(&request.method, params) {
            Ok(call) => self.dispatch(id, call, message.len()).await,
            Err(error) => self.context.outbox.refuse(&id, &error).await,
        }
    }

    /// What is said, if it may be said now.
    fn admit(&self, method: &str, params: Option<&str>) -> Result<Call, RpcError> {
        let call = Call::decode(method, params)?;
        match (&self.handshake, &call) {
            (Handshake::Missing, Call::Initialize(_)) => Ok(call),
            (Handshake::Missing, _) => Err(reply::not_initialized()),
            (Handshake::Done { .. }, Call::Initialize(_)) => Err(reply::already_initialized()),
            (Handshake::Done { experimental }, call_) => match call_.experimental_part() {
                Some(part) if !experimental => Err(reply::experimental(part)),
                _ => Ok(call),
            },
        }
    }

    async fn dispatch(&mut self, id: RequestId, call: Call, message_bytes: usize) {
        let context = Arc::clone(&self.context);
        let outbox = context.outbox.clone();
        match call {
            Call::Initialize(params) => {
                let response = self.initialize(params);
                outbox.respond::<method::Initialize>(&id, response).await;
            }
            Call::CommandExec(params) => {
                let launch = command::exec(params, surroundings(&context));
                self.run(id, launch.and_then(|launch| ReservedProcess::reserve(&context, launch))).await;
            }
            Call::ProcessSpawn(params) => {
                let launch = command::spawn(params, surroundings(&context));
                self.run(id, launch.and_then(|launch| ReservedProcess::reserve(&context, launch))).await;
            }
            Call::CommandExecWrite(params) => {
                let write = StdinRequest {
                    family: Family::Exec,
                    method: "command/exec/write",
                    name: &params.process_id,
                    delta: params.delta_base64.as_deref(),
                    close: params.close_stdin,
                };
                if let Some(answer) = write.queue(&context, &id) {
                    outbox.respond::<method::CommandExecWrite>(&id, answer).await;
                }
            }
            Call::ProcessWriteStdin(params) => {
                let write = StdinRequest {
                    family: Family::Spawn,
                    method: "process/writeStdin",
                    name: &params.process_handle,
                    delta: params.delta_base64.as_deref(),
                    close: params.close_stdin,
                };
                if let Some(answer) = write.queue(&context, &id) {
                    outbox.respond::<method::ProcessWriteStdin>(&id, answer).await;
                }
            }
            Call::CommandExecResize(params) => {
                let action = params.size.checked().map(ControlAction::Resize);
                self.control(id, Family::Exec, &params.process_id, action).await;
            }
            Call::ProcessResizePty(params) => {
                let action = params.size.checked().map(ControlAction::Resize);
                self.control(id, Family::Spawn, &params.process_handle, action).await;
            }
            Call::CommandExecTerminate(params) => {
                self.control(id, Family::Exec, &params.process_id, Ok(ControlAction::Terminate)).await;
            }
            Call::ProcessKill(params) => {
                self.control(id, Family::Spawn, &params.process_handle, Ok(ControlAction::Terminate)).await;
            }
            Call::FsWatch(params) => match context.watches.reserve(&params.watch_id) {
                Ok(()) => {
                    let task = id.clone();
                    let work = async move {
                        let watches = Arc::clone(&context.watches);
                        watches.watch(Arc::clone(&context.files), &context.outbox, &task, params).await;
                    };
                    self.spawn(id, message_bytes, work).await;
                }
                Err(error) => outbox.refuse(&id, &error).await,
            },
            Call::EnvironmentAdd(params) => {
                let added = context.server.environments.add(params).map(|()| Empty {});
                outbox.respond::<method::EnvironmentAdd>(&id, added).await;
            }
            Call::EnvironmentStatus(params) => {
                let status = context.server.environments.status(&params.environment_id);
                outbox.respond::<method::EnvironmentStatus>(&id, Ok(status)).await;
            }
            call => {
                let task = id.clone();
                self.spawn(id, message_bytes, async move { carry_out(&context, &task, call).await }).await;
            }
        }
    }

    fn initialize(&mut self, params: InitializeParams) -> Result<InitializeResponse, RpcError> {
        let ClientInfo { name, version, .. } = params.client_info;
        if !is_header_value(&name) {
            return Err(reply::bad_client_name(&name));
        }
        let capabilities = params.capabilities.unwrap_or_default();
        self.handshake = Handshake::Done { experimental: capabilities.experimental_api };
        self.context.outbox.opt_out(capabilities.opt_out_notification_methods.unwrap_or_default());
        let options = &self.context.server.options;
        let os = &self.context.environment.info().os;
        Ok(InitializeResponse {
            user_agent: format!(
                "{name}/{} ({os}; {}) exec-server ({name}; {version})",
                options.version,
                std::env::consts::ARCH
            ),
            codex_home: options.codex_home.to_string_lossy().into_owned(),
            platform_family: std::env::consts::FAMILY,
            platform_os: os.clone(),
        })
    }

    /// Runs a process that was reserved. It has no place among the requests under way, because it may run for days.
    async fn run(&mut self, id: RequestId, process: Result<ReservedProcess, RpcError>) {
        match process {
            Ok(process) => {
                self.tasks.spawn(process.run(Arc::clone(&self.context), id));
            }
            Err(error) => self.context.outbox.refuse(&id, &error).await,
        }
    }

    async fn control(&self, id: RequestId, family: Family, name: &str, action: Result<ControlAction, RpcError>) {
        if let Err(error) = self.queue_control(&id, family, name, action) {
            self.context.outbox.refuse(&id, &error).await;
        }
    }

    fn queue_control(
        &self,
        id: &RequestId,
        family: Family,
        name: &str,
        action: Result<ControlAction, RpcError>,
    ) -> Result<(), RpcError> {
        let action = action?;
        let process = self.context.processes.find_running(family, name)?;
        if matches!(action, ControlAction::Resize(_)) && !process.tty {
            return Err(reply::no_terminal());
        }
        process.control(Control { request: id.clone(), action })
    }

    /// Runs `work` in a task once there is room for it. A handler that panics answers an error.
    async fn spawn(&mut self, id: RequestId, bytes: usize, work: impl Future<Output = ()> + Send + 'static) {
        let permit = self.room(bytes).await;
        let outbox = self.context.outbox.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                outbox.refuse(&id, &reply::internal("internal error: see the server's log")).await;
            }
            drop(permit);
        });
    }

    async fn room(&self, bytes: usize) -> RequestPermit {
        const OPEN: &str = "the semaphore is never closed";
        let bytes = bytes.min(REQUEST_BYTES_UNDER_WAY) as u32;
        RequestPermit {
            _request: Arc::clone(&self.requests).acquire_owned().await.expect(OPEN),
            _bytes: Arc::clone(&self.request_bytes).acquire_many_owned(bytes).await.expect(OPEN),
        }
    }
}

fn surroundings(context: &ConnectionContext) -> Surroundings<'_> {
    let info = context.environment.info();
    Surroundings {
        cwd: info.cwd.as_deref().unwrap_or("/".as_ref()),
        home: info.home.as_deref(),
        variables: context.server.options.machine_variables.as_ref(),
    }
}

/// What waits for the machine.
async fn carry_out(context: &ConnectionContext, id: &RequestId, call: Call) {
    let (files, outbox) = (&*context.files, &context.outbox);
    match call {
        Call::FsReadFile(params) => {
            let read = files::read(files, &context.read_budget, params).await;
            outbox.respond::<method::FsReadFile>(id, read).await;
        }
        Call::FsWriteFile(params) => outbox.respond::<method::FsWriteFile>(id, files::write(files, params).await).await,
        Call::FsCreateDirectory(params) => {
            let created = files::create_directory(files, params).await;
            outbox.respond::<method::FsCreateDirectory>(id, created).await;
        }
        Call::FsGetMetadata(params) => {
            outbox.respond::<method::FsGetMetadata>(id, files::metadata(files, params).await).await;
        }
        Call::FsReadDirectory(params) => {
            outbox.respond::<method::FsReadDirectory>(id, files::read_directory(files, params).await).await;
        }
        Call::FsRemove(params) => outbox.respond::<method::FsRemove>(id, files::remove(files, params).await).await,
        Call::FsCopy(params) => outbox.respond::<method::FsCopy>(id, files::copy(files, params).await).await,
        Call::FsUnwatch(params) => {
            context.watches.unwatch(&params.watch_id).await;
            outbox.respond::<method::FsUnwatch>(id, Ok(Empty {})).await;
        }
        Call::EnvironmentInfo(params) => {
            let local = context.environment.info();
            let info = context.server.environments.info(&params.environment_id, local).await;
            outbox.respond::<method::EnvironmentInfo>(id, info).await;
        }
        other => unreachable!("{other:?} never waits and was handled by the connection itself"),
    }
}

/// A request to write to a stdin.
struct StdinRequest<'a> {
    family: Family,
    method: &'static str,
    name: &'a str,
    delta: Option<&'a str>,
    close: bool,
}

impl StdinRequest<'_> {
    /// Queues it; the answer, unless it comes later.
    fn queue(&self, context: &ConnectionContext, id: &RequestId) -> Option<Result<Empty, RpcError>> {
        match self.try_queue(context, id) {
            Ok(true) => Some(Ok(Empty {})),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn try_queue(&self, context: &ConnectionContext, id: &RequestId) -> Result<bool, RpcError> {
        if self.delta.is_none() && !self.close {
            return Err(reply::invalid_params(format!("{} requires deltaBase64 or closeStdin", self.method)));
        }
        let bytes = base64::decode(self.delta.unwrap_or_default().as_bytes()).map_err(reply::bad_delta)?;
        let process = context.processes.find_running(self.family, self.name)?;
        let stdin = process.stdin.as_ref().ok_or_else(|| reply::stdin_not_streamed(self.family))?;
        stdin.push(id, bytes.into(), self.close)
    }
}
