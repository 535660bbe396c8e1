//! Environments: opening them, what their methods are, closing them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exec_server::client::{self, BootstrapOptions, ConnectOptions, Options, Program, RemoteEnvironment, Target};
use exec_server::local::LocalEnvironment;
use exec_server::process::ProcessInfo;
use exec_server::spawn::Command;
use exec_server::{ProcessId, RunAs, SharedEnvironment, TerminalSize};

use crate::object::What;
use crate::process::{self, Process};
use crate::{Arguments, Call, Failure, FailureKind, Object, Value, files, http};

/// A machine, until it is closed.
pub(crate) struct Environment(Mutex<Option<Opened>>);

#[derive(Clone)]
enum Opened {
    Local(Arc<LocalEnvironment>),
    Remote(Arc<RemoteEnvironment>),
}

/// Opens an environment: `local`, this machine, inside this program; or `connect`, the one behind `url`, or behind the
/// `program` that speaks on its stdio.
///
/// Where exec-server has to be brought first (`ssh://`, `docker://`, `podman://`, `kubectl://`), the binary that is sent is
/// `server_binary`, which people pass, else that of the variable `EXEC_SERVER_BINARY`, else `packaged_binary`, which the package of
/// the language passes, else the `exec-server` of the PATH. The program itself is an interpreter and must not be sent.
pub fn open(way: &str, arguments: Arguments) -> Call {
    let begun = match way {
        "local" => arguments.finish().map(|()| Call::begin(open_local())),
        "connect" => connect(arguments),
        _ => Err(Failure::bad_argument("way", "an environment is opened by `local` or by `connect`")),
    };
    begun.unwrap_or_else(Call::failed)
}

async fn open_local() -> Result<Value, Failure> {
    let opened = exec_server::open_local().await;
    let opened = opened.map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
    Ok(object(Opened::Local(Arc::new(opened))))
}

fn connect(mut arguments: Arguments) -> Result<Call, Failure> {
    let url = arguments.optional_text("url")?;
    let mut program = arguments.words("program")?;
    if url.is_none() && program.is_empty() {
        return Err(Failure::bad_argument("url", "it is missing"));
    }
    let transport = ConnectOptions { bearer_token: arguments.optional_text("token")?, ..ConnectOptions::default() };
    let bootstrap = BootstrapOptions {
        binary: arguments.optional_path("server_binary")?,
        packaged_binary: arguments.optional_path("packaged_binary")?,
        ..BootstrapOptions::default()
    };
    let mut options = Options {
        resume_session: arguments.optional_text("session")?,
        environment: arguments.optional_text("environment")?,
        give_up: arguments.duration("reconnect_timeout")?,
        detached_ttl: arguments.duration("detached_ttl")?,
        ..Options::default()
    };
    if let Some(name) = arguments.optional_text("client_name")? {
        options.client_name = name;
    }
    arguments.finish()?;
    Ok(Call::begin(async move {
        let remote = match url {
            Some(url) => client::connect_url_with(&url, transport, bootstrap, options).await?,
            None => {
                let args = program.split_off(1);
                let program = Program { program: program.remove(0), args, ..Program::default() };
                client::connect(Target::Program(program), transport, options).await?
            }
        };
        Ok(object(Opened::Remote(Arc::new(remote))))
    }))
}

fn object(opened: Opened) -> Value {
    let environment = Arc::new(Environment(Mutex::new(Some(opened))));
    Object::new(What::Environment(environment)).into()
}

impl Environment {
    pub(crate) fn call(self: &Arc<Self>, method: &str, mut arguments: Arguments) -> Result<Call, Failure> {
        match method {
            "close" => {
                let end = arguments.flag("end", false)?;
                arguments.finish()?;
                return Ok(self.close(end));
            }
            "info" => {
                arguments.finish()?;
                return Ok(Call::begin(std::future::ready(self.info())));
            }
            _ => {}
        }
        let machine = self.shared()?;
        match method {
            "spawn" | "run" => {
                let input = if method == "run" { arguments.optional_bytes("input")? } else { None };
                let mut command = command(&mut arguments)?;
                arguments.finish()?;
                if input.is_some() {
                    command = command.piped_stdin();
                }
                let (id, request) = command.into_request(machine.info());
                Ok(match method {
                    "run" => Call::begin_with(|cancel| process::run(machine, id, request, input, cancel)),
                    _ => {
                        let environment = Arc::clone(self);
                        Call::begin_with(|cancel| process::spawn(environment, machine, id, request, cancel))
                    }
                })
            }
            "attach" => {
                let id = process_id(arguments.text("id")?)?;
                arguments.finish()?;
                let environment = Arc::clone(self);
                Ok(Call::begin(Process::find(environment, machine, id)))
            }
            "processes" => {
                arguments.finish()?;
                Ok(Call::begin(
                    async move { Ok(Value::list(machine.processes().list().await?.into_iter().map(shown))) },
                ))
            }
            "http" => http::request(machine, arguments),
            method => match method.strip_prefix("files.") {
                Some(verb) => files::call(verb, machine, arguments),
                None => Err(Failure::bad_argument("method", &format!("an environment has no `{method}`"))),
            },
        }
    }

    /// The environment, as long as it is open.
    pub(crate) fn shared(&self) -> Result<SharedEnvironment, Failure> {
        match self.lock().clone() {
            Some(Opened::Local(local)) => Ok(local),
            Some(Opened::Remote(remote)) => Ok(remote),
            None => Err(Failure::closed()),
        }
    }

    /// Ends what runs on this machine; leaves the session on another one, unless `end`. Closing twice is fine.
    fn close(&self, end: bool) -> Call {
        let opened = self.lock().take();
        Call::begin_with(|_finished_in_any_case| async move {
            match opened {
                Some(Opened::Local(local)) => local.end().await,
                Some(Opened::Remote(remote)) if end => {
                    let ended = remote.end_session().await;
                    ended.map_err(|error| Failure::new(FailureKind::ConnectionLost, error.to_string()))?;
                }
                Some(Opened::Remote(_)) | None => {}
            }
            Ok(Value::Null)
        })
    }

    fn info(&self) -> Result<Value, Failure> {
        let machine = self.shared()?;
        let session = match &*self.lock() {
            Some(Opened::Remote(remote)) => remote.session_id(),
            _ => None,
        };
        let info = machine.info().clone();
        Ok(Value::map([
            ("os", info.os.into()),
            ("hostname", info.hostname.into()),
            ("version", info.version.into()),
            ("cwd", info.cwd.into()),
            ("home", info.home.into()),
            ("temp_dir", info.temp_dir.into()),
            ("shell", info.shell.path.into()),
            ("session_id", session.into()),
        ]))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command that the arguments of `spawn` and `run` describe: `argv`, or a line for the `shell`.
fn command(arguments: &mut Arguments) -> Result<Command, Failure> {
    let argv = arguments.words("argv")?;
    let line = arguments.optional_text("shell")?;
    let mut command = match (argv.split_first(), line) {
        (Some((program, rest)), None) => Command::new(program).args(rest),
        (None, Some(line)) => Command::new("/bin/sh").arg("-c").arg(line),
        (None, None) => return Err(Failure::bad_argument("argv", "name the program to run")),
        (Some(_), Some(_)) => return Err(Failure::bad_argument("shell", "give either a line for it or words to run")),
    };
    if let Some(cwd) = arguments.optional_path("cwd")? {
        command = command.current_dir(cwd);
    }
    if arguments.flag("clear_env", false)? {
        command = command.env_clear();
    }
    for (name, value) in arguments.pairs("env")? {
        command = match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if arguments.flag("stdin", false)? {
        command = command.piped_stdin();
    }
    if arguments.flag("tty", false)? {
        let usual = TerminalSize::default();
        let rows = arguments.optional_number("rows")?.unwrap_or(usual.rows);
        let cols = arguments.optional_number("cols")?.unwrap_or(usual.cols);
        command = command.terminal(TerminalSize { rows, cols });
    }
    let grace = arguments.duration("grace")?.unwrap_or(Duration::ZERO);
    if let Some(after) = arguments.duration("timeout")? {
        command = command.time_limit(after, grace);
    }
    if let Some(id) = arguments.optional_text("id")? {
        command = command.id(process_id(id)?);
    }
    if let Some(user) = arguments.optional_text("user")? {
        command = command.configure(|request| request.run_as = Some(RunAs { user }));
    }
    Ok(command)
}

fn process_id(id: String) -> Result<ProcessId, Failure> {
    ProcessId::new(id).map_err(|error| Failure::bad_argument("id", &error.to_string()))
}

fn shown(info: ProcessInfo) -> Value {
    Value::map([
        ("id", info.id.as_str().into()),
        ("pid", info.pid.into()),
        ("argv", Value::list(info.argv)),
        ("cwd", PathBuf::into(info.cwd)),
        ("tty", info.tty.into()),
        ("started", info.started.into()),
        ("exit", info.head.exit.map(|(_, exit)| process::shown_exit(&exit)).into()),
        ("closed", info.head.closed.into()),
    ])
}
