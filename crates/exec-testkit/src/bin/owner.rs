//! An owner of a keeper (what a daemon is) as a process of its own, so that a test can kill it and measure it from
//! outside.
//!
//! ```text
//!   owner durable STATE KEEPER ORPHAN_TTL_MS SPOOL_BYTES      the keeper KEEPER, found again through STATE
//!   owner embedded                                            the keeper is a thread of the owner
//! ```
//!
//! The first line it prints is `open`, `busy PID` or `failed WHY`. Then each line of its stdin is a
//! command, which it answers with lines of its own; what takes long is done in the background, so that the next line is
//! read. At the end of stdin it ends, and leaves its processes to a durable keeper.
//!
//! Deliberately absent: any judgement. It reports; the test decides.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use exec_core::{Command, EntryBody, Environ, Io, ProcessId, Stream, TerminalSize, WriteId};
use exec_env::Environment;
use exec_env::process::{ProcessError, ProcessReason, WaitCondition, Waited};
use exec_keeper::start_keeper::KeeperProgram;
use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions, OpenError};
use exec_testkit::test_data::SeededBytes;
use tokio::task::JoinSet;

/// Output asked for at a time, as a server does it.
const PAGE_BYTES: usize = 256 << 10;

fn main() -> ExitCode {
    // Before there are threads, because a filter is for the thread that asks for it and those that it starts.
    if let Ok(calls) = std::env::var("EXEC_TEST_REFUSE") {
        exec_testkit::refused_calls::refuse(&calls);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a process can make a runtime");
    runtime.block_on(serve())
}

async fn serve() -> ExitCode {
    let environment = match LocalEnvironment::open(options()).await {
        Ok(environment) => Arc::new(environment),
        Err(OpenError::Busy { owner_pid, .. }) => {
            print_line(&format!("busy {owner_pid}"));
            return ExitCode::FAILURE;
        }
        Err(error) => {
            print_line(&format!("failed {error}"));
            return ExitCode::FAILURE;
        }
    };
    print_line("open");
    let mut background = JoinSet::new();
    while let Some(line) = next_line().await {
        let owner = Owner { environment: environment.clone() };
        match OwnerCommand::parse(&line) {
            OwnerCommand::StartAll { path } => {
                let specs = read_specs(&path);
                let ids: Vec<ProcessId> = specs.iter().map(|spec| spec.id.clone()).collect();
                owner.start_missing(specs).await;
                background.extend(ids.into_iter().map(|id| Owner { environment: environment.clone() }.drain(id)));
            }
            OwnerCommand::Start(spec) => owner.start(&spec.id, spec.command).await,
            OwnerCommand::CloseStdin { id } => owner.close_stdin(&id).await,
            OwnerCommand::Write { id, key, bytes } => drop(background.spawn(owner.write(id, key, bytes))),
            OwnerCommand::Digest { id } => drop(background.spawn(owner.digest(id))),
            OwnerCommand::Match { id, regex } => drop(background.spawn(owner.wait_for_match(id, regex))),
        }
    }
    background.shutdown().await;
    ExitCode::SUCCESS
}

fn options() -> LocalOptions {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["embedded"] => LocalOptions::default(),
        ["durable", state, keeper, orphan_ttl_ms, spool_bytes] => LocalOptions {
            keeper: KeeperChoice::Durable {
                program: KeeperProgram { program: keeper.into(), args: Vec::new() },
                state: state.into(),
                orphan_ttl: Duration::from_millis(number(orphan_ttl_ms)),
            },
            spool_bytes: number(spool_bytes),
            raise_open_files: true,
            ..LocalOptions::default()
        },
        _ => panic!("an owner is embedded or durable, not {args:?}"),
    }
}

enum OwnerCommand {
    /// `start ID pipes|stdin|pty SCRIPT…`: `started ID PID` or `refused ID WHY`. `start-limited ID MEMORY_MIB CPU_SECONDS
    /// SCRIPT…`: the same with pipes and these limits.
    Start(Box<ProcessSpec>),
    /// `start-all PATH`: starts those processes of the file (lines `ID IO SCRIPT…`) that do not exist yet, then prints
    /// `ready`, and reads the logs of all of them from then on.
    StartAll { path: PathBuf },
    /// `write ID KEY SEED BYTES`: `waiting ID KEY` if the kernel does not take all at once; `written ID KEY OUTCOME`.
    Write { id: ProcessId, key: WriteId, bytes: Vec<u8> },
    /// `close-stdin ID`: `closed ID`.
    CloseStdin { id: ProcessId },
    /// `digest ID`: reads the whole log; `digest ID BYTES HASH BYTES HASH CODE`, stdout first.
    Digest { id: ProcessId },
    /// `match ID REGEX`: `matched ID TEXT`.
    Match { id: ProcessId, regex: String },
}

struct ProcessSpec {
    id: ProcessId,
    command: Command,
}

impl OwnerCommand {
    fn parse(line: &str) -> Self {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        match (verb, &words[..]) {
            ("start", _) => Self::Start(Box::new(ProcessSpec::parse(rest))),
            ("start-limited", [id, memory_mib, cpu_seconds, script @ ..]) => {
                let mut spec = ProcessSpec::parse(&format!("{id} pipes {}", script.join(" ")));
                spec.command.limits.memory_bytes = Some(number(memory_mib) << 20);
                spec.command.limits.cpu_seconds = Some(number(cpu_seconds));
                Self::Start(Box::new(spec))
            }
            ("start-all", [path]) => Self::StartAll { path: path.into() },
            ("write", [id, key, seed, bytes]) => Self::Write {
                id: process_id(id),
                key: WriteId::new(key).expect("tests write short keys"),
                bytes: SeededBytes::new(number(seed)).bytes(number(bytes) as usize),
            },
            ("close-stdin", [id]) => Self::CloseStdin { id: process_id(id) },
            ("digest", [id]) => Self::Digest { id: process_id(id) },
            ("match", [id, regex]) => Self::Match { id: process_id(id), regex: (*regex).to_owned() },
            _ => panic!("an owner does not know {line:?}"),
        }
    }
}

impl ProcessSpec {
    fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let (id, io) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut command = Command::new(words, "/");
        command.environ = Environ::default();
        command.io = match io {
            "pipes" => Io::Pipes { stdin: false },
            "stdin" => Io::Pipes { stdin: true },
            "pty" => Io::Pty(TerminalSize::default()),
            _ => panic!("{io:?} is neither pipes, stdin nor pty, in {line:?}"),
        };
        Self { id: process_id(id), command }
    }
}

struct Owner {
    environment: Arc<LocalEnvironment>,
}

impl Owner {
    async fn start(&self, id: &ProcessId, command: Command) {
        match self.environment.processes().start(id, command).await {
            Ok(started) => print_line(&format!("started {id} {}", started.pid)),
            Err(error) => print_line(&format!("refused {id} {error}")),
        }
    }

    async fn start_missing(&self, specs: Vec<ProcessSpec>) {
        for ProcessSpec { id, command } in specs {
            match self.environment.processes().start(&id, command).await {
                // An earlier owner, which did not live to see it, may have started it.
                Ok(_) | Err(ProcessError { reason: ProcessReason::IdInUse, .. }) => {}
                Err(error) => panic!("{id} starts: {error}"),
            }
        }
        print_line("ready");
    }

    async fn write(self, id: ProcessId, key: WriteId, bytes: Vec<u8>) {
        let name = key.as_str().to_owned();
        let mut writing = self.environment.processes().write(&id, key, bytes.into());
        let at_once = tokio::select! {
            biased;
            written = &mut writing => Some(written),
            () = std::future::ready(()) => None,
        };
        let written = match at_once {
            Some(written) => written,
            None => {
                print_line(&format!("waiting {id} {name}"));
                writing.await
            }
        };
        let written = written.unwrap_or_else(|error| panic!("{id} can be written to: {error}"));
        print_line(&format!("written {id} {name} {written:?}"));
    }

    async fn close_stdin(&self, id: &ProcessId) {
        let closed = self.environment.processes().close_stdin(id).await;
        closed.unwrap_or_else(|error| panic!("stdin of {id} can be closed: {error}"));
        print_line(&format!("closed {id}"));
    }

    async fn wait_for_match(self, id: ProcessId, regex: String) {
        match self.environment.processes().wait(&id, WaitCondition::Output { regex, after: 0 }, None).await {
            Ok(Waited::Matched { text, .. }) => print_line(&format!("matched {id} {}", String::from_utf8_lossy(&text))),
            other => panic!("{id} prints it: {other:?}"),
        }
    }

    async fn digest(self, id: ProcessId) {
        let follow = self.environment.processes().follow(&id, 0).await;
        let mut follow = follow.unwrap_or_else(|error| panic!("{id} can be followed: {error}"));
        let mut hashes = [blake3::Hasher::new(), blake3::Hasher::new()];
        let mut counts = [0_u64; 2];
        let mut code = None;
        while let Some(page) = follow.next(PAGE_BYTES).await.unwrap_or_else(|error| panic!("{id} is read: {error}")) {
            assert_eq!(page.gap, None, "the spool is large enough");
            for entry in page.entries {
                match entry.body {
                    EntryBody::Output { stream, bytes } => {
                        let at = usize::from(stream == Stream::Stderr);
                        hashes[at].update(&bytes);
                        counts[at] += bytes.len() as u64;
                    }
                    EntryBody::Exited(exit) => code = Some(exit.shell_code()),
                    EntryBody::Closed => {}
                }
            }
        }
        let [stdout, stderr] = hashes.map(|hash| hash.finalize().to_hex());
        let code = code.expect("a closed log has told the exit");
        print_line(&format!("digest {id} {} {stdout} {} {stderr} {code}", counts[0], counts[1]));
    }

    /// Reads the log to its end, and drops it.
    async fn drain(self, id: ProcessId) {
        let follow = self.environment.processes().follow(&id, 0).await;
        let mut follow = follow.unwrap_or_else(|error| panic!("{id} can be followed: {error}"));
        while follow.next(PAGE_BYTES).await.unwrap_or_else(|error| panic!("{id} is read: {error}")).is_some() {}
    }
}

fn read_specs(path: &std::path::Path) -> Vec<ProcessSpec> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?} can be read: {error}"));
    text.lines().map(ProcessSpec::parse).collect()
}

/// The next line of stdin, without its end; `None` when there is no more.
async fn next_line() -> Option<String> {
    let read = || {
        let mut line = String::new();
        let count = std::io::stdin().lock().read_line(&mut line).expect("stdin is a pipe of text");
        (count > 0).then(|| line.trim_end().to_owned())
    };
    tokio::task::spawn_blocking(read).await.expect("reading does not panic")
}

/// One line in one write: a test reads them as they come.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // The test may be gone; then nobody needs the line.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

fn process_id(name: &str) -> ProcessId {
    ProcessId::new(name).expect("tests give short names")
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}
