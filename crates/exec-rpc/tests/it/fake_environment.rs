//! An environment whose processes run nothing: they do what a test says, and remember what was asked of them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::{Command, Entry, EntryBody, Head, Page, ProcessId, Seq, Signal, Stream, TerminalSize, WriteId};
use exec_env::http::{HttpBody, HttpError, HttpRequest, HttpResponse};
use exec_env::process::{
    LogFollower, ProcessError, ProcessInfo, ProcessReason, ProcessVerb, Processes, ReadQuery, Signalled, Started,
    Terminated, Unreachable, WaitCondition, Waited, Written,
};
use exec_env::{BoxFuture, Environment, Files, Http, MachineInfo, Shell};
use tokio::sync::Notify;

pub(crate) struct FakeEnvironment {
    info: MachineInfo,
    processes: Mutex<HashMap<ProcessId, Command>>,
    /// How often something was started, forgotten, followed.
    pub(crate) started: AtomicUsize,
    pub(crate) forgotten: AtomicUsize,
    pub(crate) followed: AtomicUsize,
    pub(crate) signalled: AtomicUsize,
    signal_keys: Mutex<HashSet<String>>,
    /// A start waits for `release_starts`, after it has told `start_waits`.
    pub(crate) hold_starts: AtomicBool,
    pub(crate) start_waits: Notify,
    pub(crate) release_starts: Notify,
    pub(crate) refuse_signals: AtomicBool,
    /// Every process prints without an end.
    pub(crate) floods: AtomicBool,
    /// Told whenever somebody tries to follow a process.
    pub(crate) follow_tried: Notify,
    /// Entries of a page, each a byte.
    pub(crate) page_entries: AtomicUsize,
    /// Bytes that every log claims to hold beside its entries.
    pub(crate) claimed_bytes: AtomicU64,
}

impl Default for FakeEnvironment {
    fn default() -> Self {
        let shell = Shell { name: "sh".into(), path: "/bin/sh".into() };
        let info = MachineInfo {
            shell,
            cwd: None,
            home: None,
            temp_dir: PathBuf::from("/tmp"),
            temporary_directories: Vec::new(),
            os: "linux".into(),
            hostname: None,
            version: "0".into(),
        };
        Self {
            info,
            processes: Mutex::default(),
            started: AtomicUsize::default(),
            forgotten: AtomicUsize::default(),
            followed: AtomicUsize::default(),
            signalled: AtomicUsize::default(),
            signal_keys: Mutex::default(),
            hold_starts: AtomicBool::default(),
            start_waits: Notify::default(),
            release_starts: Notify::default(),
            refuse_signals: AtomicBool::default(),
            floods: AtomicBool::default(),
            follow_tried: Notify::default(),
            page_entries: AtomicUsize::default(),
            claimed_bytes: AtomicU64::default(),
        }
    }
}

impl FakeEnvironment {
    pub(crate) fn running(&self) -> usize {
        self.lock().len()
    }

    /// Everything is gone, as after a restart of the machine.
    pub(crate) fn lose_processes(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProcessId, Command>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, id: &ProcessId) -> Result<(), ProcessReason> {
        if self.lock().contains_key(id) { Ok(()) } else { Err(ProcessReason::UnknownProcess) }
    }

    fn head(&self) -> Head {
        let entries = self.page_entries.load(Ordering::Relaxed) as u64;
        Head {
            first_seq: 1,
            next_seq: entries + 1,
            held_bytes: entries + self.claimed_bytes.load(Ordering::Relaxed),
            dropped_bytes: 0,
            exit: None,
            closed: false,
            stalled: None,
        }
    }
}

impl Environment for FakeEnvironment {
    fn processes(&self) -> &dyn Processes {
        self
    }

    fn files(&self) -> &dyn Files {
        unreachable!("these tests have no files")
    }

    fn files_for_caller(&self) -> Arc<dyn Files> {
        unreachable!("these tests have no files")
    }

    fn http(&self) -> &dyn Http {
        self
    }

    fn streams(&self) -> &dyn exec_env::Streams {
        unreachable!("these tests have no streams")
    }

    fn info(&self) -> &MachineInfo {
        &self.info
    }
}

impl Processes for FakeEnvironment {
    fn set_network_decider(&self, _: Arc<dyn exec_env::NetworkDecider>) {}

    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, ProcessError>> {
        ProcessVerb::Start.perform(id, async move {
            if self.hold_starts.load(Ordering::Relaxed) {
                self.start_waits.notify_one();
                self.release_starts.notified().await;
            }
            self.started.fetch_add(1, Ordering::Relaxed);
            self.lock().insert(id.clone(), command);
            Ok(Started { pid: 1, sandbox: None, limits: None })
        })
    }

    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ProcessError>> {
        ProcessVerb::Read.perform(id, async move {
            self.known(id)?;
            let head = self.head();
            let output = |seq| {
                let body = EntryBody::Output { stream: Stream::Stdout, bytes: Bytes::from_static(b"x") };
                Entry { seq, body }
            };
            let entries = match query.max_bytes {
                Some(0) => Vec::new(),
                _ => (query.after + 1..head.next_seq).map(output).collect(),
            };
            Ok(Page { entries, gap: None, head })
        })
    }

    fn follow<'a>(
        &'a self,
        id: &'a ProcessId,
        after: Seq,
    ) -> BoxFuture<'a, Result<Box<dyn LogFollower>, ProcessError>> {
        ProcessVerb::Follow.perform(id, async move {
            self.followed.fetch_add(1, Ordering::Relaxed);
            self.follow_tried.notify_one();
            self.known(id)?;
            let follower: Box<dyn LogFollower> = match self.floods.load(Ordering::Relaxed) {
                true => Box::new(Flood { after, head: self.head() }),
                false => Box::new(Silent),
            };
            Ok(follower)
        })
    }

    /// The child never reads its stdin.
    fn write<'a>(&'a self, id: &'a ProcessId, _: WriteId, _: Bytes) -> BoxFuture<'a, Result<Written, ProcessError>> {
        ProcessVerb::Write.perform(id, std::future::pending())
    }

    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, ProcessError>> {
        ProcessVerb::CloseStdin.perform(id, std::future::pending())
    }

    fn resize<'a>(&'a self, id: &'a ProcessId, _: TerminalSize) -> BoxFuture<'a, Result<(), ProcessError>> {
        ProcessVerb::Resize.perform(id, async { Ok(()) })
    }

    fn signal<'a>(&'a self, id: &'a ProcessId, _: Signal) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        ProcessVerb::Signal.perform(id, async move {
            if self.refuse_signals.load(Ordering::Relaxed) {
                return Err(ProcessReason::SignalRefused { errno: 1 });
            }
            self.signalled.fetch_add(1, Ordering::Relaxed);
            Ok(Signalled::Sent)
        })
    }

    fn signal_once<'a>(
        &'a self,
        id: &'a ProcessId,
        signal: Signal,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        Box::pin(async move {
            if self.signal_keys.lock().unwrap_or_else(PoisonError::into_inner).contains(key) {
                return Ok(Signalled::Sent);
            }
            let signalled = self.signal(id, signal).await?;
            self.signal_keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
            Ok(signalled)
        })
    }

    fn terminate<'a>(&'a self, id: &'a ProcessId, _: Duration) -> BoxFuture<'a, Result<Terminated, ProcessError>> {
        ProcessVerb::Terminate.perform(id, async move {
            self.known(id)?;
            Ok(Terminated { was_running: true, ended: 1, left: 0 })
        })
    }

    /// What is waited for never happens.
    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        _: WaitCondition,
        _: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, ProcessError>> {
        ProcessVerb::Wait.perform(id, std::future::pending())
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, Unreachable>> {
        let processes = self.lock();
        let listed = processes.iter().map(|(id, command)| ProcessInfo {
            id: id.clone(),
            pid: 1,
            argv: command.argv.clone(),
            argv_cut: false,
            cwd: command.cwd.clone(),
            tty: false,
            stdin_open: true,
            started: SystemTime::UNIX_EPOCH,
            head: self.head(),
            sandbox: None,
            limits: None,
            label: command.label.clone(),
        });
        let listed: Vec<ProcessInfo> = listed.collect();
        Box::pin(async move { Ok(listed) })
    }

    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ProcessError>> {
        ProcessVerb::Forget.perform(id, async move {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
            self.lock().remove(id).map(drop).ok_or(ProcessReason::UnknownProcess)
        })
    }
}

/// A log in which nothing happens.
struct Silent;

impl LogFollower for Silent {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn next(&mut self, _: usize) -> BoxFuture<'_, Result<Option<Page>, ProcessError>> {
        Box::pin(async { Ok(None) })
    }

    fn acknowledge(&mut self, _: Seq, _: Duration) {}
}

/// There is always one more entry.
struct Flood {
    after: Seq,
    head: Head,
}

impl LogFollower for Flood {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn next(&mut self, _: usize) -> BoxFuture<'_, Result<Option<Page>, ProcessError>> {
        self.after += 1;
        self.head.next_seq = self.after + 1;
        let body = EntryBody::Output { stream: Stream::Stdout, bytes: Bytes::from_static(b"x") };
        let page = Page { entries: vec![Entry { seq: self.after, body }], gap: None, head: self.head };
        Box::pin(std::future::ready(Ok(Some(page))))
    }

    fn acknowledge(&mut self, _: Seq, _: Duration) {}
}

impl Http for FakeEnvironment {
    fn request(&self, _: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        let body: Box<dyn HttpBody> = Box::new(BodyWithoutEnd { begun: false });
        Box::pin(async { Ok(HttpResponse { status: 200, headers: Vec::new(), body }) })
    }
}

/// A body whose sender stops in the middle.
struct BodyWithoutEnd {
    begun: bool,
}

impl HttpBody for BodyWithoutEnd {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, HttpError>> {
        let begun = std::mem::replace(&mut self.begun, true);
        Box::pin(async move {
            if begun {
                std::future::pending::<()>().await;
            }
            Ok(Some(Bytes::from(vec![b'x'; 1 << 20])))
        })
    }
}
