//! Commands as a model runs them: start, look after a while, go on with something else, come back.
//!
//! ```text
//!   exec_command ──► ended in time: output, exit code
//!        └─────────► still runs: output so far, a session number
//!                       ├─ write_stdin   input, or just a look at what came since the last one
//!                       ├─ wait          until exit, a pattern, silence, a port
//!                       ├─ read          any part of the log, now or after its end
//!                       └─ kill          the whole tree
//! ```
//!
//! A session is a process of the environment, and its number is part of the process's id ([`SessionNumber`]): it is found
//! again by whoever asks the same environment, after any restart. Output is read from the log when somebody looks; held
//! between calls is only how far the last look went. Dropping a call leaves its process running.
//!
//! Deliberately absent: names of tools as protocols spell them, JSON, schemas.

mod error;
mod input;
pub mod limits;
mod output;
mod session_number;
mod starting;
mod stream_text;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use exec_core::{Command, Exit, ExitStatus, Head, Io, ProcessId, Seq, Stall, Stream, TerminalSize};
use exec_env::process::{
    DENIAL_SIGNAL, DENIAL_WORDS, ProcessInfo, ProcessReason, Terminated, WaitCondition, Waited, has_tree_ended,
};
use exec_env::screen::{Screen, ScreenQuery};
use exec_env::view::{Grep, View, ViewQuery};
use futures_util::future::join_all;

use crate::environments::{Environments, TargetEnvironment};
pub use error::{ShellError, input_failed};
use input::{FailedInput, InputTasks};
use limits::{
    CLOSE_GRACE, EARLY_EXIT_GRACE, INPUT_YIELD_DEFAULT, KEEP, KILL_GRACE, KILL_GRACE_MOST, LISTED_COMMAND_CHARS,
    OUTPUT_TOKENS_DEFAULT, OUTPUT_TOKENS_MOST, POLL_DEFAULT, POLL_MOST, SESSIONS, TOKEN_BYTES, YIELD_DEFAULT,
    YIELD_LEAST, YIELD_MOST,
};
pub use output::{Omitted, OutputView};
use output::{Position, SessionLog};
pub use session_number::SessionNumber;
use starting::PendingStarts;

/// The shell tools over some environments. Share it behind an `Arc`.
pub struct Shell {
    environments: Arc<dyn Environments>,
    /// Sessions that were started or asked for here; removed when their environment has forgotten them.
    sessions: Mutex<HashMap<SessionNumber, Session>>,
    starting: PendingStarts,
    inputs: InputTasks,
}

#[derive(Clone)]
struct Session {
    number: SessionNumber,
    target: TargetEnvironment,
    process: ProcessId,
    tty: bool,
    /// Taken only while output is read, never while a call waits.
    position: Arc<tokio::sync::Mutex<Position>>,
    /// Held by the input that is being written.
    input_turn: Arc<tokio::sync::Mutex<()>>,
    failed_input: FailedInput,
}

/// A command to run.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    /// For the shell.
    pub cmd: String,
    /// Relative ones begin at the environment's directory, which is also the default.
    pub workdir: Option<String>,
    /// The shell's path; the account's own if `None`.
    pub shell: Option<String>,
    /// Whether it is not a login shell.
    pub no_login: bool,
    /// Give it a terminal.
    pub tty: bool,
    /// Keep its stdin open, as a pipe; a terminal is always open.
    pub stdin: bool,
    /// How long to wait for its end.
    pub yield_time: Option<Duration>,
    /// How much output to show.
    pub max_output_tokens: Option<usize>,
    /// Variables beside those of the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Outside the sandbox of its environment. Whoever sets this has asked somebody who may permit it.
    pub outside_sandbox: bool,
    /// Which environment; the default if `None`.
    pub environment_id: Option<String>,
}

/// Input for a session, or a look at it.
#[derive(Debug, Clone, Default)]
pub struct WriteRequest {
    /// Nothing: only a look. `\u{3}` alone interrupts; `\u{4}` alone ends the input of a pipe.
    pub chars: String,
    /// End the input after `chars`.
    pub close_stdin: bool,
    /// Also into a session outside the sandbox of its environment. Whoever sets this has asked somebody who may permit it.
    pub outside_sandbox: bool,
    /// How long to wait for what it causes.
    pub yield_time: Option<Duration>,
    /// How much output to show.
    pub max_output_tokens: Option<usize>,
}

/// What to read of a log.
#[derive(Debug, Clone, Default)]
pub struct ReadRequest {
    /// Where to begin; a head and a tail of everything if nothing is said.
    pub from: ReadFrom,
    /// One stream only.
    pub stream: Option<Stream>,
    /// How much to show.
    pub max_output_tokens: Option<usize>,
}

/// Where a read begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// A head and a tail of everything.
    #[default]
    Both,
    /// The end.
    Tail,
    /// An entry, without its first bytes; these may reach over several entries.
    Entry {
        /// The first that counts.
        seq: Seq,
        /// Bytes to leave out.
        skip_bytes: u64,
    },
}

/// What a look at a session found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Its number.
    pub session: SessionNumber,
    /// Its process, by which others find it.
    pub process: ProcessId,
    /// Where it runs.
    pub environment_id: String,
    /// Whether it runs.
    pub state: SessionState,
    /// What it printed since the last look, or what was asked for.
    pub output: OutputView,
    /// How long the call took.
    pub wall_time: Duration,
    /// Finished sessions whose logs were given up to make room for this one.
    pub forgotten: Vec<SessionNumber>,
    /// It failed, and its sandbox seems to be the reason.
    pub denied: bool,
    /// It has not read all of what was typed; it gets the rest when it reads.
    pub input_waits: bool,
    /// Why something that was typed failed after the call that typed it had returned. One look tells it.
    pub input_failed: Option<ShellError>,
}

/// Whether a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// It runs, unless it waits with its output.
    Running {
        /// Why it waits.
        stalled: Option<Stall>,
    },
    /// The command has ended.
    Exited {
        /// How.
        exit: Exit,
        /// Whether something it started still holds its output.
        open: bool,
    },
}

/// How waiting ended, and a look at what came meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitedLook {
    /// How; `None` if the session ended before that.
    pub waited: Option<Waited>,
    /// The look.
    pub look: Look,
}

/// One session as `list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// Its number.
    pub session: SessionNumber,
    /// Its process.
    pub process: ProcessId,
    /// Where it runs.
    pub environment_id: String,
    /// The command line, cut.
    pub command: String,
    /// Its directory.
    pub cwd: String,
    /// Whether it has a terminal.
    pub tty: bool,
    /// When it started.
    pub started: SystemTime,
    /// Whether it runs.
    pub state: SessionState,
    /// All it has printed.
    pub output_bytes: u64,
}

/// What a listing found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionList {
    /// The sessions.
    pub sessions: Vec<SessionSummary>,
    /// The environments that could not be asked, and why.
    pub failures: Vec<ShellError>,
}

impl Shell {
    /// The tools over `environments`.
    pub fn new(environments: Arc<dyn Environments>) -> Self {
        Self {
            environments,
            sessions: Mutex::default(),
            starting: PendingStarts::default(),
            inputs: InputTasks::default(),
        }
    }

    /// The environments that the tools work on.
    pub fn environments(&self) -> &Arc<dyn Environments> {
        &self.environments
    }

    /// Starts a command and waits a while for its end.
    pub async fn exec_command(&self, request: ExecRequest) -> Result<Look, ShellError> {
        let begin = Instant::now();
        let yield_time = bounded(request.yield_time, YIELD_DEFAULT, YIELD_MOST);
        let budget = budget(request.max_output_tokens);
        let (session, forgotten) = self.start_session(request).await?;
        session.wait_for_end(yield_time.max(EARLY_EXIT_GRACE)).await?;
        let look = session.look(budget, begin).await?;
        Ok(Look { forgotten, ..look })
    }

    /// Starts a command and returns at once.
    pub async fn start(&self, request: ExecRequest) -> Result<Look, ShellError> {
        let (begin, budget) = (Instant::now(), budget(request.max_output_tokens));
        let (session, forgotten) = self.start_session(request).await?;
        let look = session.look(budget, begin).await?;
        Ok(Look { forgotten, ..look })
    }

    /// Writes to a session, or not, and looks at what came since the last look. Input that the session does not read in that
    /// time waits for it.
    pub async fn write_stdin(&self, number: SessionNumber, request: WriteRequest) -> Result<Look, ShellError> {
        let begin = Instant::now();
        let session = self.find(number).await?;
        let is_look = request.chars.is_empty() && !request.close_stdin;
        let yield_time = match is_look {
            true => bounded(request.yield_time, POLL_DEFAULT, POLL_MOST),
            false => bounded(request.yield_time, INPUT_YIELD_DEFAULT, YIELD_MOST),
        };
        let budget = budget(request.max_output_tokens);
        let under_way = match is_look {
            true => None,
            false => self.inputs.write(&session, request, yield_time).await?,
        };
        session.wait_for_end(yield_time.saturating_sub(begin.elapsed())).await?;
        if let Some(input) = under_way {
            input.check()?;
        }
        session.look(budget, begin).await
    }

    /// Writes to a session, and returns when the input is taken, or waits for the session to read it. It is no look. If it fails
    /// later, the next look tells, and the next input is refused.
    pub async fn input(&self, number: SessionNumber, request: WriteRequest) -> Result<(), ShellError> {
        let session = self.find(number).await?;
        self.inputs.write(&session, request, INPUT_YIELD_DEFAULT).await.map(drop)
    }

    /// Why something that was typed failed after its call had returned, as long as no look has told it.
    pub async fn failed_input(&self, number: SessionNumber) -> Result<Option<ShellError>, ShellError> {
        Ok(self.find(number).await?.failed_input.get())
    }

    /// Waits until something happens in a session, and looks at what came since the last look. A pattern matches only output
    /// after that.
    pub async fn wait(
        &self,
        number: SessionNumber,
        until: WaitFor,
        deadline: Option<Duration>,
        max_output_tokens: Option<usize>,
    ) -> Result<WaitedLook, ShellError> {
        let begin = Instant::now();
        let session = self.find(number).await?;
        let condition = match until {
            WaitFor::Exit => WaitCondition::Exited,
            WaitFor::Closed => WaitCondition::Closed,
            WaitFor::Pattern(regex) => {
                // `^` and `$` mean lines to whoever waits for one, and a terminal ends them in CR LF.
                let regex = format!("(?mR){regex}");
                WaitCondition::Output { regex, after: session.position.lock().await.seq }
            }
            WaitFor::Silence(time) => WaitCondition::Silence(time),
            WaitFor::Port(port) => WaitCondition::Port(port),
        };
        let deadline = bounded(deadline, YIELD_MOST, POLL_MOST);
        let processes = session.target.environment.processes();
        let waited = match processes.wait(&session.process, condition, Some(deadline)).await {
            Ok(waited) => Some(waited),
            Err(error) if matches!(error.reason, ProcessReason::Ended { .. }) => None,
            Err(error) => return Err(ShellError::of_session(number, error)),
        };
        if matches!(waited, None | Some(Waited::Exited(_))) {
            session.wait_for_close().await?;
        }
        let look = session.look(budget(max_output_tokens), begin).await?;
        Ok(WaitedLook { waited, look })
    }

    /// Shows a part of the log of a session, also of one that has ended. The next look does not notice it.
    pub async fn read(&self, number: SessionNumber, request: ReadRequest) -> Result<Look, ShellError> {
        let begin = Instant::now();
        let session = self.find(number).await?;
        let budget = budget(request.max_output_tokens);
        let log = session.log();
        let found = match (request.from, request.stream) {
            (ReadFrom::Both, None) => log.since(&mut Position::default(), budget).await,
            (ReadFrom::Tail, None) => log.last(budget).await,
            (ReadFrom::Entry { seq, skip_bytes }, stream) => {
                log.forward(seq.saturating_sub(1), skip_bytes, stream, budget).await
            }
            (ReadFrom::Both, Some(stream)) => log.of_stream(stream, budget / 2, budget - budget / 2).await,
            (ReadFrom::Tail, Some(stream)) => log.of_stream(stream, 0, budget).await,
        };
        let (output, head) = found.map_err(|error| ShellError::of_session(number, error))?;
        Ok(session.found(output, &head, begin).await)
    }

    /// Whether a session does not run in the sandbox of its environment, so that typing into it needs somebody's permission.
    pub async fn is_outside_sandbox(&self, number: SessionNumber) -> Result<bool, ShellError> {
        Ok(self.find(number).await?.is_outside_sandbox())
    }

    /// Shows what a query asks for of a session's log, computed where the log is. The next look does not notice it.
    pub async fn view(&self, number: SessionNumber, query: ViewQuery) -> Result<View, ShellError> {
        let session = self.find(number).await?;
        let view = session.target.environment.processes().view(&session.process, query).await;
        view.map_err(|error| ShellError::of_session(number, error))
    }

    /// Shows the screen of a session that has a terminal, now or after any entry of its log.
    pub async fn screen(&self, number: SessionNumber, query: ScreenQuery) -> Result<Screen, ShellError> {
        let session = self.find(number).await?;
        let screen = session.target.environment.processes().screen(&session.process, query).await;
        screen.map_err(|error| ShellError::of_session(number, error))
    }

    /// Ends a session with everything that it started, and looks at what came since the last look.
    pub async fn kill(&self, number: SessionNumber, grace: Option<Duration>) -> Result<(Terminated, Look), ShellError> {
        let begin = Instant::now();
        let session = self.find(number).await?;
        let grace = grace.unwrap_or(KILL_GRACE).min(KILL_GRACE_MOST);
        let terminated = session.target.environment.processes().terminate(&session.process, grace).await;
        let terminated = terminated.map_err(|error| ShellError::of_session(number, error))?;
        session.wait_for_close().await?;
        Ok((terminated, session.look(budget(None), begin).await?))
    }

    /// All sessions of an environment, or of all: the default's first, and in each the oldest first.
    pub async fn list(&self, environment_id: Option<&str>) -> Result<SessionList, ShellError> {
        let ids = match environment_id {
            Some(id) => vec![id.to_owned()],
            None => self.environments.ids(),
        };
        let only_one = ids.len() == 1;
        let mut listed = SessionList::default();
        for found in self.list_processes(ids).await {
            match found {
                Ok((target, found)) => {
                    listed.sessions.extend(found.iter().filter_map(|info| SessionSummary::of(info, &target.id)));
                }
                Err(error) if only_one => return Err(error),
                // A dead environment does not hide the sessions of the others.
                Err(error) => listed.failures.push(error),
            }
        }
        Ok(listed)
    }

    /// One session, as [`Self::list`] shows it.
    pub async fn summary(&self, number: SessionNumber) -> Result<SessionSummary, ShellError> {
        let session = self.find(number).await?;
        let listed = session.target.environment.processes().list().await;
        let listed = listed.map_err(|unreachable| ShellError::away(&session.target.id, unreachable))?;
        let info = listed.iter().find(|info| info.id == session.process);
        let summary = info.and_then(|info| SessionSummary::of(info, &session.target.id));
        summary.ok_or(ShellError::UnknownSession { session: number, known: Vec::new(), elsewhere: Vec::new() })
    }

    /// The session of a process of ours, by which tasks are found.
    pub async fn session_of(&self, process: &ProcessId) -> Result<SessionNumber, ShellError> {
        let Some(number) = SessionNumber::of(process) else {
            return Err(ShellError::Refused { what: format!("no session has the id {process}") });
        };
        match self.find(number).await {
            Ok(session) if session.process == *process => Ok(number),
            Ok(_) => Err(ShellError::UnknownSession { session: number, known: Vec::new(), elsewhere: Vec::new() }),
            Err(error) => Err(error),
        }
    }

    /// The processes of each environment, all asked at once: one that does not answer delays only itself.
    async fn list_processes(&self, ids: Vec<String>) -> Vec<Result<(TargetEnvironment, Vec<ProcessInfo>), ShellError>> {
        let list = async |id: String| {
            let target = self.environments.find(Some(&id)).await?;
            let listed = target.environment.processes().list().await;
            let listed = listed.map_err(|unreachable| ShellError::away(&id, unreachable))?;
            Ok((target, listed))
        };
        futures_util::future::join_all(ids.into_iter().map(list)).await
    }

    async fn start_session(&self, request: ExecRequest) -> Result<(Session, Vec<SessionNumber>), ShellError> {
        let target = self.environments.find(request.environment_id.as_deref()).await?;
        let processes = target.environment.processes();
        let (reserved, forgotten) = {
            let turn = self.starting.turn(&target.id).await;
            // What is reserved when the listing begins, and is not in it, may have started since.
            let starting = turn.reserved();
            let listed = processes.list().await;
            let mut listed = listed.map_err(|unreachable| ShellError::away(&target.id, unreachable))?;
            let forgotten = self.make_room(&target, &mut listed, &starting).await?;
            let known = self.lock();
            let listed = |number| listed.iter().any(|info| SessionNumber::of(&info.id) == Some(number));
            let is_taken = |number| known.contains_key(&number) || starting.contains(&number) || listed(number);
            (turn.reserve(SessionNumber::unused(is_taken)), forgotten)
        };
        let sandbox = target.sandbox.as_ref().filter(|_| !request.outside_sandbox);
        let process = reserved.number().new_process_id(sandbox);
        let tty = request.tty;
        processes.start(&process, command(&target, request)).await.map_err(ShellError::of_start)?;
        let session = Session::new(reserved.number(), target.clone(), process, tty);
        self.lock().insert(session.number, session.clone());
        Ok((session, forgotten))
    }

    /// Forgets finished sessions until there is room for one more beside those that are being started. One that runs is never
    /// ended for that.
    async fn make_room(
        &self,
        target: &TargetEnvironment,
        listed: &mut Vec<ProcessInfo>,
        starting: &HashSet<SessionNumber>,
    ) -> Result<Vec<SessionNumber>, ShellError> {
        listed.retain(|info| SessionNumber::of(&info.id).is_some());
        let is_listed = |session: &Session| listed.iter().any(|info| info.id == session.process);
        let is_kept = |session: &Session| {
            session.target.id != target.id || starting.contains(&session.number) || is_listed(session)
        };
        self.lock().retain(|_, session| is_kept(session));
        let is_unlisted =
            |number: &&SessionNumber| !listed.iter().any(|info| SessionNumber::of(&info.id) == Some(**number));
        let unlisted = starting.iter().filter(is_unlisted).count();
        let mut forgotten = Vec::new();
        if listed.len() + unlisted < SESSIONS {
            return Ok(forgotten);
        }
        // To forget a session ends what it has left behind, which may be a server that is used.
        let closed = listed.iter().filter(|info| info.head.closed).map(|info| async {
            has_tree_ended(target.environment.processes(), &info.id).await.then(|| info.id.clone())
        });
        let ended: HashSet<ProcessId> = join_all(closed).await.into_iter().flatten().collect();
        while listed.len() + unlisted >= SESSIONS {
            // Those whose end was seen come first, then the oldest.
            let seen = |info: &ProcessInfo| self.was_seen_to_its_end(info);
            let finished = listed.iter().enumerate().filter(|(_, info)| ended.contains(&info.id));
            let Some((index, _)) = finished.min_by_key(|(index, info)| (!seen(info), *index)) else {
                let running = listed.iter().filter_map(|info| SessionSummary::of(info, &target.id)).collect();
                return Err(ShellError::TooManySessions { running });
            };
            let info = listed.remove(index);
            let number = SessionNumber::of(&info.id).expect("others were removed above");
            // It fails only if somebody else has forgotten it meanwhile, which is as good.
            let _ = target.environment.processes().forget(&info.id).await;
            self.lock().remove(&number);
            forgotten.push(number);
        }
        Ok(forgotten)
    }

    fn was_seen_to_its_end(&self, info: &ProcessInfo) -> bool {
        let known = self.lock().values().find(|session| session.process == info.id).cloned();
        let seen = known.and_then(|session| session.position.try_lock().ok().map(|position| position.seq));
        seen.is_some_and(|seq| seq + 1 >= info.head.next_seq)
    }

    async fn find(&self, number: SessionNumber) -> Result<Session, ShellError> {
        if let Some(session) = self.lock().get(&number) {
            return Ok(session.clone());
        }
        let (mut known, mut found, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        for listed in self.list_processes(self.environments.ids()).await {
            let (target, listed) = match listed {
                Ok(listed) => listed,
                Err(error) => {
                    elsewhere.push(error);
                    continue;
                }
            };
            known.extend(listed.iter().filter_map(|info| SessionNumber::of(&info.id)));
            let info = listed.into_iter().find(|info| SessionNumber::of(&info.id) == Some(number));
            if let Some(ProcessInfo { id: process, tty, .. }) = info {
                found.push(Session::new(number, target, process, tty));
            }
        }
        match (found.len(), elsewhere.len()) {
            (1, _) => {
                let session = found.remove(0);
                Ok(self.lock().entry(number).or_insert(session).clone())
            }
            (0, 1) if known.is_empty() => Err(elsewhere.remove(0)),
            (0, _) => Err(ShellError::UnknownSession { session: number, known, elsewhere }),
            // Two servers at a time have chosen the same number in two environments. To guess would be to kill the wrong one.
            _ => {
                let environments = found.into_iter().map(|session| session.target.id).collect();
                Err(ShellError::Ambiguous { session: number, environments })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionNumber, Session>> {
        // The map is whole after every statement, so a panic elsewhere does not damage it.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What to wait for in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitFor {
    /// The command has ended.
    Exit,
    /// So has all that it started and that holds its output.
    Closed,
    /// Output that was not looked at yet matches a regular expression.
    Pattern(String),
    /// Nothing was printed for so long.
    Silence(Duration),
    /// It listens on this TCP port, or on any.
    Port(Option<u16>),
}

impl Session {
    fn new(number: SessionNumber, target: TargetEnvironment, process: ProcessId, tty: bool) -> Self {
        Self {
            number,
            target,
            process,
            tty,
            position: Arc::default(),
            input_turn: Arc::default(),
            failed_input: FailedInput::default(),
        }
    }

    fn log(&self) -> SessionLog<'_> {
        SessionLog { processes: self.target.environment.processes(), process: &self.process, session: self.number }
    }

    /// Until the command has ended, at most `time`; then a moment more for its streams to close.
    async fn wait_for_end(&self, time: Duration) -> Result<(), ShellError> {
        let processes = self.target.environment.processes();
        match processes.wait(&self.process, WaitCondition::Exited, Some(time)).await {
            Ok(Waited::DeadlinePassed) => Ok(()),
            Ok(_) => self.wait_for_close().await,
            Err(error) => Err(ShellError::of_session(self.number, error)),
        }
    }

    async fn wait_for_close(&self) -> Result<(), ShellError> {
        let processes = self.target.environment.processes();
        let closed = processes.wait(&self.process, WaitCondition::Closed, Some(CLOSE_GRACE)).await;
        closed.map(drop).map_err(|error| ShellError::of_session(self.number, error))
    }

    async fn look(&self, budget: usize, begin: Instant) -> Result<Look, ShellError> {
        let mut position = self.position.lock().await;
        // On a copy: what a caller gives up on, before it has the output, was not looked at.
        let mut moved = position.clone();
        let found = self.log().since(&mut moved, budget).await;
        let (output, head) = found.map_err(|error| ShellError::of_session(self.number, error))?;
        let look = self.found(output, &head, begin).await;
        if head.exit.is_some() {
            // What waited to be typed fails now, which is known in a moment. Perhaps nobody looks again after an end.
            let _ = tokio::time::timeout(CLOSE_GRACE, self.input_turn.lock()).await;
        }
        // Nothing waits from here on, so what is taken is told.
        *position = moved;
        let input_failed = self.failed_input.take().map(|why| match (why, head.exit) {
            // Its pipe is closed a moment before anybody knows that it has ended.
            (ShellError::StdinClosed { session }, Some((_, exit))) => {
                ShellError::Ended { session, exit_code: exit.shell_code() }
            }
            (why, _) => why,
        });
        // It may have failed since we looked whether it waits.
        Ok(Look { input_waits: look.input_waits && input_failed.is_none(), input_failed, ..look })
    }

    fn is_outside_sandbox(&self) -> bool {
        self.target.sandbox.as_ref().is_some_and(|policy| !session_number::is_in_sandbox(&self.process, policy))
    }

    /// Whether its sandbox seems to be the reason why it failed.
    async fn was_denied(&self, head: &Head) -> bool {
        let Some((_, exit)) = head.exit.filter(|_| session_number::is_sandboxed(&self.process)) else { return false };
        match exit.status {
            ExitStatus::Code(0) => false,
            ExitStatus::Signal { number: DENIAL_SIGNAL, .. } => true,
            // A shell passes on how its child ended as a code.
            ExitStatus::Code(code) if code == 128 + DENIAL_SIGNAL => true,
            _ => {
                let grep =
                    Grep { regex: DENIAL_WORDS.join("|"), ignore_case: true, before: 0, after: 0, max_matches: 1 };
                let query = ViewQuery { grep: Some(grep), ..ViewQuery::default() };
                let view = self.target.environment.processes().view(&self.process, query).await;
                view.is_ok_and(|view| view.matches > 0)
            }
        }
    }

    async fn found(&self, output: OutputView, head: &Head, begin: Instant) -> Look {
        Look {
            denied: self.was_denied(head).await,
            session: self.number,
            process: self.process.clone(),
            environment_id: self.target.id.clone(),
            state: SessionState::of(head),
            output,
            wall_time: begin.elapsed(),
            forgotten: Vec::new(),
            input_waits: head.exit.is_none() && self.input_turn.try_lock().is_err(),
            input_failed: None,
        }
    }
}

impl SessionState {
    fn of(head: &Head) -> Self {
        match head.exit {
            None => Self::Running { stalled: head.stalled },
            Some((_, exit)) => Self::Exited { exit, open: !head.closed },
        }
    }

    /// Its exit, once it has ended.
    pub fn exit(&self) -> Option<Exit> {
        match self {
            Self::Running { .. } => None,
            Self::Exited { exit, .. } => Some(*exit),
        }
    }
}

impl SessionSummary {
    /// `None` for processes that others have started.
    fn of(info: &ProcessInfo, environment_id: &str) -> Option<Self> {
        let session = SessionNumber::of(&info.id)?;
        let command = info.argv.last().map(|last| last.to_string_lossy()).unwrap_or_default();
        let cut = command.chars().nth(LISTED_COMMAND_CHARS).is_some();
        let mut command: String = command.chars().take(LISTED_COMMAND_CHARS).collect();
        if cut || info.argv_cut {
            command.push('…');
        }
        Some(Self {
            session,
            process: info.id.clone(),
            environment_id: environment_id.to_owned(),
            command,
            cwd: info.cwd.to_string_lossy().into_owned(),
            tty: info.tty,
            started: info.started,
            state: SessionState::of(&info.head),
            output_bytes: info.head.held_bytes + info.head.dropped_bytes,
        })
    }
}

fn command(target: &TargetEnvironment, request: ExecRequest) -> Command {
    let shell = request.shell.map_or_else(|| target.environment.info().shell.path.clone().into(), OsString::from);
    let flag = if request.no_login { "-c" } else { "-lc" };
    let argv: [OsString; 3] = [shell, flag.into(), request.cmd.into()];
    let cwd = target.resolve(request.workdir.as_deref());
    let mut environ = target.environ.clone();
    // A pager would wait for a person. Colours are for a terminal.
    let plain: &[(&str, &str)] = match request.tty {
        true => &[("PAGER", "cat"), ("GIT_PAGER", "cat"), ("TERM", "xterm-256color")],
        false => &[("PAGER", "cat"), ("GIT_PAGER", "cat"), ("TERM", "dumb"), ("NO_COLOR", "1")],
    };
    environ.vars.extend(plain.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    environ.vars.extend(request.env);
    let io = match request.tty {
        true => Io::Pty(TerminalSize::default()),
        false => Io::Pipes { stdin: request.stdin },
    };
    let sandbox = target.sandbox.clone().filter(|_| !request.outside_sandbox);
    Command { environ, io, keep: Some(KEEP), sandbox, ..Command::new(argv, cwd) }
}

fn bounded(asked: Option<Duration>, default: Duration, most: Duration) -> Duration {
    asked.map_or(default, |asked| asked.clamp(YIELD_LEAST, most))
}

/// In bytes.
fn budget(tokens: Option<usize>) -> usize {
    tokens.unwrap_or(OUTPUT_TOKENS_DEFAULT).clamp(1, OUTPUT_TOKENS_MOST) * TOKEN_BYTES
}
