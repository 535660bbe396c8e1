//! Environments: opening them, what their methods are, closing them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exec_server::client::{self, BootstrapOptions, ConnectOptions, Options, Program, RemoteEnvironment, Target};
use exec_server::local::LocalEnvironment;
use exec_server::process::ProcessInfo;
use exec_server::spawn::Command;
use exec_server::{ProcessId, RunAs, SharedEnvironment, TerminalSize};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::call::Work;
use crate::limits::CLOSE_PATIENCE;
use crate::object::What;
use crate::process::{self, Process, ProcessCleanUp};
use crate::{Arguments, Call, Failure, FailureKind, Object, Value, files, http};

/// A machine, until it is closed.
pub(crate) struct Environment {
    /// `None` when it is closed.
    opened: Mutex<Option<Opened>>,
    /// Cancelled when it is closed: calls that are under way then end.
    closed: CancellationToken,
    /// Calls that end a process, in any case or when they are cancelled.
    clean_up: TaskTracker,
}

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
        "local" => arguments.finish().map(|()| Work::new(open_local())),
        "connect" => connect(arguments),
        _ => Err(Failure::bad_argument("way", "an environment is opened by `local` or by `connect`")),
    };
    match begun {
        Ok(work) => Call::begin(work, &CancellationToken::new()),
        Err(failure) => Call::failed(failure),
    }
}

async fn open_local() -> Result<Value, Failure> {
    let opened = exec_server::open_local().await;
    let opened = opened.map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
    Ok(object(Opened::Local(Arc::new(opened))))
}

fn connect(mut arguments: Arguments) -> Result<Work, Failure> {
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
    Ok(Work::new(async move {
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
    let environment = Environment {
        opened: Mutex::new(Some(opened)),
        closed: CancellationToken::new(),
        clean_up: TaskTracker::new(),
    };
    Object::new(What::Environment(Arc::new(environment))).into()
}

impl Environment {
    pub(crate) fn call(self: &Arc<Self>, method: &str, mut arguments: Arguments) -> Result<Work, Failure> {
        match method {
            "close" => {
                let end = arguments.flag("end", false)?;
                arguments.finish()?;
                return Ok(self.close(end));
            }
            "info" => {
                arguments.finish()?;
                let info = self.info()?;
                return Ok(Work::new(std::future::ready(Ok(info))));
            }
            "run" => return self.run(arguments),
            "spawn" => return self.spawn(arguments),
            _ => {}
        }
        let machine = self.shared()?;
        match method {
            "attach" => {
                let id = process_id(arguments.text("id")?)?;
                arguments.finish()?;
                let environment = Arc::clone(self);
                Ok(Work::new(Process::find(environment, machine, id)))
            }
            "processes" => {
                arguments.finish()?;
                Ok(Work::new(async move { Ok(Value::list(machine.processes().list().await?.into_iter().map(shown))) }))
            }
            "http" => http::request(machine, arguments, Arc::clone(self)),
            method => match method.strip_prefix("files.") {
                Some(verb) => files::call(verb, machine, arguments, Arc::clone(self)),
                None => Err(Failure::bad_argument("method", &format!("an environment has no `{method}`"))),
            },
        }
    }

    fn run(&self, mut arguments: Arguments) -> Result<Work, Failure> {
        let (machine, token) = self.shared_for_clean_up()?;
        let input = arguments.optional_bytes("input")?;
        let mut command = command(&mut arguments)?;
        arguments.finish()?;
        if input.is_some() {
            command = command.piped_stdin();
        }
        let (id, request) = command.into_request(machine.info());
        Ok(Work::with_cancel(|cancel| async move {
            let _token = token;
            process::run(machine, id, request, input, cancel).await
        }))
    }

    fn spawn(self: &Arc<Self>, mut arguments: Arguments) -> Result<Work, Failure> {
        let (machine, token) = self.shared_for_clean_up()?;
        // A `run` that shows what is printed begins here, and ends with the environment as any other does.
        let is_run = arguments.flag("run", false)?;
        let command = command(&mut arguments)?;
        arguments.finish()?;
        let (id, request) = command.into_request(machine.info());
        let environment = Arc::clone(self);
        Ok(Work::with_cancel(move |cancel| async move {
            let pid = process::start(&machine, &id, request, &cancel).await?;
            // Held without a pause: whoever closes the environment waits for the start, or for the end.
            let end = is_run.then(|| ProcessCleanUp::when_asked(environment.scope(), machine, id.clone(), token));
            Ok(Process::object(environment, id, pid, end))
        }))
    }

    /// The environment, as long as it is open.
    pub(crate) fn shared(&self) -> Result<SharedEnvironment, Failure> {
        match self.lock().clone() {
            Some(Opened::Local(local)) => Ok(local),
            Some(Opened::Remote(remote)) => Ok(remote),
            None => Err(Failure::closed()),
        }
    }

    /// The same for a call that ends a process, in any case or when it is cancelled: [`Self::close`] waits for it as long as
    /// the token is held.
    pub(crate) fn shared_for_clean_up(&self) -> Result<(SharedEnvironment, TaskTrackerToken), Failure> {
        // The token is first: otherwise somebody who closes between the two would not wait for the call.
        let token = self.clean_up.token();
        Ok((self.shared()?, token))
    }

    /// Cancelled when it is closed.
    pub(crate) fn scope(&self) -> &CancellationToken {
        &self.closed
    }

    /// Ends what runs on this machine; leaves the session on another one, unless `end`. Calls that are under way end, and say
    /// why; what `run` has started ends with them, before the program that closes goes on and perhaps ends. Closing twice is
    /// fine.
    fn close(&self, end: bool) -> Work {
        let opened = self.lock().take();
        self.closed.cancel();
        self.clean_up.close();
        let clean_up = self.clean_up.clone();
        Work::with_cancel(move |_finished_in_any_case| async move {
            match opened {
                Some(Opened::Local(local)) => local.end().await,
                Some(Opened::Remote(remote)) if end => {
                    let ended = remote.end_session().await;
                    ended.map_err(|error| Failure::new(FailureKind::ConnectionLost, error.to_string()))?;
                }
                // A machine that is away is not waited for.
                Some(Opened::Remote(_)) => drop(tokio::time::timeout(CLOSE_PATIENCE, clean_up.wait()).await),
                None => {}
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
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn closing_waits_for_calls_that_end_a_process_before_they_have_the_machine() {
        let id = ProcessId::new("p").expect("it is a good id");
        for method in ["run", "spawn", "end"] {
            let environment = Arc::new(Environment {
                opened: Mutex::new(None),
                closed: CancellationToken::new(),
                clean_up: TaskTracker::new(),
            });
            let process = Process::new(Arc::clone(&environment), id.clone(), None);
            // Nobody gets the machine meanwhile.
            let opened = environment.lock();
            thread::scope(|scope| {
                let calling = scope.spawn(|| match method {
                    "end" => drop(process.call(method, Arguments::default())),
                    _ => drop(environment.call(method, Arguments::default())),
                });
                let deadline = Instant::now() + Duration::from_secs(10);
                while environment.clean_up.is_empty() && Instant::now() < deadline {
                    thread::yield_now();
                }
                let is_waited_for = !environment.clean_up.is_empty();
                drop(opened);
                calling.join().expect("a call does not panic");
                assert!(is_waited_for, "nobody who closes would wait for `{method}`");
            });
        }
    }
}
