//! Starts and exits, for the audit.

use exec_core::Command;
use exec_env::process::{ProcessError, ProcessReason, ReadQuery, Started, Waited};
use exec_wire::error::kind;
use exec_wire::method::Method;
use exec_wire::process as wire;

use super::{AuditEvent, AuditSink, Outcome};
use crate::dispatch::RequestContext;
use crate::session::{SessionProcess, denial};

/// A start that is under way.
pub(crate) struct StartAudit {
    sink: AuditSink,
    session: String,
    process: String,
    environment: Option<String>,
    argv: Vec<String>,
    cwd: String,
    user: Option<String>,
}

impl StartAudit {
    /// `None` without an audit, and for a start that is repeated.
    pub(crate) fn begin(context: &RequestContext, process: &str, command: &Command) -> Option<Self> {
        let sink = context.connection.server.audit().filter(|_| !context.is_repeated)?;
        Some(Self {
            sink: sink.clone(),
            session: context.session.id.clone(),
            process: process.to_owned(),
            environment: context.audited_environment(),
            argv: command.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            cwd: command.cwd.to_string_lossy().into_owned(),
            user: command.run_as.as_ref().map(|run_as| run_as.user.clone()),
        })
    }

    pub(crate) async fn finish(self, started: &Result<Started, ProcessError>) {
        let (pid, sandbox, outcome) = match started {
            Ok(Started { pid, sandbox, .. }) => {
                let means = sandbox.iter().flat_map(|report| &report.means).map(|means| means.name());
                (Some(*pid), means.collect(), Outcome::Done)
            }
            // Told as a denial.
            Err(ProcessError {
                reason: ProcessReason::Forbidden { .. } | ProcessReason::SandboxUnavailable { .. },
                ..
            }) => return,
            Err(error) => {
                let error = error.reason.name().unwrap_or("unreachable").to_owned();
                (None, Vec::new(), Outcome::Failed { error })
            }
        };
        let Self { sink, session, process, environment, argv, cwd, user } = self;
        let event =
            AuditEvent::ProcessStarted { session, process, environment, argv, cwd, user, pid, sandbox, outcome };
        sink.record(event).await;
    }
}

/// Tells how a process ended, and whether its sandbox seems to be the reason. If nobody answers for it any more, it may go
/// on in its keeper, and the next server will tell.
pub(crate) async fn record_exit(
    sink: &AuditSink,
    session: String,
    environment: Option<String>,
    process: &SessionProcess,
    waited: Result<Waited, ProcessError>,
) {
    let exit = match waited {
        Ok(Waited::Exited(exit) | Waited::Closed(exit)) => Some(exit),
        Err(ProcessError { reason: ProcessReason::Ended { exit }, .. }) => Some(exit),
        Err(ProcessError { reason: ProcessReason::UnknownProcess, .. }) => None,
        Ok(_) | Err(_) => return,
    };
    let (code, cause) = match exit {
        None => (None, "forgotten".to_owned()),
        Some(exit) => {
            // In the words that clients are told.
            let told = serde_json::to_value(wire::Exit::from(exit)).unwrap_or_default();
            (Some(exit.shell_code()), told["kind"].as_str().unwrap_or_default().to_owned())
        }
    };
    sink.record(AuditEvent::ProcessExited {
        session: session.clone(),
        process: process.wire_id.clone(),
        environment: environment.clone(),
        code,
        cause,
    })
    .await;
    if !process.is_sandboxed() {
        return;
    }
    let processes = process.environment.processes();
    let head = processes.read(&process.id, ReadQuery { max_bytes: Some(0), ..ReadQuery::default() }).await;
    let Some((exit_seq, exit)) = head.ok().and_then(|page| page.head.exit) else { return };
    if let Some(evidence) = denial::find(processes, process, exit_seq, exit).await {
        let evidence = serde_json::to_value(evidence).unwrap_or_default();
        let denied = AuditEvent::Denied {
            session: Some(session),
            peer: String::new(),
            method: Method::ProcessStart.name(),
            environment,
            process: Some(process.wire_id.clone()),
            paths: Vec::new(),
            rule: kind::SANDBOX.to_owned(),
            why: format!("its sandbox seems to have stopped it: {}", evidence.as_str().unwrap_or_default()),
        };
        sink.record(denied).await;
    }
}
