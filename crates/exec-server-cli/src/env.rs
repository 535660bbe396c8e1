//! `exec-server env`: which environments there are, and whether they answer.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use exec_client::Options;
use exec_client::environments::{ConfiguredEnvironment as Listed, EnvironmentKind, Endpoint};
use exec_env::{Environment, MachineInfo};
use exec_local::LocalEnvironment;
use exec_wire::environment::InfoParams;
use futures_util::StreamExt;
use serde::Serialize;

use crate::args::{CheckArgs, EnvVerb, ListArgs};
use crate::place::{self, Known, Place, There};
use crate::{errand, exit_code, say, table};

/// Checks at one time.
const AT_ONCE: usize = 8;

/// Lists or checks.
pub(crate) fn main(verb: &EnvVerb) -> ExitCode {
    match verb {
        EnvVerb::List(args) => errand::run(async { list(args) }, exit_code::FAILED),
        EnvVerb::Check(args) => errand::run(check(args), exit_code::FAILED),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListLine<'a> {
    id: &'a str,
    default: bool,
    kind: &'static str,
    #[serde(rename = "where")]
    way: String,
    from: String,
}

fn list(args: &ListArgs) -> anyhow::Result<u8> {
    let known = Known::discover()?;
    let from = known.source.to_string();
    let line = |place| line(place, known.environments.default_id(), from.clone());
    let lines: Vec<ListLine<'_>> = known.environments.all().iter().map(line).collect();
    if args.json {
        lines.iter().try_for_each(errand::json_line)?;
    } else if lines.is_empty() {
        say::note(format_args!("there is no environment, says {from}"));
    } else {
        let row = |line: &ListLine<'_>| {
            let default = if line.default { "*" } else { "" };
            [line.id, default, &line.way, &line.from].map(str::to_owned)
        };
        table::print(["ID", "DEFAULT", "WHERE", "FROM"], lines.iter().map(row).collect())?;
    }
    Ok(0)
}

fn line<'a>(place: &'a Listed, default: Option<&str>, from: String) -> ListLine<'a> {
    let (kind, way) = match &place.kind {
        EnvironmentKind::Local => ("local", "this machine".to_owned()),
        EnvironmentKind::Remote(remote) => match &remote.endpoint {
            Endpoint::Url { .. } => ("url", place::way(&remote.endpoint)),
            Endpoint::Program(_) => ("program", place::way(&remote.endpoint)),
        },
    };
    ListLine { id: &place.id, default: default == Some(place.id.as_str()), kind, way, from }
}

/// What came of a check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckLine {
    id: String,
    #[serde(rename = "where")]
    way: String,
    #[serde(flatten)]
    answer: Answer,
}

#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Answer {
    Ready {
        shell: String,
        os: String,
        version: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        hostname: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Until the session was there.
        connect_ms: f64,
        /// There and back.
        latency_ms: f64,
    },
    Failed {
        message: String,
    },
}

async fn check(args: &CheckArgs) -> anyhow::Result<u8> {
    let places = chosen(args)?;
    if places.is_empty() {
        say::note("there is no environment to check: see `exec-server env list`");
    }
    let checks = places.into_iter().map(|(id, place)| answer(id, place));
    let lines: Vec<CheckLine> = futures_util::stream::iter(checks).buffered(AT_ONCE).collect().await;
    match args.json {
        true => lines.iter().try_for_each(errand::json_line)?,
        false => print(&lines)?,
    }
    let all_ready = lines.iter().all(|line| matches!(line.answer, Answer::Ready { .. }));
    Ok(if all_ready { 0 } else { exit_code::FAILED })
}

/// What a word means: a URL if it looks like one, else an id.
fn chosen(args: &CheckArgs) -> anyhow::Result<Vec<(String, Place)>> {
    let (urls, ids): (Vec<&String>, Vec<&String>) = args.which.iter().partition(|word| word.contains("://"));
    let mut places: Vec<(String, Place)> =
        urls.into_iter().map(|url| (url.clone(), Place::There(Box::new(There::at_url(url))))).collect();
    if !ids.is_empty() || args.which.is_empty() {
        // Read only if it is asked for: a mistake in the file is no reason not to check a URL.
        let known = Known::discover()?;
        let all = || known.environments.all().iter().map(|place| place.id.clone()).collect();
        let ids: Vec<String> = if ids.is_empty() { all() } else { ids.into_iter().cloned().collect() };
        for id in ids {
            let place = known.place(&id)?;
            places.push((id, place));
        }
    }
    Ok(places)
}

async fn answer(id: String, place: Place) -> CheckLine {
    match place {
        Place::Here => {
            let answer = here().await.unwrap_or_else(|error| Answer::Failed { message: say::chain(&error) });
            CheckLine { id, way: "this machine".to_owned(), answer }
        }
        Place::There(there) => {
            let answer = far(&there).await.unwrap_or_else(|error| Answer::Failed { message: say::chain(&error) });
            CheckLine { id, way: there.way(), answer }
        }
    }
}

async fn here() -> anyhow::Result<Answer> {
    let begun = Instant::now();
    let environment = LocalEnvironment::open(exec_local::LocalOptions::default()).await.context("cannot set it up")?;
    let answer = ready(environment.info(), begun.elapsed(), Duration::ZERO);
    environment.end().await;
    Ok(answer)
}

async fn far(there: &There) -> anyhow::Result<Answer> {
    let begun = Instant::now();
    let connected = there.connect(Options::default()).await;
    let environment = connected.map_err(|failure| anyhow::Error::msg(there.failure(&failure)))?;
    let connected_in = begun.elapsed();
    let asked = Instant::now();
    let answered = environment.link().call(InfoParams {}).await;
    let latency = asked.elapsed();
    let answer = ready(environment.info(), connected_in, latency);
    // Nothing of ours stays there.
    if let Err(error) = environment.end().await {
        tracing::debug!(%error, "the session ends by itself");
    }
    answered.context("it was connected, and then did not answer")?;
    Ok(answer)
}

fn ready(info: &MachineInfo, connected_in: Duration, latency: Duration) -> Answer {
    let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
    Answer::Ready {
        shell: info.shell.path.display().to_string(),
        os: info.os.clone(),
        version: info.version.clone(),
        hostname: info.hostname.clone(),
        cwd: info.cwd.as_ref().map(|cwd| cwd.display().to_string()),
        connect_ms: ms(connected_in),
        latency_ms: ms(latency),
    }
}

fn print(lines: &[CheckLine]) -> anyhow::Result<()> {
    let rows: Vec<[String; 7]> = lines
        .iter()
        .filter_map(|line| match &line.answer {
            Answer::Ready { shell, os, version, latency_ms, .. } => {
                let latency = format!("{latency_ms} ms");
                Some([&line.id, "ready", &latency, os, shell, version, &line.way].map(str::to_owned))
            }
            Answer::Failed { .. } => None,
        })
        .collect();
    if !rows.is_empty() {
        table::print(["ID", "STATUS", "LATENCY", "OS", "SHELL", "VERSION", "WHERE"], rows)?;
    }
    for line in lines {
        if let Answer::Failed { message } = &line.answer {
            say::note(message);
        }
    }
    Ok(())
}
