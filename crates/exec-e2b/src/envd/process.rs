//! The service `process.Process`: commands and terminals of a sandbox.
//!
//! Clients name processes by pid. Our ids are made here, and [`Sandbox::pids`] remembers which pid is whose; what it has
//! forgotten, or a server before us has started, is found in the environment's list.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use exec_core::{Command, Io, ProcessId, RunAs, Signal, TerminalSize, TimeLimit, WriteId};
use exec_env::process::{ProcessError, ProcessInfo, ProcessReason, Signalled, WaitCondition, Waited, Written};
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Call;
use super::process_stream::{ProcessStream, StreamOptions};
use crate::connect;
use crate::error::{Code, ServiceError};
use crate::limits::{LABEL_BYTES, TAG_BYTES};
use crate::request_body::{BodyPieces, RequestBody};
use crate::response::{self, HttpResponse};
use crate::sandbox::{CallUser, Sandbox};

/// How the ids of processes begin that clients have started; the server's own have others.
const ID_PREFIX: &str = "e2b-";

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StartRequest {
    process: Option<ProcessConfig>,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ProcessConfig {
    cmd: String,
    args: Vec<String>,
    envs: HashMap<String, String>,
    cwd: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pty {
    size: Option<Size>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Size {
    cols: u32,
    rows: u32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

impl Selector {
    fn means(&self, info: &ProcessInfo) -> bool {
        match (self.pid, &self.tag) {
            (Some(pid), _) => info.pid == pid,
            (None, Some(tag)) => Label::of(info).tag.as_ref() == Some(tag),
            (None, None) => false,
        }
    }

    fn not_found(&self) -> ServiceError {
        match (self.pid, &self.tag) {
            (Some(pid), _) => {
                ServiceError::new(Code::NotFound, format!("process with pid {pid} not found in this sandbox"))
            }
            (None, Some(tag)) => {
                ServiceError::new(Code::NotFound, format!("process with tag {tag:?} not found in this sandbox"))
            }
            (None, None) => ServiceError::invalid("the process is named by neither pid nor tag"),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ProcessRequest {
    process: Selector,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct UpdateRequest {
    process: Selector,
    pty: Option<Pty>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SendSignalRequest {
    process: Selector,
    signal: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SendInputRequest {
    process: Selector,
    input: Input,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

/// A message of `StreamInput`; none of the three is a message that a later SDK may have.
#[derive(Deserialize, Default)]
#[serde(default)]
struct StreamInputRequest {
    start: Option<ProcessRequest>,
    data: Option<DataEvent>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DataEvent {
    input: Input,
}

/// What is kept with a process, so that it is listed as it was started.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Label {
    tag: Option<String>,
    envs: HashMap<String, String>,
    has_cwd: bool,
}

impl Label {
    fn of(info: &ProcessInfo) -> Self {
        serde_json::from_slice(&info.label).unwrap_or_default()
    }
}

pub(super) async fn start(call: Call, body: RequestBody) -> Result<HttpResponse, ServiceError> {
    let request: StartRequest = call.messages(BodyPieces::new(body)).only().await?;
    let deadline = connect::deadline(&call.headers)?;
    let command = command_of(&call, request, deadline).await?;
    let id = ProcessId::new(format!("{ID_PREFIX}{}", uuid::Uuid::new_v4().simple())).expect("far below the limit");
    let tty = matches!(command.io, Io::Pty(_));
    let sandbox = &call.sandbox;
    let started = sandbox.processes().start(&id, command).await?;
    sandbox.remember_pid(started.pid, &id);
    call.server.keep_session(sandbox)?;
    let options = StreamOptions {
        pid: started.pid,
        tty,
        keepalive: connect::keepalive(&call.headers),
        // The time limit of the process is its own; the stream only tells of it.
        deadline: None,
        tells_timeout: true,
    };
    Ok(ProcessStream::open(sandbox, &id, options).await?.into_response())
}

async fn command_of(call: &Call, request: StartRequest, deadline: Option<Duration>) -> Result<Command, ServiceError> {
    let sandbox = &call.sandbox;
    let config = request.process.unwrap_or_default();
    if config.cmd.is_empty() {
        return Err(ServiceError::invalid("process.cmd is empty: name the program to run"));
    }
    if request.tag.as_ref().is_some_and(|tag| tag.len() > TAG_BYTES) {
        return Err(ServiceError::invalid(format!("the tag is longer than {TAG_BYTES} bytes")));
    }
    let user = sandbox.user(call.user.as_deref()).await?;
    let cwd = sandbox.resolve(config.cwd.as_deref().unwrap_or_default(), &user).await?;
    let label = label_of(request.tag, &config.envs, config.cwd.is_some());
    let argv = std::iter::once(config.cmd).chain(config.args);
    let mut command = Command::new(argv, cwd);
    command.environ = sandbox.environ(&user, config.envs);
    command.io = match request.pty {
        Some(pty) => Io::Pty(terminal_size(pty)?),
        // SDKs of before 2024 say nothing, and write.
        None => Io::Pipes { stdin: request.stdin.unwrap_or(true) },
    };
    command.time_limit = deadline.map(|after| TimeLimit { after, grace: Duration::ZERO });
    command.run_as = match user {
        CallUser::Own => None,
        CallUser::Other(user) => Some(RunAs { user: user.name }),
    };
    command.sandbox = sandbox.policy();
    command.label = label;
    Ok(command)
}

fn label_of(tag: Option<String>, envs: &HashMap<String, String>, has_cwd: bool) -> Vec<u8> {
    let encode = |envs| serde_json::to_vec(&Label { tag: tag.clone(), envs, has_cwd }).unwrap_or_default();
    let whole = encode(envs.clone());
    if whole.len() <= LABEL_BYTES { whole } else { encode(HashMap::new()) }
}

fn terminal_size(pty: Pty) -> Result<TerminalSize, ServiceError> {
    let Some(size) = pty.size else { return Ok(TerminalSize::default()) };
    match (u16::try_from(size.rows), u16::try_from(size.cols)) {
        (Ok(rows), Ok(cols)) if rows > 0 && cols > 0 => Ok(TerminalSize { rows, cols }),
        _ => {
            let (rows, cols) = (size.rows, size.cols);
            Err(ServiceError::invalid(format!("a terminal has 1 to 65535 rows and columns, not {rows} and {cols}")))
        }
    }
}

/// Everything that was printed so far, then what is printed from now on, then the end.
pub(super) async fn connect(call: Call, body: RequestBody) -> Result<HttpResponse, ServiceError> {
    let request: ProcessRequest = call.messages(BodyPieces::new(body)).only().await?;
    let info = find_listed(&call.sandbox, &request.process).await?;
    let options = StreamOptions {
        pid: info.pid,
        tty: info.tty,
        keepalive: connect::keepalive(&call.headers),
        deadline: connect::deadline(&call.headers)?,
        tells_timeout: false,
    };
    Ok(ProcessStream::open(&call.sandbox, &info.id, options).await?.into_response())
}

pub(super) async fn list(call: &Call) -> Result<Value, ServiceError> {
    let listed = call.sandbox.processes().list().await?;
    let running = listed.iter().filter(|info| is_clients(info) && info.head.exit.is_none());
    Ok(json!({ "processes": running.map(listed_process).collect::<Vec<_>>() }))
}

fn listed_process(info: &ProcessInfo) -> Value {
    let label = Label::of(info);
    let words: Vec<String> = info.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (cmd, args) = words.split_first().map(|(cmd, args)| (cmd.as_str(), args)).unwrap_or_default();
    let mut config = json!({ "cmd": cmd, "args": args, "envs": label.envs });
    if label.has_cwd {
        config["cwd"] = json!(info.cwd.to_string_lossy());
    }
    let mut listed = json!({ "config": config, "pid": info.pid });
    if let Some(tag) = label.tag {
        listed["tag"] = json!(tag);
    }
    listed
}

pub(super) async fn send_input(call: &Call, request: SendInputRequest) -> Result<Value, ServiceError> {
    let id = find(&call.sandbox, &request.process).await?;
    write(&call.sandbox, &id, request.input).await?;
    Ok(json!({}))
}

/// Messages of one body, the first of which names the process. They are written in their order, and answered when all are.
pub(super) async fn stream_input(call: Call, body: RequestBody) -> Result<HttpResponse, ServiceError> {
    let deadline = connect::deadline(&call.headers)?;
    let sandbox = &call.sandbox;
    let written = async {
        let mut messages = call.messages(BodyPieces::patient(body));
        let mut process: Option<ProcessId> = None;
        while let Some(message) = messages.next().await? {
            let message: StreamInputRequest = connect::decode(&message)?;
            match (message.start, message.data, &process) {
                (Some(start), _, None) => process = Some(find(sandbox, &start.process).await?),
                (Some(_), _, Some(_)) => return Err(ServiceError::invalid("the process is named twice")),
                (None, Some(data), Some(id)) => write(sandbox, id, data.input).await?,
                (None, Some(_), None) => return Err(ServiceError::invalid("input comes before the process is named")),
                // A keepalive.
                (None, None, _) => {}
            }
        }
        Ok(())
    };
    let ended = sandbox.ended.cancelled();
    let late = async {
        match deadline {
            Some(deadline) => tokio::time::sleep(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        written = written => written?,
        () = late => {
            return Err(ServiceError::new(Code::DeadlineExceeded, "the input did not end in the time that it was given"));
        }
        () = ended => return Err(ServiceError::sandbox_gone(&sandbox.id())),
    }
    let mut body = Vec::new();
    connect::put_message(&mut body, b"{}");
    connect::put_end(&mut body, None);
    Ok(response::whole(StatusCode::OK, connect::STREAM_TYPE, body))
}

async fn write(sandbox: &Sandbox, id: &ProcessId, input: Input) -> Result<(), ServiceError> {
    let encoded = match (input.stdin, input.pty) {
        (Some(encoded), None) | (None, Some(encoded)) => encoded,
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => return Err(ServiceError::invalid("input is for stdin or for a terminal, not for both")),
    };
    let bytes = base64_simd::forgiving_decode_to_vec(encoded.as_bytes())
        .map_err(|_| ServiceError::invalid("the input is not base64"))?;
    if bytes.is_empty() {
        return Ok(());
    }
    let write_id = WriteId::new(uuid::Uuid::new_v4().simple().to_string()).expect("neither empty nor long");
    let processes = sandbox.processes();
    match processes.write(id, write_id, Bytes::from(bytes)).await.map_err(|error| forget_pid(sandbox, error))? {
        Written::Accepted => Ok(()),
        Written::InDoubt => Err(ServiceError::new(Code::DataLoss, "it is not known how much of the input was written")),
        Written::StdinClosed => match processes.wait(id, WaitCondition::Exited, Some(Duration::ZERO)).await {
            Ok(Waited::Exited(_)) => Err(ServiceError::new(Code::NotFound, "the process has ended")),
            _ => Err(ServiceError::new(
                Code::FailedPrecondition,
                "stdin is closed: start the command with stdin=True, and write before you close it",
            )),
        },
    }
}

pub(super) async fn close_stdin(call: &Call, request: ProcessRequest) -> Result<Value, ServiceError> {
    let info = find_listed(&call.sandbox, &request.process).await?;
    if info.tty {
        let message = "a terminal has no stdin that could be closed: send it Ctrl-D";
        return Err(ServiceError::new(Code::FailedPrecondition, message));
    }
    call.sandbox.processes().close_stdin(&info.id).await?;
    Ok(json!({}))
}

/// SIGKILL ends the whole tree, and is answered when it is gone.
pub(super) async fn send_signal(call: &Call, request: SendSignalRequest) -> Result<Value, ServiceError> {
    let id = find(&call.sandbox, &request.process).await?;
    let processes = call.sandbox.processes();
    let forget = |error| forget_pid(&call.sandbox, error);
    let was_there = match &request.signal {
        Value::String(name) if name == "SIGNAL_SIGKILL" => kill(processes, &id).await.map_err(forget)?,
        Value::Number(number) if number.as_i64() == Some(9) => kill(processes, &id).await.map_err(forget)?,
        Value::String(name) if name == "SIGNAL_SIGTERM" => term(processes, &id).await.map_err(forget)?,
        Value::Number(number) if number.as_i64() == Some(15) => term(processes, &id).await.map_err(forget)?,
        other => {
            return Err(ServiceError::invalid(format!("SIGNAL_SIGTERM and SIGNAL_SIGKILL can be sent, not {other}")));
        }
    };
    match was_there {
        true => Ok(json!({})),
        false => Err(ServiceError::new(Code::NotFound, "the process has ended")),
    }
}

async fn kill(processes: &dyn exec_env::Processes, id: &ProcessId) -> Result<bool, ProcessError> {
    let terminated = processes.terminate(id, Duration::ZERO).await?;
    Ok(terminated.was_running || terminated.ended > 0)
}

async fn term(processes: &dyn exec_env::Processes, id: &ProcessId) -> Result<bool, ProcessError> {
    Ok(processes.signal(id, Signal::Terminate).await? == Signalled::Sent)
}

pub(super) async fn update(call: &Call, request: UpdateRequest) -> Result<Value, ServiceError> {
    let id = find(&call.sandbox, &request.process).await?;
    if let Some(pty) = request.pty {
        let size = terminal_size(pty)?;
        call.sandbox.processes().resize(&id, size).await.map_err(|error| forget_pid(&call.sandbox, error))?;
    }
    Ok(json!({}))
}

/// The id of the process that a client means.
async fn find(sandbox: &Sandbox, selector: &Selector) -> Result<ProcessId, ServiceError> {
    if let Some(id) = selector.pid.and_then(|pid| sandbox.pid(pid)) {
        return Ok(id);
    }
    Ok(find_listed(sandbox, selector).await?.id)
}

/// The same with what is known of it. A pid or a tag may have been used again: the one that runs is meant, else the last.
async fn find_listed(sandbox: &Sandbox, selector: &Selector) -> Result<ProcessInfo, ServiceError> {
    let listed = sandbox.processes().list().await?;
    let found = listed.into_iter().filter(|info| is_clients(info) && selector.means(info));
    let found = found.max_by_key(|info| (info.head.exit.is_none(), info.started));
    let found = found.ok_or_else(|| selector.not_found())?;
    sandbox.remember_pid(found.pid, &found.id);
    Ok(found)
}

fn is_clients(info: &ProcessInfo) -> bool {
    info.id.as_str().starts_with(ID_PREFIX)
}

/// A process that the environment no longer knows is not looked for by this id again.
fn forget_pid(sandbox: &Sandbox, error: ProcessError) -> ServiceError {
    if error.reason == ProcessReason::UnknownProcess {
        sandbox.forget_process(&error.id);
    }
    error.into()
}
