//! The environments behind a gateway: which there are, whether they can be reached, and one more or one less.

use anyhow::Context;
use exec_client::{Options, RemoteEnvironment};
use exec_transport::token::{Exposure, read_secret_file};
use exec_wire::environment::{AddParams, EnvironmentEntry, ListParams, RemoveParams};
use exec_wire::{Extension, Method};

use crate::args::{AddArgs, ConnectArgs, GatewayArgs, ListArgs, RemoveArgs, StatusArgs};
use crate::target::{self, RemoteTarget};
use crate::{exit_code, messages, table};

pub(super) async fn list(url: &str, args: &ListArgs) -> anyhow::Result<u8> {
    let entries = entries(url, &args.connection).await?;
    print(&entries, args.json)?;
    Ok(0)
}

pub(super) async fn status(args: &StatusArgs) -> anyhow::Result<u8> {
    let mut entries = entries(&args.gateway.connect, &args.gateway.connection).await?;
    if let Some(unknown) = args.ids.iter().find(|id| !entries.iter().any(|entry| entry.environment_id == **id)) {
        anyhow::bail!("there is no environment `{unknown}` behind {}", args.gateway.connect);
    }
    entries.retain(|entry| args.ids.is_empty() || args.ids.contains(&entry.environment_id));
    print(&entries, args.json)?;
    let is_away = entries.iter().any(|entry| entry.status == "disconnected");
    Ok(if is_away { exit_code::FAILED } else { 0 })
}

pub(super) async fn add(args: &AddArgs) -> anyhow::Result<u8> {
    let token = args.its_token_file.as_deref().map(|path| read_secret_file(path, Exposure::Refused)).transpose()?;
    let token = token.map(|file| String::from_utf8(file.content)).transpose().context("a token is text")?;
    let gateway = connect(&args.gateway).await?;
    let params = AddParams {
        environment_id: args.id.clone(),
        exec_server_url: args.url.clone(),
        connect_timeout_ms: None,
        auth_bearer_token: token,
    };
    let added = gateway.link().call(params).await;
    target::end_session(gateway).await;
    added?;
    Ok(0)
}

pub(super) async fn remove(args: &RemoveArgs) -> anyhow::Result<u8> {
    let gateway = connect(&args.gateway).await?;
    let removed = gateway.link().call(RemoveParams { environment_id: args.id.clone() }).await;
    target::end_session(gateway).await;
    anyhow::ensure!(removed?.removed, "there is no environment `{}` behind {}", args.id, args.gateway.connect);
    Ok(0)
}

async fn connect(args: &GatewayArgs) -> anyhow::Result<RemoteEnvironment> {
    open(&args.connect, &args.connection).await
}

async fn open(url: &str, connection: &ConnectArgs) -> anyhow::Result<RemoteEnvironment> {
    let gateway = RemoteTarget::from_url(url, connection)?.connect(Options::default()).await?;
    if !gateway.link().has(Extension::from(Method::EnvironmentList)) {
        target::end_session(gateway).await;
        anyhow::bail!("the server at {url} has one environment only, and does not know of others");
    }
    Ok(gateway)
}

async fn entries(url: &str, connection: &ConnectArgs) -> anyhow::Result<Vec<EnvironmentEntry>> {
    let gateway = open(url, connection).await?;
    let listed = gateway.link().call(ListParams {}).await;
    target::end_session(gateway).await;
    Ok(listed?.environments)
}

fn print(entries: &[EnvironmentEntry], json: bool) -> anyhow::Result<()> {
    if json {
        return entries.iter().try_for_each(messages::print_json);
    }
    let cells = |entry: &EnvironmentEntry| {
        let default = if entry.is_default { "*" } else { "" };
        let status = match entry.unreachable_ms {
            Some(ms) => format!("{} for {} s", entry.status, ms / 1000),
            None => entry.status.clone(),
        };
        let words = [&entry.environment_id, default, &status, &entry.place];
        // It comes from a server, which may write what it likes.
        words.map(|word| table::one_line(&[word.to_owned()]))
    };
    table::print(["ID", "DEFAULT", "STATUS", "WHERE"], entries.iter().map(cells).collect())?;
    for entry in entries {
        if let Some(error) = &entry.error {
            let line = format!("{}: {error}", entry.environment_id);
            messages::print_note(table::one_line(&[line]));
        }
    }
    Ok(())
}
