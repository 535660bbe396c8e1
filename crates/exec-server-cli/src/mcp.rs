//! `exec-server mcp`: the tools for agents, on stdio or HTTP, over this machine or another.
//!
//! The client is answered at once; the connection to the default environment is made meanwhile, and starts the account's
//! server if need be. The others are connected to when they are used: see [`environments`]. What is found again after the
//! death of this command, and how, is in [`sessions`].

mod environments;
mod session_files;
mod sessions;

use std::process::ExitCode;

use anyhow::Context;
use exec_mcp::{Ask, HttpOptions, HttpServer, McpOptions, McpServer};
use exec_tools::environments::Environments;
use tokio::signal::unix::SignalKind;

use crate::args::{AskMode, McpArgs};
use crate::signal_listener::SignalListener;
use crate::{messages, runtime};
use environments::McpEnvironments;

pub(crate) fn main(args: &McpArgs) -> ExitCode {
    runtime::run_server(run(args))
}

async fn run(args: &McpArgs) -> anyhow::Result<()> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let signals = SignalListener::listen(signals.map(|kind| ((), kind.as_raw_value())));
    let mut signals = signals.context("cannot listen for signals")?;
    let environments = McpEnvironments::choose(args)?;
    let ask = match args.ask {
        AskMode::Never => Ask::Never,
        AskMode::OutsideSandbox => Ask::OutsideSandbox,
        AskMode::Always => Ask::Always,
    };
    let sandbox = environments.confined.sandbox_words();
    anyhow::ensure!(
        ask != Ask::OutsideSandbox || sandbox.is_some(),
        "--ask outside-sandbox goes with --sandbox or --policy: without one, nothing is outside"
    );
    let server = McpServer::new(environments.confined.clone(), McpOptions { ask, sandbox });
    // The first call then finds it connected. A failure is told to whoever needs the environment.
    let warm_up = tokio::spawn({
        let confined = environments.confined.clone();
        async move { drop(confined.find(None).await) }
    });
    let served = match args.http {
        Some(_) => serve_http(args, server, &mut signals).await,
        None => tokio::select! {
            served = exec_mcp::serve_stdio(server) => served.context("cannot serve MCP on stdio"),
            () = signals.next() => Ok(()),
        },
    };
    // Whoever left has no use for it; what it has done so far is found or started again.
    warm_up.abort();
    let _ = warm_up.await;
    environments.leave().await;
    served
}

async fn serve_http(args: &McpArgs, server: McpServer, signals: &mut SignalListener<()>) -> anyhow::Result<()> {
    let address = args.http.expect("the caller has looked");
    let bearer_token = match &args.http_token_file {
        Some(path) => {
            let token = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let token = token.trim().to_owned();
            anyhow::ensure!(!token.is_empty(), "the token file {} is empty", path.display());
            Some(token)
        }
        None => None,
    };
    anyhow::ensure!(
        address.ip().is_loopback() || bearer_token.is_some(),
        "{address} can be reached from elsewhere: protect it with --http-token-file, or use 127.0.0.1"
    );
    let options = HttpOptions { allow_hosts: args.http_allow_host.clone(), bearer_token };
    let http = HttpServer::bind(server, address, options).await;
    let http = http.with_context(|| format!("cannot listen on {address}"))?;
    messages::print_stdout(format!("{}\n", http.url()?).as_bytes()).context("cannot print the URL")?;
    http.run(signals.next()).await;
    Ok(())
}
