//! Which process an argument names: one with a note of `run --detach`, or else one of any session that we may see at a
//! server, such as an agent's. What is seen there is seen as an observer, and disturbs nobody.

use std::time::SystemTime;

use anyhow::{Context, bail};
use exec_client::{ConnectFailure, Environments, Options, RemoteEnvironment, Role};
use exec_env::Environment;
use exec_env::process::ProcessInfo;
use exec_wire::Method;
use exec_wire::session::{ListParams, SessionInfo};
use futures_util::StreamExt;

use crate::args::TargetArgs;
use crate::detached_store::{DetachedProcess, DetachedStore};
use crate::target::{self, RemoteTarget, Target};

/// Sessions that are looked into at once: enough to hide the latency, few enough not to burden a server.
const AT_ONCE: usize = 8;

/// A session, and what runs in it.
pub(crate) struct SeenSession {
    pub(crate) info: SessionInfo,
    /// `None` if it was gone before we could look.
    pub(crate) processes: Option<Vec<ProcessInfo>>,
}

/// The process that `id` names, and where it is.
pub(crate) async fn find(
    store: &DetachedStore,
    named: &TargetArgs,
    id: &str,
) -> anyhow::Result<(DetachedProcess, RemoteTarget)> {
    let has_target = named.environment.is_some() || named.connect.is_some();
    let no_note = match store.find(id) {
        Ok(process) if !has_target => {
            let remote = RemoteTarget::from_address(&process.at, &named.connection)?;
            return Ok((process, remote));
        }
        Ok(process) => return Ok((process, named_remote(named)?.context("no server of your account runs here")?)),
        Err(error) => error,
    };
    let Some(remote) = named_remote(named)? else { return Err(no_note) };
    let sessions = sessions(&remote).await?;
    let process = only_match(&remote, &sessions, id).map_err(|why| match has_target {
        true => why,
        false => no_note.context(why),
    })?;
    Ok((process, remote))
}

/// The environment that the arguments name, or the default; `None` if that is this machine, and no server of the account has
/// been here.
fn named_remote(named: &TargetArgs) -> anyhow::Result<Option<RemoteTarget>> {
    match target::choose(named)? {
        Target::Remote(remote) => Ok(Some(*remote)),
        Target::Local => RemoteTarget::of_this_account_if_used(),
    }
}

/// Every server that a user may mean by "all": the one that is named, or those of the notes and of the configuration.
pub(crate) fn all_servers(store: &DetachedStore, named: &TargetArgs) -> anyhow::Result<Vec<RemoteTarget>> {
    if named.environment.is_some() || named.connect.is_some() {
        return Ok(named_remote(named)?.into_iter().collect());
    }
    let mut servers: Vec<RemoteTarget> = RemoteTarget::of_this_account_if_used()?.into_iter().collect();
    let mut add = |found: anyhow::Result<Target>| {
        if let Ok(Target::Remote(remote)) = found
            && remote.survives_disconnect()
            && servers.iter().all(|known| known.address != remote.address)
        {
            servers.push(*remote);
        }
    };
    let known = Environments::discover()?;
    for environment in known.all() {
        add(target::by_id(&known, &environment.id, &named.connection));
    }
    for process in store.all()? {
        add(RemoteTarget::from_address(&process.at, &named.connection).map(|remote| Target::Remote(Box::new(remote))));
    }
    Ok(servers)
}

/// The sessions that we may see there, oldest first, each with its processes; not the one of this look itself.
pub(crate) async fn sessions(remote: &RemoteTarget) -> anyhow::Result<Vec<SeenSession>> {
    let environment = remote.connect(Options::default()).await?;
    let own = environment.session_id();
    let listed = match environment.link().has(Method::SessionDrive) {
        true => environment.link().call(ListParams {}).await.map(|listed| listed.sessions),
        false => Ok(Vec::new()),
    };
    target::end_session(environment).await;
    let listed = listed.with_context(|| format!("cannot list the sessions of {}", remote.address))?;
    let others = listed.into_iter().filter(|session| Some(&session.session_id) != own.as_ref());
    let looks = others.map(async |info: SessionInfo| {
        let processes = look_into(remote, &info.session_id).await;
        SeenSession { info, processes }
    });
    Ok(futures_util::stream::iter(looks).buffered(AT_ONCE).collect().await)
}

async fn look_into(remote: &RemoteTarget, session: &str) -> Option<Vec<ProcessInfo>> {
    let environment = observe(remote, session).await.ok()?;
    let listed = environment.processes().list().await.ok();
    environment.close().await;
    listed
}

/// Connects as an observer of that session.
pub(crate) async fn observe(remote: &RemoteTarget, session: &str) -> Result<RemoteEnvironment, ConnectFailure> {
    let (resume_session, role) = (Some(session.to_owned()), Some(Role::Observer));
    remote.try_connect(Options { resume_session, role, ..Options::default() }).await
}

/// `SESSION/ID`, either of which may be shortened, or an id alone.
fn only_match(remote: &RemoteTarget, sessions: &[SeenSession], id: &str) -> anyhow::Result<DetachedProcess> {
    let all = sessions.iter().flat_map(|session| {
        let processes = session.processes.as_deref().unwrap_or_default();
        processes.iter().map(|process| (session.info.session_id.as_str(), process))
    });
    let all: Vec<(&str, &ProcessInfo)> = all.collect();
    let in_session = |(session, process): &&(&str, &ProcessInfo), exact: bool| {
        let fits = |name: &str| if exact { process.id.as_str() == name } else { process.id.as_str().starts_with(name) };
        // An agent's ids may have slashes of their own.
        let named = id.split_once('/').is_some_and(|(prefix, name)| session.starts_with(prefix) && fits(name));
        !id.is_empty() && (named || fits(id))
    };
    let exact: Vec<_> = all.iter().filter(|seen| in_session(seen, true)).collect();
    let found = if exact.is_empty() { all.iter().filter(|seen| in_session(seen, false)).collect() } else { exact };
    match found[..] {
        [(session, process)] => Ok(as_detached(remote, session, process)),
        [] => bail!("no process at {} is called {id:?}: see `exec-server ps --all`", remote.address),
        _ => {
            let names: Vec<String> =
                found.iter().map(|(session, process)| format!("{}/{}", short(session), process.id)).collect();
            bail!("{id:?} may be {}: say which", names.join(" or "))
        }
    }
}

/// The beginning of a session id, which is enough for people.
pub(crate) fn short(session: &str) -> &str {
    session.get(..8).unwrap_or(session)
}

fn as_detached(remote: &RemoteTarget, session: &str, process: &ProcessInfo) -> DetachedProcess {
    let started = process.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    DetachedProcess {
        id: process.id.as_str().to_owned(),
        at: remote.address.clone(),
        session: session.to_owned(),
        argv: process.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        tty: process.tty,
        started_ms: started.as_millis() as u64,
    }
}
