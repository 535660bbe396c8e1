//! `exec-server env`: lists the environments, and checks that they answer; and says which a gateway has.

mod gateway;

use std::time::{Duration, Instant};

use anyhow::Context;
use exec_client::environments::{self, Endpoint, EnvironmentKind};
use exec_client::{Environments, Options};
use exec_env::{Environment, MachineInfo};
use exec_local::LocalEnvironment;
use exec_wire::environment::InfoParams;
use futures_util::StreamExt;
use serde::Serialize;

use crate::args::{CheckArgs, ConnectArgs, EnvCommand, ListArgs};
use crate::target::{self, RemoteTarget, Target};
use crate::{exit_code, messages, table};

/// Concurrent checks.
const AT_ONCE: usize = 8;

pub(crate) async fn run(command: &EnvCommand) -> anyhow::Result<u8> {
    match command {
        EnvCommand::List(args) => match &args.connect {
            Some(url) => gateway::list(url, args).await,
            None => list(args),
        },
        EnvCommand::Check(args) => check(args).await,
        EnvCommand::Status(args) => gateway::status(args).await,
        EnvCommand::Add(args) => gateway::add(args).await,
        EnvCommand::Remove(args) => gateway::remove(args).await,
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EnvironmentRow<'a> {
    id: &'a str,
    default: bool,
    kind: &'static str,
    #[serde(rename = "where")]
    location: String,
    from: String,
}

fn list(args: &ListArgs) -> anyhow::Result<u8> {
    let known = Environments::discover()?;
    let from = known.source().to_string();
    let row = |environment| environment_row(environment, known.default_id(), from.clone());
    let rows: Vec<EnvironmentRow<'_>> = known.all().iter().map(row).collect();
    if args.json {
        rows.iter().try_for_each(messages::print_json)?;
    } else if rows.is_empty() {
        messages::print_note(format_args!("there is no environment, says {from}"));
    } else {
        let cells = |row: &EnvironmentRow<'_>| {
            let default = if row.default { "*" } else { "" };
            [row.id, default, &row.location, &row.from].map(str::to_owned)
        };
        table::print(["ID", "DEFAULT", "WHERE", "FROM"], rows.iter().map(cells).collect())?;
    }
    Ok(0)
}

fn environment_row<'a>(
    environment: &'a environments::ConfiguredEnvironment,
    default: Option<&str>,
    from: String,
) -> EnvironmentRow<'a> {
    let (kind, location) = match &environment.kind {
        EnvironmentKind::Local => ("local", "this machine".to_owned()),
        EnvironmentKind::Remote(remote) => match &remote.endpoint {
            Endpoint::Url { .. } => ("url", target::describe_endpoint(&remote.endpoint)),
            Endpoint::Program(_) => ("program", target::describe_endpoint(&remote.endpoint)),
        },
    };
    EnvironmentRow { id: &environment.id, default: default == Some(environment.id.as_str()), kind, location, from }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckRow {
    id: String,
    #[serde(rename = "where")]
    location: String,
    #[serde(flatten)]
    result: CheckResult,
}

#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum CheckResult {
    Ready {
        shell: String,
        os: String,
        version: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        hostname: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Until the session was open.
        connect_ms: f64,
        /// Of one round trip.
        latency_ms: f64,
    },
    Failed {
        message: String,
    },
}

async fn check(args: &CheckArgs) -> anyhow::Result<u8> {
    let targets = checked_targets(args)?;
    if targets.is_empty() {
        messages::print_note("there is no environment to check: see `exec-server env list`");
    }
    let checks = targets.into_iter().map(|(id, target)| check_target(id, target));
    let rows: Vec<CheckRow> = futures_util::stream::iter(checks).buffered(AT_ONCE).collect().await;
    match args.json {
        true => rows.iter().try_for_each(messages::print_json)?,
        false => print(&rows)?,
    }
    let all_ready = rows.iter().all(|row| matches!(row.result, CheckResult::Ready { .. }));
    Ok(if all_ready { 0 } else { exit_code::FAILED })
}

/// An argument is a URL if it looks like one, else an id.
fn checked_targets(args: &CheckArgs) -> anyhow::Result<Vec<(String, Target)>> {
    let (urls, ids): (Vec<&String>, Vec<&String>) = args.which.iter().partition(|which| which.contains("://"));
    let connection = ConnectArgs::default();
    let mut targets = Vec::new();
    for url in urls {
        targets.push((url.clone(), Target::Remote(Box::new(RemoteTarget::from_url(url, &connection)?))));
    }
    if !ids.is_empty() || args.which.is_empty() {
        // The file is read only if it is needed: a mistake in it does not prevent the check of a URL.
        let known = Environments::discover()?;
        let all = || known.all().iter().map(|environment| environment.id.clone()).collect();
        let ids: Vec<String> = if ids.is_empty() { all() } else { ids.into_iter().cloned().collect() };
        for id in ids {
            let target = target::by_id(&known, &id, &connection)?;
            targets.push((id, target));
        }
    }
    Ok(targets)
}

async fn check_target(id: String, target: Target) -> CheckRow {
    let (location, result) = match target {
        Target::Local => ("this machine".to_owned(), check_local().await),
        Target::Remote(remote) => (remote.describe(), check_remote(&remote).await),
    };
    let result = result.unwrap_or_else(|error| CheckResult::Failed { message: messages::error_chain(&error) });
    CheckRow { id, location, result }
}

async fn check_local() -> anyhow::Result<CheckResult> {
    let started = Instant::now();
    let environment = LocalEnvironment::open(exec_local::LocalOptions::default()).await.context("cannot set it up")?;
    let result = ready(environment.info(), started.elapsed(), Duration::ZERO);
    environment.end().await;
    Ok(result)
}

async fn check_remote(remote: &RemoteTarget) -> anyhow::Result<CheckResult> {
    let started = Instant::now();
    let environment = remote.connect(Options::default()).await?;
    let connected_in = started.elapsed();
    let called = Instant::now();
    let answered = environment.link().call(InfoParams {}).await;
    let latency = called.elapsed();
    let result = ready(environment.info(), connected_in, latency);
    target::end_session(environment).await;
    answered.context("it was connected, and then did not answer")?;
    Ok(result)
}

fn ready(info: &MachineInfo, connected_in: Duration, latency: Duration) -> CheckResult {
    let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
    CheckResult::Ready {
        shell: info.shell.path.display().to_string(),
        os: info.os.clone(),
        version: info.version.clone(),
        hostname: info.hostname.clone(),
        cwd: info.cwd.as_ref().map(|cwd| cwd.display().to_string()),
        connect_ms: ms(connected_in),
        latency_ms: ms(latency),
    }
}

fn print(rows: &[CheckRow]) -> anyhow::Result<()> {
    let cells: Vec<[String; 7]> = rows
        .iter()
        .filter_map(|row| match &row.result {
            CheckResult::Ready { shell, os, version, latency_ms, .. } => {
                let latency = format!("{latency_ms} ms");
                Some([&row.id, "ready", &latency, os, shell, version, &row.location].map(str::to_owned))
            }
            CheckResult::Failed { .. } => None,
        })
        .collect();
    if !cells.is_empty() {
        table::print(["ID", "STATUS", "LATENCY", "OS", "SHELL", "VERSION", "WHERE"], cells)?;
    }
    for row in rows {
        if let CheckResult::Failed { message } = &row.result {
            messages::print_note(message);
        }
    }
    Ok(())
}
