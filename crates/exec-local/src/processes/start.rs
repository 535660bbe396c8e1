//! How a process is started: the id is reserved, the sandbox planned, the account found, and then the keeper asked.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use exec_core::flow::Quota;
use exec_core::sandbox::{Confinement, FileCeiling};
use exec_core::{Command, Io, ProcessId, RunAs, SandboxPolicy};
use exec_env::process::{ProcessReason, SpawnFailure, SpawnStep, Started};
use exec_keeper::passed_sockets;
use exec_keeper::protocol::{KeeperEvent, KeeperRequest, LaunchRequest, ProcessRecord};
use exec_sandbox::PolicyBounds;
use rustix::io::Errno;

use super::process::Process;
use super::table::{ProcessTable, Reservation};
use super::{PROCESS_DESCRIPTORS, ProcessSettings};
use crate::accounts::{self, Account};
use crate::descriptors::{DescriptorPermit, DescriptorUse};
use crate::keeper_client::{Descriptors, HandedProcess, keeper_gone, unanswered};
use crate::proxy::ProxySockets;
use crate::sandbox::PlannedSandbox;

impl ProcessTable {
    pub(super) async fn start(self: &Arc<Self>, id: &ProcessId, command: Command) -> Result<Started, ProcessReason> {
        command.check()?;
        let reservation = Reservation::new(self, id)?;
        // What goes through its proxy is counted for itself.
        let permit =
            self.descriptors.take(DescriptorUse::Processes, PROCESS_DESCRIPTORS + ProxySockets::needed(&command));
        let permit = permit.map_err(|_| too_many_open_files(&command.argv))?;
        let sandbox = match (&command.sandbox, command.ceilings.first()) {
            (Some(policy), _) => {
                Some(self.plan_sandbox(policy.clone(), command.ceilings.clone(), command.cwd.clone()).await?)
            }
            (None, Some(ceiling)) => {
                let why = "a process needs a sandbox here: ask for one that stays within the roots".to_owned();
                return Err(ProcessReason::Forbidden { rule: ceiling.rule.clone(), why });
            }
            (None, None) => None,
        };
        let account = match command.run_as.clone() {
            Some(run_as) => Some(find_account(run_as).await?),
            None => None,
        };
        if let Some(planned) = &sandbox
            && account.as_ref().is_some_and(|account| account.changes_user())
            && let Some(why) = why_not_as_another_user(&planned.confinement)
        {
            return Err(ProcessReason::UserUnavailable { why: why.to_owned() });
        }
        let sockets = ProxySockets::new(&command).map_err(|error| no_proxy_socket(&command.argv, &error))?;
        let mut launch = Box::new(launch_request(id, command, &self.settings, &sockets, account));
        let mut sandbox = sandbox;
        if let Some(planned) = &mut sandbox {
            sockets.put_in(&mut planned.confinement);
            launch.record.sandbox = Some(planned.report.clone());
            launch.record.placeholders = planned.placeholders.paths().iter().map(OsString::from).collect();
            launch.confinement = Some(planned.confinement.clone());
        }
        // The start goes on if the caller gives up, because the keeper may have started the child already, and somebody
        // must take it over.
        let table = self.clone();
        self.has_had_sandboxes.fetch_or(sandbox.is_some(), Ordering::Relaxed);
        let started =
            tokio::spawn(async move { table.start_with_keeper(reservation, permit, launch, sandbox, sockets).await });
        started.await.unwrap_or_else(|_| Err(keeper_gone().into()))
    }

    /// On a thread that may wait, because a policy's files may be slow to answer.
    async fn plan_sandbox(
        &self,
        policy: SandboxPolicy,
        ceilings: Vec<FileCeiling>,
        cwd: PathBuf,
    ) -> Result<PlannedSandbox, ProcessReason> {
        let planner = self.planner.clone();
        let planned = tokio::task::spawn_blocking(move || {
            planner.plan(&policy, PolicyBounds { ceilings: &ceilings, cwd: Some(&cwd) })
        })
        .await;
        planned.unwrap_or_else(|_| Err(keeper_gone().into()))
    }

    async fn start_with_keeper(
        self: Arc<Self>,
        reservation: Reservation,
        permit: DescriptorPermit,
        launch: Box<LaunchRequest>,
        mut sandbox: Option<PlannedSandbox>,
        sockets: ProxySockets,
    ) -> Result<Started, ProcessReason> {
        let mut record = launch.record.clone();
        let mut with = sandbox.as_mut().map_or_else(Vec::new, |planned| std::mem::take(&mut planned.descriptors));
        let socket_count = sockets.count();
        with.extend(sockets.into_descriptors());
        let asked = self.keeper.request_with(KeeperRequest::Start { launch }, &with, |id| reservation.asked(id));
        let (event, descriptors) = asked.await?;
        drop(with);
        let handed = match event {
            KeeperEvent::Started { number, roles, .. }
                if roles.len() > descriptors.len()
                    || roles.iter().filter(|role| role.is_of_proxy()).count() < socket_count =>
            {
                // It runs, but we could not take its descriptors. It ends, and nothing else does.
                let _ = self.keeper.send(&KeeperRequest::Forget { number }).await;
                return Err(too_many_open_files(&record.argv));
            }
            KeeperEvent::Started { number, pid, roles, limits } => {
                record.limits = limits;
                HandedProcess { number, pid, exit: None, descriptors: Descriptors::new(roles, descriptors) }
            }
            KeeperEvent::StartFailed { .. } if reservation.cancelled() => return Err(ProcessReason::StartCancelled),
            KeeperEvent::StartFailed { step: SpawnStep::Sandbox, errno, subject } => {
                let why = format!("{}: {}", subject.display(), std::io::Error::from_raw_os_error(errno));
                return Err(ProcessReason::SandboxUnavailable { why });
            }
            KeeperEvent::StartFailed { step: SpawnStep::Limits, subject, .. } => {
                return Err(ProcessReason::LimitUnavailable { why: subject.to_string_lossy().into_owned() });
            }
            KeeperEvent::StartFailed { step: SpawnStep::User, errno, .. } => {
                let why = format!("the kernel refuses it: {}", std::io::Error::from_raw_os_error(errno));
                return Err(ProcessReason::UserUnavailable { why });
            }
            KeeperEvent::StartFailed { step, errno, subject, .. } => {
                return Err(ProcessReason::SpawnFailed(SpawnFailure { step, errno, subject: subject.into() }));
            }
            other => return Err(unanswered(&other).into()),
        };
        let (number, pid) = (handed.number, handed.pid);
        if reservation.cancelled() {
            let _ = self.keeper.send(&KeeperRequest::Forget { number }).await;
            return Err(ProcessReason::StartCancelled);
        }
        let (report, limits) = (record.sandbox.clone(), record.limits);
        self.insert(&Process::new(&self, record, handed, permit, sandbox.map(|planned| planned.placeholders)));
        reservation.keep();
        Ok(Started { pid, sandbox: report, limits })
    }
}

fn no_proxy_socket(argv: &[OsString], error: &std::io::Error) -> ProcessReason {
    let subject = argv.first().cloned().unwrap_or_default().into();
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    ProcessReason::SpawnFailed(SpawnFailure { step: SpawnStep::Pipe, errno, subject })
}

fn too_many_open_files(argv: &[OsString]) -> ProcessReason {
    let subject = argv.first().cloned().unwrap_or_default().into();
    let (step, errno) = (SpawnStep::Pipe, Errno::MFILE.raw_os_error());
    ProcessReason::SpawnFailed(SpawnFailure { step, errno, subject })
}

/// On a thread that may wait, because it reads files.
async fn find_account(run_as: RunAs) -> Result<Account, ProcessReason> {
    let found = tokio::task::spawn_blocking(move || accounts::find(&run_as.user)).await;
    found.unwrap_or_else(|_| Err(keeper_gone().to_string())).map_err(|why| ProcessReason::UserUnavailable { why })
}

/// Why a process in this sandbox cannot have the rights of another user than ours.
fn why_not_as_another_user(confinement: &Confinement) -> Option<&'static str> {
    if confinement.user_namespace {
        return Some("its sandbox needs a user namespace here, in which there are no other users");
    }
    // The supervisor would change files with our rights and not with those of the user.
    let supervised = confinement.supervision.is_some();
    supervised.then_some("its sandbox needs a supervisor here, which changes files as the user of the server")
}

/// Our own, without those by which a service manager speaks to us alone.
fn inherited_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !passed_sockets::VARIABLES.iter().any(|ours| name == ours))
}

/// What the keeper is asked to run: the command with its environment resolved and its quota known.
fn launch_request(
    id: &ProcessId,
    command: Command,
    settings: &ProcessSettings,
    sockets: &ProxySockets,
    account: Option<Account>,
) -> LaunchRequest {
    let mut variables = command.environ.resolve(inherited_variables());
    if let Some(account) = &account {
        // Those that were inherited tell of our own user.
        let set = command.environ.policy.as_ref().map(|policy| &policy.set);
        let is_set = |name: &OsString| {
            command.environ.vars.contains_key(name) || set.is_some_and(|variables| variables.contains_key(name))
        };
        variables.extend(account.variables().into_iter().filter(|(name, _)| !is_set(name)));
    }
    // Whatever the request says of these: the process must find its proxy.
    variables.extend(sockets.variables().into_iter().map(|(name, value)| (name.into(), value.into())));
    if matches!(command.io, Io::Pty(_)) {
        // The only addition to what was requested, as in Codex's server: programs on a terminal (editors, pagers,
        // `script`) start the shell that this variable names.
        variables.entry("SHELL".into()).or_insert_with(|| settings.shell.clone());
    }
    let path = variables.get(OsStr::new("PATH")).cloned();
    let environ = variables.into_iter().map(|(name, value)| variable(name, &value)).collect();
    LaunchRequest {
        record: ProcessRecord {
            id: id.clone(),
            argv: command.argv,
            cwd: command.cwd,
            io: command.io,
            quota: Quota { cap_bytes: command.spool_bytes.unwrap_or(settings.spool_bytes), overflow: command.overflow },
            started: SystemTime::now().max(SystemTime::UNIX_EPOCH),
            sandbox: None,
            limits: None,
            placeholders: Vec::new(),
            network_proxy: command.network_proxy,
            label: command.label,
        },
        arg0: command.arg0,
        environ,
        path,
        time_limit: command.time_limit,
        limits: command.limits,
        identity: account.and_then(Account::into_identity),
        confinement: None,
        proxy_sockets: sockets.given(),
    }
}

fn variable(mut name: OsString, value: &OsStr) -> OsString {
    name.push("=");
    name.push(value);
    name
}
