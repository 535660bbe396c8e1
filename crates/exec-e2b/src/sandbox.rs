//! One sandbox: a session, a home directory, variables, a policy, and what its calls mean by a path and by a user.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget};
use exec_core::{EnvPolicy, Environ, Inherit, ProcessId, SandboxPolicy};
use exec_env::files::{CreateDirectoryOptions, FileError, FileVerb, Files, LinkPolicy, RemoveOptions};
use exec_env::{Environment, Processes};
use tokio_util::sync::CancellationToken;

use crate::accounts::{Accounts, User};
use crate::envd::watch::Watcher;
use crate::error::ServiceError;
use crate::limits::{ACCOUNTS_AGE, REMEMBERED_PIDS};
use crate::machine::Measured;
use crate::record::Record;
use crate::session::SandboxSession;

pub(crate) struct Sandbox {
    record: Mutex<Record>,
    session: Arc<dyn SandboxSession>,
    /// What its processes may reach; everything that the account may, if `None`.
    policy: Option<SandboxPolicy>,
    files: Arc<dyn Files>,
    /// The account that its processes have unless a call names another.
    own_user: User,
    accounts: Mutex<(Instant, Accounts)>,
    pub(crate) first_measured: Measured,
    pub(crate) last_measured: Mutex<Measured>,
    /// The processes that clients have started, by the pid that they know.
    pids: Mutex<HashMap<u32, ProcessId>>,
    pub(crate) watchers: Mutex<HashMap<String, Arc<Watcher>>>,
    /// Cancelled when it ends, so that whoever follows something in it is told.
    pub(crate) ended: CancellationToken,
}

/// The account of E2B's machines, and its home. Code that was written for them names both.
const E2B_USER: &str = "user";
const E2B_HOME: &str = "/home/user";

/// Whose rights a call has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallUser {
    Own,
    Other(User),
}

/// The files of a sandbox as one of its users has them.
#[derive(Clone)]
pub(crate) struct UserFiles {
    files: Arc<dyn Files>,
    home: PathBuf,
    is_own_user: bool,
}

impl UserFiles {
    /// An absolute path without dots. Relative ones, and `~`, begin at the home; so do those below `/home/user`, if the
    /// machine has no such directory of its own.
    pub(crate) async fn resolve(&self, path: &str) -> Result<PathBuf, ServiceError> {
        let path = resolve(path, &self.home)?;
        let Some(at_home) = below_e2b_home(&path, &self.home).filter(|_| self.is_own_user) else { return Ok(path) };
        match self.files.metadata(Path::new(E2B_HOME), LinkPolicy::Follow).await {
            Err(error) if error.is_not_found() => Ok(at_home),
            _ => Ok(path),
        }
    }
}

impl std::ops::Deref for UserFiles {
    type Target = dyn Files;

    fn deref(&self) -> &Self::Target {
        &*self.files
    }
}

impl Sandbox {
    /// Makes its home, and learns what its machine is.
    pub(crate) async fn open(
        record: Record,
        session: Arc<dyn SandboxSession>,
        policy: Option<SandboxPolicy>,
        private: &Path,
    ) -> Result<Self, ServiceError> {
        let environment = session.environment();
        let all_files = environment.files_for_caller();
        let options = CreateDirectoryOptions { recursive: true, links: LinkPolicy::Follow, mode: Some(0o755) };
        all_files.create_directory(&record.home, options).await?;
        let owner = all_files.metadata(&record.home, LinkPolicy::Follow).await?.uid;
        let accounts = Accounts::read(&*all_files).await;
        let name = accounts.user_name(owner);
        let own_user = accounts.by_name(&name).cloned();
        let own_user = own_user.unwrap_or_else(|| User { name, uid: owner, home: record.home.clone() });
        let policy = confine(policy, &record, private);
        let files = match &policy {
            Some(policy) => all_files.under_policy(Arc::new(policy.clone())),
            None => all_files,
        };
        let measured = Measured::take(environment, &record.home).await;
        Ok(Self {
            record: Mutex::new(record),
            policy,
            files,
            own_user,
            accounts: Mutex::new((Instant::now(), accounts)),
            first_measured: measured,
            last_measured: Mutex::new(measured),
            pids: Mutex::default(),
            watchers: Mutex::default(),
            ended: CancellationToken::new(),
            session,
        })
    }

    pub(crate) fn record(&self) -> Record {
        self.lock_record().clone()
    }

    pub(crate) fn id(&self) -> String {
        self.lock_record().id.clone()
    }

    pub(crate) fn access_token(&self) -> Option<String> {
        self.lock_record().access_token.clone()
    }

    pub(crate) fn end_ms(&self) -> Option<u64> {
        self.lock_record().end_ms
    }

    /// Changes what is known of it, and returns that to be written down.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Record)) -> Record {
        let mut record = self.lock_record();
        change(&mut record);
        record.session = self.session.id();
        record.clone()
    }

    pub(crate) fn environment(&self) -> &dyn Environment {
        self.session.environment()
    }

    pub(crate) fn processes(&self) -> &dyn Processes {
        self.session.environment().processes()
    }

    pub(crate) fn policy(&self) -> Option<SandboxPolicy> {
        self.policy.clone()
    }

    /// The session, if it is another than what was written down: a connection that was lost for long has got a new one.
    pub(crate) fn has_another_session(&self) -> bool {
        self.lock_record().session != self.session.id()
    }

    /// Ends what runs in it, removes its home, and ends its session.
    pub(crate) async fn end(&self) {
        self.ended.cancel();
        let home = self.lock_record().home.clone();
        if let Ok(listed) = self.processes().list().await {
            let ends = listed.iter().map(|info| self.processes().terminate(&info.id, std::time::Duration::ZERO));
            futures_util::future::join_all(ends).await;
        }
        let files = self.session.environment().files_for_caller();
        if let Err(error) = files.remove(&home, RemoveOptions::default()).await {
            tracing::warn!(%error, "cannot remove the home of a sandbox that has ended");
        }
        self.session.end().await;
    }

    pub(crate) async fn accounts(&self) -> Accounts {
        let cached = {
            let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            (accounts.0.elapsed() < ACCOUNTS_AGE).then(|| accounts.1.clone())
        };
        if let Some(accounts) = cached {
            return accounts;
        }
        let accounts = Accounts::read(&*self.session.environment().files_for_caller()).await;
        *self.accounts.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), accounts.clone());
        accounts
    }

    /// The user that a call names.
    pub(crate) async fn user(&self, name: Option<&str>) -> Result<CallUser, ServiceError> {
        match name {
            None => Ok(CallUser::Own),
            Some(name) if name == self.own_user.name => Ok(CallUser::Own),
            Some(name) => match self.accounts().await.by_name(name) {
                Some(user) => Ok(CallUser::Other(user.clone())),
                None if name == E2B_USER => Ok(CallUser::Own),
                None => Err(ServiceError::invalid(format!(
                    "there is no user {name:?} on this machine: leave user out, or name one that it has"
                ))),
            },
        }
    }

    /// The files with the rights of the user that a call names.
    pub(crate) async fn files_of(&self, name: Option<&str>) -> Result<UserFiles, ServiceError> {
        let user = self.user(name).await?;
        let files = match &user {
            CallUser::Own => Arc::clone(&self.files),
            CallUser::Other(user) => {
                let files = self.files.as_user(&user.name).await;
                files.map_err(|reason| FileError::new(FileVerb::Open, &user.home, reason))?
            }
        };
        Ok(UserFiles { files, home: self.home_of(&user), is_own_user: user == CallUser::Own })
    }

    /// Where paths of that user begin.
    pub(crate) fn home_of(&self, user: &CallUser) -> PathBuf {
        match user {
            CallUser::Own => self.lock_record().home.clone(),
            CallUser::Other(user) => user.home.clone(),
        }
    }

    /// What a command of that user means by a path.
    pub(crate) async fn resolve(&self, path: &str, user: &CallUser) -> Result<PathBuf, ServiceError> {
        let (files, home) = (Arc::clone(&self.files), self.home_of(user));
        UserFiles { files, home, is_own_user: *user == CallUser::Own }.resolve(path).await
    }

    /// The variables of a process: those of the account, of the sandbox, and of the call. Of the machine's own it gets `PATH`.
    pub(crate) fn environ(&self, user: &CallUser, given: HashMap<String, String>) -> Environ {
        let policy =
            EnvPolicy { inherit: Inherit::Core, include_only: vec!["PATH".to_owned()], ..EnvPolicy::everything() };
        let record = self.lock_record();
        let mut vars: HashMap<String, String> = HashMap::from([
            ("E2B_SANDBOX".to_owned(), "true".to_owned()),
            ("E2B_SANDBOX_ID".to_owned(), record.id.clone()),
            ("E2B_TEMPLATE_ID".to_owned(), record.template.clone()),
        ]);
        if *user == CallUser::Own {
            let name = &self.own_user.name;
            vars.extend([("USER".to_owned(), name.clone()), ("LOGNAME".to_owned(), name.clone())]);
        }
        vars.extend(record.variables.clone());
        vars.extend(given);
        let mut environ = Environ { policy: Some(policy), ..Environ::exactly(vars) };
        if *user == CallUser::Own {
            environ.vars.entry("HOME".into()).or_insert_with(|| record.home.clone().into());
        }
        environ
    }

    pub(crate) fn pid(&self, pid: u32) -> Option<ProcessId> {
        self.lock_pids().get(&pid).cloned()
    }

    /// A pid that was used before means the later process.
    pub(crate) fn remember_pid(&self, pid: u32, id: &ProcessId) {
        let mut pids = self.lock_pids();
        if pids.len() >= REMEMBERED_PIDS {
            pids.clear();
        }
        pids.insert(pid, id.clone());
    }

    pub(crate) fn forget_process(&self, id: &ProcessId) {
        self.lock_pids().retain(|_, known| known != id);
    }

    fn lock_pids(&self) -> MutexGuard<'_, HashMap<u32, ProcessId>> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server's policy for this sandbox: without network if it wants none, and without a look at what belongs to others.
fn confine(policy: Option<SandboxPolicy>, record: &Record, private: &Path) -> Option<SandboxPolicy> {
    let mut policy = match policy {
        Some(policy) => policy,
        None if record.offline => SandboxPolicy { files: FilePolicy::Unrestricted, network: NetworkPolicy::Enabled },
        None => return None,
    };
    if record.offline {
        policy.network = NetworkPolicy::Restricted;
    }
    if let FilePolicy::Restricted { rules, .. } = &mut policy.files {
        // The longest path decides, so the home stays as it is.
        rules.push(FileRule { target: RuleTarget::Path(private.to_owned()), access: FileAccess::Deny });
    }
    Some(policy)
}

/// Where a path below E2B's home is in the sandbox's; `None` for any other path.
fn below_e2b_home(path: &Path, home: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(E2B_HOME).ok()?;
    // Joining nothing would add a slash.
    Some(if below.as_os_str().is_empty() { home.to_owned() } else { home.join(below) })
}

fn resolve(path: &str, home: &Path) -> Result<PathBuf, ServiceError> {
    if path.contains('\0') {
        return Err(ServiceError::invalid("the path has a NUL byte, which no file name can have"));
    }
    let joined = match path.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => home.join(path),
    };
    let mut clean = PathBuf::from("/");
    for component in joined.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_and_tildes_begin_at_home() {
        let at = |path: &str| resolve(path, Path::new("/home/u")).expect("no NUL").display().to_string();
        assert_eq!(at("a/b"), "/home/u/a/b");
        assert_eq!(at(""), "/home/u");
        assert_eq!(at("~"), "/home/u");
        assert_eq!(at("~/a"), "/home/u/a");
        assert_eq!(at("~a"), "/home/u/~a");
        assert_eq!(at("/etc//x/./../y/"), "/etc/y");
        assert_eq!(at("../../../.."), "/");
        assert!(resolve("a\0b", Path::new("/")).is_err());
    }

    #[test]
    fn only_what_is_at_or_below_the_home_of_e2b_is_at_home() {
        let at = |path: &str| below_e2b_home(Path::new(path), Path::new("/h")).map(|path| path.display().to_string());
        assert_eq!(at("/home/user"), Some("/h".to_owned()));
        assert_eq!(at("/home/user/a/b"), Some("/h/a/b".to_owned()));
        for other in ["/home", "/home/user2", "/home/users/a", "/x/home/user", "/"] {
            assert_eq!(at(other), None, "{other}");
        }
    }
}
