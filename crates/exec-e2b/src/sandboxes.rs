//! The sandboxes there are: made, found, given more time, ended; and found again by the next server.
//!
//! ```text
//!   create ──► open session, make home ──► written down ──► in the table ──► kill, or its time is over ──► ended, forgotten
//!                                              │                 ▲
//!                                              └─ server dies ───┘ the next one opens the session again
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use exec_core::SandboxPolicy;
use tokio::sync::Notify;

use crate::error::{Code, ServiceError};
use crate::limits::{END_TIMEOUT, SANDBOXES};
use crate::record::{Record, RecordFolder, millis};
use crate::request_body::MessageBudget;
use crate::sandbox::Sandbox;
use crate::session::{OpenFailure, SessionSource};

/// The id that the SDKs use in debug mode, in which they ask nobody for a sandbox.
pub(crate) const DEBUG_SANDBOX: &str = "debug_sandbox_id";

/// The policy of a sandbox with this home; an error is told to whoever wants the sandbox.
pub type PolicyChoice = Arc<dyn Fn(&Path) -> Result<Option<SandboxPolicy>, String> + Send + Sync>;

/// What sandboxes are made of.
pub struct ServerOptions {
    /// Opens their sessions.
    pub sessions: Arc<dyn SessionSource>,
    /// Where they are written down, on this machine.
    pub state_directory: PathBuf,
    /// Where their homes are made, in their environment. `None`: below the home of its account.
    pub homes: Option<PathBuf>,
    /// What confines them.
    pub policy: PolicyChoice,
    /// The names of templates that are accepted; all mean the same.
    pub templates: Vec<String>,
    /// Whether calls that name no sandbox, or that of debug mode, get one.
    pub debug_sandbox: bool,
    /// What clients of the control API must send.
    pub api_key: String,
}

/// Serves sandboxes to E2B's SDKs.
pub struct E2bServer {
    pub(crate) options: ServerOptions,
    records: RecordFolder,
    table: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// One makes the sandbox of debug mode, or answers to an idempotency key, at a time.
    making: tokio::sync::Mutex<()>,
    /// The next end of a sandbox may have changed.
    ends_changed: Notify,
    pub(crate) budget: MessageBudget,
}

/// Why the sandboxes of an earlier server cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum OpenStateError {
    /// The folder cannot be used.
    #[error("cannot use the folder {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Another server has it.
    #[error("another exec-server e2b has the sandboxes in {}: end it, or use another --state-dir", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The environment does not answer.
    #[error("cannot open the session of sandbox {id}: {why}")]
    Unreachable {
        /// The sandbox.
        id: String,
        /// What happened, for a person.
        why: String,
    },
}

/// What is wanted of a new sandbox.
pub(crate) struct NewSandbox {
    pub(crate) template: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) offline: bool,
    pub(crate) timeout: Duration,
}

impl E2bServer {
    /// Takes over the sandboxes of an earlier server.
    pub async fn open(options: ServerOptions) -> Result<Arc<Self>, OpenStateError> {
        let folder = options.state_directory.join("sandboxes");
        let failed = |source| OpenStateError::Folder { path: folder.clone(), source };
        let records = RecordFolder::open(&folder).map_err(failed)?;
        let records = records.ok_or_else(|| OpenStateError::InUse { path: folder.clone() })?;
        let found = records.read_all().map_err(failed)?;
        let server = Arc::new(Self {
            options,
            records,
            table: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            ends_changed: Notify::new(),
            budget: MessageBudget::default(),
        });
        for record in found {
            let id = record.id.clone();
            if let Err(error) = server.take_over(record).await {
                return Err(OpenStateError::Unreachable { id, why: error.message });
            }
        }
        Ok(server)
    }

    /// Ends sandboxes whose time is over, until `stop` is ready.
    pub async fn end_expired(&self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let changed = self.ends_changed.notified();
            let now = millis(SystemTime::now());
            let (expired, next) = expired(self.lock().values().map(|sandbox| (sandbox.id(), sandbox.end_ms())), now);
            // Together, because one whose end hangs must not keep the others.
            let ends = expired.iter().map(|id| {
                tracing::info!(id, "the time of a sandbox is over");
                self.kill(id)
            });
            futures_util::future::join_all(ends).await;
            let wait = async {
                match next {
                    Some(next) => tokio::time::sleep(Duration::from_millis(next.saturating_sub(now))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = wait => {}
                () = &mut stop => return,
            }
        }
    }

    pub(crate) async fn create(&self, new: NewSandbox) -> Result<Arc<Sandbox>, ServiceError> {
        let _one = match new.idempotency_key {
            Some(_) => Some(self.making.lock().await),
            None => None,
        };
        if let Some(key) = &new.idempotency_key {
            let same = |sandbox: &&Arc<Sandbox>| sandbox.record().idempotency_key.as_ref() == Some(key);
            if let Some(sandbox) = self.lock().values().find(same) {
                return Ok(Arc::clone(sandbox));
            }
        }
        let now = SystemTime::now();
        self.make(
            |home| Record {
                id: home.id,
                template: new.template,
                metadata: new.metadata,
                variables: new.variables,
                access_token: Some(random_text()),
                idempotency_key: new.idempotency_key,
                offline: new.offline,
                session: home.session,
                home: home.path,
                started_ms: millis(now),
                end_ms: Some(millis(now + new.timeout)),
            },
            random_id(),
        )
        .await
    }

    /// The sandbox of debug mode; it is made when it is first used.
    pub(crate) async fn debug_sandbox(&self) -> Result<Arc<Sandbox>, ServiceError> {
        if !self.options.debug_sandbox {
            return Err(ServiceError::new(
                Code::Unauthenticated,
                "this server has no sandbox for debug mode: make one with the API, or listen on a loopback address",
            ));
        }
        let _one = self.making.lock().await;
        if let Some(sandbox) = self.find(DEBUG_SANDBOX) {
            return Ok(sandbox);
        }
        let record = |home: NewHome| Record {
            id: home.id,
            template: "base".to_owned(),
            metadata: BTreeMap::new(),
            variables: BTreeMap::new(),
            access_token: None,
            idempotency_key: None,
            offline: false,
            session: home.session,
            home: home.path,
            started_ms: millis(SystemTime::now()),
            end_ms: None,
        };
        self.make(record, DEBUG_SANDBOX.to_owned()).await
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.lock().get(id).cloned()
    }

    /// In the order of their start.
    pub(crate) fn list(&self) -> Vec<Arc<Sandbox>> {
        let mut all: Vec<_> = self.lock().values().cloned().collect();
        all.sort_by_key(|sandbox| (sandbox.record().started_ms, sandbox.id()));
        all
    }

    /// From now on; `lengthen` leaves a later end as it is.
    pub(crate) fn set_timeout(&self, sandbox: &Sandbox, timeout: Duration, lengthen: bool) -> Result<(), ServiceError> {
        let end = millis(SystemTime::now() + timeout);
        let record = sandbox.update(|record| {
            // The sandbox of debug mode has no end, and gets none.
            record.end_ms = record.end_ms.map(|before| if lengthen { before.max(end) } else { end });
        });
        self.write_down(&record)?;
        self.ends_changed.notify_one();
        Ok(())
    }

    /// Whether there was one.
    pub(crate) async fn kill(&self, id: &str) -> bool {
        let Some(sandbox) = self.lock().remove(id) else { return false };
        // Should we die meanwhile, the next server ends the rest of it.
        if let Err(error) = self.write_down(&sandbox.update(|record| record.end_ms = Some(0))) {
            tracing::warn!(%error, id, "a sandbox that is ended cannot be marked");
        }
        if tokio::time::timeout(END_TIMEOUT, sandbox.end()).await.is_err() {
            tracing::warn!(id, "the end of a sandbox takes long; its server ends the rest of it");
        }
        self.records.remove(id);
        true
    }

    /// Writes down the session of a sandbox that has got another.
    pub(crate) fn keep_session(&self, sandbox: &Sandbox) -> Result<(), ServiceError> {
        if sandbox.has_another_session() {
            self.write_down(&sandbox.update(|_| {}))?;
        }
        Ok(())
    }

    async fn make(&self, record: impl FnOnce(NewHome) -> Record, id: String) -> Result<Arc<Sandbox>, ServiceError> {
        if self.lock().len() >= SANDBOXES {
            let message = format!("there are {SANDBOXES} sandboxes already: kill some");
            return Err(ServiceError::new(Code::ResourceExhausted, message));
        }
        let session = self.options.sessions.open(None).await.map_err(unavailable)?;
        let info = session.environment().info();
        let homes = self.options.homes.clone().unwrap_or_else(|| {
            let account = info.home.clone().unwrap_or_else(|| info.temp_dir.clone());
            account.join(".local/state/exec-server/e2b/homes")
        });
        let path = homes.join(&id);
        let policy = (self.options.policy)(&path).map_err(ServiceError::invalid)?;
        let record = record(NewHome { id, session: session.id(), path });
        let opened = Sandbox::open(record.clone(), Arc::clone(&session), policy, &self.options.state_directory).await;
        let written = opened.and_then(|sandbox| self.write_down(&record).map(|()| sandbox));
        match written {
            Ok(sandbox) => Ok(self.insert(sandbox)),
            Err(error) => {
                session.end().await;
                Err(error)
            }
        }
    }

    /// A sandbox whose session is gone (the machine was restarted) keeps its files.
    async fn take_over(&self, record: Record) -> Result<(), ServiceError> {
        let (id, known) = (record.id.clone(), record.session.clone());
        let session = match self.options.sessions.open(record.session.clone()).await {
            Err(OpenFailure::UnknownSession) => {
                tracing::warn!(id, "the processes of a sandbox are gone; its files are there");
                self.options.sessions.open(None).await
            }
            opened => opened,
        };
        let session = session.map_err(unavailable)?;
        let policy = (self.options.policy)(&record.home).map_err(ServiceError::invalid)?;
        let sandbox = Sandbox::open(record, session, policy, &self.options.state_directory).await?;
        let record = sandbox.update(|_| {});
        if record.session != known {
            self.write_down(&record)?;
        }
        self.insert(sandbox);
        Ok(())
    }

    fn insert(&self, sandbox: Sandbox) -> Arc<Sandbox> {
        let sandbox = Arc::new(sandbox);
        self.lock().insert(sandbox.id(), Arc::clone(&sandbox));
        self.ends_changed.notify_one();
        sandbox
    }

    fn write_down(&self, record: &Record) -> Result<(), ServiceError> {
        let failed = |error| ServiceError::new(Code::Internal, format!("cannot write down the sandbox: {error}"));
        self.records.write(record).map_err(failed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sandbox>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a new record gets beside what its maker says.
struct NewHome {
    id: String,
    session: Option<String>,
    path: PathBuf,
}

/// Which of these have ended by now, and when the next will.
fn expired(ends: impl Iterator<Item = (String, Option<u64>)>, now: u64) -> (Vec<String>, Option<u64>) {
    let (mut over, mut next) = (Vec::new(), None);
    for (id, end) in ends {
        match end {
            Some(end) if end <= now => over.push(id),
            Some(end) => next = Some(next.map_or(end, |next: u64| next.min(end))),
            None => {}
        }
    }
    (over, next)
}

fn unavailable(failure: OpenFailure) -> ServiceError {
    ServiceError::new(Code::Unavailable, format!("cannot open a session for the sandbox: {failure}"))
}

/// As E2B's ids look: 20 lower-case letters and digits.
fn random_id() -> String {
    let text = random_text();
    format!("i{}", &text[..19])
}

/// 128 random bits in hexadecimal.
fn random_text() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_whose_time_is_over_are_ended_and_the_next_end_is_known() {
        let ends = [("a", Some(5)), ("b", Some(20)), ("c", None), ("d", Some(10)), ("e", Some(30))];
        let ends = ends.map(|(id, end)| (id.to_owned(), end));
        assert_eq!(expired(ends.into_iter(), 10), (vec!["a".to_owned(), "d".to_owned()], Some(20)));
        assert_eq!(expired([("c".to_owned(), None)].into_iter(), 10), (Vec::new(), None));
    }
}
