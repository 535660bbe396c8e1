//! One process of a client, from its start to its end.
//!
//! ```text
//!   start ─► (process/spawn is answered) ─► pump output ─► exited ─► drained, or 2 s later ended ─► name free ─► answer
//!              stdin_queue, controls: tasks of their own, so that neither waits for the client to read
//! ```
//!
//! Output is read from the process's log only as fast as the client takes it; the log keeps the rest, and a full log makes
//! the process wait. When the connection ends, so does the process, with all that it has started.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use exec_core::{EntryBody, Exit, ExitCause, ExitStatus, Page, ProcessId, Stream};
use exec_env::process::{LogFollower, ProcessError};
use exec_wire::{RequestId, RpcError, base64};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::captured_output::{CappedStream, CapturedStream};
use crate::command::Launch;
use crate::connection::ConnectionContext;
use crate::limits::{CLOSE_TIME, DELTA_BYTES, DRAIN_TIME, WRITE_DEADLINE};
use crate::method;
use crate::process_table::{Control, ControlAction, ExitMark, Family, ProcessEntry, Reservation};
use crate::reply;
use crate::shapes::{CommandExecOutputDelta, CommandExecResponse, Empty, ProcessExited, ProcessOutputDelta};
use crate::stdin_queue::{StdinQueue, StdinWrites};

/// The exit code of a process that its time limit has ended.
const TIMED_OUT: i32 = 124;

/// That of a process on a terminal that a signal has ended, unless it is confined; Codex's number.
const TERMINAL_SIGNALLED: i32 = 1;

/// A process whose name is reserved, and whose start is due.
#[derive(Debug)]
pub(crate) struct ReservedProcess {
    family: Family,
    name: Option<String>,
    reservation: Reservation,
    tty: bool,
    stream: bool,
    cap: Option<usize>,
    command: exec_core::Command,
    controls: mpsc::Receiver<Control>,
    stdin: Option<StdinWrites>,
    exited: ExitMark,
}

impl ReservedProcess {
    /// Reserves the name, at once, so that requests that follow find the process.
    pub(crate) fn reserve(context: &ConnectionContext, launch: Launch) -> Result<Self, RpcError> {
        let tty = launch.tty();
        let (queue, stdin) = launch.stdin.then(StdinQueue::new).unzip();
        let exited = ExitMark::default();
        let (entry, controls) = ProcessEntry::new(tty, queue, exited.clone());
        let Launch { family, name, command, stream, cap, .. } = launch;
        let reservation = context.processes.insert(family, name.as_deref(), entry)?;
        Ok(Self { family, name, reservation, tty, stream, cap, command, controls, stdin, exited })
    }

    /// Runs it, and answers `request`.
    pub(crate) async fn run(mut self, context: Arc<ConnectionContext>, request: RequestId) {
        let id = context.next_process_id();
        if let Err(error) = context.environment.processes().start(&id, self.command.clone()).await {
            context.processes.remove(self.family, self.name.as_deref(), self.reservation);
            self.refuse_waiting(&context).await;
            let error = reply::not_started(self.family, self.tty, &error.reason);
            return context.outbox.refuse(&request, &error).await;
        }
        if self.family == Family::Spawn {
            context.outbox.respond::<method::ProcessSpawn>(&request, Ok(Empty {})).await;
        }
        let name = self.name.clone().unwrap_or_default();
        let mut controls = JoinSet::new();
        let queue = std::mem::replace(&mut self.controls, mpsc::channel(1).1);
        let owner = (self.family, name.clone(), self.reservation);
        controls.spawn(carry_out_controls(Arc::clone(&context), owner, id.clone(), queue));
        let mut writes = JoinSet::new();
        if let Some(stdin) = self.stdin.take() {
            writes.spawn(write_stdin(Arc::clone(&context), self.family, id.clone(), stdin));
        }
        let mut output = Output::new(&self, name);
        let ended = output.pump(&context, &id).await;
        // Also what the process has left behind without its streams: Codex ends that, too.
        let terminated = context.environment.processes().terminate(&id, Duration::ZERO).await;
        if let Ok(terminated) = terminated
            && terminated.left > 0
        {
            tracing::warn!("{} processes of a command could not be ended", terminated.left);
        }
        // Before the answer, so that the client may use the name again as soon as it has it.
        context.processes.remove(self.family, self.name.as_deref(), self.reservation);
        // Both end with the entry of the table, whose queues they read. Who asked for the end is answered before it is told.
        while controls.join_next().await.is_some() {}
        if !context.is_closing() {
            self.answer(&context, &request, output, ended).await;
        }
        if let Err(error) = context.environment.processes().forget(&id).await {
            tracing::debug!("cannot forget a process: {error}");
        }
        while writes.join_next().await.is_some() {}
    }

    async fn answer(
        &self,
        context: &ConnectionContext,
        request: &RequestId,
        output: Output,
        ended: Result<Ended, RpcError>,
    ) {
        let (stdout, stderr) = output.into_texts();
        match self.family {
            Family::Exec => {
                let result = ended.map(|ended| CommandExecResponse {
                    exit_code: self.exit_code(&ended.exit),
                    stdout: stdout.0,
                    stderr: stderr.0,
                });
                context.outbox.respond::<method::CommandExec>(request, result).await;
            }
            Family::Spawn => {
                // There is no request left to answer with an error.
                let (ended, lost) = match ended {
                    Ok(ended) => (ended, String::new()),
                    Err(error) => (Ended { exit: Exit::LOST, drain_timed_out: false }, error.message),
                };
                let exited = ProcessExited {
                    process_handle: self.name.as_deref().unwrap_or_default(),
                    exit_code: self.exit_code(&ended.exit),
                    output_drain_timed_out: ended.drain_timed_out,
                    stdout: stdout.0,
                    stdout_cap_reached: stdout.1,
                    stderr: stderr.0 + &lost,
                    stderr_cap_reached: stderr.1,
                };
                context.outbox.notify("process/exited", exited).await;
            }
        }
    }

    fn exit_code(&self, exit: &Exit) -> i32 {
        let killed = matches!(exit.status, ExitStatus::Signal { .. });
        // Codex's parent of a confined process passes the number of the signal on, unless it was killed with it.
        let signal_is_known = !self.tty || (self.command.sandbox.is_some() && exit.cause != ExitCause::Terminated);
        match exit.cause {
            ExitCause::TimedOut => TIMED_OUT,
            _ if killed && !signal_is_known => TERMINAL_SIGNALLED,
            _ => exit.shell_code(),
        }
    }

    /// Requests that came while it was being started, and now have no process.
    async fn refuse_waiting(&mut self, context: &ConnectionContext) {
        self.controls.close();
        let error = reply::no_active_process(self.family, self.name.as_deref().unwrap_or_default());
        while let Ok(control) = self.controls.try_recv() {
            context.outbox.refuse(&control.request, &error).await;
        }
        if let Some(stdin) = &mut self.stdin {
            let waiting: Vec<_> = stdin.drain().filter_map(|write| write.request).collect();
            for request in waiting {
                context.outbox.refuse(&request, &error).await;
            }
        }
    }
}

/// How a process ended.
#[derive(Debug)]
struct Ended {
    exit: Exit,
    /// Others held its output open for longer than they may.
    drain_timed_out: bool,
}

/// The output of a process on its way to the client.
struct Output {
    family: Family,
    name: String,
    sink: Sink,
    exited: ExitMark,
}

/// What becomes of output: it is sent piece by piece, or kept for the result.
enum Sink {
    Streamed { stdout: CappedStream, stderr: CappedStream },
    Captured { stdout: CapturedStream, stderr: CapturedStream },
}

impl Output {
    fn new(process: &ReservedProcess, name: String) -> Self {
        let cap = process.cap;
        let sink = match process.stream {
            true => Sink::Streamed { stdout: CappedStream::new(cap), stderr: CappedStream::new(cap) },
            false => Sink::Captured { stdout: CapturedStream::new(cap), stderr: CapturedStream::new(cap) },
        };
        Self { family: process.family, name, sink, exited: process.exited.clone() }
    }

    /// Passes the log on until it is complete. An error says that output was lost, or that nobody can tell.
    async fn pump(&mut self, context: &ConnectionContext, id: &ProcessId) -> Result<Ended, RpcError> {
        let failed = |error: ProcessError| reply::internal(error.to_string());
        let processes = context.environment.processes();
        let mut follower = processes.follow(id, 0).await.map_err(failed)?;
        follower.acknowledge(0, WRITE_DEADLINE);
        let mut position = 0;
        let mut exit = None;
        let mut drain = Drain::Running;
        loop {
            let page = match next_event(&mut *follower, context, drain.deadline()).await {
                Event::Page(page) => page.map_err(failed)?,
                Event::ConnectionEnded => {
                    return Err(reply::internal("the connection has ended"));
                }
                Event::DeadlinePassed => {
                    let Drain::Draining(_) = drain else { break };
                    processes.terminate(id, Duration::ZERO).await.map_err(failed)?;
                    drain = Drain::Ending(Instant::now() + CLOSE_TIME);
                    continue;
                }
            };
            let Some(page) = page else { break };
            if let Some(gap) = page.gap {
                return Err(reply::internal(format!("{} bytes of output were dropped unread", gap.dropped_bytes)));
            }
            position = page.cursor(position);
            // Before anything of the page is sent: who has seen what was printed after the exit is answered as after it.
            if page.entries.iter().any(|entry| matches!(entry.body, EntryBody::Exited(_))) {
                self.exited.set();
            }
            if let Some(exited) = self.pass_on(context, page).await {
                exit = Some(exited);
                drain = Drain::Draining(Instant::now() + DRAIN_TIME);
            }
            follower.acknowledge(position, WRITE_DEADLINE);
        }
        let exit = exit.ok_or_else(|| reply::internal("the process has ended, and nobody knows how"))?;
        Ok(Ended { exit, drain_timed_out: matches!(drain, Drain::Ending(_)) })
    }

    /// Passes the output of a page on, neighbours of one stream together; returns the exit, if the page has it.
    async fn pass_on(&mut self, context: &ConnectionContext, page: Page) -> Option<Exit> {
        let mut exit = None;
        let mut piece: Option<(Stream, BytesMut)> = None;
        for entry in page.entries {
            match entry.body {
                EntryBody::Output { stream, bytes } => {
                    if let Some((of, joined)) = &mut piece
                        && *of == stream
                        && joined.len() + bytes.len() <= DELTA_BYTES
                    {
                        joined.extend_from_slice(&bytes);
                        continue;
                    }
                    if let Some((stream, bytes)) = piece.replace((stream, bytes.into())) {
                        self.deliver(context, stream, bytes.freeze()).await;
                    }
                }
                EntryBody::Exited(exited) => exit = Some(exited),
                EntryBody::Closed => {}
            }
        }
        if let Some((stream, bytes)) = piece {
            self.deliver(context, stream, bytes.freeze()).await;
        }
        exit
    }

    async fn deliver(&mut self, context: &ConnectionContext, stream: Stream, bytes: Bytes) {
        let is_stderr = stream == Stream::Stderr;
        match &mut self.sink {
            Sink::Captured { stdout, stderr } => if is_stderr { stderr } else { stdout }.push(bytes),
            Sink::Streamed { stdout, stderr } => {
                let capped = if is_stderr { stderr } else { stdout };
                let Some(bytes) = capped.take(bytes) else { return };
                let cap_reached = capped.is_reached();
                self.notify(context, if is_stderr { "stderr" } else { "stdout" }, &bytes, cap_reached).await;
            }
        }
    }

    async fn notify(&self, context: &ConnectionContext, stream: &'static str, bytes: &[u8], cap_reached: bool) {
        let delta_base64 = base64::encode(bytes);
        match self.family {
            Family::Exec => {
                let delta = CommandExecOutputDelta { process_id: &self.name, stream, delta_base64, cap_reached };
                context.outbox.notify("command/exec/outputDelta", delta).await;
            }
            Family::Spawn => {
                let delta = ProcessOutputDelta { process_handle: &self.name, stream, delta_base64, cap_reached };
                context.outbox.notify("process/outputDelta", delta).await;
            }
        }
    }

    /// The text of each stream and whether its cap was reached; no text if it was sent before.
    fn into_texts(self) -> ((String, bool), (String, bool)) {
        match self.sink {
            Sink::Streamed { stdout, stderr } => {
                ((String::new(), stdout.is_reached()), (String::new(), stderr.is_reached()))
            }
            Sink::Captured { stdout, stderr } => (stdout.into_text(), stderr.into_text()),
        }
    }
}

/// How far the end of a process is.
#[derive(Debug, Clone, Copy)]
enum Drain {
    Running,
    /// It has exited. Until then its children may print.
    Draining(Instant),
    /// They were ended. Until then what they printed is read.
    Ending(Instant),
}

impl Drain {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Running => None,
            Self::Draining(until) | Self::Ending(until) => Some(until),
        }
    }
}

enum Event {
    /// `None` after the last.
    Page(Result<Option<Page>, ProcessError>),
    DeadlinePassed,
    ConnectionEnded,
}

/// A deadline that has passed comes before a page: children that print without end must not go on for ever.
async fn next_event(follower: &mut dyn LogFollower, context: &ConnectionContext, deadline: Option<Instant>) -> Event {
    let passed = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = context.closing() => Event::ConnectionEnded,
        () = passed => Event::DeadlinePassed,
        page = follower.next(DELTA_BYTES) => Event::Page(page),
    }
}

/// Resizes and terminations of a process that runs. They wait neither for its stdin nor for the client to read.
async fn carry_out_controls(
    context: Arc<ConnectionContext>,
    (family, name, reservation): (Family, String, Reservation),
    id: ProcessId,
    mut controls: mpsc::Receiver<Control>,
) {
    let processes = context.environment.processes();
    while let Some(Control { request, action }) = controls.recv().await {
        match action {
            ControlAction::Resize(size) => {
                let resized = processes.resize(&id, size).await;
                let resized = resized.map(|()| Empty {});
                let resized = resized.map_err(|error| reply::process_failed(family, &name, &error.reason));
                respond(&context, family, &request, Verb::Resize, resized).await;
            }
            ControlAction::Terminate => {
                if let Err(error) = processes.terminate(&id, Duration::ZERO).await {
                    tracing::debug!("cannot end a process: {error}");
                }
                // It is gone, and so is its name; its exit is told after this answer.
                context.processes.free_name(family, &name, reservation);
                respond(&context, family, &request, Verb::Terminate, Ok(Empty {})).await;
            }
        }
    }
}

async fn write_stdin(context: Arc<ConnectionContext>, family: Family, id: ProcessId, mut writes: StdinWrites) {
    let processes = context.environment.processes();
    for number in 0.. {
        let Some(request) = writes.carry_out_next(processes, &id, number).await else { return };
        if let Some(request) = request {
            respond(&context, family, &request, Verb::Write, Ok(Empty {})).await;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Write,
    Resize,
    Terminate,
}

/// The two families have the same verbs under other names.
async fn respond(
    context: &ConnectionContext,
    family: Family,
    request: &RequestId,
    verb: Verb,
    result: Result<Empty, RpcError>,
) {
    let outbox = &context.outbox;
    match (family, verb) {
        (Family::Exec, Verb::Write) => outbox.respond::<method::CommandExecWrite>(request, result).await,
        (Family::Exec, Verb::Resize) => outbox.respond::<method::CommandExecResize>(request, result).await,
        (Family::Exec, Verb::Terminate) => outbox.respond::<method::CommandExecTerminate>(request, result).await,
        (Family::Spawn, Verb::Write) => outbox.respond::<method::ProcessWriteStdin>(request, result).await,
        (Family::Spawn, Verb::Resize) => outbox.respond::<method::ProcessResizePty>(request, result).await,
        (Family::Spawn, Verb::Terminate) => outbox.respond::<method::ProcessKill>(request, result).await,
    }
}
