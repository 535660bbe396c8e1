//! Processes: starting them, running them to their end, and the methods of one that was started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exec_server::process::{LogFollower, ProcessReason, Signalled, WaitCondition, Waited, Written};
use exec_server::screen::{Screen, ScreenQuery};
use exec_server::spawn::EnvironmentExt as _;
use exec_server::{
    Bytes, Command, EntryBody, Exit, ExitCause, ExitStatus, ProcessId, SharedEnvironment, Signal, Stream, TerminalSize,
    WriteId,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use uuid::Uuid;

use crate::call::{Call, Outcome, Work};
use crate::environment::Environment;
use crate::limits::{PAGE_BYTES, STDIN_BLOCK_BYTES};
use crate::object::What;
use crate::output::Output;
use crate::pages::Pages;
use crate::{Arguments, Failure, FailureKind, Object, Value};

/// A process that was started.
pub(crate) struct Process {
    /// Not the machine itself, which must end when the environment is closed.
    environment: Arc<Environment>,
    id: ProcessId,
    write_ids: WriteIds,
    /// `None` for one that was spawned or found: when that ends is decided by whoever has it.
    end: Option<ProcessCleanUp>,
}

/// Starts a process and returns its pid. If that is cancelled, no process is left.
pub(crate) async fn start(
    machine: &SharedEnvironment,
    id: &ProcessId,
    request: Command,
    cancel: &CancellationToken,
) -> Result<u32, Failure> {
    // A start that is under way cannot be taken back, so it is waited for.
    let started = machine.processes().start(id, request).await?;
    if cancel.is_cancelled() {
        machine.processes().forget(id).await?;
        return Err(Failure::cancelled());
    }
    Ok(started.pid)
}

/// The end of a process that belongs to a `run`. It comes once, and in any case: when it is asked for, when nobody holds this
/// any more, or when the environment is closed, which waits for it.
pub(crate) struct ProcessCleanUp(Call);

impl ProcessCleanUp {
    /// `environment`: cancelled when that is closed.
    pub(crate) fn when_asked(
        environment: &CancellationToken,
        machine: SharedEnvironment,
        id: ProcessId,
        token: TaskTrackerToken,
    ) -> Self {
        let work = Work::with_cancel(|asked| async move {
            let _token = token;
            asked.cancelled().await;
            forget_if_known(&machine, &id).await
        });
        Self(Call::begin(work, environment))
    }

    async fn carry_out(&self) -> Outcome {
        self.0.cancel();
        // Whoever has asked before was told of a failure.
        self.0.outcome().await.unwrap_or(Ok(Value::Null))
    }
}

impl Drop for ProcessCleanUp {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Ends a process. Nothing is to be done if it is gone.
async fn forget_if_known(machine: &SharedEnvironment, id: &ProcessId) -> Outcome {
    match machine.processes().forget(id).await {
        Err(error) if error.reason != ProcessReason::UnknownProcess => Err(error.into()),
        Ok(()) | Err(_) => Ok(Value::Null),
    }
}

/// Runs a process to its end and forgets it. If that is cancelled, its tree is ended.
pub(crate) async fn run(
    machine: SharedEnvironment,
    id: ProcessId,
    request: Command,
    input: Option<Bytes>,
    cancel: CancellationToken,
) -> Result<Value, Failure> {
    let processes = machine.processes();
    processes.start(&id, request).await?;
    let collected = tokio::select! {
        collected = feed_and_collect(&machine, &id, input) => collected,
        () = cancel.cancelled() => {
            processes.forget(&id).await?;
            return Err(Failure::cancelled());
        }
    };
    let forgotten = processes.forget(&id).await;
    let result = result_in_time(&id, collected?)?;
    forgotten?;
    Ok(result)
}

/// What it printed, or an error that has it if the process was ended by its time limit.
fn result_in_time(id: &ProcessId, collected: Collected) -> Result<Value, Failure> {
    let timed_out = collected.exit.cause == ExitCause::TimedOut;
    let shown = shown_result(id, collected);
    if timed_out {
        let message = format!("process {id} was ended because its time was over");
        return Err(Failure { partial: shown, ..Failure::new(FailureKind::TimedOut, message) });
    }
    Ok(shown)
}

struct Collected {
    exit: Exit,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    lost_bytes: u64,
}

async fn feed_and_collect(
    machine: &SharedEnvironment,
    id: &ProcessId,
    input: Option<Bytes>,
) -> Result<Collected, Failure> {
    let follower = machine.processes().follow(id, 0).await?;
    match input {
        None => collect(follower).await,
        Some(input) => {
            // Both at once: a child that prints before it has read all must not wait for us. One that waits for input that cannot
            // be written would never end, so such a failure is not held back until it does.
            let write_ids = WriteIds::new();
            let fed = feed(machine, id, &write_ids, input);
            tokio::try_join!(collect(follower), fed).map(|(collected, ())| collected)
        }
    }
}

/// Writes all of it and closes stdin.
async fn feed(machine: &SharedEnvironment, id: &ProcessId, write_ids: &WriteIds, input: Bytes) -> Result<(), Failure> {
    match write(machine, id, write_ids, input).await? {
        StdinState::Open => Ok(machine.processes().close_stdin(id).await.map(drop)?),
        // A child that has read enough is none of our business, as with a shell's pipe.
        StdinState::Closed => Ok(()),
    }
}

/// Whether somebody may still read what is written.
#[derive(PartialEq, Eq)]
enum StdinState {
    Open,
    Closed,
}

async fn write(
    machine: &SharedEnvironment,
    id: &ProcessId,
    write_ids: &WriteIds,
    mut bytes: Bytes,
) -> Result<StdinState, Failure> {
    while !bytes.is_empty() {
        let block = bytes.split_to(bytes.len().min(STDIN_BLOCK_BYTES));
        match machine.processes().write(id, write_ids.next(), block).await? {
            Written::Accepted => {}
            Written::StdinClosed => return Ok(StdinState::Closed),
            Written::InDoubt => {
                let why = format!("the server was killed while it wrote to process {id}: some of it may be missing");
                return Err(Failure::new(FailureKind::ConnectionLost, why));
            }
        }
    }
    Ok(StdinState::Open)
}

/// Names for writes that nobody else's have, so that each of ours happens once.
struct WriteIds {
    prefix: Uuid,
    count: AtomicU64,
}

impl WriteIds {
    fn new() -> Self {
        Self { prefix: Uuid::new_v4(), count: AtomicU64::new(0) }
    }

    fn next(&self) -> WriteId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        WriteId::new(format!("{}-{count}", self.prefix.simple()))
            .expect("two numbers are within the bound of a write id")
    }
}

async fn collect(mut follower: Box<dyn LogFollower>) -> Result<Collected, Failure> {
    let mut collected = Collected { exit: Exit::LOST, stdout: Vec::new(), stderr: Vec::new(), lost_bytes: 0 };
    while let Some(page) = follower.next(PAGE_BYTES).await? {
        if let Some(gap) = page.gap {
            collected.lost_bytes = gap.dropped_bytes;
        }
        for entry in page.entries {
            match entry.body {
                EntryBody::Output { stream: Stream::Stderr, bytes } => collected.stderr.extend_from_slice(&bytes),
                EntryBody::Output { bytes, .. } => collected.stdout.extend_from_slice(&bytes),
                EntryBody::Exited(exit) => collected.exit = exit,
                EntryBody::Closed => {}
            }
        }
    }
    Ok(collected)
}

impl Process {
    /// A process that was started before.
    pub(crate) async fn find(
        environment: Arc<Environment>,
        machine: SharedEnvironment,
        id: ProcessId,
    ) -> Result<Value, Failure> {
        let pid = machine.attach(id.clone()).await?.pid();
        Ok(Self::object(environment, id, pid, None))
    }

    pub(crate) fn new(environment: Arc<Environment>, id: ProcessId, end: Option<ProcessCleanUp>) -> Arc<Self> {
        Arc::new(Self { environment, id, write_ids: WriteIds::new(), end })
    }

    pub(crate) fn object(environment: Arc<Environment>, id: ProcessId, pid: u32, end: Option<ProcessCleanUp>) -> Value {
        let shown_id = id.as_str().into();
        let object = Object::new(What::Process(Self::new(environment, id, end)));
        Value::map([("id", shown_id), ("pid", pid.into()), ("process", object.into())])
    }

    /// Cancelled when its environment is closed.
    pub(crate) fn scope(&self) -> &CancellationToken {
        self.environment.scope()
    }

    pub(crate) fn call(self: &Arc<Self>, method: &str, mut arguments: Arguments) -> Result<Work, Failure> {
        if method == "end" {
            arguments.finish()?;
            return Ok(self.end());
        }
        let machine = self.environment.shared()?;
        let id = self.id.clone();
        Ok(match method {
            "output" => {
                let after = arguments.optional_number("after")?.unwrap_or(0);
                arguments.finish()?;
                let environment = Arc::clone(&self.environment);
                Work::new(async move { Ok(Pages::object("log", Output::open(machine, id, after).await?, environment)) })
            }
            "wait" => {
                let until = wait_condition(&mut arguments)?;
                let deadline = arguments.duration("timeout")?;
                arguments.finish()?;
                Work::new(async move { wait(machine, id, until, deadline).await })
            }
            "result" => {
                let deadline = arguments.duration("timeout")?;
                // Of a `run`, its time limit is an error.
                let is_run = arguments.flag("run", false)?;
                arguments.finish()?;
                Work::new(async move {
                    // Followed from now on, so that a full log keeps what is not collected yet.
                    let collected = collect(machine.processes().follow(&id, 0).await?);
                    let collected = match deadline {
                        None => collected.await,
                        Some(deadline) => tokio::time::timeout(deadline, collected).await.map_err(|_| too_late(&id))?,
                    };
                    let collected = collected?;
                    if is_run { result_in_time(&id, collected) } else { Ok(shown_result(&id, collected)) }
                })
            }
            "feed" => {
                let input = arguments.bytes("data")?;
                arguments.finish()?;
                Work::new(async move {
                    let fed = feed(&machine, &id, &WriteIds::new(), input).await;
                    if fed.is_err() {
                        // It would wait for the rest for ever, and whoever reads its output with it. Where this is not heard
                        // either, they are told why.
                        let _ = machine.processes().terminate(&id, Duration::ZERO).await;
                    }
                    fed.map(|()| Value::Null)
                })
            }
            "write" => {
                let bytes = arguments.bytes("data")?;
                arguments.finish()?;
                let process = Arc::clone(self);
                // Not dropped by a cancel: what was begun is finished, so that the next write comes after it.
                Work::with_cancel(|_finished_in_any_case| async move {
                    tokio::select! {
                        written = process.write(machine, bytes) => written,
                        () = process.scope().cancelled() => Err(Failure::cancelled()),
                    }
                })
            }
            "close_stdin" => {
                arguments.finish()?;
                Work::new(async move { Ok(machine.processes().close_stdin(&id).await.map(drop)?.into()) })
            }
            "terminate" => {
                let grace = arguments.duration("grace")?.unwrap_or(Duration::ZERO);
                arguments.finish()?;
                Work::new(async move {
                    let done = machine.processes().terminate(&id, grace).await?;
                    Ok(Value::map([
                        ("was_running", done.was_running.into()),
                        ("ended", done.ended.into()),
                        ("left", done.left.into()),
                    ]))
                })
            }
            "signal" => {
                let number = arguments.number("number")?;
                arguments.finish()?;
                let signal = Signal::from_number(number);
                let signal = signal.ok_or_else(|| {
                    let known: Vec<_> = Signal::ALL.iter().map(|signal| signal.number().to_string()).collect();
                    Failure::bad_argument(
                        "number",
                        &format!("signal {number} cannot be sent: only {}", known.join(", ")),
                    )
                })?;
                Work::new(async move { Ok((machine.processes().signal(&id, signal).await? == Signalled::Sent).into()) })
            }
            "resize" => {
                let size = TerminalSize { rows: arguments.number("rows")?, cols: arguments.number("cols")? };
                arguments.finish()?;
                Work::new(async move { Ok(machine.processes().resize(&id, size).await?.into()) })
            }
            "screen" => {
                arguments.finish()?;
                Work::new(
                    async move { Ok(shown_screen(machine.processes().screen(&id, ScreenQuery::default()).await?)) },
                )
            }
            "forget" => {
                arguments.finish()?;
                Work::new(async move { Ok(machine.processes().forget(&id).await?.into()) })
            }
            method => return Err(Failure::bad_argument("method", &format!("a process has no `{method}`"))),
        })
    }

    /// Whoever has closed the environment has decided what becomes of its processes: then there is nothing to be done.
    fn end(self: &Arc<Self>) -> Work {
        let machine = self.environment.shared_for_clean_up();
        let process = Arc::clone(self);
        Work::with_cancel(|_finished_in_any_case| async move {
            let Ok((machine, _token)) = machine else { return Ok(Value::Null) };
            let ended = match &process.end {
                Some(end) => end.carry_out().await,
                None => forget_if_known(&machine, &process.id).await,
            };
            if process.scope().is_cancelled() { Ok(Value::Null) } else { ended }
        })
    }

    async fn write(&self, machine: SharedEnvironment, bytes: Bytes) -> Result<Value, Failure> {
        match write(&machine, &self.id, &self.write_ids, bytes).await? {
            StdinState::Open => Ok(Value::Null),
            StdinState::Closed => Err(Failure::broken_pipe(self.id.as_str())),
        }
    }
}

fn wait_condition(arguments: &mut Arguments) -> Result<WaitCondition, Failure> {
    Ok(match arguments.optional_text("until")?.as_deref() {
        None | Some("exited") => WaitCondition::Exited,
        Some("closed") => WaitCondition::Closed,
        Some("output") => {
            let after = arguments.optional_number("after")?.unwrap_or(0);
            WaitCondition::Output { regex: arguments.text("regex")?, after }
        }
        Some("silence") => {
            let silence = arguments.duration("silence")?;
            WaitCondition::Silence(silence.ok_or_else(|| Failure::bad_argument("silence", "it is missing"))?)
        }
        Some("port") => WaitCondition::Port(arguments.optional_number("port")?),
        Some(other) => return Err(Failure::bad_argument("until", &format!("`{other}` cannot be waited for"))),
    })
}

async fn wait(
    machine: SharedEnvironment,
    id: ProcessId,
    until: WaitCondition,
    deadline: Option<Duration>,
) -> Result<Value, Failure> {
    Ok(match machine.processes().wait(&id, until, deadline).await? {
        Waited::Exited(exit) | Waited::Closed(exit) | Waited::TreeEnded(exit) => shown_exit(&exit),
        Waited::Matched { seq, text } => Value::map([("seq", seq.into()), ("text", text.into())]),
        Waited::Silent => Value::Null,
        Waited::Listening { port } => port.into(),
        Waited::DeadlinePassed => return Err(too_late(&id)),
    })
}

fn too_late(id: &ProcessId) -> Failure {
    let message = format!("what was waited for of process {id} did not come in time; the process was not touched");
    Failure::new(FailureKind::TimedOut, message)
}

fn shown_result(id: &ProcessId, collected: Collected) -> Value {
    Value::map([
        ("id", id.as_str().into()),
        ("exit", shown_exit(&collected.exit)),
        ("stdout", collected.stdout.into()),
        ("stderr", collected.stderr.into()),
        ("lost_bytes", collected.lost_bytes.into()),
    ])
}

/// `code` is what a shell would show.
pub(crate) fn shown_exit(exit: &Exit) -> Value {
    let signal = match exit.status {
        ExitStatus::Signal { number, .. } => Some(number),
        ExitStatus::Code(_) | ExitStatus::Lost => None,
    };
    let cause = match exit.cause {
        ExitCause::Own => "own",
        ExitCause::TimedOut => "timed_out",
        ExitCause::Terminated => "terminated",
        ExitCause::OutOfMemory => "out_of_memory",
        ExitCause::CpuLimit => "cpu_limit",
        ExitCause::FileSizeLimit => "file_size_limit",
    };
    Value::map([
        ("code", exit.shell_code().into()),
        ("signal", signal.into()),
        ("cause", cause.into()),
        ("user_seconds", exit.usage.user.into()),
        ("system_seconds", exit.usage.system.into()),
        ("max_rss_bytes", exit.usage.max_rss_bytes.into()),
    ])
}

fn shown_screen(screen: Screen) -> Value {
    Value::map([
        ("lines", Value::list(screen.rows.into_iter().map(|row| row.text))),
        ("rows", screen.size.rows.into()),
        ("cols", screen.size.cols.into()),
        ("cursor_row", screen.cursor.row.into()),
        ("cursor_col", screen.cursor.col.into()),
        ("cursor_visible", screen.cursor.visible.into()),
        ("title", screen.title.into()),
        ("alternate", screen.alternate.into()),
    ])
}
